package awskms

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// refusal is the error of an answer. It has the code of the service, and not its text, which may repeat what it got.
func refusal(status int, answer []byte) error {
	var said struct {
		Type string `json:"__type"`
	}
	_ = json.Unmarshal(answer, &said) // what is no JSON has no code
	code := said.Type[strings.LastIndexByte(said.Type, '#')+1:]
	if len(code) > 60 || strings.ContainsFunc(code, func(r rune) bool { return r <= ' ' || r > '~' }) {
		code = ""
	}
	advice := adviceOn(code)
	switch {
	case advice != "":
		return fmt.Errorf("%s (%d %s)", advice, status, code)
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests, code == "ThrottlingException":
		return fmt.Errorf("%w: it says %d %s", errPassing, status, code)
	default:
		return fmt.Errorf("the key service says %d %s", status, code)
	}
}

// adviceOn returns what to do about an error of the service that does not pass by itself, or an empty string.
func adviceOn(code string) string {
	switch code {
	case "AccessDeniedException":
		return "the credentials do not allow it: grant kms:Encrypt and kms:Decrypt on the key to this server"
	case "UnrecognizedClientException", "InvalidSignatureException", "InvalidClientTokenId", "IncompleteSignature",
		"ExpiredTokenException", "SignatureDoesNotMatch", "MissingAuthenticationTokenException":
		return "the credentials are wrong or expired: correct AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
	case "NotFoundException":
		return "there is no such key: correct what STEPWELL_ENCRYPTION_KEYS has after aws-kms:, or AWS_REGION"
	case "DisabledException", "KMSInvalidStateException":
		return "the key is disabled, or about to be deleted: enable it"
	case "InvalidKeyUsageException":
		return "the key is not for this: it must be symmetric, for ENCRYPT_DECRYPT"
	case "InvalidCiphertextException", "IncorrectKeyException":
		return "another key has wrapped it, or for another project: correct what STEPWELL_ENCRYPTION_KEYS has for this name"
	default:
		return ""
	}
}
