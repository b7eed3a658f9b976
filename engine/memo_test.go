package engine

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/memo"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/why"
)

// memoServer starts a server whose workflow runs one step with the run's input, and completes with what becomes of it.
// Execute answers the calls of the step; nil answers with the number of the call.
func memoServer(t *testing.T, fields object, execute func(*functionCall, int64)) (d *server, calls *atomic.Int64) {
	t.Helper()
	calls = &atomic.Int64{}
	f := serve(t, func(call *functionCall) {
		switch {
		case call.Type == contract.TypeStep:
			n := calls.Add(1)
			if execute != nil {
				execute(call, n)
				return
			}
			_, _ = fmt.Fprintf(call.w, `{"call": %d}`, n)
		case call.has("step_completed", "x"):
			call.reply(object{"type": "complete", "output": call.log["step_completed x"]})
		case call.has("step_failed", "x"):
			call.reply(object{"type": "complete", "output": "failed"})
		default:
			command := object{"type": "runStep", "id": "x", "input": call.log["run_created "]}
			for k, v := range fields {
				command[k] = v
			}
			call.reply(command)
		}
	})
	return startServer(t, f), calls
}

// memoOf returns where the output of the run's step x comes from; empty if it was executed.
func (d *server) memoOf(t *testing.T, id entities.RunID) (from entities.RunID) {
	t.Helper()
	err := d.pool.QueryRow(t.Context(), `SELECT coalesce(data -> 'memo' ->> 'runId', '') FROM events
		WHERE run_id = $1 AND type = 'step_completed' AND correlation_id = 'x'`, id).Scan(&from)
	if err != nil {
		t.Fatal(err)
	}
	return from
}

var forAnHour = object{"memo": object{"for": "1h"}}

// TestEqualStepIsNotExecuted: it completes at once with the same bytes, and its log says where they come from. Equal
// is the JSON value, not its text. Other inputs are executed.
func TestEqualStepIsNotExecuted(t *testing.T) {
	t.Parallel()
	d, calls := memoServer(t, forAnHour, nil)
	first := d.startRun(t, `{"a": 1, "b": [2]}`)
	d.wantEnd(t, first, entities.RunCompleted, `{"call":1}`)
	second := d.startRun(t, `{"b":[2],"a":1}`)
	d.wantEnd(t, second, entities.RunCompleted, `{"call":1}`)
	if got := d.memoOf(t, second); got != first {
		t.Errorf("the output comes from %q, want %s", got, first)
	}
	if got := d.memoOf(t, first); got != "" {
		t.Errorf("the output of the first comes from %s", got)
	}
	want := "run_created run_started step_created x step_completed x run_completed"
	if got := strings.Join(d.events(t, second), " "); got != want {
		t.Errorf("got the log %q, want %q", got, want)
	}
	d.wantEnd(t, d.startRun(t, `{"a": 2, "b": [2]}`), entities.RunCompleted, `{"call":2}`)
	if n := calls.Load(); n != 2 {
		t.Errorf("%d calls were made", n)
	}
}

// TestWhatMakesStepsEqual in answers: a second step is executed, or has the output of the first.
func TestWhatMakesStepsEqual(t *testing.T) {
	t.Parallel()
	const one = `{"type":"runStep","id":"a","name":"s","input":1,"memo":{"for":"1h"}}`
	tests := map[string]struct {
		second string
		equal  bool
	}{
		"the same":             {`{"type":"runStep","id":"b","name":"s","input":1,"memo":{"for":"2h","share":true}}`, true},
		"the input as its key": {`{"type":"runStep","id":"b","name":"s","input":2,"memo":{"for":"1h","key":1}}`, true},
		"another retry":        {`{"type":"runStep","id":"b","name":"s","input":1,"retry":{"maxAttempts":1},"memo":{"for":"1h"}}`, true},
		"another input":        {`{"type":"runStep","id":"b","name":"s","input":2,"memo":{"for":"1h"}}`, false},
		"another key":          {`{"type":"runStep","id":"b","name":"s","input":1,"memo":{"for":"1h","key":2}}`, false},
		"another name":         {`{"type":"runStep","id":"b","name":"t","input":1,"memo":{"for":"1h"}}`, false},
		"another deployment":   {`{"type":"runStep","id":"b","name":"s","deployment":"e","input":1,"memo":{"for":"1h"}}`, false},
		"no memo":              {`{"type":"runStep","id":"b","name":"s","input":1}`, false},
		"an http step":         {`{"type":"runStep","id":"b","name":"s","http":{"url":"http://a.example"},"memo":{"for":"1h","key":1}}`, false},
	}
	dsn := testdb.New(t)
	d := idleServer(t, dsn)
	d.completeMemo(t, one, "a")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d.exec(t, `DELETE FROM messages`)
			work, run := d.startInvocation(t)
			if err := d.runs.answer(t.Context(), work, run, []byte(`{"commands":[`+tt.second+`]}`)); err != nil {
				t.Fatal(err)
			}
			if got := d.countEvents(t, run.ID, "step_completed b") == 1; got != tt.equal {
				t.Errorf("equal: got %v, want %v", got, tt.equal)
			}
			if got := d.count(t, `SELECT count(*) FROM messages WHERE work = 'step'`) == 0; got != tt.equal {
				t.Errorf("not executed: got %v, want %v", got, tt.equal)
			}
		})
	}
}

