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

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// statementCounter counts the statements of a pool that contain a text.
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

// TestRunOfThreeStepsTakesEightTransactions: its start, four answers and three results. Each is one statement, since
// one process handles the whole run. Only the last has another statement before it, which locks the run to end it.
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
	w := d.newWorker(t, d.works)
	d.onRecord(t, w.ProcessID()) // the worker does not run, so that only the run's statements are counted
	d.Attach(w)
	id := d.startRun(t, `null`)
	d.wantEnd(t, id, entities.RunCompleted, "null")
	want := map[string]int{
		"FOR NO KEY UPDATE": 8, "INTO runs": 1, "UPDATE runs": 7, "INTO events": 8, "INTO steps": 3, "UPDATE steps": 3,
		"INTO messages AS m": 7, "river_job": 0, "FROM steps WHERE run_id": 6, "COMMIT": 0,
	}
	d.Want(t, "transactions", 8, `SELECT count(DISTINCT xid) FROM events WHERE run_id = $1`, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	for part, n := range want {
		if s.parts[part] != n {
			t.Errorf("%d statements contain %q, want %d", s.parts[part], part, n)
		}
	}
}

// inlineStartTest is a run on a server whose worker does not run, but accepts inline starts. Its function records the
// calls.
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
	s.worker = s.newWorker(t, s.works)
	s.onRecord(t, s.worker.ProcessID())
	return s
}

// reset deletes all runs and messages, which also ends work under way, and starts a run on a server.
func (s *inlineStartTest) reset(t *testing.T, by *server) {
	t.Helper()
	s.Exec(t, `DELETE FROM runs`)
	s.Exec(t, `DELETE FROM messages`)
	s.run = by.startRun(t, `null`)
}

// state describes all events, steps and work: whether the work is leased, and how often it was delivered.
func (s *inlineStartTest) state(t *testing.T) string {
	t.Helper()
	var text string
	s.Scan(t, `
		SELECT coalesce((SELECT string_agg(concat_ws(' ', seq, type, correlation_id), ', ' ORDER BY run_id, seq) FROM events), '')
			|| ' | ' || coalesce((SELECT string_agg(concat_ws(' ', id, status, attempt), ', ' ORDER BY id) FROM steps), '')
			|| ' | ' || coalesce((SELECT string_agg(concat_ws(' ', work, subject, lease <> '', delivery_count),
				', ' ORDER BY work, subject) FROM messages), '')`, nil, &text)
	return text
}

// startingAction is an operation that starts work inline, on a server whose database connection may break.
type startingAction func(t *testing.T, s *inlineStartTest, broken *server) error

