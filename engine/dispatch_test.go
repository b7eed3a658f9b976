package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/queue"
)

// idleServer opens a server whose hub does not run.
func idleServer(t *testing.T, dsn string) *server {
	t.Helper()
	return serverOn(t, idleReplica(t, dsn).pool)
}

// whereSignalsMeetHooks selects the statements at which the order of a signal and a hook matters: their inserts, the
// queries of each for the other, and the commits of these and of new events.
func whereSignalsMeetHooks() func(sql string) bool {
	wrote := false
	return func(sql string) bool {
		if sql == "COMMIT" {
			matters := wrote
			wrote = false
			return matters
		}
		wrote = wrote || strings.Contains(sql, "INSERT INTO signals") || strings.Contains(sql, "INSERT INTO events")
		for _, part := range []string{"INTO signals", "INTO hooks", "h.signal = $2", "keep_until >= $5"} {
			if strings.Contains(sql, part) {
				return true
			}
		}
		return false
	}
}

// TestSignalAndReplayingHookMeetOnce: one server posts and dispatches a signal, another creates a hook and replays.
// Both stop at the statements that read or write the other's rows, and before their commits. In every order of these,
// the hook receives the signal exactly once, whether it looks back and the signal is kept, or its run had started before.
func TestSignalAndReplayingHookMeetOnce(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]time.Duration{"kept": time.Hour, "remembered": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signalMeetsHook(t, kept)
		})
	}
}

func signalMeetsHook(t *testing.T, kept time.Duration) {
	t.Helper()
	dsn := testdb.New(t)
	home := idleServer(t, dsn)
	one, two := gate.Open(t, dsn, home.pool, whereSignalsMeetHooks()), gate.Open(t, dsn, home.pool, whereSignalsMeetHooks())
	poster, opener := serverOn(t, one.Pool), serverOn(t, two.Pool)
	round := 0
	n := gate.Explore(t, one, two, func(schedule *gate.Schedule) {
		round++
		name := fmt.Sprintf("signal_%d", round)
		h := hook{id: fmt.Sprintf("hook_%d", round), signal: name, lookBack: kept}
		run := home.startWithHooks(t, project)
		var s store.Signal
		schedule.Run(t, func() {
			var err error
			if s, _, err = New(poster.Queue, poster.log).PostSignal(t.Context(), newSignal(`1`, named(name)), kept); err != nil {
				t.Errorf("post: %v", err)
				return
			}
			work := poster.claimFrom(t, home, message.WorkSignal, string(s.ID))
			if err := newSignalDispatch(poster.runs).dispatch(t.Context(), work); err != nil {
				t.Errorf("dispatch: %v", err)
			}
		}, func() {
			if _, err := opener.log.AppendAll(t.Context(), project, run, []eventlog.Request{h.request()}, eventlog.AppendOptions{}); err != nil {
				t.Errorf("open hook: %v", err)
				return
			}
			work := opener.claimFrom(t, home, message.WorkLookBack, h.id)
			if err := newSignalDispatch(opener.runs).replay(t.Context(), work); err != nil {
				t.Errorf("replay: %v", err)
			}
		})
		if diff := cmp.Diff(map[string][]string{h.id: {string(signalPayload(s))}}, home.received(t, project, run)); diff != "" {
			t.Fatalf("received (-want +got):\n%s\n%s", diff, schedule)
		}
		if schedule.Deadlocked || home.countSignalWork(t) != 0 {
			t.Errorf("deadlock: %v; work left: %d\n%s", schedule.Deadlocked, home.countSignalWork(t), schedule)
		}
	})
	if n < 20 {
		t.Errorf("got only %d schedules", n)
	}
	t.Logf("%d schedules", n)
}

// crashTest is an operation on signals that crashes and is repeated.
type crashTest struct {
	// set prepares the operation, and returns the runs that receive a signal in the end.
	set func(*testing.T, *server) []entities.RunID
	// do performs the operation on a server; home claims the work for it.
	do func(t *testing.T, home, on *server) error
	// work is what is not left in the end.
	work message.Work
	// want is the number of signals that each run receives.
	want int
}

