package archive

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
)

// describe translates an error of the S3 client into one that says what to do, or that is [ErrUnreachable]. It never
// contains credentials.
func describe(ctx context.Context, client *minio.Core, what string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	value, roleErr := client.GetCreds()
	if roleErr != nil {
		return fmt.Errorf("%s: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "+
			"or give the machine a role (%w)", what, roleErr)
	}
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		return fmt.Errorf("%s: %w: %w", what, ErrUnreachable, err)
	}
	said := fmt.Sprintf("%d %s", answer.StatusCode, answer.Code)
	message := strings.Join(strings.Fields(answer.Message), " ")
	repeatsSecret := slices.ContainsFunc([]string{value.AccessKeyID, value.SecretAccessKey, value.SessionToken},
		func(secret string) bool { return secret != "" && strings.Contains(message, secret) })
	if len(message) <= messageLength && !repeatsSecret {
		said += ": " + message
	}
	if s := answer.StatusCode; s >= http.StatusInternalServerError || s == http.StatusTooManyRequests ||
		s == http.StatusRequestTimeout {
		return fmt.Errorf("%s: %w: the server answered %s", what, ErrUnreachable, said)
	}
	if advice := adviceOn(answer); advice != "" {
		said = advice + " (" + said + ")"
	}
	return fmt.Errorf("%s: %s", what, said)
}

// adviceOn returns what to do about an error, or an empty string if unknown.
func adviceOn(answer minio.ErrorResponse) string {
	switch answer.Code {
	case minio.NoSuchBucket:
		return "the bucket does not exist: create it, or correct its name or AWS_ENDPOINT_URL"
	case minio.NoSuchKey:
		return "the file is not in the bucket"
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidClientTokenId", "InvalidToken", "ExpiredToken",
		"ExpiredTokenException", "InvalidSecurity", "XAdminUserNotFound": // the last is Versity's
		return "the credentials are wrong or expired: correct AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY " +
			"and AWS_SESSION_TOKEN"
	case minio.AccessDenied, "AllAccessDisabled", "AccountProblem":
		return "the credentials do not allow it: grant s3:PutObject, s3:GetObject, s3:AbortMultipartUpload and, for " +
			"payloads, s3:DeleteObject below the prefix, or correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
	case minio.InvalidRegion, "AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect",
		"IllegalLocationConstraintException":
		return regionAdvice(answer.Region)
	case minio.PreconditionFailed, "ConditionalRequestConflict":
		return "another worker wrote the file meanwhile, or a response was lost: the next pass retries"
	case "RequestTimeTooSkewed":
		return "set the clock of this machine"
	}
	if answer.StatusCode/100 == 3 { // a redirect without a body
		return regionAdvice(answer.Region)
	}
	return ""
}

func regionAdvice(region string) string {
	if region == "" {
		return "the bucket is in another region: set AWS_REGION to it"
	}
	return fmt.Sprintf("the bucket is in another region: set AWS_REGION to %q", region)
}