// answerRun prepares a run's invocation, and returns the action that answers it.
func answerRun(answer string) func(*testing.T, *inlineStartTest, *server) startingAction {
	return func(t *testing.T, s *inlineStartTest, by *server) startingAction {
		t.Helper()
		work := s.claim(t, message.WorkRun, "")
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

// finishStep prepares a run with step s, and returns the action that appends its result.
func finishStep(answer string) func(*testing.T, *inlineStartTest, *server) startingAction {
	return func(t *testing.T, s *inlineStartTest, by *server) startingAction {
		t.Helper()
		if err := answerRun(answer)(t, s, by)(t, s, by); err != nil {
			t.Fatal(err)
		}
		work := s.claim(t, message.WorkStep, "s")
		return func(t *testing.T, _ *inlineStartTest, broken *server) error {
			t.Helper()
			w := broken.newWorker(t, broken.works)
			return broken.runs.finish(t.Context(), w.Bind(work), eventlog.Request{
				Type: entities.EventStepCompleted, CorrelationID: "s", SpecVersion: entities.SpecDriven, Payload: []byte(`1`),
			})
		}
	}
}

// wakeRun prepares a run whose wait is over, and returns the action that wakes it.
func wakeRun(t *testing.T, s *inlineStartTest, by *server) startingAction {
	t.Helper()
	if err := answerRun(`{"type":"wait","id":"w","for":"1ms"}`)(t, s, by)(t, s, by); err != nil {
		t.Fatal(err)
	}
	due := s.awaitDue(t, s.run)
	return func(t *testing.T, s *inlineStartTest, broken *server) error {
		t.Helper()
		return broken.wake(t.Context(), s.run, due)
	}
}

// inlineStartCase is an operation that starts work inline.
type inlineStartCase struct {
	// prepare prepares the operation on the given server, after a reset.
	prepare   func(*testing.T, *inlineStartTest, *server) startingAction
	work      message.Work // the work that starts
	subject   string
	lastEvent string // the last event of the log
	// optimistic is set if the operation is one statement on the server that prepared it.
	optimistic bool
}

func inlineStartCases() map[string]inlineStartCase {
	return map[string]inlineStartCase{
		"a start": {
			prepare: func(t *testing.T, s *inlineStartTest, _ *server) startingAction {
				t.Helper()
				s.Exec(t, `DELETE FROM runs`)
				s.Exec(t, `DELETE FROM messages`)
				return func(t *testing.T, s *inlineStartTest, broken *server) error {
					t.Helper()
					_, _, err := broken.log.Start(t.Context(), project, eventlog.Request{
						RunID: s.run, Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven,
						Data: entities.EventData{DeploymentID: deployment, WorkflowName: "order", Driver: entities.DriverServer},
					})
					return err
				}
			},
			work: message.WorkRun, lastEvent: "run_started", optimistic: true,
		},
		"a step": {
			prepare: answerRun(`{"type":"runStep","id":"s"}`),
			work:    message.WorkStep, subject: "s", lastEvent: "step_started s", optimistic: true,
		},
		"an answer after a wait ended": {
			prepare: answerRun(`{"type":"wait","id":"w","for":"0s"}`), work: message.WorkRun, lastEvent: "wait_completed w",
		},
		"a result": {
			prepare: finishStep(`{"type":"runStep","id":"s"}`), work: message.WorkRun, lastEvent: "step_completed s", optimistic: true,
		},
		"the end of a short wait": {prepare: wakeRun, work: message.WorkRun, lastEvent: "wait_completed w", optimistic: true},
		"a result after a wait ended": {
			prepare: finishStep(`{"type":"runStep","id":"s"},{"type":"wait","id":"w","for":"0s"}`),
			work:    message.WorkRun, lastEvent: "wait_completed w",
		},
	}
}

// TestInlineStartSurvivesACrashAtAnyStatement interrupts transactions that start work inline: it kills the server's
// session before a statement, or cuts the connection after it, the commit included. Afterwards all of the transaction
// is there, with the start, or nothing. The function was not called, so the work is released, and the next holder
// continues the first attempt.
func TestInlineStartSurvivesACrashAtAnyStatement(t *testing.T) {
	t.Parallel()
	for name, tt := range inlineStartCases() {
		for _, cached := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, cached: %v", name, cached), func(t *testing.T) {
				t.Parallel()
				tt.crashAtAnyStatement(t, cached)
			})
		}
	}
}

// crashAtAnyStatement performs the operation on a server with or without the run in its cache.
func (tt inlineStartCase) crashAtAnyStatement(t *testing.T, cached bool) {
	t.Helper()
	dsn := testdb.New(t)
	s := newInlineStartTest(t, dsn)
	session := gate.Open(t, dsn, s.pool, nil)
	broken := serverOn(t, session.Pool)
	by := s.server
	if cached {
		by = broken
	}
	// attempt prepares and performs the operation, with a crash at statement n.
	attempt := func(t *testing.T, n int, crash gate.Crash) (do startingAction, untouched string, statements []string, err error) {
		t.Helper()
		broken.Attach(nil)
		s.reset(t, by)
		do = tt.prepare(t, s, by)
		broken.Attach(s.worker)
		untouched = s.state(t)
		// The limits of the project are read once in a while, which would be a further statement.
		if err := broken.log.CheckMessage(t.Context(), project, s.run); err != nil {
			t.Fatal(err)
		}
		statements = session.Run(t, n, crash, func() { err = do(t, s, broken) })
		return do, untouched, statements, err
	}
	_, _, statements, err := attempt(t, -1, gate.None)
	if err != nil {
		t.Fatal(err)
	}
	if c := testdb.Receive(t, "the call", s.calls); c.Attempt != 1 {
		t.Errorf("attempt %d, want 1", c.Attempt)
	}
	commit := len(statements) - 1
	if statements[commit] != "COMMIT" {
		t.Fatalf("the last statement of %q is no commit", statements)
	}
	if tt.optimistic && cached && commit != 1 {
		t.Errorf("got statements %q, want one and the commit", statements)
	}
	for n, sql := range statements {
		for _, how := range gate.Crashes(sql) {
			what := fmt.Sprintf("%s at %d, %.40s", how, n, strings.TrimSpace(sql))
			do, untouched, _, err := attempt(t, n, how)
			if err == nil {
				t.Errorf("%s: got no error", what)
			}
			if n != commit || how != gate.AnswerLost {
				if got := s.state(t); got != untouched {
					t.Errorf("%s: got state\n%s\nwant\n%s", what, got, untouched)
				}
				if err := do(t, s, s.server); err != nil {
					t.Errorf("%s: repeating the operation: %v", what, err)
				}
				continue
			}
			tt.checkContinued(t, s, what)
		}
	}
}