// performWork claims the work, if it is not done yet, and performs it on the server.
func performWork(work message.Work, do func(signalDispatch, context.Context, queue.Delivery) error) func(*testing.T, *server, *server) error {
	return func(t *testing.T, home, on *server) error {
		t.Helper()
		var subject string
		if home.Count(t, `SELECT count(*) FROM messages WHERE work = $1`, work) == 0 {
			return nil // it is done
		}
		home.Scan(t, `SELECT subject FROM messages WHERE work = $1`, []any{work}, &subject)
		h := newSignalDispatch(on.runs)
		h.page, h.parallel = 1, 1
		return do(h, t.Context(), on.claimFrom(t, home, work, subject))
	}
}

// TestSignalDispatchSurvivesACrashAtAnyStatement crashes operations on signals before and after each statement, and
// repeats them on another server. Each hook receives each signal exactly once.
func TestSignalDispatchSurvivesACrashAtAnyStatement(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	home := idleServer(t, dsn)
	for name, test := range map[string]crashTest{
		"dispatch": {
			set: func(t *testing.T, d *server) []entities.RunID {
				t.Helper()
				runs := []entities.RunID{
					d.startWithHooks(t, project, hook{id: "a", signal: "paid"}), d.startWithHooks(t, project, hook{id: "b", signal: "paid"}),
				}
				d.postSignal(t, 0, newSignal(`1`))
				return runs
			},
			do: performWork(message.WorkSignal, signalDispatch.dispatch), work: message.WorkSignal, want: 1,
		},
		"replay": {
			set: func(t *testing.T, d *server) []entities.RunID {
				t.Helper()
				for i := range 2 {
					d.dispatchSignal(t, d.postSignal(t, time.Hour, newSignal(fmt.Sprint(i))))
				}
				return []entities.RunID{d.startWithHooks(t, project, hook{id: "a", signal: "paid", lookBack: time.Hour})}
			},
			do: performWork(message.WorkLookBack, signalDispatch.replay), work: message.WorkLookBack, want: 2,
		},
		"post": {
			set: func(t *testing.T, d *server) []entities.RunID {
				t.Helper()
				return []entities.RunID{d.startWithHooks(t, project, hook{id: "a", signal: "paid"})}
			},
			do: func(t *testing.T, home, on *server) error {
				t.Helper()
				if _, _, err := New(on.Queue, on.log).PostSignal(t.Context(), newSignal(`1`, withKey("key")), 0); err != nil || on != home {
					return err
				}
				home.Want(t, "pieces of work", 1, `SELECT count(*) FROM messages WHERE work = 'signal'`)
				return performWork(message.WorkSignal, signalDispatch.dispatch)(t, home, home)
			},
			work: message.WorkSignal, want: 1,
		},
	} {
		t.Run(name, func(t *testing.T) { // not parallel: all subtests use the same signals
			session := gate.Open(t, dsn, home.pool, nil)
			broken := serverOn(t, session.Pool)
			attempt := func(t *testing.T, n int, crash gate.Crash) (runs []entities.RunID, statements []string, err error) {
				t.Helper()
				home.Exec(t, `DELETE FROM messages`)
				home.Exec(t, `DELETE FROM signals`)
				home.Exec(t, `DELETE FROM hooks`)
				runs = test.set(t, home)
				statements = session.Run(t, n, crash, func() { err = test.do(t, home, broken) })
				return runs, statements, err
			}
			_, statements, err := attempt(t, -1, gate.None)
			if err != nil || len(statements) < 3 {
				t.Fatalf("without a crash: %v, %q", err, statements)
			}
			for n, sql := range statements {
				for _, how := range gate.Crashes(sql) {
					runs, _, err := attempt(t, n, how)
					what := fmt.Sprintf("%s at %d, %.40s", how, n, strings.TrimSpace(sql))
					if err == nil && home.countSignalWork(t, test.work) != 0 { // the end of work persists
						t.Errorf("%s: got no error", what)
					}
					if err := test.do(t, home, home); err != nil {
						t.Errorf("%s: repeating the operation: %v", what, err)
					}
					for _, run := range runs {
						for _, got := range home.received(t, project, run) {
							if len(got) != test.want {
								t.Errorf("%s: %s received %q, want %d", what, run, got, test.want)
							}
						}
						if len(home.received(t, project, run)) != 1 {
							t.Errorf("%s: %s received nothing", what, run)
						}
					}
					if home.countSignalWork(t, test.work) != 0 {
						t.Errorf("%s: work is left", what)
					}
				}
			}
			t.Logf("%d statements", len(statements))
		})
	}
}

