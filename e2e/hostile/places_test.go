package hostile

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestHungStepsLeaveRoomForOthers hangs 5,000 steps of one project, more than the server has slots for deliveries.
func TestHungStepsLeaveRoomForOthers(t *testing.T) {
	f := newFixture(t)
	f.wantUnharmed(t, func() func() {
		for range 50 {
			f.attacker.start(t, "hang", 100)
		}
		harness.Eventually(t, "1,000 steps hang", func() bool { return f.function.hanging.Load() >= 1000 })
		return func() {}
	})
}

// TestBacklogLeavesRoomForOthers makes 1,000 runs of one project due at once, which have waited for their deployment.
func TestBacklogLeavesRoomForOthers(t *testing.T) {
	const starts = 1000
	f := newFixture(t)
	f.wantUnharmed(t, func() func() {
		f.startLater(t, starts)
		f.deploy(t, f.function.URL)
		return func() {
			if n := f.openRuns(t); n == 0 {
				t.Errorf("the attacker's %d runs have ended: the victim was not measured beside a backlog", starts)
			}
		}
	})
}

// deploy registers the attacker's deployment later.
func (f *fixture) deploy(t *testing.T, url string) {
	t.Helper()
	f.attacker.send(t, http.MethodPut, "/v1/deployments/later", map[string]string{"url": url}).Want(t, http.StatusOK)
}

// startLater starts runs of the attacker whose deployment cannot be reached.
func (f *fixture) startLater(t *testing.T, n int) {
	t.Helper()
	f.deploy(t, "http://127.0.0.1:9")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range n / 8 {
				r := f.attacker.send(t, http.MethodPost, "/v1/runs", map[string]any{"workflow": "three", "deployment": "later"})
				if err := r.Problem(http.StatusCreated, http.StatusOK); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// openRuns counts the attacker's runs that have not ended, up to 1,000.
func (f *fixture) openRuns(t *testing.T) int {
	t.Helper()
	n := 0
	for _, status := range []string{"pending", "running"} {
		r := f.attacker.send(t, http.MethodGet, "/v1/runs?limit=1000&status="+status, nil).Want(t, http.StatusOK)
		n += len(decode[struct{ Data []json.RawMessage }](t, r).Data)
	}
	return n
}
