package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities/webhook"
)

// vector is a signed request.
type vector struct {
	name   string
	scheme webhook.Scheme
	secret string
	header map[string]string
	body   string
	at     int64
}

// vectors come from the senders' own documentation, where it has any.
var vectors = []vector{
	{
		// docs.github.com, "Validating webhook deliveries", section "Testing the webhook payload validation".
		name: "GitHub", scheme: webhook.GitHub, secret: "It's a Secret to Everybody", body: "Hello, World!",
		header: map[string]string{
			"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
		},
	},
	{
		name: "generic, as GitHub", scheme: webhook.Generic, secret: "It's a Secret to Everybody",
		body: "Hello, World!",
		header: map[string]string{
			"X-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
		},
	},
	{
		// docs.slack.dev, "Verifying requests from Slack".
		name: "Slack", scheme: webhook.Slack, secret: "8f742231b10e8888abcd99yyyzzz85a5", at: 1531420618,
		body: "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&" +
			"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=" +
			"https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&" +
			"trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
		header: map[string]string{
			"X-Slack-Signature":         "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
			"X-Slack-Request-Timestamp": "1531420618",
		},
	},
	{
		// The test of the Standard Webhooks' own libraries (github.com/standard-webhooks/standard-webhooks).
		name: "Standard Webhooks", scheme: webhook.Standard, secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		at: 1614265330, body: `{"test": 2432232314}`,
		header: map[string]string{
			"Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp": "1614265330",
			"Webhook-Signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
		},
	},
	{
		// docs.stripe.com, "Resolve webhook signature verification errors", has the header's form, but no secret. This
		// signature is computed with Python's hmac.
		name: "Stripe", scheme: webhook.Stripe, secret: "whsec_test_secret", at: 1492774577,
		body: `{"id":"evt_1","object":"event"}`,
		header: map[string]string{
			"Stripe-Signature": "t=1492774577," +
				"v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39," +
				"v1=654b43d3508ecadb3f8cefc4bc7d3d2bdc5ba9e03bf2c89b2d0657a8e24e4543",
		},
	},
}

func (v vector) headers() http.Header {
	h := http.Header{}
	for name, value := range v.header {
		h.Set(name, value)
	}
	return h
}

func (v vector) verify(t *testing.T, secrets []string, h http.Header, body string, late time.Duration) error {
	t.Helper()
	s, ok := Of(v.scheme)
	if !ok {
		t.Fatalf("unknown scheme %s", v.scheme)
	}
	at := v.at
	if at == 0 {
		at = 1_700_000_000
	}
	return s.Verify(secrets, h, []byte(body), time.Unix(at, 0).Add(late))
}

func TestPublishedSignatures(t *testing.T) {
	t.Parallel()
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			right, other := []string{v.secret}, strings.Replace(v.secret, v.secret[len(v.secret)-4:], "AAAA", 1)
			check := func(what string, want, got error) {
				t.Helper()
				if !errors.Is(got, want) {
					t.Errorf("%s: got %v, want %v", what, got, want)
				}
			}
			check("unchanged", nil, v.verify(t, right, v.headers(), v.body, 0))
			check("a new secret beside the old one", nil, v.verify(t, []string{other, v.secret}, v.headers(), v.body, 0))
			check("the old secret beside the new one", nil, v.verify(t, []string{v.secret, other}, v.headers(), v.body, 0))
			check("another secret", ErrWrong, v.verify(t, []string{other}, v.headers(), v.body, 0))
			check("another body", ErrWrong, v.verify(t, right, v.headers(), v.body+" ", 0))
			check("no secret", ErrUnusable, v.verify(t, nil, v.headers(), v.body, 0))
			check("an empty secret", ErrUnusable, v.verify(t, []string{""}, v.headers(), v.body, 0))
			for name, value := range v.header {
				h := v.headers()
				h.Del(name)
				check("without "+name, ErrWrong, v.verify(t, right, h, v.body, 0))
				h.Set(name, value[:len(value)-2])
				check("cut "+name, ErrWrong, v.verify(t, right, h, v.body, 0))
				h.Set(name, value)
				h.Add(name, value)
				check("two of "+name, ErrWrong, v.verify(t, right, h, v.body, 0))
			}
			if v.at == 0 {
				return
			}
			for _, late := range []time.Duration{Tolerance, -Tolerance} {
				check("just in time", nil, v.verify(t, right, v.headers(), v.body, late))
			}
			for _, late := range []time.Duration{Tolerance + time.Second, -Tolerance - time.Second} {
				check("out of time", ErrWrong, v.verify(t, right, v.headers(), v.body, late))
			}
		})
	}
}

