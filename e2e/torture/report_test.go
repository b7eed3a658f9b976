package torture

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// stuckAfter is the time after the last fault by which every run must have ended. No guarantee takes longer: the
// longest retry delay is 15 minutes, and a lease expires after 5.
const stuckAfter = 17 * time.Minute

// report collects the results of the test.
type report struct {
	*cluster
	drivers        []*driver
	faults, events counter
	tortured       time.Duration // time during which faults were injected
	recovered      time.Duration // time from the last fault until all work was done

	// right counts the runs with the right result and log.
	runs, right, lost, stuck, doubled int
	steps, executions                 int
	streams, chunks                   int
	// delays holds, for each run, the time beyond its ideal duration. slowest is the run with the longest delay.
	delays  []time.Duration
	slowest string
}

func newReport(s *cluster) *report { return &report{cluster: s} }

// run summarizes the row and the log of a run.
type run struct {
	ID, Deployment, Status string
	CreatedAt              time.Time
	CompletedAt            *time.Time
	// Created and Completed count the step_created and step_completed events; Distinct counts the completed steps.
	Created, Completed, Distinct int
	// Ends counts the events that end the run.
	Ends int
}

const runsSQL = `
	SELECT r.id, r.deployment_id, r.status, r.created_at, r.completed_at,
		count(*) FILTER (WHERE e.type = 'step_created'),
		count(*) FILTER (WHERE e.type = 'step_completed'),
		count(DISTINCT e.correlation_id) FILTER (WHERE e.type = 'step_completed'),
		count(*) FILTER (WHERE e.type IN ('run_completed', 'run_failed', 'run_cancelled'))
	FROM runs r JOIN events e ON e.run_id = r.id GROUP BY r.id`

// backstop matches messages that runs of the 5.x line leave behind. They would restart a step without a result after 14
// minutes. The test does not wait for them.
const backstop = `delivery_count = 0 AND due_at > now() AND EXISTS
	(SELECT FROM runs r WHERE r.id = m.run_id AND r.completed_at IS NOT NULL)`

// await waits until all runs have ended, all messages are gone, all streams are read, and all hooks are resumed. Calm is
// the time of the last fault.
func (v *report) await(ctx context.Context, t *testing.T, calm time.Time) {
	t.Helper()
	logged := time.Now()
	for {
		open, err := v.postgres.count(ctx, `SELECT (SELECT count(*) FROM runs WHERE completed_at IS NULL) +
			(SELECT count(*) FROM messages m WHERE NOT (`+backstop+`))`)
		v.recovered = time.Since(calm)
		if err == nil && open == 0 {
			break
		}
		if time.Since(logged) > 15*time.Second {
			logged = time.Now()
			t.Logf("%s after the last fault, still remaining:\n%s", v.recovered.Round(time.Second), v.remaining(ctx))
		}
		if v.recovered > stuckAfter {
			t.Errorf("%d runs and messages remain (%v)", open, err)
			break // check reports details
		}
		pause(ctx, retryPause)
	}
	v.awaitAnswers(t)
	// Deliver the backstops now, to check that they change nothing.
	if err := v.postgres.exec(ctx, `UPDATE messages m SET due_at = now() WHERE `+backstop); err != nil {
		t.Error(err)
	}
	for _, d := range v.drivers {
		d.awaitFollowing(t)
	}
}

// awaitAnswers waits until no request is in flight. All streams have ended by then, and the servers must end the
// responses of their readers before the readers reconnect.
func (v *report) awaitAnswers(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(longestSilence / 2); v.balancer.inFlight.Load() > 0; pause(t.Context(), retryPause) {
		if time.Now().After(deadline) {
			t.Errorf("all runs have ended, but %d requests are still unanswered", v.balancer.inFlight.Load())
			return
		}
	}
}

