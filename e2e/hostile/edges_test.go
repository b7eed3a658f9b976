package hostile

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// dottedAddress matches an IPv4 address.
var dottedAddress = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+`)

// TestErrorsOfMessagesHideTheNetwork: a project that registers a URL does not learn from the errors of its calls what
// the network behind the server looks like. The operator sees the addresses.
func TestErrorsOfMessagesHideTheNetwork(t *testing.T) {
	f := newFixture(t)
	operator := tenant{url: f.url, admin: adminKey}
	for name, of := range map[string]tenant{"project": f.attacker, "operator": operator} {
		of.send(t, http.MethodPut, "/v1/deployments/dead", map[string]string{"url": "http://localhost:1"}).want(t, http.StatusOK)
		of.send(t, http.MethodPost, "/v1/runs", map[string]any{"workflow": "w", "deployment": "dead"}).
			want(t, http.StatusCreated)
		var shown string
		harness.Eventually(t, "a call has failed", func() bool {
			r := of.send(t, http.MethodGet, "/v1/messages", nil).want(t, http.StatusOK)
			for _, m := range decode[struct{ Data []struct{ LastError string } }](t, r).Data {
				shown = m.LastError
			}
			return strings.Contains(shown, "connection refused")
		})
		if got := dottedAddress.MatchString(shown); got != (name == "operator") {
			t.Errorf("the %s sees %s", name, shown)
		}
	}
}
