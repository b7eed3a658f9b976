// Package signature verifies that a request was sent by a Stepwell server on behalf of your project: a function call,
// or a message to a Workflow SDK app. Requests are signed with HMAC-SHA-256 according to RFC 9421.
//
// The package uses only the standard library. docs/function-contract.md describes how to verify without it.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	// MaxAge is how long a signature is valid after its creation.
	MaxAge = 5 * time.Minute
	// MaxSkew is the tolerated difference between the clocks of the server and the function.
	MaxSkew = time.Minute
)

// Errors that Verify returns.
var (
	// ErrUnsigned means that the call has no signature.
	ErrUnsigned = errors.New("the call is not signed")
	// ErrMalformed means that the signature cannot be parsed.
	ErrMalformed = errors.New("the signature is malformed")
	// ErrIncomplete means that the signature does not cover every required component of the call.
	ErrIncomplete = errors.New("the signature does not cover the whole call")
	// ErrWrong means that none of the keys produces this signature for this call. A proxy may have changed the call.
	ErrWrong = errors.New("the signature is wrong: it was made with another key, or a proxy has changed the call")
	// ErrExpired means that the signature is not valid now. The clock may be wrong, or the call is a replay.
	ErrExpired = errors.New("the signature has expired or is not valid yet")
	// ErrDigest means that the body differs from the signed one.
	ErrDigest = errors.New("the body is not the one that was signed")
)

// Key is a project's signing key.
type Key struct{ secret []byte }

// KeyPrefix is the prefix of every encoded key.
const KeyPrefix = "swsk_"

// keySize is the length of a secret in bytes.
const keySize = 32

// ParseKeys parses a comma-separated list of keys as returned by POST /v1/signing-keys: one, or two during a rotation.
// Its errors never contain a key.
func ParseKeys(list string) ([]Key, error) {
	var keys []Key
	for item := range strings.SplitSeq(list, ",") {
		text, ok := strings.CutPrefix(strings.TrimSpace(item), KeyPrefix)
		secret, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || len(secret) != keySize {
			return nil, fmt.Errorf("signing key %d is invalid: want %s and %d bytes in base64", len(keys)+1, KeyPrefix, keySize)
		}
		keys = append(keys, Key{secret})
	}
	return keys, nil
}

// String keeps the key out of formatted output.
func (Key) String() string { return "[key]" }

// GoString keeps the key out of formatted output.
func (Key) GoString() string { return "[key]" }

// Verify checks that the request was signed with one of the keys within MaxAge of now, and that neither the request nor
// its body has changed since. It returns one of this package's errors.
//
// Verify does not prevent replays: a captured call passes again until its signature expires. To process a call only
// once, use its Idempotency-Key, which is signed too.
func Verify(r *http.Request, body []byte, now time.Time, keys ...Key) error {
	inputs, err := dictionary(r.Header, "Signature-Input")
	if err != nil {
		return fmt.Errorf("%w: Signature-Input", ErrMalformed)
	}
	signatures, err := dictionary(r.Header, "Signature")
	if err != nil {
		return fmt.Errorf("%w: Signature", ErrMalformed)
	}
	if len(inputs) == 0 && len(signatures) == 0 {
		return ErrUnsigned
	}
	failure := ErrWrong
	for _, input := range inputs {
		signature := find(signatures, input.key)
		if signature == nil || signature.bytes == nil {
			failure = moreSpecific(failure, fmt.Errorf("%w: no signature %s", ErrMalformed, input.key))
			continue
		}
		err := verify(r, input, signature.bytes, now, keys)
		if err == nil {
			return checkDigest(r, body)
		}
		failure = moreSpecific(failure, err)
	}
	return failure
}

// moreSpecific returns the error that tells the caller more: any other error rather than ErrWrong.
func moreSpecific(a, b error) error {
	if errors.Is(a, ErrWrong) {
		return b
	}
	return a
}