// remaining lists the runs and messages in the database that are not done.
func (v *report) remaining(ctx context.Context) string {
	lines, err := query(ctx, v.postgres, pgx.RowTo[string], `
		SELECT format('run %s at %s', id, last_seq) FROM runs WHERE completed_at IS NULL UNION ALL
		SELECT format('message %s on %s about %s: ticket %s, delivery %s, lease %s of %s, due in %s, %s', id, topic, run_id,
			ticket, delivery_count, lease, holder, due_at - now(), last_error)
		FROM messages m WHERE NOT (`+backstop+`)`)
	return fmt.Sprint(strings.Join(lines, "\n"), err)
}

// check checks every run, step and stream.
func (v *report) check(t *testing.T) {
	t.Helper()
	runs := map[string]run{}
	for _, r := range mustQuery(t, v.postgres, pgx.RowToStructByPos[run], runsSQL) {
		runs[r.ID] = r
		v.runs++
	}
	for _, d := range v.drivers {
		d.awaitUp(t)
		log := effects{path: d.effects}
		executed, marks := map[string]map[string]int{}, map[string]bool{}
		for _, e := range log.next() {
			if executed[e.RunID] == nil {
				executed[e.RunID] = map[string]int{}
			}
			executed[e.RunID][e.Step]++
			marks[e.Mark] = true
			v.executions++
		}
		for id, p := range d.started {
			if _, ok := runs[id]; !ok {
				v.lost++
				t.Errorf("run %s of %s was started, but does not exist", id, p.ID)
			}
		}
		of := map[string]string{} // run ID by plan ID
		for id, r := range runs {
			if r.Deployment == d.name {
				v.checkRun(t, d, r, marks, executed[id], of)
			}
		}
		for _, s := range d.streams {
			v.checkStream(t, d, s)
		}
	}
}

// outcome is the result of a run as the app returns it.
type outcome struct {
	Status string
	Value  struct {
		Plan    string
		Results any
	}
	Error any
}

// checkRun checks one run: its result, its log, and the executions of its steps.
func (v *report) checkRun(t *testing.T, d *driver, r run, marks map[string]bool, executed map[string]int, of map[string]string) {
	t.Helper()
	if r.CompletedAt == nil {
		v.stuck++
		t.Errorf("run %s is %s:\n%s", r.ID, r.Status, v.history(t, r.ID))
		return
	}
	o, err := call[outcome](t.Context(), http.MethodGet, d.url+"/runs/"+r.ID+"/result", nil)
	if err != nil || o.Status != "completed" {
		t.Errorf("run %s: %v, %+v\n%s", r.ID, err, o, v.history(t, r.ID))
		return
	}
	p := d.plans[o.Value.Plan]
	if known, ok := d.started[r.ID]; p.ID == "" || ok && known.ID != p.ID {
		t.Errorf("run %s of %s has the result of %q", r.ID, known.ID, o.Value.Plan)
		return
	}
	if other := of[p.ID]; other != "" {
		v.doubled++
		t.Errorf("runs %s and %s belong to the same start %s", other, r.ID, p.ID)
	}
	of[p.ID] = r.ID
	problems := p.problems(o.Value.Results, marks)
	steps := p.steps()
	v.steps += len(steps)
	for _, name := range steps {
		if executed[name] == 0 {
			problems = append(problems, name+" was never executed")
		}
	}
	if n := len(steps); r.Created != n || r.Distinct != n {
		problems = append(problems, fmt.Sprintf("%d steps were created and %d completed, want %d", r.Created, r.Distinct, n))
	}
	if r.Completed != r.Distinct || r.Ends != 1 {
		v.doubled++
		problems = append(problems, fmt.Sprintf("%d steps completed %d times, and the run ended %d times", r.Distinct, r.Completed, r.Ends))
	}
	if len(problems) > 0 {
		t.Errorf("run %s of %s: %s\n%s", r.ID, p.ID, strings.Join(problems, "\n"), v.history(t, r.ID))
	}
	if len(problems) == 0 {
		v.right++
	}
	late := r.CompletedAt.Sub(r.CreatedAt) - p.idealDuration()
	if len(v.delays) == 0 || late > slices.Max(v.delays) {
		v.slowest = r.ID
	}
	v.delays = append(v.delays, late)
}

