package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// TestSignedFunctionsRejectUnsignedCalls runs functions with signing keys. They accept calls of their project's
// servers, even through proxies, and no others.
func TestSignedFunctionsRejectUnsignedCalls(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			var secrets []string
			for range 2 {
				r := request(t, http.MethodPost, s.url()+"/v1/signing-keys", nil).Want(t, http.StatusCreated)
				secrets = append(secrets, decode[struct{ Secret string }](t, r).Secret)
			}
			f := newFunction(t, s, e, "STEPWELL_SIGNING_KEYS="+secrets[1]) // one of two is enough
			r := request(t, http.MethodPost, f.URL, []byte(`{"type":"step","attempt":1,"step":{"name":"ship","input":"x"}}`))
			if body := strings.ReplaceAll(string(r.Body), ": ", ":"); r.Status != http.StatusUnauthorized ||
				!strings.Contains(body, `"retryable":true`) || !strings.Contains(body, "not signed") {
				t.Errorf("an unsigned call was answered with %d %s", r.Status, r.Body)
			}
			id := f.order(t, s, teapot("signed"))
			s.decide(t, "signed", true)
			s.wantOutput(t, id, shipped(id))
			s.wantThreads(t, id, f.threads(approvedThreads...)...)
		})
	}
}
