package engine

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// TestFirstAttemptOfTheFunctionCounts: the server's first call of the step is attempt 2, and the policy counts all.
func TestFirstAttemptOfTheFunctionCounts(t *testing.T) {
	t.Parallel()
	for attempts, want := range map[int]string{
		1: "step_failed []", 2: "step_failed [2]", 3: "step_failed [2 3]", 4: "step_completed [2 3 4]",
	} {
		t.Run(fmt.Sprint(attempts), func(t *testing.T) {
			t.Parallel()
			calls := []int{}
			d := startServer(t, serve(t, func(c *functionCall) {
				switch {
				case c.Type == contract.TypeStep:
					if calls = append(calls, c.Attempt); c.Attempt < 4 {
						c.w.WriteHeader(http.StatusServiceUnavailable)
						return
					}
					_, _ = c.w.Write([]byte(`1`))
				case c.has("step_failed", "x"):
					c.reply(object{"type": "complete", "output": fmt.Sprint("step_failed ", calls)})
				case c.has("step_completed", "x"):
					c.reply(object{"type": "complete", "output": fmt.Sprint("step_completed ", calls)})
				default:
					c.reply(object{
						"type": "runStep", "id": "x", "retry": object{"maxAttempts": attempts, "backoff": "10ms", "factor": 1},
						"firstAttempt": object{"error": object{"message": "m"}},
					})
				}
			}))
			id := d.startRun(t, `null`)
			d.wantEnd(t, id, entities.RunCompleted, fmt.Sprintf("%q", want))
			var log []string
			for _, e := range d.events(t, id) {
				if strings.HasPrefix(e, "step_") {
					log = append(log, strings.Fields(e)[0])
				}
			}
			expected := []string{"step_created"}
			for n := range attempts {
				expected = append(expected, "step_started", "step_retrying")
				if n == attempts-1 {
					expected[len(expected)-1] = strings.Fields(want)[0]
				}
			}
			if !slices.Equal(log, expected) {
				t.Errorf("got %v, want %v", log, expected)
			}
			d.Want(t, "attempt", attempts, `SELECT attempt FROM steps WHERE run_id = $1`, id)
		})
	}
}

// TestStepOfTheFunctionIsRepeated: the run is invoked after the pause, and all attempts are those of one step.
func TestStepOfTheFunctionIsRepeated(t *testing.T) {
	t.Parallel()
	for _, pause := range []string{"0s", "20ms"} {
		t.Run(pause, func(t *testing.T) {
			t.Parallel()
			attempts := 0
			d := startServer(t, serve(t, func(c *functionCall) {
				step := object{"type": "recordStep", "id": "x", "error": object{"message": "m"}, "retryAfter": pause}
				if attempts++; attempts == 3 {
					step = object{"type": "recordStep", "id": "x", "output": 7}
				}
				if c.has("step_completed", "x") {
					step = object{"type": "complete", "output": c.log["step_completed x"]}
				}
				c.reply(step)
			}))
			id := d.startRun(t, `null`)
			d.wantEnd(t, id, entities.RunCompleted, `7`)
			want := []string{
				"run_created", "run_started", "step_created x", "step_started x", "step_retrying x", "step_started x",
				"step_retrying x", "step_started x", "step_completed x", "run_completed",
			}
			if got := d.events(t, id); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			d.Want(t, "attempt", 3, `SELECT attempt FROM steps WHERE run_id = $1`, id)
			d.waitForEmptyQueue(t)
		})
	}
}

