package hostile

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// dottedAddress matches an IPv4 address.
var dottedAddress = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+`)

// TestErrorsOfMessagesHideTheNetwork: a project that registers a URL does not learn from the errors of its calls what
// the network behind the server looks like. The operator sees the addresses.
func TestErrorsOfMessagesHideTheNetwork(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	operator := tenant{url: f.url, admin: adminKey}
	for name, of := range map[string]tenant{"project": f.attacker, "operator": operator} {
		of.send(t, http.MethodPut, "/v1/deployments/dead", map[string]string{"url": "http://localhost:1"}).Want(t, http.StatusOK)
		of.send(t, http.MethodPost, "/v1/runs", map[string]any{"workflow": "w", "deployment": "dead"}).
			Want(t, http.StatusCreated)
		var shown string
		harness.Eventually(t, "a call has failed", func() bool {
			r := of.send(t, http.MethodGet, "/v1/messages", nil).Want(t, http.StatusOK)
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

// TestRequestsWithoutAValidKeyAreLogged: a stranger who tries keys is seen in the log and in the metrics, with the
// address, and cannot fill the log.
func TestRequestsWithoutAValidKeyAreLogged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const guesses = 300
	for range guesses {
		send(t, "sk_guess_0123456789abcdef", http.MethodGet, f.url+"/v1/runs", nil).Want(t, http.StatusUnauthorized)
	}
	log := f.Output()
	if n := strings.Count(log, "request without a valid key"); n != 1 || !strings.Contains(log, `"address":"127.0.0.1"`) {
		t.Errorf("%d lines about %d guesses, want one with the address", n, guesses)
	}
	if strings.Contains(log, "sk_guess") {
		t.Error("the log has the key")
	}
	metrics := send(t, adminKey, http.MethodGet, f.url+"/metrics", nil).Want(t, http.StatusOK)
	if want := fmt.Sprintf("stepwell_unauthorized_requests_total %d\n", guesses); !strings.Contains(string(metrics.Body), want) {
		t.Errorf("the metrics lack %s", want)
	}
}

// TestCancelsAreAudited: in the API's ways to cancel, with the client's address, which the client cannot choose.
func TestCancelsAreAudited(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	one, two := f.attacker.start(t, "hang", 1), f.attacker.start(t, "hang", 1)
	f.attacker.send(t, http.MethodPost, "/v1/runs/"+one+"/cancel", map[string]string{}).Want(t, http.StatusOK)
	f.attacker.send(t, http.MethodPost, "/v1/runs/"+one+"/cancel", map[string]string{}).Want(t, http.StatusOK)
	f.attacker.send(t, http.MethodPost, "/v1/runs/cancel", map[string]string{"workflow": "hang"}).Want(t, http.StatusOK)
	r := f.attacker.send(t, http.MethodGet, "/v1/audit?order=asc", nil).Want(t, http.StatusOK)
	var got []string
	for _, a := range decode[struct {
		Data []struct{ Actor, Address, Action, Subject string }
	}](t, r).Data {
		if a.Action == "run.cancel" {
			got = append(got, a.Subject)
			if !strings.HasPrefix(a.Actor, "key_") || a.Address != "127.0.0.1" {
				t.Errorf("got %+v, want the key and the address", a)
			}
		}
	}
	if want := []string{one, two}; !slices.Equal(got, want) {
		t.Errorf("cancelled runs in the audit: %v, want %v", got, want)
	}
}
