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

// stuckAfter is after which time without any more faults a run that has not ended is stuck. No promise takes longer:
// what has failed often is tried again after 15 minutes, a lease runs out after 5.
const stuckAfter = 17 * time.Minute

// report is what became of everything.
type report struct {
	*cluster
	drivers        []*driver
	faults, events counter
	tortured       time.Duration // for how long
	recovered      time.Duration // how long it then took until all was over

	// Of the runs, right are those with the right result and log.
	runs, right, lost, stuck, doubled int
	steps, executions                 int
	streams, chunks                   int
	// delays is how much longer than their own time runs took; slowest is the one that took longest.
	delays  []time.Duration
	slowest string
}

func newReport(s *cluster) *report { return &report{cluster: s} }

// run is a run as its row and its log have it.
type run struct {
	ID, Deployment, Status string
	CreatedAt              time.Time
	CompletedAt            *time.Time
	// Created, Completed and Distinct count the log's events about steps: created, completed, and those
	// completed without repetition.
	Created, Completed, Distinct int
	// Ends is how many events end the run.
	Ends int
}

const runsSQL = `
	SELECT r.id, r.deployment_id, r.status, r.created_at, r.completed_at,
		count(*) FILTER (WHERE e.type = 'step_created'),
		count(*) FILTER (WHERE e.type = 'step_completed'),
		count(DISTINCT e.correlation_id) FILTER (WHERE e.type = 'step_completed'),
		count(*) FILTER (WHERE e.type IN ('run_completed', 'run_failed', 'run_cancelled'))
	FROM runs r JOIN events e ON e.run_id = r.id GROUP BY r.id`

// backstop is a message that a run of the 5.x line leaves behind: it would begin a step again, should nobody have
// reported its result after 14 minutes. So long we do not wait.
const backstop = `delivery_count = 0 AND due_at > now() AND EXISTS
	(SELECT FROM runs r WHERE r.id = m.run_id AND r.completed_at IS NOT NULL)`

// await waits until there is nothing left to do: all runs have ended, all messages are gone, and all who read and
// resume have what they wanted.
func (v *report) await(ctx context.Context, t *testing.T) {
	t.Helper()
	calm, told := time.Now(), time.Now()
	for {
		open, err := v.postgres.count(ctx, `SELECT (SELECT count(*) FROM runs WHERE completed_at IS NULL) +
			(SELECT count(*) FROM messages m WHERE NOT (`+backstop+`))`)
		v.recovered = time.Since(calm)
		if err == nil && open == 0 {
			break
		}
		if time.Since(told) > 15*time.Second {
			told = time.Now()
			t.Logf("%s after the last fault there are still:\n%s", v.recovered.Round(time.Second), v.remaining(ctx))
		}
		if v.recovered > stuckAfter {
			t.Errorf("%d runs and messages are still there (%v)", open, err)
			break // judge says more
		}
		pause(ctx, retryPause)
	}
	v.awaitAnswers(t)
	// That the last messages are good for nothing shows when they are delivered now.
	if err := v.postgres.exec(ctx, `UPDATE messages m SET due_at = now() WHERE `+backstop); err != nil {
		t.Error(err)
	}
	for _, d := range v.drivers {
		d.awaitFollowing(t)
	}
}

// awaitAnswers waits until no server has anything left to answer: all streams have ended, which who reads one is to
// be told before it comes back by itself.
func (v *report) awaitAnswers(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(longestSilence / 2); v.balancer.underWay.Load() > 0; pause(t.Context(), retryPause) {
		if time.Now().After(deadline) {
			t.Errorf("all is over, and %d requests are not answered", v.balancer.underWay.Load())
			return
		}
	}
}

// remaining is what is still there, as far as the database says so.
func (v *report) remaining(ctx context.Context) string {
	lines, err := ask(ctx, v.postgres, pgx.RowTo[string], `
		SELECT format('run %s at %s', id, last_seq) FROM runs WHERE completed_at IS NULL UNION ALL
		SELECT format('message %s on %s about %s: ticket %s, delivery %s, lease %s of %s, due in %s, %s', id, topic, run_id,
			ticket, delivery_count, lease, holder, due_at - now(), last_error)
		FROM messages m WHERE NOT (`+backstop+`)`)
	return fmt.Sprint(strings.Join(lines, "\n"), err)
}

// check looks at every run, step and stream.
func (v *report) check(t *testing.T) {
	t.Helper()
	runs := map[string]run{}
	for _, r := range mustAsk(t, v.postgres, pgx.RowToStructByPos[run], runsSQL) {
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
				t.Errorf("run %s of %s was started, and there is none", id, p.ID)
			}
		}
		of := map[string]string{} // the run of each plan
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

// outcome is how a run ended, as the app has it.
type outcome struct {
	Status string
	Value  struct {
		Plan    string
		Results any
	}
	Error any
}

// checkRun looks at one run: its result, its log, and what its steps did.
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
		t.Errorf("runs %s and %s are of the same start, %s", other, r.ID, p.ID)
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

// checkStream compares what was read of a stream while it was written with what is in it in the end.
func (v *report) checkStream(t *testing.T, d *driver, s *stream) {
	t.Helper()
	final := &stream{run: s.run, name: s.name}
	if done, err := d.readStream(t.Context(), final); err != nil || !done {
		t.Errorf("stream %s of %s: %v, its end was found: %v", s.name, s.run, err, done)
		return
	}
	v.streams++
	v.chunks += len(final.read)
	if problems := s.problems(final.read); len(problems) > 0 {
		t.Errorf("stream of %s: %s", s.run, strings.Join(problems, "\n"))
	}
	if !s.done || !slices.Equal(s.read, final.read) {
		t.Errorf("of stream %s of %s was read (to the end: %v) %v; in it is %v", s.name, s.run, s.done, s.read, final.read)
	}
}

// history is the log of a run, and what is on its way to it.
func (v *report) history(t *testing.T, runID string) string {
	t.Helper()
	lines := mustAsk(t, v.postgres, pgx.RowTo[string], `
		SELECT format('%s %s %s %s %s', created_at, seq, type, correlation_id, data) FROM events WHERE run_id = $1 ORDER BY seq`, runID)
	lines = append(lines, mustAsk(t, v.postgres, pgx.RowTo[string], `
		SELECT format('message %s', to_jsonb(m) - 'body') FROM messages m WHERE run_id = $1`, runID)...)
	return strings.Join(lines, "\n")
}

// delaySummary says by how much runs were delaySummary.
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

// table is what is published.
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