// TestRepeatedAttemptsAreRecordedOnce: commands that are sent again, because their response was lost, change nothing.
func TestRepeatedAttemptsAreRecordedOnce(t *testing.T) {
	t.Parallel()
	d := newServer(t, testdb.New(t))
	id := d.startRun(t, `null`)
	work := d.claim(t, message.WorkRun, "")
	if _, _, err := d.runs.recordStart(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	first := `{"type":"runStep","id":"f","firstAttempt":{"error":{"message":"m"},"retryAfter":"1h"}}`
	retry := `{"type":"recordStep","id":"g","error":{"message":"m"},"retryAfter":"1h"}`
	for range 2 {
		if _, err := d.runs.Command(t.Context(), callOf(id, work.Lease), []byte(`{"commands":[`+first+`,`+retry+`]}`)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"run_created", "run_started", "step_created f", "step_started f", "step_retrying f",
		"step_created g", "step_started g", "step_retrying g",
	}
	if got := d.events(t, id); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	d.Want(t, "pieces of work for the steps", 2, `
		SELECT count(*) FROM messages WHERE run_id = $1 AND work = 'step' AND ticket = 0
			AND due_at BETWEEN now() + interval '59 minutes' AND now() + interval '1 hour'
			AND delivery_count = CASE subject WHEN 'f' THEN 1 ELSE 0 END`, id)
	// The result ends the step whenever it comes. Its work then does nothing.
	body := `{"commands":[{"type":"recordStep","id":"g","output":1},` + retry + `]}`
	if _, err := d.runs.Command(t.Context(), callOf(id, work.Lease), []byte(body)); err != nil {
		t.Fatal(err)
	}
	d.Exec(t, `UPDATE messages SET due_at = now() WHERE subject = 'g'`)
	if err := d.runs.executeStep(t.Context(), d.claimFrom(t, d, message.WorkStep, "g")); err != nil {
		t.Error(err)
	}
	d.Want(t, "pieces of work of the step that ended", 0, `SELECT count(*) FROM messages WHERE run_id = $1 AND subject = 'g'`, id)
	want = append(want, "step_started g", "step_completed g")
	if got := d.events(t, id); !slices.Equal(got, want) {
		t.Errorf("after the result: got %q, want %q", got, want)
	}
}

// TestSweeperKnowsStepsOfTheFunction: a step that the function repeats itself needs work until its next attempt begins,
// and the invocation from then on.
func TestSweeperKnowsStepsOfTheFunction(t *testing.T) {
	t.Parallel()
	const toStep, toRun = `DELETE FROM messages WHERE work = 'step'`, `DELETE FROM messages WHERE work = 'run'`
	for name, tt := range map[string]struct {
		begun bool // the next attempt has begun, and so an invocation
		lost  string
		want  string
	}{
		"waits":                 {lost: toRun},
		"waits, work is lost":   {lost: toStep + ` OR work = 'run'`, want: "step g is pending"},
		"begun":                 {begun: true, lost: toStep},
		"begun, answer is lost": {begun: true, lost: toRun, want: "step g is running"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newServer(t, testdb.New(t))
			id := d.startRun(t, `null`)
			work := d.claim(t, message.WorkRun, "")
			if _, _, err := d.runs.recordStart(t.Context(), work); err != nil {
				t.Fatal(err)
			}
			const retry = `{"commands":[{"type":"recordStep","id":"g","error":{"message":"m"},"retryAfter":"0s"}]}`
			if _, err := d.runs.Command(t.Context(), callOf(id, work.Lease), []byte(retry)); err != nil {
				t.Fatal(err)
			}
			if tt.begun {
				if err := d.runs.executeStep(t.Context(), d.claimFrom(t, d, message.WorkStep, "g")); err != nil {
					t.Fatal(err)
				}
			}
			d.Exec(t, tt.lost)
			woken := d.sweep(t, func(s *cluster.Sweeper) { s.Quiet = 0 })
			if got := len(woken) == 1; got != (tt.want != "") || got && !strings.Contains(woken[0].Reason, tt.want) {
				t.Errorf("woke %+v, want the run for %q", woken, tt.want)
			}
			if n := d.Count(t, `SELECT count(*) FROM messages WHERE run_id = $1 AND work IN ('run', 'step')`, id); n == 0 {
				t.Error("the run has no work")
			}
		})
	}
}
