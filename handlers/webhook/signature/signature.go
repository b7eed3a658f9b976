// Package signature judges whether a webhook's request was signed by whoever shares a secret with its receiver, by
// the schemes of the well-known senders. All of them are HMAC with SHA-256. It imports package entities.
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

// Tolerance is how far the time in a signature may be from ours, where a scheme has one: what is older may be sent
// again by somebody who only listened.
const Tolerance = 5 * time.Minute

var (
	// ErrWrong is of a request that nobody signed who knows a secret, or too long ago. The error's text says what is
	// wrong, and nothing about secrets.
	ErrWrong = errors.New("the request is not signed as this webhook demands")
	// ErrUnusable is of secrets of which the scheme can use none.
	ErrUnusable = errors.New("there is no secret that the scheme can use")
)

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrWrong, fmt.Sprintf(format, args...))
}

// Scheme is how one kind of sender signs.
type Scheme struct {
	// claim reads from the headers what was signed and the signatures that are offered. It does not trust them.
	claim func(http.Header) (claim, error)
	// key makes the HMAC's key of a secret; not ok when it is none.
	key func(secret string) (key []byte, ok bool)
	// encoding is that of signatures.
	encoding func(string) ([]byte, error)
	// delivery names the sender's own ID of the delivery, which all tries at it have in common; empty when it has none.
	delivery func(http.Header, Fields) string
}

// Fields are those of a body that is a JSON object, as far as they are texts.
type Fields func(name string) string

// claim is what a request says about its signature.
type claim struct {
	// prefix is what was signed before the body.
	prefix string
	// signatures are those offered; one that is right is enough.
	signatures []string
	// at is when it was signed; nil when the scheme does not say.
	at *time.Time
}

// Schemes has all that hooks may demand.
var schemes = map[webhook.Scheme]Scheme{
	webhook.GitHub: {
		claim: plain("X-Hub-Signature-256"), key: asIs, encoding: hex.DecodeString,
		delivery: func(h http.Header, _ Fields) string { return h.Get("X-GitHub-Delivery") },
	},
	webhook.Generic: {
		claim: plain("X-Signature-256"), key: asIs, encoding: hex.DecodeString,
		delivery: func(h http.Header, _ Fields) string { return h.Get("Idempotency-Key") },
	},
	webhook.Stripe: {
		claim: stripeClaim, key: asIs, encoding: hex.DecodeString,
		delivery: func(_ http.Header, f Fields) string { return f("id") },
	},
	webhook.Slack: {
		claim: slackClaim, key: asIs, encoding: hex.DecodeString,
		delivery: func(_ http.Header, f Fields) string { return f("event_id") },
	},
	webhook.Standard: {
		claim: standardClaim, key: standardKey, encoding: base64.StdEncoding.DecodeString,
		delivery: func(h http.Header, _ Fields) string { return h.Get("Webhook-Id") },
	},
}

// Of finds a scheme.
func Of(name webhook.Scheme) (Scheme, bool) {
	s, ok := schemes[name]
	return s, ok
}

// Delivery is the sender's own ID of the delivery, which all its tries have in common; empty when there is none. It
// is to be trusted as far as the request is.
func (s Scheme) Delivery(h http.Header, body Fields) string { return s.delivery(h, body) }

// Verify fails with [ErrWrong] unless one of the secrets signed the body, now or up to [Tolerance] ago, and with
// [ErrUnusable] when it could not tell. How long it takes says nothing about secrets and signatures.
func (s Scheme) Verify(secrets []string, h http.Header, body []byte, now time.Time) error {
	c, err := s.claim(h)
	if err != nil {
		return err
	}
	usable, right := 0, false
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
			got, err := s.encoding(offered)
			if err == nil && hmac.Equal(got, want) {
				right = true
			}
		}
	}
	switch {
	case usable == 0:
		return ErrUnusable
	case !right:
		return wrong("the signature does not match the body")
	case c.at != nil && now.Sub(*c.at).Abs() > Tolerance:
		return wrong("it was signed more than %s ago or ahead", Tolerance)
	default:
		return nil
	}
}

// maxSignatures bounds what one request makes us compare.
const maxSignatures = 10

// only is a header that a scheme cannot do without, and of which there is one.
func only(h http.Header, name string) (string, error) {
	if values := h.Values(name); len(values) == 1 && values[0] != "" {
		return values[0], nil
	}
	return "", wrong("want one header %s", name)
}

func asIs(secret string) ([]byte, bool) { return []byte(secret), secret != "" }

// plain is a scheme that signs the body alone: "sha256=" and hexadecimal digits.
func plain(header string) func(http.Header) (claim, error) {
	return func(h http.Header) (claim, error) {
		value, err := only(h, header)
		if err != nil {
			return claim{}, err
		}
		digits, ok := strings.CutPrefix(value, "sha256=")
		if !ok {
			return claim{}, wrong("%s is not sha256=…", header)
		}
		return claim{signatures: []string{digits}}, nil
	}
}

// stripeClaim reads "t=1492774577,v1=…,v1=…,v0=…".
func stripeClaim(h http.Header) (claim, error) {
	value, err := only(h, "Stripe-Signature")
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

// slackClaim reads "v0=…" and a header with the time.
func slackClaim(h http.Header) (claim, error) {
	value, err := only(h, "X-Slack-Signature")
	if err != nil {
		return claim{}, err
	}
	stamp, err := only(h, "X-Slack-Request-Timestamp")
	if err != nil {
		return claim{}, err
	}
	digits, ok := strings.CutPrefix(value, "v0=")
	if !ok {
		return claim{}, wrong("X-Slack-Signature is not v0=…")
	}
	return claim{prefix: "v0:" + stamp + ":", signatures: []string{digits}}.signedAt(stamp)
}

// standardClaim reads "v1,… v1,…" of the Standard Webhooks, and headers with the ID and the time.
func standardClaim(h http.Header) (claim, error) {
	id, err := only(h, "Webhook-Id")
	if err != nil {
		return claim{}, err
	}
	stamp, err := only(h, "Webhook-Timestamp")
	if err != nil {
		return claim{}, err
	}
	value, err := only(h, "Webhook-Signature")
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

// standardKey is the secret's base64, which may be marked as one.
func standardKey(secret string) ([]byte, bool) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	return key, err == nil && len(key) > 0
}

// signedAt is the claim with its time, in seconds since 1970.
func (c claim) signedAt(stamp string) (claim, error) {
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return c, wrong("the time of the signature is not a number of seconds")
	}
	if n := len(c.signatures); n < 1 || n > maxSignatures {
		return c, wrong("want 1 to %d signatures of the scheme's version", maxSignatures)
	}
	at := time.Unix(seconds, 0)
	c.at = &at
	return c, nil
}