// checkStream compares the chunks read while the stream was written with its final content.
func (v *report) checkStream(t *testing.T, d *driver, s *stream) {
	t.Helper()
	final := &stream{run: s.run, name: s.name}
	if done, err := d.readStream(t.Context(), final); err != nil || !done {
		t.Errorf("stream %s of %s: %v, reached the end: %v", s.name, s.run, err, done)
		return
	}
	v.streams++
	v.chunks += len(final.read)
	if problems := s.problems(final.read); len(problems) > 0 {
		t.Errorf("stream of %s: %s", s.run, strings.Join(problems, "\n"))
	}
	if !s.done || !slices.Equal(s.read, final.read) {
		t.Errorf("stream %s of %s: read (to the end: %v) %v; final content %v", s.name, s.run, s.done, s.read, final.read)
	}
}

// history returns the log of a run and its pending messages.
func (v *report) history(t *testing.T, runID string) string {
	t.Helper()
	lines := mustQuery(t, v.postgres, pgx.RowTo[string], `
		SELECT format('%s %s %s %s %s', created_at, seq, type, correlation_id, data) FROM events WHERE run_id = $1 ORDER BY seq`, runID)
	lines = append(lines, mustQuery(t, v.postgres, pgx.RowTo[string], `
		SELECT format('message %s', to_jsonb(m) - 'body') FROM messages m WHERE run_id = $1`, runID)...)
	return strings.Join(lines, "\n")
}

// checkTimes checks that no run was delayed for too long, and that all was over soon after the last fault.
func (v *report) checkTimes(t *testing.T, delay, recovery time.Duration) {
	t.Helper()
	if len(v.delays) > 0 && slices.Max(v.delays) > delay {
		t.Errorf("run %s was delayed by %s, want at most %s", v.slowest, slices.Max(v.delays), delay)
	}
	if v.recovered > recovery {
		t.Errorf("all was over %s after the last fault, want at most %s", v.recovered, recovery)
	}
}

// delaySummary returns the median, 99th percentile and maximum of the delays.
func (v *report) delaySummary() string {
	if len(v.delays) == 0 {
		return "none ended"
	}
	slices.Sort(v.delays)
	at := func(share float64) time.Duration {
		return v.delays[int(share*float64(len(v.delays)-1))].Round(100 * time.Millisecond)
	}
	return fmt.Sprintf("%s, %s, %s", at(0.5), at(0.99), at(1))
}

// table formats the results for docs/torture.md.
func (v *report) table(seed uint64) string {
	var b strings.Builder
	row := func(what string, value any) { fmt.Fprintf(&b, "| %s | %v |\n", what, value) }
	fmt.Fprintf(&b, "| seed %d | |\n|---|---|\n", seed)
	row("faults for", v.tortured.Round(time.Second))
	for _, line := range v.faults.lines() {
		what, n, _ := strings.Cut(line, ": ")
		row(what, n)
	}
	row("runs", v.runs)
	row("completed with the right result", v.right)
	row("lost", v.lost)
	row("stuck", v.stuck)
	row("doubled", v.doubled)
	row("steps", v.steps)
	row("executions of steps", fmt.Sprintf("%d (%.2f a step)", v.executions, float64(v.executions)/float64(max(v.steps, 1))))
	row("streams, chunks", fmt.Sprintf("%d, %d", v.streams, v.chunks))
	for _, line := range v.events.lines() {
		what, n, _ := strings.Cut(line, ": ")
		row(what, n)
	}
	row("a run was delayed by (median, 99 %, longest)", v.delaySummary())
	row("after the last fault, all was over in", v.recovered.Round(100*time.Millisecond))
	return b.String()
}
