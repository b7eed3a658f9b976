// Package awskms wraps data keys in the Key Management Service of AWS, or one with the same API: the master key never
// leaves it. It knows two requests, Encrypt and Decrypt, with the project and the data key as encryption context.
package awskms

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/backoff"
)

const (
	defaultRegion = "us-east-1"
	// requestLimit is how long one request may take. The caller's context limits all of them.
	requestLimit = 1500 * time.Millisecond
	attempts     = 3
	firstPause   = 50 * time.Millisecond
	answerLimit  = 64 << 10
	roleLimit    = 2 * time.Second // for credentials of the machine's role
	maxKeyLength = 2048            // of what identifies a key, as in AWS
)

// Config is the service and the credentials for it. The zero value is AWS in us-east-1 with the role of the machine.
type Config struct {
	// Endpoint is the URL of the service; empty for that of AWS in the region.
	Endpoint string
	// Region is that of keys whose ID does not name one; empty for us-east-1.
	Region string
	// AccessKeyID and SecretAccessKey are the credentials, with SessionToken if they are temporary. Without them the role
	// of the pod, container or instance is used, as by Amazon's own clients.
	AccessKeyID, SecretAccessKey, SessionToken string
}

// masterKey is a key of the service.
type masterKey struct {
	id, region, endpoint string
	credentials          *credentials.Credentials
	client               *http.Client
}

// Key implements [encryption.Service], by ID, ARN or alias. It does not connect.
func (c Config) Key(id string) (encryption.MasterKey, error) {
	if id == "" || len(id) > maxKeyLength || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, entities.Invalid("write aws-kms: and the ID, the ARN or the alias of a key of the service")
	}
	k := masterKey{id: id, region: cmp.Or(c.Region, defaultRegion), client: &http.Client{
		Timeout:       requestLimit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // keys go nowhere else
	}}
	if arn := strings.Split(id, ":"); len(arn) == 6 && arn[0] == "arn" && arn[3] != "" {
		k.region = arn[3]
	}
	var err error
	if k.endpoint, err = c.endpoint(k.region); err == nil {
		k.credentials, err = c.credentials()
	}
	return k, err
}

func (c Config) endpoint(region string) (string, error) {
	text := cmp.Or(c.Endpoint, "https://kms."+region+".amazonaws.com")
	u, err := url.Parse(text)
	// The error does not repeat the text, because it may contain a password.
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
		u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return "", entities.Invalid("invalid endpoint: " +
			"set AWS_ENDPOINT_URL_KMS or AWS_ENDPOINT_URL to scheme, host and port alone, or unset it for AWS")
	}
	return u.Scheme + "://" + u.Host + "/", nil
}

func (c Config) credentials() (*credentials.Credentials, error) {
	switch {
	case c.AccessKeyID != "" && c.SecretAccessKey != "":
		return credentials.NewStaticV4(c.AccessKeyID, c.SecretAccessKey, c.SessionToken), nil
	case c.AccessKeyID != "" || c.SecretAccessKey != "":
		return nil, entities.Invalid("only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set: " +
			"set both, or neither to use the role of the machine")
	default:
		return credentials.New(&credentials.IAM{Client: &http.Client{Timeout: roleLimit}}), nil
	}
}

// message is the part that requests and answers of the service have in common.
type message struct {
	KeyID             string            `json:"KeyId"`
	Plaintext         []byte            `json:",omitempty"`
	CiphertextBlob    []byte            `json:",omitempty"`
	EncryptionContext map[string]string `json:",omitempty"`
}

// Wrap implements [encryption.MasterKey].
func (k masterKey) Wrap(ctx context.Context, key []byte, about encryption.About) ([]byte, error) {
	answer, err := k.ask(ctx, "Encrypt", message{KeyID: k.id, Plaintext: key, EncryptionContext: contextOf(about)})
	return answer.CiphertextBlob, err
}

// Unwrap implements [encryption.MasterKey].
func (k masterKey) Unwrap(ctx context.Context, wrapped []byte, about encryption.About) ([]byte, error) {
	answer, err := k.ask(ctx, "Decrypt", message{
		KeyID: k.id, CiphertextBlob: wrapped, EncryptionContext: contextOf(about),
	})
	return answer.Plaintext, err
}

// contextOf is authenticated with a wrapped key. It is in the service's own log, and its policies can refer to it.
func contextOf(about encryption.About) map[string]string {
	return map[string]string{"stepwell:project": about.Project, "stepwell:key": about.Key}
}

// ask sends a request, again if that may help.
func (k masterKey) ask(ctx context.Context, operation string, request message) (message, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return message{}, fmt.Errorf("encode request: %w", err)
	}
	for failures := 1; ; failures++ {
		answer, err := k.send(ctx, operation, body)
		if err == nil || failures == attempts || !errors.Is(err, errPassing) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return message{}, err
		case <-time.After(backoff.Pause(firstPause, time.Second, 2, failures)):
		}
	}
}

// errPassing is what may be over soon.
var errPassing = errors.New("the key service does not answer")

func (k masterKey) send(ctx context.Context, operation string, body []byte) (answer message, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, k.endpoint, bytes.NewReader(body))
	if err != nil {
		return message{}, fmt.Errorf("make request: %w", err)
	}
	value, err := k.credentials.GetWithContext(nil)
	if err != nil {
		return message{}, fmt.Errorf("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "+
			"or give the machine a role (%w)", err)
	}
	sum := sha256.Sum256(body)
	r.Header.Set("Content-Type", "application/x-amz-json-1.1")
	r.Header.Set("X-Amz-Target", "TrentService."+operation)
	r.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	r = signer.SignV4WithServiceType(*r, value.AccessKeyID, value.SecretAccessKey, value.SessionToken, k.region, "kms")
	resp, err := k.client.Do(r)
	if err != nil {
		return message{}, fmt.Errorf("%w: %w", errPassing, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
	if err != nil {
		return message{}, fmt.Errorf("%w: %w", errPassing, err)
	}
	if resp.StatusCode != http.StatusOK {
		return message{}, refusal(resp.StatusCode, text)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return message{}, fmt.Errorf("%w: its answer is no JSON", errPassing)
	}
	return answer, nil
}
