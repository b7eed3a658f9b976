package hostile

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

const (
	// attackHooks is the number of hooks whose conditions each signal evaluates.
	attackHooks = 200
	// attackSignals is the number of signals. A server with two processors was busy with six for half a minute.
	attackSignals = 6
	// largeConditions are conditions of 4 kB that differ. Forty filled 768 MiB.
	largeConditions = 40
)

// openHooks starts a run with hooks that wait for the signal, each with the condition of its number. The IDs of the
// hooks are the numbers.
func (n tenant) openHooks(t *testing.T, signal string, count int, condition func(i int) string) (run string) {
	t.Helper()
	hooks := make([]any, count)
	for i := range hooks {
		hooks[i] = map[string]any{
			"type": "openHook", "id": strconv.Itoa(i), "signal": map[string]any{"name": signal, "condition": condition(i)},
		}
	}
	return n.start(t, "hooks", hooks)
}

// largePattern is a condition whose pattern has 530,000 instructions.
func largePattern(i int) string {
	return fmt.Sprintf(`data.s.matches("%d|%s")`, i, strings.Repeat("(?:[ab]?){1000}", 265))
}

// signalWork is the number of signals that have not been dispatched completely.
func (n tenant) signalWork(t *testing.T) int {
	t.Helper()
	r := n.send(t, http.MethodGet, "/v1/messages", nil).Want(t, http.StatusOK)
	return strings.Count(string(r.Body), `"work":"signal"`)
}

// TestConditionsLeaveRoomForOthers sends six signals by a key of role invoke. They evaluate the most expensive
// conditions that hooks may have, and conditions of an earlier version that are not accepted any more.
func TestConditionsLeaveRoomForOthers(t *testing.T) {
	f := newFixture(t)
	n := f.attacker
	n.openHooks(t, "refused", 1, largePattern)
	harness.Eventually(t, "the large pattern is refused", func() bool {
		r := n.send(t, http.MethodGet, "/v1/messages", nil)
		return strings.Contains(string(r.Body), "the patterns are too large")
	})
	run := n.openHooks(t, "attack", attackHooks, func(i int) string {
		return fmt.Sprintf(`data.l.all(a, data.l.all(b, a + b + %d.0 >= 0.0))`, i)
	})
	large := n.openHooks(t, "attack", largeConditions, func(i int) string {
		return strings.Repeat(fmt.Sprintf(`[%d].all(a,a>0)&&`, i+1), 200) + "data.s.matches(\"^(a?){40}b\")"
	})
	old := n.openHooks(t, "attack", largeConditions, func(int) string { return "true" })
	for run, hooks := range map[string]int{run: attackHooks, large: largeConditions, old: largeConditions} {
		harness.Eventually(t, "the hooks are open", func() bool {
			r := n.send(t, http.MethodGet, "/v1/runs/"+run+"/hooks?limit=1000", nil)
			return strings.Count(string(r.Body), `"token"`) == hooks
		})
	}
	f.plantConditions(t, old)
	data := map[string]any{"data": map[string]any{"s": strings.Repeat("a", 400), "l": make([]int, 20_000)}}
	f.wantUnharmed(t, func() func() {
		for range attackSignals {
			send(t, n.invoke, http.MethodPost, f.url+"/v1/signals/attack", data).Want(t, http.StatusAccepted)
		}
		return func() {
			if n.signalWork(t) == 0 {
				t.Error("the signals were dispatched before the end of the measurement")
			}
		}
	})
	f.wantMemory(t, 400)
	start := time.Now()
	f.Stop(t)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the server took %s to stop", took)
	}
}

// plantConditions replaces the conditions of the run's hooks by large patterns, as an earlier version accepted them.
func (f *fixture) plantConditions(t *testing.T, run string) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), f.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(t.Context()) }()
	for i := range largeConditions {
		if _, err := db.Exec(t.Context(), `UPDATE hooks SET condition = $3 WHERE run_id = $1 AND id = $2`,
			run, strconv.Itoa(i), largePattern(i)); err != nil {
			t.Fatal(err)
		}
	}
}
