package signature

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities/webhook"
)

// FuzzVerifyWebhook checks that no headers of a stranger, who does not know the secret, pass or break a scheme.
func FuzzVerifyWebhook(f *testing.F) {
	f.Add("sha256=00", "1800000000", "id", []byte("body"))
	f.Add("t=1800000000,v1=00", "v0=00", "v1,AA==", []byte(`{"id": "x"}`))
	secret := "whsec_c2VjcmV0IHRoYXQgbm9ib2R5IGNhbiBndWVzcw=="
	names := []string{
		"X-Hub-Signature-256", "Stripe-Signature", "X-Slack-Signature", "X-Slack-Request-Timestamp", "Webhook-Signature",
		"Webhook-Timestamp", "Webhook-Id", "X-Signature-256",
	}
	f.Fuzz(func(t *testing.T, one, two, three string, body []byte) {
		values := []string{one, two, three}
		for shift := range values {
			h := http.Header{}
			for i, name := range names {
				h.Set(name, values[(i+shift)%len(values)])
			}
			for _, name := range webhook.Schemes() {
				scheme, _ := Of(name)
				err := scheme.Verify([]string{secret}, h, body, time.Unix(1_800_000_000, 0))
				if !errors.Is(err, ErrWrong) {
					t.Errorf("%s: got %v, want ErrWrong", name, err)
				}
				_ = scheme.Delivery(h, func(string) string { return string(body) })
			}
		}
	})
}