// TestRacersDispatchASignalOnce: a server that lost its lease without noticing continues beside those that took over.
func TestRacersDispatchASignalOnce(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	servers := []*server{idleServer(t, dsn), idleServer(t, dsn)}
	d := servers[0]
	var runs []entities.RunID
	for range 20 {
		runs = append(runs, d.startWithHooks(t, project, hook{id: "a", signal: "paid"}, hook{id: "b", signal: "paid"}))
	}
	s := d.postSignal(t, 0, newSignal(`1`))
	var all sync.WaitGroup
	for i := range 6 {
		work := servers[i%2].claimFrom(t, d, message.WorkSignal, string(s.ID))
		h := newSignalDispatch(servers[i%2].runs)
		h.page = 7
		all.Go(func() {
			err := h.dispatch(t.Context(), work)
			if stale := errors.Is(err, message.ErrStale); err != nil && !stale {
				t.Errorf("racer %d: %v", i, err)
			}
		})
	}
	all.Wait()
	want := []string{string(signalPayload(s))}
	for _, run := range runs {
		d.wantReceived(t, project, run, map[string][]string{"a": want, "b": want})
	}
	if n := d.countSignalWork(t, message.WorkSignal); n != 0 {
		t.Errorf("%d pieces of work are left", n)
	}
}

// TestTwoServersDispatchToManyHooks: a thousand runs receive three signals, posted at the same time, once each.
func TestTwoServersDispatchToManyHooks(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	servers := []*server{newServer(t, dsn), newServer(t, dsn)}
	d := servers[0]
	const runs, signals = 1000, 3
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range runs / 4 {
				servers[i%2].startWithHooks(t, project, hook{id: "h", signal: "paid", condition: `data.n >= 0`})
			}
		})
	}
	all.Wait()
	d.Exec(t, `DELETE FROM messages`) // so that no run is invoked
	for _, s := range servers {
		s.worker(t, s.works)
	}
	for i := range signals {
		d.postSignal(t, 0, newSignal(fmt.Sprintf(`{"n":%d}`, i)))
	}
	testdb.Eventually(t, "the signals are dispatched", func() bool { return d.countSignalWork(t) == 0 })
	var total, distinct int
	d.Scan(t, `SELECT count(*), count(DISTINCT (run_id, data ->> 'resumeId')) FROM events WHERE type = 'hook_received'`,
		nil, &total, &distinct)
	if total != runs*signals || distinct != total {
		t.Errorf("runs received %d signals, %d of them distinct; want %d", total, distinct, runs*signals)
	}
}

// TestHookThatCannotBeResumedDoesNotBlockOthers on any page, and receives its signal as soon as it can be resumed.
func TestHookThatCannotBeResumedDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	var runs []entities.RunID
	for range 6 {
		runs = append(runs, d.startWithHooks(t, project, hook{id: "h", signal: "paid"}))
	}
	stuck := runs[2]
	d.Exec(t, `ALTER TABLE events ADD CONSTRAINT stuck CHECK (run_id <> '`+string(stuck)+`') NOT VALID`)
	s := d.postSignal(t, 0, newSignal(`1`))
	want := map[string][]string{"h": {string(signalPayload(s))}}
	h := newSignalDispatch(d.runs)
	h.page = 2
	if err := h.dispatch(t.Context(), d.claimFrom(t, d, message.WorkSignal, string(s.ID))); err == nil {
		t.Error("got no error")
	}
	for _, run := range runs {
		if run == stuck {
			d.wantReceived(t, project, run, map[string][]string{})
		} else {
			d.wantReceived(t, project, run, want)
		}
	}
	d.Exec(t, `ALTER TABLE events DROP CONSTRAINT stuck`)
	again := d.claimFrom(t, d, message.WorkSignal, string(s.ID))
	if cursor := string(again.Body); !strings.Contains(cursor, string(runs[1])) {
		t.Errorf("the retry continues after %q, want the last hook before the page of the failure", cursor)
	}
	if err := h.dispatch(t.Context(), again); err != nil {
		t.Error(err)
	}
	for _, run := range runs {
		d.wantReceived(t, project, run, want)
	}
}