// completeMemo starts a run that executes the step, and completes it with the output 7.
func (d *server) completeMemo(t *testing.T, command, step string) {
	t.Helper()
	work, run := d.startInvocation(t)
	if err := d.runs.answer(t.Context(), work, run, []byte(`{"commands":[`+command+`]}`)); err != nil {
		t.Fatal(err)
	}
	delivery := d.claim(t, message.WorkStep, step)
	s, err := d.runs.loadStep(t.Context(), delivery)
	if err != nil {
		t.Fatal(err)
	}
	completed := decision{event: entities.EventStepCompleted, payload: []byte(`7`)}
	if err := d.runs.record(t.Context(), delivery, s, completed); err != nil {
		t.Fatal(err)
	}
}

// TestWhatIsNotKept: failures, outputs of more than 1 MiB, results that write to the store, and what has expired or
// whose run is gone.
func TestWhatIsNotKept(t *testing.T) {
	t.Parallel()
	large := `"` + strings.Repeat("x", memo.MaxOutput) + `"`
	tests := map[string]struct {
		answer func(*functionCall)
		after  func(*testing.T, *server, entities.RunID)
	}{
		"failure": {answer: func(c *functionCall) { c.replyAs(http.StatusBadRequest, `{}`) }},
		"large":   {answer: func(c *functionCall) { _, _ = c.w.Write([]byte(large)) }},
		"store": {answer: func(c *functionCall) {
			c.w.Header().Set("Content-Type", contract.StepAnswerType)
			_, _ = c.w.Write([]byte(`{"output": 1, "store": {"a": 2}}`))
		}},
		"expired": {after: func(t *testing.T, d *server, _ entities.RunID) {
			d.exec(t, `UPDATE memos SET expires_at = now()`)
		}},
		"run gone": {after: func(t *testing.T, d *server, id entities.RunID) {
			d.exec(t, `DELETE FROM runs WHERE id = $1`, id)
			if n := d.count(t, `SELECT count(*) FROM memos`); n != 0 {
				t.Errorf("%d memos are left", n)
			}
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, calls := memoServer(t, forAnHour, func(c *functionCall, _ int64) {
				if tt.answer != nil {
					tt.answer(c)
				}
			})
			first := d.startRun(t, `1`)
			if status, _ := d.waitForEnd(t, first); status != entities.RunCompleted {
				t.Fatalf("the run is %s", status)
			}
			if tt.after != nil {
				tt.after(t, d, first)
			}
			d.waitForEnd(t, d.startRun(t, `1`))
			if n := calls.Load(); n != 2 {
				t.Errorf("%d calls were made, want 2", n)
			}
		})
	}
}

