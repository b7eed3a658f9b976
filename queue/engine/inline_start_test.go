package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

// statementCounter counts statements of a database's sessions by a part of their text.
type statementCounter struct {
	mu    sync.Mutex
	parts map[string]int
}

func (s *statementCounter) count(sql string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for part := range s.parts {
		if strings.Contains(sql, part) {
			s.parts[part]++
		}
	}
}

func (s *statementCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.count(d.SQL)
	return ctx
}

func (*statementCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (*statementCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s *statementCounter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	s.count(d.SQL)
}

func (*statementCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TestRunOfThreeStepsTakesEightTransactions: its start, four answers and three results. Each writes the run once, in
// one statement, for all are of one process; the last locks it by another one before, for it ends it.
func TestRunOfThreeStepsTakesEightTransactions(t *testing.T) {
	t.Parallel()
	s := statementCounter{parts: map[string]int{
		"FOR NO KEY UPDATE": 0, "INTO runs": 0, "UPDATE runs": 0, "INTO events": 0, "INTO steps": 0, "UPDATE steps": 0,
		"INTO messages AS m": 0, "river_job": 0, "FROM steps WHERE run_id": 0, "COMMIT": 0,
	}}
	r := newReplica(t, testdb.New(t), func(c *pgxpool.Config) { c.ConnConfig.Tracer = &s })
	log := eventlog.New(r.pool, r.hub, r.Queue, time.Now)
	d := &server{r, log, New(r.Queue, log)}
	d.register(t, deployment, serve(t, func(c *functionCall) {
		if c.Type == contract.TypeStep {
			return
		}
		for n := range 3 {
			if id := fmt.Sprint("step_", n); !c.has("step_completed", id) {
				c.reply(object{"type": "runStep", "id": id})
				return
			}
		}
		c.reply(object{"type": "complete"})
	}).URL)
	w := d.newWorker(t, func(o *queue.WorkerOptions) { o.Handlers = d.runs.Handlers() })
	d.onRecord(t, w.ProcessID()) // it does not run: nothing is said but about the run
	d.Attach(w)
	id := d.startRun(t, `null`)
	d.wantEnd(t, id, entities.RunCompleted, "null")
	want := map[string]int{
		"FOR NO KEY UPDATE": 8, "INTO runs": 1, "UPDATE runs": 7, "INTO events": 8, "INTO steps": 3, "UPDATE steps": 3,
		"INTO messages AS m": 7, "river_job": 0, "FROM steps WHERE run_id": 6, "COMMIT": 0,
	}
	if n := d.replica.count(t, `SELECT count(DISTINCT xid) FROM events WHERE run_id = $1`, id); n != 8 {
		t.Errorf("the events are of %d transactions, want 8", n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for part, n := range want {
		if s.parts[part] != n {
			t.Errorf("%d statements have %q, want %d", s.parts[part], part, n)
		}
	}
}

// inlineStartTest is a run on a server whose worker does not run, but begins what it is told to. What it says itself is broken
// off.
type inlineStartTest struct {
	*server

	worker *queue.Worker
	calls  chan contract.Call
	run    entities.RunID
}

func newInlineStartTest(t *testing.T, dsn string) *inlineStartTest {
	t.Helper()
	s := &inlineStartTest{server: idleServer(t, dsn), calls: make(chan contract.Call, 1000)}
	s.register(t, deployment, serve(t, func(c *functionCall) { s.calls <- c.Call }).URL)
	s.worker = s.newWorker(t, func(o *queue.WorkerOptions) { o.Handlers = s.runs.Handlers() })
	s.onRecord(t, s.worker.ProcessID())
	return s
}

// anew has a server begin a run in an empty world. What is still done about earlier runs ends with these.
func (s *inlineStartTest) reset(t *testing.T, by *server) {
	t.Helper()
	s.exec(t, `DELETE FROM runs`)
	s.exec(t, `DELETE FROM messages`)
	s.run = by.startRun(t, `null`)
}

// state is what there is of all runs, and the work about them: under way or not, and how often it was delivered.
func (s *inlineStartTest) state(t *testing.T) string {
	t.Helper()
	var text string
	s.scan(t, `
		SELECT coalesce((SELECT string_agg(concat_ws(' ', seq, type, correlation_id), ', ' ORDER BY run_id, seq) FROM events), '')
			|| ' | ' || coalesce((SELECT string_agg(concat_ws(' ', id, status, attempt), ', ' ORDER BY id) FROM steps), '')
			|| ' | ' || coalesce((SELECT string_agg(concat_ws(' ', work, subject, lease <> '', delivery_count),
				', ' ORDER BY work, subject) FROM messages), '')`, nil, &text)
	return text
}

// startingAction is something that a server does whose queue may be broken.
type startingAction func(t *testing.T, s *inlineStartTest, broken *server) error

// answers is that the run's invocation is answered.
func answerRun(answer string) func(*testing.T, *inlineStartTest, *server) startingAction {
	return func(t *testing.T, s *inlineStartTest, by *server) startingAction {
		t.Helper()
		work := s.claim(t, entities.WorkRun, "")
		run, _, err := by.runs.recordStart(t.Context(), work)
		if err != nil {
			t.Fatal(err)
		}
		return func(t *testing.T, _ *inlineStartTest, broken *server) error {
			t.Helper()
			return broken.runs.answer(t.Context(), work, run, []byte(`{"commands":[`+answer+`]}`))
		}
	}
}

// finishes is that step s, which an answer asked for, has a result.
func finishStep(answer string) func(*testing.T, *inlineStartTest, *server) startingAction {
	return func(t *testing.T, s *inlineStartTest, by *server) startingAction {
		t.Helper()
		if err := answerRun(answer)(t, s, by)(t, s, by); err != nil {
			t.Fatal(err)
		}
		work := s.claim(t, entities.WorkStep, "s")
		return func(t *testing.T, _ *inlineStartTest, broken *server) error {
			t.Helper()
			w := broken.newWorker(t, func(o *queue.WorkerOptions) { o.Handlers = broken.runs.Handlers() })
			return broken.runs.finish(t.Context(), w.Bind(work), eventlog.Request{
				Type: entities.EventStepCompleted, CorrelationID: "s", SpecVersion: entities.SpecDriven, Payload: []byte(`1`),
			})
		}
	}
}

// inlineStartCase is a deed with which work begins.
type inlineStartCase struct {
	// scene is before the deed, in a world with a run. It was set by the server that is given.
	scene     func(*testing.T, *inlineStartTest, *server) startingAction
	work      entities.Work // what begins
	subject   string
	lastEvent string // the last event
	// optimistic is set if it is one statement when the server that set the scene does the deed.
	optimistic bool
}

func inlineStartCases() map[string]inlineStartCase {
	return map[string]inlineStartCase{
		"a start": {
			scene: func(t *testing.T, s *inlineStartTest, _ *server) startingAction {
				t.Helper()
				s.exec(t, `DELETE FROM runs`)
				s.exec(t, `DELETE FROM messages`)
				return func(t *testing.T, s *inlineStartTest, broken *server) error {
					t.Helper()
					_, _, err := broken.log.Start(t.Context(), project, eventlog.Request{
						RunID: s.run, Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven,
						Data: entities.EventData{DeploymentID: deployment, WorkflowName: "order", Driver: entities.DriverServer},
					})
					return err
				}
			},
			work: entities.WorkRun, lastEvent: "run_started", optimistic: true,
		},
		"a step": {
			scene: answerRun(`{"type":"runStep","id":"s"}`),
			work:  entities.WorkStep, subject: "s", lastEvent: "step_started s", optimistic: true,
		},
		"what is there already": {
			scene: answerRun(`{"type":"wait","id":"w","for":"0s"}`), work: entities.WorkRun, lastEvent: "wait_completed w",
		},
		"a result": {
			scene: finishStep(`{"type":"runStep","id":"s"}`), work: entities.WorkRun, lastEvent: "step_completed s", optimistic: true,
		},
		"a result, and a wait is over": {
			scene: finishStep(`{"type":"runStep","id":"s"},{"type":"wait","id":"w","for":"0s"}`),
			work:  entities.WorkRun, lastEvent: "wait_completed w",
		},
	}
}

// TestInlineStartSurvivesACrashAtAnyStatement breaks transactions off that begin what they make necessary: by killing
// the server's process before a statement, and by cutting the server off when it has been executed, the commit too. All
// of it is there then, the beginning too, or nothing. What began was not called, so it is released: whoever claims
// it goes on with the first attempt.
func TestInlineStartSurvivesACrashAtAnyStatement(t *testing.T) {
	t.Parallel()
	for name, tt := range inlineStartCases() {
		for _, remembers := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, remembered: %v", name, remembers), func(t *testing.T) {
				t.Parallel()
				tt.crashAtAnyStatement(t, remembers)
			})
		}
	}
}

// crashAtAnyStatement has the deed done by a server that has set the scene, or not.
func (tt inlineStartCase) crashAtAnyStatement(t *testing.T, remembers bool) {
	t.Helper()
	dsn := testdb.New(t)
	s := newInlineStartTest(t, dsn)
	session := gate.Open(t, dsn, s.pool, nil)
	broken := serverOn(t, session.Pool)
	by := s.server
	if remembers {
		by = broken
	}
	// attempt does the deed in a new world, with a crash at statement n.
	attempt := func(t *testing.T, n int, crash gate.Crash) (do startingAction, untouched string, statements []string, err error) {
		t.Helper()
		broken.Attach(nil)
		s.reset(t, by)
		do = tt.scene(t, s, by)
		broken.Attach(s.worker)
		untouched = s.state(t)
		statements = session.Run(t, n, crash, func() { err = do(t, s, broken) })
		return do, untouched, statements, err
	}
	_, _, statements, err := attempt(t, -1, gate.None)
	if err != nil {
		t.Fatal(err)
	}
	if c := receive(t, "the call", s.calls); c.Attempt != 1 {
		t.Errorf("attempt %d, want 1", c.Attempt)
	}
	commit := len(statements) - 1
	if statements[commit] != "COMMIT" {
		t.Fatalf("there is no commit in the end of %q", statements)
	}
	if tt.optimistic && remembers && commit != 1 {
		t.Errorf("there is not one statement in %q", statements)
	}
	for n, sql := range statements {
		for _, how := range []gate.Crash{gate.Terminated, gate.AnswerLost} {
			what := fmt.Sprintf("%s at %d, %.40s", how, n, strings.TrimSpace(sql))
			do, untouched, _, err := attempt(t, n, how)
			if err == nil {
				t.Errorf("%s: no error was returned", what)
			}
			if n != commit || how != gate.AnswerLost {
				if got := s.state(t); got != untouched {
					t.Errorf("%s: there is\n%s\nwant\n%s", what, got, untouched)
				}
				if err := do(t, s, s.server); err != nil {
					t.Errorf("%s: the repetition: %v", what, err)
				}
				continue
			}
			tt.checkContinued(t, s, what)
		}
	}
}

// goesOnElsewhere fails the test unless what began is released, and whoever claims it goes on with the first
// attempt.
func (tt inlineStartCase) checkContinued(t *testing.T, s *inlineStartTest, what string) {
	t.Helper()
	if got := s.events(t, s.run); got[len(got)-1] != tt.lastEvent {
		t.Errorf("%s: the log is %q, want %q at its end", what, got, tt.lastEvent)
	}
	eventually(t, "it is released", func() bool {
		return s.replica.count(t, `SELECT count(*) FROM messages WHERE lease = '' AND delivery_count = 0
			AND work = $1 AND subject = $2`, tt.work, tt.subject) == 1
	})
	log := s.events(t, s.run)
	if len(s.calls) > 0 {
		t.Errorf("%s: it was called already", what)
	}
	if _, err := s.worker.Perform(t.Context(), s.claim(t, tt.work, tt.subject)); err != nil {
		t.Error(err)
	}
	if c := receive(t, "the call", s.calls); c.Attempt != 1 {
		t.Errorf("%s: attempt %d, want 1", what, c.Attempt)
	}
	if again := s.events(t, s.run)[len(log):]; slices.Contains(again, tt.lastEvent) {
		t.Errorf("%s: it began once more: %q", what, again)
	}
}

// dyingQueue is the queue of a server that dies right after each commit.
type dyingQueue struct{ *queue.Queue }

func (q dyingQueue) Enqueue(
	ctx context.Context, tx pgx.Tx, before *pgx.Batch, messages []entities.Message,
) ([]*eventlog.InlineStart, func(error), error) {
	begins, _, err := q.Queue.Enqueue(ctx, tx, before, messages)
	return begins, func(error) {}, err
}

func (q dyingQueue) EnqueueOptimistic(
	c *pg.Conditional, messages []entities.Message,
) ([]*eventlog.InlineStart, func(error), bool) {
	begins, _, ok := q.Queue.EnqueueOptimistic(c, messages)
	return begins, func(error) {}, ok
}

// TestServerKilledBeforeItsInlineCallLosesNothing: another one makes it, and it is the first attempt.
func TestServerKilledBeforeItsInlineCallLosesNothing(t *testing.T) {
	t.Parallel()
	for _, work := range []entities.Work{entities.WorkRun, entities.WorkStep} {
		t.Run(string(work), func(t *testing.T) {
			t.Parallel()
			dsn := testdb.New(t)
			dead := idleServer(t, dsn)
			w := dead.newWorker(t)
			dead.onRecord(t, w.ProcessID()) // without a beat, nor the lock
			log := eventlog.New(dead.pool, dead.hub, dyingQueue{dead.Queue}, time.Now)
			var steps, first atomic.Int32
			live := newServer(t, dsn)
			live.register(t, deployment, serve(t, func(c *functionCall) {
				if c.Attempt == 1 {
					first.Add(1)
				}
				if c.Type == contract.TypeStep {
					steps.Add(1)
					return
				}
				completeWith("step_completed", "s", object{"type": "runStep", "id": "s"})(c)
			}).URL)
			if work == entities.WorkRun {
				dead.Attach(w)
			}
			id := (&server{dead.replica, log, New(dead.Queue, log)}).startRun(t, `null`)
			if work == entities.WorkStep {
				d := dead.claim(t, entities.WorkRun, "")
				run, _, err := dead.runs.recordStart(t.Context(), d)
				if err != nil {
					t.Fatal(err)
				}
				dead.Attach(w)
				answer := []byte(`{"commands":[{"type":"runStep","id":"s"}]}`)
				if err := New(dead.Queue, log).answer(t.Context(), d, run, answer); err != nil {
					t.Fatal(err)
				}
			}
			begun := map[entities.Work]string{entities.WorkRun: "run_started", entities.WorkStep: "step_started s"}[work]
			if log := dead.events(t, id); log[len(log)-1] != begun {
				t.Fatalf("the log is %q, want %q at its end", log, begun)
			}
			if n := dead.replica.count(t, `SELECT count(*) FROM messages WHERE holder = $1`, w.ProcessID()); n != 1 {
				t.Fatalf("the dead server holds %d pieces of work, want 1", n)
			}
			live.worker(t, func(o *queue.WorkerOptions) { o.Handlers = live.runs.Handlers() })
			live.wantEnd(t, id, entities.RunCompleted, `null`)
			calls := map[entities.Work]int32{entities.WorkRun: 3, entities.WorkStep: 2}[work]
			if steps.Load() != 1 || first.Load() != calls {
				t.Errorf("the step was called %d times, and %d calls were first attempts, want 1 and %d",
					steps.Load(), first.Load(), calls)
			}
			// The attempt that the dead server had begun is in the log, as if it had died amid the call.
			want := map[entities.Work]int{entities.WorkRun: 1, entities.WorkStep: 2}[work]
			if n := live.count(t, id, "step_started s"); n != want {
				t.Errorf("the step started %d times, want %d", n, want)
			}
			if n := live.count(t, id, "run_started"); n != 1 {
				t.Errorf("the run started %d times, want once", n)
			}
		})
	}
}

// TestStepsThatFindNoPlaceBeginLater: each is called once, and starts once.
func TestStepsThatFindNoPlaceBeginLater(t *testing.T) {
	t.Parallel()
	const steps = 40
	var calls atomic.Int32
	var all []object
	for n := range steps {
		all = append(all, object{"type": "runStep", "id": fmt.Sprint("s", n)})
	}
	d := newServer(t, testdb.New(t))
	d.register(t, deployment, serve(t, func(c *functionCall) {
		if c.Type == contract.TypeStep {
			calls.Add(1)
			if c.Attempt != 1 {
				t.Errorf("step %s: attempt %d", c.Step.ID, c.Attempt)
			}
			return
		}
		for n := range steps {
			if !c.has("step_completed", fmt.Sprint("s", n)) {
				c.reply(all...)
				return
			}
		}
		c.reply(object{"type": "complete"})
	}).URL)
	d.worker(t, func(o *queue.WorkerOptions) { o.Handlers, o.Deliveries = d.runs.Handlers(), 8 })
	id := d.startRun(t, `null`)
	d.wantEnd(t, id, entities.RunCompleted, `null`)
	if n := calls.Load(); n != steps {
		t.Errorf("%d calls, want %d", n, steps)
	}
	if n := d.replica.count(t, `SELECT count(*) FROM events WHERE run_id = $1 AND type = 'step_started'`, id); n != steps {
		t.Errorf("%d starts, want %d", n, steps)
	}
}

// TestLeaseCoversTheAttemptsTimeout: a step that begins at once has the time that its attempt may take, and as long as
// it takes to record the result.
func TestLeaseCoversTheAttemptsTimeout(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[string]time.Duration{
		`"attemptTimeout":"1s"`:                 time.Second + recordTime,
		`"attemptTimeout":"2h"`:                 2*time.Hour + recordTime,
		`"attemptTimeout":"2h","timeout":"30m"`: 30*time.Minute + recordTime,
	} {
		t.Run(timeout, func(t *testing.T) {
			t.Parallel()
			d := idleServer(t, testdb.New(t))
			w := d.newWorker(t)
			d.onRecord(t, w.ProcessID())
			d.startRun(t, `null`)
			work := d.claim(t, entities.WorkRun, "")
			run, _, err := d.runs.recordStart(t.Context(), work)
			if err != nil {
				t.Fatal(err)
			}
			d.Attach(w)
			runs := New(d.Queue, eventlog.New(d.pool, d.hub, dyingQueue{d.Queue}, time.Now))
			answer := []byte(`{"commands":[{"type":"runStep","id":"s",` + timeout + `}]}`)
			if err := runs.answer(t.Context(), work, run, answer); err != nil {
				t.Fatal(err)
			}
			var left time.Duration
			d.scan(t, `SELECT due_at - clock_timestamp() FROM messages WHERE work = 'step' AND holder = $1`,
				[]any{w.ProcessID()}, &left)
			if left > want || left < want-testTimeout {
				t.Errorf("the lease goes on for %s, want %s", left, want)
			}
		})
	}
}