// checkContinued fails the test unless the started work is released, and the next holder continues the first attempt.
func (tt inlineStartCase) checkContinued(t *testing.T, s *inlineStartTest, what string) {
	t.Helper()
	if got := s.events(t, s.run); got[len(got)-1] != tt.lastEvent {
		t.Errorf("%s: the log is %q, want %q at its end", what, got, tt.lastEvent)
	}
	testdb.Eventually(t, "the work is released", func() bool {
		return s.Count(t, `SELECT count(*) FROM messages WHERE lease = '' AND delivery_count = 0
			AND work = $1 AND subject = $2`, tt.work, tt.subject) == 1
	})
	log := s.events(t, s.run)
	if len(s.calls) > 0 {
		t.Errorf("%s: the function was called before the work was claimed", what)
	}
	if _, err := s.worker.Perform(t.Context(), s.claim(t, tt.work, tt.subject)); err != nil {
		t.Error(err)
	}
	if c := testdb.Receive(t, "the call", s.calls); c.Attempt != 1 {
		t.Errorf("%s: attempt %d, want 1", what, c.Attempt)
	}
	if again := s.events(t, s.run)[len(log):]; slices.Contains(again, tt.lastEvent) {
		t.Errorf("%s: the start was recorded again: %q", what, again)
	}
}

// dyingQueue is the queue of a server that dies right after each commit.
type dyingQueue struct{ *queue.Queue }

func (q dyingQueue) Enqueue(
	ctx context.Context, tx pgx.Tx, before *pgx.Batch, messages []message.Message,
) ([]*eventlog.InlineStart, func(error), error) {
	begins, _, err := q.Queue.Enqueue(ctx, tx, before, messages)
	return begins, func(error) {}, err
}

func (q dyingQueue) EnqueueOptimistic(
	c *pg.Conditional, messages []message.Message,
) ([]*eventlog.InlineStart, func(error), bool) {
	begins, _, ok := q.Queue.EnqueueOptimistic(c, messages)
	return begins, func(error) {}, ok
}

// TestServerKilledBeforeItsInlineCallLosesNothing: another server makes the call, as the first attempt.
func TestServerKilledBeforeItsInlineCallLosesNothing(t *testing.T) {
	t.Parallel()
	for _, work := range []message.Work{message.WorkRun, message.WorkStep} {
		t.Run(string(work), func(t *testing.T) {
			t.Parallel()
			dsn := testdb.New(t)
			dead := idleServer(t, dsn)
			w := dead.newWorker(t)
			dead.onRecord(t, w.ProcessID()) // it neither beats nor holds its lock
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
			if work == message.WorkRun {
				dead.Attach(w)
			}
			id := (&server{dead.replica, log, New(dead.Queue, log)}).startRun(t, `null`)
			if work == message.WorkStep {
				d := dead.claim(t, message.WorkRun, "")
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
			started := map[message.Work]string{message.WorkRun: "run_started", message.WorkStep: "step_started s"}[work]
			if log := dead.events(t, id); log[len(log)-1] != started {
				t.Fatalf("the log is %q, want %q at its end", log, started)
			}
			if n := dead.Count(t, `SELECT count(*) FROM messages WHERE holder = $1`, w.ProcessID()); n != 1 {
				t.Fatalf("the dead server holds %d leases, want 1", n)
			}
			live.worker(t, live.works)
			live.wantEnd(t, id, entities.RunCompleted, `null`)
			calls := map[message.Work]int32{message.WorkRun: 3, message.WorkStep: 2}[work]
			if steps.Load() != 1 || first.Load() != calls {
				t.Errorf("the step was called %d times, and %d calls were first attempts, want 1 and %d",
					steps.Load(), first.Load(), calls)
			}
			// The attempt that the dead server started is in the log, as if the server had died during the call.
			want := map[message.Work]int{message.WorkRun: 1, message.WorkStep: 2}[work]
			if n := live.countEvents(t, id, "step_started s"); n != want {
				t.Errorf("the step started %d times, want %d", n, want)
			}
			if n := live.countEvents(t, id, "run_started"); n != 1 {
				t.Errorf("the run started %d times, want once", n)
			}
		})
	}
}

// TestStepsWithoutAFreeSlotStartLater: each is called once and started once.
func TestStepsWithoutAFreeSlotStartLater(t *testing.T) {
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
	d.Want(t, "starts", steps, `SELECT count(*) FROM events WHERE run_id = $1 AND type = 'step_started'`, id)
}

// TestLeaseCoversTheAttemptsTimeout: the lease of an inline start lasts for the attempt's timeout and the time to
// record the result.
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
			work := d.claim(t, message.WorkRun, "")
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
			d.Scan(t, `SELECT due_at - clock_timestamp() FROM messages WHERE work = 'step' AND holder = $1`,
				[]any{w.ProcessID()}, &left)
			if left > want || left < want-recordTime/2 {
				t.Errorf("the lease lasts for %s, want %s", left, want)
			}
		})
	}
}