// TestMalformedHeadersAreRejected checks that errors do not reveal secrets.
func TestMalformedHeadersAreRejected(t *testing.T) {
	t.Parallel()
	many := strings.Repeat(",v1="+strings.Repeat("0", 64), maxSignatures+1)
	for i, tt := range []struct {
		scheme webhook.Scheme
		header map[string]string
	}{
		{webhook.GitHub, map[string]string{"X-Hub-Signature-256": ""}},
		{webhook.GitHub, map[string]string{"X-Hub-Signature-256": "sha256="}},
		{webhook.GitHub, map[string]string{"X-Hub-Signature-256": "sha1=757107ea"}},
		{webhook.GitHub, map[string]string{"X-Hub-Signature": "sha256=00"}},
		{webhook.GitHub, map[string]string{"X-Hub-Signature-256": "sha256=zz"}},
		{webhook.Stripe, map[string]string{"Stripe-Signature": "v1=00"}},
		{webhook.Stripe, map[string]string{"Stripe-Signature": "t=1492774577"}},
		{webhook.Stripe, map[string]string{"Stripe-Signature": "t=1492774577,v0=00"}},
		{webhook.Stripe, map[string]string{"Stripe-Signature": "t=99999999999999999999,v1=00"}},
		{webhook.Stripe, map[string]string{"Stripe-Signature": "t=9223372036854775807,v1=00"}},
		{webhook.Stripe, map[string]string{"Stripe-Signature": "t=1492774577" + many}},
		{webhook.Slack, map[string]string{"X-Slack-Signature": "v1=00", "X-Slack-Request-Timestamp": "1"}},
		{webhook.Slack, map[string]string{"X-Slack-Signature": "v0=00", "X-Slack-Request-Timestamp": "-"}},
		{webhook.Standard, map[string]string{
			"Webhook-Id": "a", "Webhook-Timestamp": "1", "Webhook-Signature": "v1a,AAAA",
		}},
	} {
		v := vector{scheme: tt.scheme, header: tt.header, at: 1492774577}
		err := v.verify(t, []string{"c2VjcmV0"}, v.headers(), "{}", 0)
		if !errors.Is(err, ErrWrong) || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("case %d: got %v", i, err)
		}
	}
}

// TestStripeSecretRotation checks requests that Stripe signs with two secrets, of which one suffices.
func TestStripeSecretRotation(t *testing.T) {
	t.Parallel()
	sign := func(secret string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte("1492774577.{}"))
		return hex.EncodeToString(mac.Sum(nil))
	}
	v := vector{scheme: webhook.Stripe, at: 1492774577}
	h := http.Header{"Stripe-Signature": {fmt.Sprintf("t=1492774577,v1=%s,v1=%s", sign("old"), sign("new"))}}
	for _, secret := range []string{"old", "new"} {
		if err := v.verify(t, []string{secret}, h, "{}", 0); err != nil {
			t.Errorf("%s: %v", secret, err)
		}
	}
	if err := v.verify(t, []string{"other"}, h, "{}", 0); !errors.Is(err, ErrWrong) {
		t.Errorf("got %v", err)
	}
}

// TestEverySchemeIsTested checks that every scheme exists, has a test vector, and returns the sender's ID.
func TestEverySchemeIsTested(t *testing.T) {
	t.Parallel()
	header := http.Header{
		"X-Github-Delivery": {"github"}, "Idempotency-Key": {"generic"}, "Webhook-Id": {"standard"},
	}
	fields := func(name string) string { return map[string]string{"id": "stripe", "event_id": "slack"}[name] }
	for _, name := range webhook.Schemes() {
		s, ok := Of(name)
		if !ok || !slices.ContainsFunc(vectors, func(v vector) bool { return v.scheme == name }) {
			t.Errorf("%s: no scheme, or no vector", name)
			continue
		}
		if got := s.Delivery(header, fields); got != string(name) {
			t.Errorf("%s: delivery %q", name, got)
		}
	}
	if len(schemes) != len(webhook.Schemes()) {
		t.Errorf("got %d schemes, hooks may require %d", len(schemes), len(webhook.Schemes()))
	}
}
