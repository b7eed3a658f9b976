// Package signature verifies that a call comes from a Stepwell server of one's own project: calls of functions, and
// messages for apps of the Workflow SDK. They are signed as RFC 9421 says, with HMAC-SHA-256.
//
// It imports nothing but the standard library. docs/function-contract.md says how to verify by hand.
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
	// MaxAge is how long after it was made a signature is good.
	MaxAge = 5 * time.Minute
	// MaxSkew is how far the clocks of server and function may be apart.
	MaxSkew = time.Minute
)

// Why a call is refused.
var (
	// ErrUnsigned: the call has no signature.
	ErrUnsigned = errors.New("the call is not signed")
	// ErrMalformed: the signature cannot be read.
	ErrMalformed = errors.New("the signature is malformed")
	// ErrIncomplete: the signature does not cover all that says what the call is.
	ErrIncomplete = errors.New("the signature does not cover the whole call")
	// ErrWrong: no key of ours made the signature for this call. Something on the way may have changed the call.
	ErrWrong = errors.New("the signature is wrong")
	// ErrExpired: the signature was good at another time. The clock may be wrong, or the call is an old one.
	ErrExpired = errors.New("the signature is of another time")
	// ErrDigest: the body is not the one that was signed.
	ErrDigest = errors.New("the body is not the one that was signed")
)

// Key is a project's signing key.
type Key struct{ secret []byte }

// KeyPrefix is what the text of every key begins with.
const KeyPrefix = "swsk_"

// keySize is how many bytes a secret has.
const keySize = 32

// ParseKeys reads keys, with commas between them, as POST /v1/signing-keys shows them: one, or two while one is being
// replaced. No error repeats a key.
func ParseKeys(list string) ([]Key, error) {
	var keys []Key
	for item := range strings.SplitSeq(list, ",") {
		text, ok := strings.CutPrefix(strings.TrimSpace(item), KeyPrefix)
		secret, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || len(secret) != keySize {
			return nil, fmt.Errorf("signing key %d is none: want %s and %d bytes in base64", len(keys)+1, KeyPrefix, keySize)
		}
		keys = append(keys, Key{secret})
	}
	return keys, nil
}

// String hides the key.
func (Key) String() string { return "[key]" }

// GoString hides the key.
func (Key) GoString() string { return "[key]" }

// Verify checks that a request with the body was signed with one of the keys, not long before now, and is as it was
// then. It fails with one of this package's errors.
//
// A call that was overheard passes again until its signature has expired. Whoever must not do a thing twice looks at
// the Idempotency-Key, which is signed too.
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
			failure = worse(failure, fmt.Errorf("%w: there is no %s", ErrMalformed, input.key))
			continue
		}
		err := verify(r, input, signature.bytes, now, keys)
		if err == nil {
			return checkDigest(r, body)
		}
		failure = worse(failure, err)
	}
	return failure
}

// worse is the error that says more.
func worse(a, b error) error {
	if errors.Is(a, ErrWrong) {
		return b
	}
	return a
}

// verify checks one signature.
func verify(r *http.Request, input member, signature []byte, now time.Time, keys []Key) error {
	if alg, ok := input.params["alg"]; ok && alg != "hmac-sha256" {
		return fmt.Errorf("%w: the algorithm %v is not known", ErrMalformed, alg)
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

// uncovered is something of the call that the signature must cover and does not: what is called, with what, and every
// header that says which call it is.
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

// base is the text that is signed (RFC 9421, section 2.5).
func base(r *http.Request, input member) (string, error) {
	var text strings.Builder
	for i, name := range input.list {
		value, ok := component(r, name)
		if !ok || slices.Contains(input.list[:i], name) {
			return "", fmt.Errorf("%w: it covers %q, which the call does not have, or not once", ErrMalformed, name)
		}
		fmt.Fprintf(&text, "%q: %s\n", name, value)
	}
	fmt.Fprintf(&text, "%q: %s", "@signature-params", input.raw)
	return text.String(), nil
}

// component is what a signature covers under a name (RFC 9421, section 2).
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

// target is what was asked for, whatever was cut off its path since to find a handler.
func target(r *http.Request) *url.URL {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return u
	}
	return r.URL
}

// checkTime checks that now is between the signature's creation and its end, give or take the skew.
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
		return fmt.Errorf("%w: it is good from %s to %s, and it is %s", ErrExpired,
			from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkDigest checks the body against its digest (RFC 9530), which the signature covers.
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