// verify checks one signature.
func verify(r *http.Request, input member, signature []byte, now time.Time, keys []Key) error {
	if alg, ok := input.params["alg"]; ok && alg != "hmac-sha256" {
		return fmt.Errorf("%w: unknown algorithm %v", ErrMalformed, alg)
	}
	if missing := uncovered(r, input.list); missing != "" {
		return fmt.Errorf("%w: %s is missing", ErrIncomplete, missing)
	}
	text, err := base(r, input)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(keys, func(k Key) bool { return hmac.Equal(k.sign(text), signature) }) {
		return ErrWrong
	}
	return checkTime(input, now)
}

func (k Key) sign(text string) []byte {
	mac := hmac.New(sha256.New, k.secret)
	_, _ = mac.Write([]byte(text)) // never fails
	return mac.Sum(nil)
}

// uncovered returns the first required component that the signature does not cover, or "". Required are the method, the
// target, the body's digest, and every header that identifies the call.
func uncovered(r *http.Request, covered []string) string {
	required := []string{"@method", "@path", "@query", "content-digest"}
	for name := range r.Header {
		if name = strings.ToLower(name); name == "content-type" || name == "idempotency-key" ||
			strings.HasPrefix(name, "ce-") || strings.HasPrefix(name, "stepwell-") {
			required = append(required, name)
		}
	}
	for _, name := range required {
		if !slices.Contains(covered, name) {
			return name
		}
	}
	return ""
}

// base returns the signature base, the text that is signed (RFC 9421, section 2.5).
func base(r *http.Request, input member) (string, error) {
	var text strings.Builder
	for i, name := range input.list {
		value, ok := component(r, name)
		if !ok || slices.Contains(input.list[:i], name) {
			return "", fmt.Errorf("%w: it covers %q, which is missing from the call or listed twice", ErrMalformed, name)
		}
		fmt.Fprintf(&text, "%q: %s\n", name, value)
	}
	fmt.Fprintf(&text, "%q: %s", "@signature-params", input.raw)
	return text.String(), nil
}

// component returns the value of a signed component (RFC 9421, section 2).
func component(r *http.Request, name string) (value string, ok bool) {
	switch u := target(r); name {
	case "@method":
		return r.Method, true
	case "@authority":
		return strings.ToLower(r.Host), true
	case "@path":
		if path := u.EscapedPath(); path != "" {
			return path, true
		}
		return "/", true
	case "@query":
		return "?" + u.RawQuery, true
	}
	values := slices.Clone(r.Header.Values(name))
	for i := range values {
		values[i] = strings.TrimSpace(values[i])
	}
	return strings.Join(values, ", "), len(values) > 0
}

// target returns the request target as sent, even if a mux has stripped a prefix from r.URL.
func target(r *http.Request) *url.URL {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return u
	}
	return r.URL
}

// checkTime checks that now lies between the signature's creation and its expiry, allowing for MaxSkew.
func checkTime(input member, now time.Time) error {
	created, ok := input.params["created"].(int64)
	if !ok {
		return fmt.Errorf("%w: created is missing", ErrIncomplete)
	}
	from := time.Unix(created, 0)
	to := from.Add(MaxAge)
	if expires, ok := input.params["expires"].(int64); ok && time.Unix(expires, 0).Before(to) {
		to = time.Unix(expires, 0)
	}
	if now.Before(from.Add(-MaxSkew)) || now.After(to.Add(MaxSkew)) {
		return fmt.Errorf("%w: valid from %s to %s, now it is %s", ErrExpired,
			from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkDigest compares the body with its Content-Digest (RFC 9530), which the signature covers.
func checkDigest(r *http.Request, body []byte) error {
	digests, err := dictionary(r.Header, "Content-Digest")
	if err != nil {
		return fmt.Errorf("%w: Content-Digest", ErrMalformed)
	}
	want := find(digests, "sha-256")
	if want == nil {
		return fmt.Errorf("%w: Content-Digest has no sha-256", ErrMalformed)
	}
	if got := sha256.Sum256(body); !hmac.Equal(got[:], want.bytes) {
		return ErrDigest
	}
	return nil
}
