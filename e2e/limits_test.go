package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

const (
	slowWorkflow = "workflow//./workflows/e2e//slowStep"
	slowStep     = "step//./workflows/steps//takesTime"
)

// put sends JSON to the server's API.
func (s *server) put(t *testing.T, path string, body any) {
	t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request(t, http.MethodPut, s.url()+path, encoded).Want(t, http.StatusOK)
}

// limitSlowStep limits the step of [slowWorkflow] to so many at once, by a policy.
func (s *server) limitSlowStep(t *testing.T, most int) {
	t.Helper()
	s.put(t, "/v1/limits/slow", map[string]any{"total": most})
	s.put(t, "/v1/policies/"+strings.ReplaceAll(slowWorkflow, "/", "%2F"), map[string]any{
		"steps": map[string]any{slowStep: []map[string]any{{"name": "slow"}}},
	})
}

// mostAtOnce returns how often the app has executed the slow step, and how many executions there were at once at most.
func (a *app) mostAtOnce(t *testing.T) (executed, most int) {
	t.Helper()
	records, err := os.ReadFile(a.effects)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	now := 0
	for line := range strings.Lines(string(records)) {
		switch {
		case strings.Contains(line, `"takesTime:end"`):
			now--
		case strings.Contains(line, `"takesTime"`):
			executed++
			now++
			most = max(most, now)
		}
	}
	return executed, most
}

// TestPoliciesLimitTheStepsOfAnApp has two servers deliver steps of an app of the stable line, which knows nothing of
// limits, and kills one of them meanwhile. The app itself never counts more of them than the policy allows, and no slot
// is left.
func TestPoliciesLimitTheStepsOfAnApp(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const runs, most = 12, 2
	dsn := testdb.New(t)
	s := newReplica(t, dsn)
	victim := newReplica(t, dsn)
	a := s.app(t, stable, "limited")
	s.limitSlowStep(t, most)
	var ids []string
	for range runs {
		ids = append(ids, a.run(t, "slowStep", 200))
	}
	eventually(t, "some steps have been executed", func() bool {
		executed, _ := a.mostAtOnce(t)
		return executed > most
	})
	victim.Kill()
	for _, id := range ids {
		a.want(t, id, 200)
	}
	// Those that the victim was delivering may be executed again.
	if executed, atOnce := a.mostAtOnce(t); executed < runs || executed > runs+most || atOnce != most {
		t.Errorf("the step was executed %d times, %d at once; want %d and %d", executed, atOnce, runs, most)
	}
	eventually(t, "no slot is taken", func() bool {
		answer := request(t, http.MethodGet, s.url()+"/v1/limits/slow", nil).Want(t, http.StatusOK)
		var l struct{ Held, Waiting *int }
		return json.Unmarshal(answer.Body, &l) == nil && *l.Held+*l.Waiting == 0
	})
}

// TestPoliciesForStepsThatNoLimitCouldHold are refused at the start of runs: apps of the 5.x lines execute steps within
// the calls of their runs.
func TestPoliciesForStepsThatNoLimitCouldHold(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := newServer(t)
	a := s.app(t, beta55, "limited")
	s.limitSlowStep(t, 2)
	started := a.post(t, "/start", map[string]any{"workflow": "slowStep", "args": []any{1}})
	if started.Status == http.StatusOK || !strings.Contains(string(started.Body), "limits steps") {
		t.Errorf("start: got %d %s, want a refusal that says why", started.Status, started.Body)
	}
}