// TestCopiedOutputOutlivesItsRun: the log of the second run is complete by itself, and only what expired is deleted.
func TestCopiedOutputOutlivesItsRun(t *testing.T) {
	t.Parallel()
	d, _ := memoServer(t, forAnHour, nil)
	first := d.startRun(t, `1`)
	d.wantEnd(t, first, entities.RunCompleted, `{"call":1}`)
	second := d.startRun(t, `1`)
	d.wantEnd(t, second, entities.RunCompleted, `{"call":1}`)
	d.exec(t, `DELETE FROM runs WHERE id = $1`, first)
	var output string
	err := d.pool.QueryRow(t.Context(), `SELECT convert_from(payload, 'UTF8') FROM events
		WHERE run_id = $1 AND type = 'step_completed'`, second).Scan(&output)
	if err != nil || output != `{"call": 1}` {
		t.Errorf("got the output %s, %v", output, err)
	}
	d.wantEnd(t, d.startRun(t, `1`), entities.RunCompleted, `{"call":2}`)
	d.exec(t, `INSERT INTO memos SELECT project, 'old', run_id, seq, now() FROM memos`)
	if err := memo.DeleteExpired(t.Context(), d.pool); err != nil {
		t.Fatal(err)
	}
	if n := d.count(t, `SELECT count(*) FROM memos`); n != 1 {
		t.Errorf("%d memos are left, want the one that has not expired", n)
	}
}

var shared = object{"memo": object{"for": "1h", "share": true, "key": "k"}}

// TestEqualStepsOfManyRunsMakeOneCall has runs at two servers need the same step at once.
func TestEqualStepsOfManyRunsMakeOneCall(t *testing.T) {
	t.Parallel()
	const runs = 32
	begun, release := make(chan struct{}, runs), make(chan struct{})
	d, calls := memoServer(t, shared, func(c *functionCall, n int64) {
		begun <- struct{}{}
		<-release
		_, _ = fmt.Fprintf(c.w, `{"call": %d}`, n)
	})
	other := newServer(t, d.pool.Config().ConnString())
	other.worker(t, func(o *queue.WorkerOptions) { o.Handlers = other.runs.Handlers() })
	ids := make([]entities.RunID, runs)
	for i := range ids {
		ids[i] = []*server{d, other}[i%2].startRun(t, fmt.Sprint(i))
	}
	for _, id := range ids {
		d.waitForEvent(t, id, "step_created x")
	}
	<-begun
	close(release)
	executed := 0
	for _, id := range ids {
		d.wantEnd(t, id, entities.RunCompleted, `{"call":1}`)
		if d.memoOf(t, id) == "" {
			executed++
		}
	}
	if n := calls.Load(); n != 1 || executed != 1 {
		t.Errorf("%d calls were made, and %d steps executed, want one", n, executed)
	}
	if n := d.count(t, `SELECT count(*) FROM permits`); n != 0 {
		t.Errorf("%d permits are left", n)
	}
}

// TestStepWaitsForAnEqualOne, and why says for which. If the first one fails, the next one is executed.
func TestStepWaitsForAnEqualOne(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	d, calls := memoServer(t, shared, func(c *functionCall, n int64) {
		if n == 1 {
			<-release
			c.replyAs(http.StatusBadRequest, `{}`)
			return
		}
		_, _ = fmt.Fprintf(c.w, `{"call": %d}`, n)
	})
	first := d.startRun(t, `1`)
	d.waitForEvent(t, first, "step_started x")
	second := d.startRun(t, `2`)
	r := d.reason(t, second, why.EqualStep)
	if len(r.Holders) != 1 || r.Holders[0].RunID != first || r.StepID != "x" || r.Limit != "" || r.Since == nil {
		t.Errorf("got %+v", r)
	}
	close(release)
	d.wantEnd(t, first, entities.RunCompleted, `"failed"`)
	d.wantEnd(t, second, entities.RunCompleted, `{"call":2}`)
	d.wantEnd(t, d.startRun(t, `3`), entities.RunCompleted, `{"call":2}`)
	if n := calls.Load(); n != 2 {
		t.Errorf("%d calls were made", n)
	}
}

// TestEqualFirstStepsOfFlows: the server knows the flow, so that the start of a run brings what may begin with it. It
// still looks for an output that is known, and waits for an equal step.
func TestEqualFirstStepsOfFlows(t *testing.T) {
	t.Parallel()
	for name, share := range map[string]bool{"one after the other": false, "at once": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const runs = 3
			var calls atomic.Int64
			release := make(chan struct{})
			d := startServer(t, serve(t, func(c *functionCall) {
				n := calls.Add(1)
				if share {
					<-release
				}
				_, _ = fmt.Fprint(c.w, n)
			}))
			d.knowFlow(t, fmt.Sprintf(`
flow: memo
deployment: dpl_test
steps:
  x: {call: work, memo: {for: 1h, share: %t}}
`, share), "memo@1")
			ids := make([]entities.RunID, runs)
			for i := range ids {
				if ids[i] = d.startFlow(t, "memo", `1`); !share {
					d.wantEnd(t, ids[i], entities.RunCompleted, `{"x":1}`)
				}
			}
			for _, id := range ids {
				d.waitForEvent(t, id, "step_created x")
			}
			close(release)
			for _, id := range ids {
				d.wantEnd(t, id, entities.RunCompleted, `{"x":1}`)
			}
			if n := calls.Load(); n != 1 {
				t.Errorf("%d calls were made", n)
			}
		})
	}
}

