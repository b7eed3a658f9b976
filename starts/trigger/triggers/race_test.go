package triggers_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/starts/trigger"
	"github.com/stepwell-dev/stepwell/starts/trigger/triggers"
)

// TestRacersStartARunOnce: two servers and many deliveries of the same work and the same request, while others change
// the trigger.
func TestRacersStartARunOnce(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	servers := []*server{newServer(t, dsn), newServer(t, dsn)}
	servers[0].Register(t)
	const racers = 8
	race := func(do func(s *server) error) {
		t.Helper()
		var all sync.WaitGroup
		for i := range racers {
			all.Go(func() {
				if err := do(servers[i%2]); err != nil && !errors.Is(err, message.ErrStale) && !errors.Is(err, trigger.ErrChanged) {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	spec := onSignal("")
	for round := range 3 {
		servers[0].put(t, spec)
		servers[0].post(t, `1`)
		for _, work := range []message.Work{message.WorkSignal, message.WorkTrigger} {
			d, _ := servers[0].Claim(t, work, "")
			race(func(s *server) error { return s.handlers[work](t.Context(), s.Bind(t, d)) })
			race(func(s *server) error {
				_, _, err := s.Put(t.Context(), project, "t", func() trigger.Spec { spec := spec; spec.Timeout = time.Hour; return spec }())
				return err
			})
		}
		servers[0].settle(t)
		want := make([]trigger.Decision, round+1)
		for i := range want {
			want[i] = trigger.Started
		}
		servers[0].wantHistory(t, want...)
	}
	hook := servers[0].put(t, trigger.Spec{Kind: trigger.KindWebhook, Workflow: "report"})
	race(func(s *server) error {
		done, err := s.Receive(t.Context(), hook, triggers.Request{ID: "hreq_1", Payload: []byte(`{}`)})
		if err == nil && done.Decision != trigger.Started {
			err = fmt.Errorf("it was %s", done.Decision)
		}
		return err
	})
	servers[0].wantHistory(t, trigger.Started, trigger.Started, trigger.Started, trigger.Started)
}

// TestRacingPutsStayWithinTheLimit of triggers that wait for the same.
func TestRacingPutsStayWithinTheLimit(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	var all sync.WaitGroup
	for i := range trigger.MaxSame + 8 {
		all.Go(func() {
			_, _, err := s.Put(t.Context(), project, fmt.Sprint("t", i), onSignal(""))
			if err != nil && !errors.Is(err, trigger.ErrTooMany) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := s.Count(t, `SELECT count(*) FROM triggers`); n != trigger.MaxSame {
		t.Errorf("there are %d triggers, want %d", n, trigger.MaxSame)
	}
	if _, _, err := s.Put(t.Context(), project, "t", onEnd("")); err != nil {
		t.Errorf("one that waits for something else: %v", err)
	}
	if _, _, err := s.Put(t.Context(), project, "t", onSignal("")); !errors.Is(err, trigger.ErrTooMany) {
		t.Errorf("the same one, changed to wait for the signal too: %v", err)
	}
}

// crashes are what is interrupted at each of its statements: how it is prepared, and what it does.
var crashes = []struct {
	name string
	// prepare returns what a server does.
	prepare func(t *testing.T, s *server) func(*server) error
}{
	{"signal", func(t *testing.T, s *server) func(*server) error {
		s.put(t, onSignal(""))
		s.post(t, `1`)
		d, _ := s.Claim(t, message.WorkSignal, "")
		return func(s *server) error { return s.handlers[message.WorkSignal](t.Context(), s.Bind(t, d)) }
	}},
	{"start", func(t *testing.T, s *server) func(*server) error {
		s.put(t, onSignal(""))
		s.post(t, `1`)
		s.do(t, message.WorkSignal)
		d, _ := s.Claim(t, message.WorkTrigger, "")
		return func(s *server) error { return s.Handle(t.Context(), s.Bind(t, d)) }
	}},
	{"end of a run", func(t *testing.T, s *server) func(*server) error {
		s.put(t, onEnd(""))
		id := s.run(t)
		return func(s *server) error {
			_, err := s.Log.Append(t.Context(), project, eventlog.Request{
				RunID: id, Type: entities.EventRunCompleted, SpecVersion: entities.SpecDriven, Payload: []byte(`1`),
			})
			if errors.Is(err, entities.ErrConflict) {
				return nil // it had been committed
			}
			return err
		}
	}},
	{"start for the end of a run", func(t *testing.T, s *server) func(*server) error {
		s.put(t, onEnd(""))
		s.end(t, s.run(t), entities.EventRunCompleted)
		d, _ := s.Claim(t, message.WorkTrigger, "")
		return func(s *server) error { return s.Handle(t.Context(), s.Bind(t, d)) }
	}},
	{"request", func(t *testing.T, s *server) func(*server) error {
		trg := s.put(t, trigger.Spec{Kind: trigger.KindWebhook, Workflow: "report"})
		return func(s *server) error {
			_, err := s.Receive(t.Context(), trg, triggers.Request{ID: "hreq_1", Payload: []byte(`{}`)})
			return err
		}
	}},
}

// TestEventSurvivesACrashAtAnyStatement interrupts each of [crashes] at each statement: it kills the session before it,
// or cuts the connection after it, the commit included. Right after it, there is a run with its history or neither.
// Then another server does the same again, as it would for a takeover or a retry: there is one run.
func TestEventSurvivesACrashAtAnyStatement(t *testing.T) {
	t.Parallel()
	for _, crash := range crashes {
		t.Run(crash.name, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.New(t)
			home := newServer(t, dsn)
			home.Register(t)
			session := gate.Open(t, dsn, home.Pool, nil)
			broken := serverOn(t, session.Pool)
			attempt := func(n int, how gate.Crash) (statements []string, again func(*server) error) {
				for _, table := range []string{"messages", "events", "runs", "triggers", "signals", "trigger_events"} {
					home.Exec(t, `DELETE FROM `+table)
				}
				do := crash.prepare(t, home)
				statements = session.Run(t, n, how, func() { _ = do(broken) })
				return statements, do
			}
			attempt(-1, gate.None) // it also reads the project's limits, which are then known
			statements, _ := attempt(-1, gate.None)
			for n, sql := range statements {
				for _, how := range gate.Crashes(sql) {
					_, again := attempt(n, how)
					what := fmt.Sprintf("%s at %d, %.40s", how, n, strings.TrimSpace(sql))
					runs := home.Count(t, `SELECT count(*) FROM runs WHERE workflow_name = 'report'`)
					if rows := home.Count(t, `SELECT count(*) FROM trigger_events WHERE decision = 'started'`); rows != runs {
						t.Errorf("%s: %d runs, %d rows of history", what, runs, rows)
					}
					if err := again(home); err != nil && !errors.Is(err, message.ErrStale) {
						t.Errorf("%s: again: %v", what, err)
					}
					home.settle(t)
					if list := home.history(t); len(list) != 1 || list[0].Decision != trigger.Started {
						t.Errorf("%s: got the history %+v", what, list)
					}
					if n := home.Count(t, `SELECT count(*) FROM runs WHERE workflow_name = 'report'`); n != 1 {
						t.Errorf("%s: there are %d runs", what, n)
					}
				}
			}
			if len(statements) < 3 {
				t.Errorf("only the statements %q", statements)
			}
			t.Logf("%d statements", len(statements))
		})
	}
}

// TestFailedStartLeavesNoTrace makes the last statement fail, which ends the work.
func TestFailedStartLeavesNoTrace(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	s.put(t, onSignal(""))
	s.post(t, `1`)
	s.do(t, message.WorkSignal)
	d, _ := s.Claim(t, message.WorkTrigger, "")
	s.Exec(t, `
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''broken''; END';
		CREATE TRIGGER broken BEFORE DELETE ON messages FOR EACH ROW EXECUTE FUNCTION refuse()`)
	if err := s.Handle(t.Context(), d); err == nil {
		t.Fatal("got no error")
	}
	s.wantHistory(t, trigger.Retrying)
	if n := s.Count(t, `SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM messages WHERE work = 'run')`); n != 0 {
		t.Errorf("%d events and invocations are left", n)
	}
	s.Exec(t, `DROP TRIGGER broken ON messages`)
	s.settle(t)
	s.wantHistory(t, trigger.Started)
}

// TestDrainsStartRuns of a server in function mode, which does nothing between requests.
func TestDrainsStartRuns(t *testing.T) {
	t.Parallel()
	s := newApp(t)
	s.put(t, onSignal(""))
	s.post(t, `1`)
	delete(s.handlers, message.WorkRun) // the app is not there
	d := s.Queue.NewDrainer(queue.WorkerOptions{
		Deliveries: 10, MaxDeliveries: 10, BodyMemory: 1 << 20, Logger: slog.New(slog.DiscardHandler), Allowed: egress.Allowed{},
		Handlers: s.handlers,
	})
	t.Cleanup(d.Stop)
	run, err := d.StartDrain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Run(t.Context(), 30*time.Second, 0); err != nil {
		t.Fatal(err)
	}
	s.wantHistory(t, trigger.Started)
}
