// Package signature verifies the signatures of webhook requests in the schemes of well-known senders. All of them are
// HMAC-SHA256 with a shared secret.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities/webhook"
)

// Tolerance is the maximum difference between a signature's timestamp, if its scheme has one, and the current time. It
// limits replay attacks.
const Tolerance = 5 * time.Minute

var (
	// ErrWrong is returned for missing, wrong and outdated signatures. Its text does not reveal secrets.
	ErrWrong = errors.New("the request does not have the signature that this webhook requires")
	// ErrUnusable is returned when none of the secrets is valid for the scheme.
	ErrUnusable = errors.New("no secret is valid for the signature scheme")
)

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrWrong, fmt.Sprintf(format, args...))
}

// Scheme is the signature scheme of one kind of sender.
type Scheme struct {
	// claim parses the headers. The result is unverified.
	claim func(http.Header) (claim, error)
	// key returns the HMAC key of a secret; ok is false if the secret is invalid.
	key func(secret string) (key []byte, ok bool)
	// decode decodes a signature.
	decode func(string) ([]byte, error)
	// Delivery returns the sender's ID of the delivery, which retries share; empty for none. It can be trusted only if the
	// request is verified.
	Delivery func(http.Header, Fields) string
}

// Fields returns a string field of a JSON body; empty if there is none.
type Fields func(name string) string

// claim is the content of a request's signature headers.
type claim struct {
	// prefix is the signed text before the body.
	prefix string
	// signatures are alternatives, of which one must match.
	signatures []string
	// at is the time of the signature; nil if the scheme has none.
	at *time.Time
}

// schemes has every scheme that a hook may require.
var schemes = map[webhook.Scheme]Scheme{
	webhook.GitHub: {
		claim: bodyClaim("X-Hub-Signature-256"), key: rawKey, decode: hex.DecodeString,
		Delivery: func(h http.Header, _ Fields) string { return h.Get("X-GitHub-Delivery") },
	},
	webhook.Generic: {
		claim: bodyClaim("X-Signature-256"), key: rawKey, decode: hex.DecodeString,
		Delivery: func(h http.Header, _ Fields) string { return h.Get("Idempotency-Key") },
	},
	webhook.Stripe: {
		claim: stripeClaim, key: rawKey, decode: hex.DecodeString,
		Delivery: func(_ http.Header, f Fields) string { return f("id") },
	},
	webhook.Slack: {
		claim: slackClaim, key: rawKey, decode: hex.DecodeString,
		Delivery: func(_ http.Header, f Fields) string { return f("event_id") },
	},
	webhook.Standard: {
		claim: standardClaim, key: standardKey, decode: base64.StdEncoding.DecodeString,
		Delivery: func(h http.Header, _ Fields) string { return h.Get("Webhook-Id") },
	},
}

// Of returns the scheme with a name.
func Of(name webhook.Scheme) (Scheme, bool) {
	s, ok := schemes[name]
	return s, ok
}

// Verify fails with [ErrWrong] unless the body is signed with one of the secrets within [Tolerance] of now, and with
// [ErrUnusable] if no secret is usable. It compares signatures in constant time.
func (s Scheme) Verify(secrets []string, h http.Header, body []byte, now time.Time) error {
	c, err := s.claim(h)
	if err != nil {
		return err
	}
	usable, matches := 0, false
	for _, secret := range secrets {
		key, ok := s.key(secret)
		if !ok {
			continue
		}
		usable++
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(c.prefix))
		mac.Write(body)
		want := mac.Sum(nil)
		for _, offered := range c.signatures {
			got, err := s.decode(offered)
			if err == nil && hmac.Equal(got, want) {
				matches = true
			}
		}
	}
	switch {
	case usable == 0:
		return ErrUnusable
	case !matches:
		return wrong("the signature does not match the body")
	case c.at != nil && now.Sub(*c.at).Abs() > Tolerance:
		return wrong("its timestamp is more than %s from the current time", Tolerance)
	default:
		return nil
	}
}

// maxSignatures limits the signatures that one request can make the server compare.
const maxSignatures = 10

// singleHeader returns a header that must be present exactly once.
func singleHeader(h http.Header, name string) (string, error) {
	if values := h.Values(name); len(values) == 1 && values[0] != "" {
		return values[0], nil
	}
	return "", wrong("want exactly one header %s", name)
}

// rawKey uses a secret as the key.
func rawKey(secret string) ([]byte, bool) { return []byte(secret), secret != "" }

// bodyClaim parses the header of schemes that sign the body alone: "sha256=" and hexadecimal digits.
func bodyClaim(header string) func(http.Header) (claim, error) {
	return func(h http.Header) (claim, error) {
		value, err := singleHeader(h, header)
		if err != nil {
			return claim{}, err
		}
		digits, ok := strings.CutPrefix(value, "sha256=")
		if !ok {
			return claim{}, wrong("%s does not start with sha256=", header)
		}
		return claim{signatures: []string{digits}}, nil
	}
}

// stripeClaim parses "t=1492774577,v1=…,v1=…,v0=…".
func stripeClaim(h http.Header) (claim, error) {
	value, err := singleHeader(h, "Stripe-Signature")
	if err != nil {
		return claim{}, err
	}
	var c claim
	var stamp string
	for part := range strings.SplitSeq(value, ",") {
		switch name, v, _ := strings.Cut(strings.TrimSpace(part), "="); name {
		case "t":
			stamp = v
		case "v1":
			c.signatures = append(c.signatures, v)
		}
	}
	c.prefix = stamp + "."
	return c.signedAt(stamp)
}

// slackClaim parses "v0=…" and the timestamp header.
func slackClaim(h http.Header) (claim, error) {
	value, err := singleHeader(h, "X-Slack-Signature")
	if err != nil {
		return claim{}, err
	}
	stamp, err := singleHeader(h, "X-Slack-Request-Timestamp")
	if err != nil {
		return claim{}, err
	}
	digits, ok := strings.CutPrefix(value, "v0=")
	if !ok {
		return claim{}, wrong("X-Slack-Signature does not start with v0=")
	}
	return claim{prefix: "v0:" + stamp + ":", signatures: []string{digits}}.signedAt(stamp)
}

// standardClaim parses "v1,… v1,…" of the Standard Webhooks, and the headers with the ID and the timestamp.
func standardClaim(h http.Header) (claim, error) {
	id, err := singleHeader(h, "Webhook-Id")
	if err != nil {
		return claim{}, err
	}
	stamp, err := singleHeader(h, "Webhook-Timestamp")
	if err != nil {
		return claim{}, err
	}
	value, err := singleHeader(h, "Webhook-Signature")
	if err != nil {
		return claim{}, err
	}
	c := claim{prefix: id + "." + stamp + "."}
	for part := range strings.FieldsSeq(value) {
		if s, ok := strings.CutPrefix(part, "v1,"); ok {
			c.signatures = append(c.signatures, s)
		}
	}
	return c.signedAt(stamp)
}

// standardKey decodes a base64 secret with an optional whsec_ prefix.
func standardKey(secret string) ([]byte, bool) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	return key, err == nil && len(key) > 0
}

// signedAt adds the timestamp, which is in Unix seconds, and checks the number of signatures.
func (c claim) signedAt(stamp string) (claim, error) {
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return c, wrong("the timestamp is not a number of seconds")
	}
	if n := len(c.signatures); n < 1 || n > maxSignatures {
		return c, wrong("want 1 to %d signatures of the scheme's version", maxSignatures)
	}
	at := time.Unix(seconds, 0)
	c.at = &at
	return c, nil
}