// TestMemoSurvivesACrashAtAnyStatement interrupts the transaction of an answer whose step is known, and that of the
// result that makes one known, at each statement. The events, the work and the memo are there together or not at all.
func TestMemoSurvivesACrashAtAnyStatement(t *testing.T) {
	t.Parallel()
	const command = `{"type":"runStep","id":"a","input":1,"memo":{"for":"1h"}}`
	const answer, sharing = `{"commands":[` + command + `]}`,
		`{"commands":[{"type":"runStep","id":"a","input":1,"memo":{"for":"1h","share":true}}]}`
	tests := map[string]struct {
		// prepare returns what is interrupted, and wrote counts what it has written.
		prepare func(t *testing.T, home, broken *server) (do func() error)
		wrote   string
		all     int
	}{
		"known": {func(t *testing.T, home, broken *server) func() error {
			home.completeMemo(t, command, "a")
			home.exec(t, `DELETE FROM messages`)
			work, run := home.startInvocation(t)
			return func() error { return broken.runs.answer(t.Context(), work, run, []byte(sharing)) }
		}, `SELECT count(*) FROM events WHERE correlation_id = 'a' AND type IN ('step_created', 'step_completed')`, 4},
		"kept": {func(t *testing.T, home, broken *server) func() error {
			work, run := home.startInvocation(t)
			if err := home.runs.answer(t.Context(), work, run, []byte(answer)); err != nil {
				t.Fatal(err)
			}
			d := home.claim(t, message.WorkStep, "a")
			s, err := home.runs.loadStep(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			v := decision{event: entities.EventStepCompleted, payload: []byte(`7`)}
			return func() error {
				_, err := broken.log.AppendAll(t.Context(), project, run.ID, s.results(v, time.Now()), home.runs.endWith(d))
				return err
			}
		}, `SELECT count(*) + (SELECT count(*) FROM memos) FROM events WHERE type = 'step_completed'`, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.New(t)
			home := idleServer(t, dsn)
			session := gate.Open(t, dsn, home.pool, nil)
			broken := serverOn(t, session.Pool)
			attempt := func(n int, crash gate.Crash) (before int, do func() error, statements []string, err error) {
				home.exec(t, `DELETE FROM messages`)
				home.exec(t, `DELETE FROM runs`)
				do = tt.prepare(t, home, broken)
				before = home.count(t, tt.wrote)
				statements = session.Run(t, n, crash, func() { err = do() })
				return before, do, statements, err
			}
			before, _, statements, err := attempt(-1, gate.None)
			if err != nil {
				t.Fatal(err)
			}
			if got := home.count(t, tt.wrote); got != tt.all || before >= got {
				t.Fatalf("wrote %d after %d, want %d", got, before, tt.all)
			}
			for n, sql := range statements {
				for _, how := range []gate.Crash{gate.Terminated, gate.AnswerLost} {
					what := fmt.Sprintf("%s at %d, %.40s", how, n, strings.TrimSpace(sql))
					before, do, _, err := attempt(n, how)
					if err == nil {
						t.Errorf("%s: got no error", what)
					}
					want := before
					if sql == "COMMIT" && how == gate.AnswerLost {
						want = tt.all
					}
					if got := home.count(t, tt.wrote); got != want {
						t.Errorf("%s: wrote %d, want %d", what, got, want)
					}
					if err := do(); err != nil && !queue.IsOver(err) {
						t.Errorf("%s: repeating it: %v", what, err)
					}
					if got := home.count(t, tt.wrote); got != tt.all {
						t.Errorf("%s: wrote %d after the repetition, want %d", what, got, tt.all)
					}
				}
			}
			t.Logf("%d statements", len(statements))
		})
	}
}
