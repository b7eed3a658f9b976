package hostile

import (
	"net/http"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestAFloodIsStopped stops runs that start runs by the operator's means, in this order: a pause, cancelling all runs,
// retiring the flow. The project's webhooks send their senders away meanwhile.
func TestAFloodIsStopped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	n := f.attacker
	a := f.newAttack(t, abuse{role: "admin"})
	a.putFlow(t, "flow: bomb\nsteps:\n  a: {start: bomb}\n  b: {start: bomb}\n")
	trigger := a.put(t, "/v1/triggers/paid", map[string]any{
		"on": map[string]any{"webhook": map[string]any{}}, "start": map[string]string{"workflow": "one"},
	})
	webhook := f.url + decode[struct{ Path string }](t, trigger).Path
	send(t, "", http.MethodPost, webhook, map[string]any{}).Want(t, http.StatusAccepted)
	a.start(t.Context(), "bomb", "null")
	open := func() int {
		r := n.send(t, http.MethodGet, "/v1/runs/count?workflow=bomb&status=running", nil)
		return decode[struct{ Count int }](t, r).Count
	}
	harness.Eventually(t, "the bomb has gone off", func() bool { return open() >= 50 })

	send(t, adminKey, http.MethodPut, f.url+"/v1/projects/attacker", map[string]any{"paused": true}).Want(t, http.StatusOK)
	harness.Eventually(t, "webhooks send their senders away", func() bool {
		r := send(t, "", http.MethodPost, webhook, map[string]any{})
		return r.Status == http.StatusServiceUnavailable && r.Header.Get("Retry-After") == "30"
	})
	harness.Eventually(t, "all runs have ended", func() bool {
		r := n.send(t, http.MethodPost, "/v1/runs/cancel", map[string]any{"workflow": "bomb"}).Want(t, http.StatusOK)
		return decode[struct{ Matched int }](t, r).Matched == 0
	})
	n.send(t, http.MethodPost, "/v1/flows/bomb/versions/1/retire", nil).Want(t, http.StatusOK)
	if err := f.victim.runOne(t.Context(), client, 1); err != nil {
		t.Errorf("another project: %v", err)
	}

	send(t, adminKey, http.MethodPut, f.url+"/v1/projects/attacker", map[string]any{"paused": false}).Want(t, http.StatusOK)
	harness.Eventually(t, "webhooks start runs again", func() bool {
		return send(t, "", http.MethodPost, webhook, map[string]any{}).Status == http.StatusAccepted
	})
	if left := open(); left != 0 {
		t.Errorf("%d runs go on", left)
	}
}
