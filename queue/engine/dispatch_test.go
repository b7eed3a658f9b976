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
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/queue"
)

// serverOn is a server on another pool of the same database, whose worker does not run.
func serverOn(t *testing.T, pool *pgxpool.Pool) *server {
	t.Helper()
	return on(t, pool)
}

// idleServer opens a server whose hub is deaf.
func idleServer(t *testing.T, dsn string) *server {
	t.Helper()
	return serverOn(t, idleReplica(t, dsn).pool)
}

// whereSignalsMeetHooks is of the statements where signals and hooks meet: the writes of both, their commits, the looks for the
// other, and the commits of what follows from these.
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

// TestSignalAndReplayingHookMeetOnce has one server post a signal and hand it over, and another open a hook and
// look back, and stops both where they read or write what the other is about, and before their commits. In every
// order of these the hook gets the signal, and gets it once.
func TestSignalAndReplayingHookMeetOnce(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	home := idleServer(t, dsn)
	one, two := gate.Open(t, dsn, home.pool, whereSignalsMeetHooks()), gate.Open(t, dsn, home.pool, whereSignalsMeetHooks())
	poster, opener := serverOn(t, one.Pool), serverOn(t, two.Pool)
	round := 0
	n := gate.Explore(t, one, two, func(schedule *gate.Schedule) {
		round++
		name := fmt.Sprintf("signal_%d", round)
		h := hook{id: fmt.Sprintf("hook_%d", round), signal: name, lookBack: time.Hour}
		run := home.startWithHooks(t, project)
		var s store.Signal
		schedule.Run(t, func() {
			var err error
			if s, _, err = New(poster.Queue, poster.log).PostSignal(t.Context(), newSignal(`1`, named(name)), time.Hour); err != nil {
				t.Errorf("post: %v", err)
				return
			}
			work := poster.claimFrom(t, home, entities.WorkSignal, string(s.ID))
			if err := newSignalDispatch(poster.runs).dispatch(t.Context(), work); err != nil {
				t.Errorf("hand over: %v", err)
			}
		}, func() {
			if _, err := opener.log.AppendAll(t.Context(), project, run, []eventlog.Request{h.request()}, eventlog.AppendOptions{}); err != nil {
				t.Errorf("open hook: %v", err)
				return
			}
			work := opener.claimFrom(t, home, entities.WorkLookBack, h.id)
			if err := newSignalDispatch(opener.runs).replay(t.Context(), work); err != nil {
				t.Errorf("look back: %v", err)
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
		t.Errorf("%d schedules only", n)
	}
	t.Logf("%d schedules", n)
}

// crashTest is something a server does about signals, that is broken off and repeated.
type crashTest struct {
	// set sets the scene, and returns the runs that receive something in the end.
	set func(*testing.T, *server) []entities.RunID
	// do does it on a server; where home is what claims for it.
	do func(t *testing.T, home, on *server) error
	// want is how much each of the runs receives in the end.
	want int
}

// performWork claims the work if it is there, and has the server do it.
func performWork(work entities.Work, do func(signalDispatch, context.Context, queue.Delivery) error) func(*testing.T, *server, *server) error {
	return func(t *testing.T, home, on *server) error {
		t.Helper()
		var subject string
		if home.replica.count(t, `SELECT count(*) FROM messages WHERE work = $1`, work) == 0 {
			return nil // it was done
		}
		home.scan(t, `SELECT subject FROM messages WHERE work = $1`, []any{work}, &subject)
		h := newSignalDispatch(on.runs)
		h.page, h.parallel = 1, 1
		return do(h, t.Context(), on.claimFrom(t, home, work, subject))
	}
}

// TestSignalDispatchSurvivesACrashAtAnyStatement breaks off what is done about signals at each statement, before it and
// when it was executed, and has another server do it again. Each hook gets each signal exactly once.
func TestSignalDispatchSurvivesACrashAtAnyStatement(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	home := idleServer(t, dsn)
	for name, test := range map[string]crashTest{
		"hand a signal over": {
			set: func(t *testing.T, d *server) []entities.RunID {
				t.Helper()
				runs := []entities.RunID{
					d.startWithHooks(t, project, hook{id: "a", signal: "paid"}), d.startWithHooks(t, project, hook{id: "b", signal: "paid"}),
				}
				d.postSignal(t, 0, newSignal(`1`))
				return runs
			},
			do: performWork(entities.WorkSignal, signalDispatch.dispatch), want: 1,
		},
		"look back": {
			set: func(t *testing.T, d *server) []entities.RunID {
				t.Helper()
				for i := range 2 {
					d.dispatchSignal(t, d.postSignal(t, time.Hour, newSignal(fmt.Sprint(i))))
				}
				return []entities.RunID{d.startWithHooks(t, project, hook{id: "a", signal: "paid", lookBack: time.Hour})}
			},
			do: performWork(entities.WorkLookBack, signalDispatch.replay), want: 2,
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
				if n := home.replica.count(t, `SELECT count(*) FROM messages WHERE work = 'signal'`); n != 1 {
					t.Errorf("%d pieces of work, want 1", n)
				}
				return performWork(entities.WorkSignal, signalDispatch.dispatch)(t, home, home)
			},
			want: 1,
		},
	} {
		t.Run(name, func(t *testing.T) { // not in parallel: each is about all signals
			session := gate.Open(t, dsn, home.pool, nil)
			broken := serverOn(t, session.Pool)
			attempt := func(t *testing.T, n int, crash gate.Crash) (runs []entities.RunID, statements []string, err error) {
				t.Helper()
				home.exec(t, `DELETE FROM messages`)
				home.exec(t, `DELETE FROM signals`)
				home.exec(t, `DELETE FROM hooks`)
				runs = test.set(t, home)
				statements = session.Run(t, n, crash, func() { err = test.do(t, home, broken) })
				return runs, statements, err
			}
			_, statements, err := attempt(t, -1, gate.None)
			if err != nil || len(statements) < 4 {
				t.Fatalf("without a crash: %v, %q", err, statements)
			}
			for n, sql := range statements {
				for _, how := range []gate.Crash{gate.Terminated, gate.AnswerLost} {
					runs, _, err := attempt(t, n, how)
					what := fmt.Sprintf("%s at %d, %.40s", how, n, strings.TrimSpace(sql))
					if err == nil {
						t.Errorf("%s: no error was returned", what)
					}
					if err := test.do(t, home, home); err != nil {
						t.Errorf("%s: the repetition: %v", what, err)
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
					if home.countSignalWork(t) != 0 {
						t.Errorf("%s: work is left", what)
					}
				}
			}
			t.Logf("%d statements", len(statements))
		})
	}
}

// TestRacersDispatchASignalOnce: a server that lost its lease unawares goes on beside those who took over.
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
		work := servers[i%2].claimFrom(t, d, entities.WorkSignal, string(s.ID))
		h := newSignalDispatch(servers[i%2].runs)
		h.page = 7
		all.Go(func() {
			err := h.dispatch(t.Context(), work)
			if stale := errors.Is(err, entities.ErrStale); err != nil && !stale {
				t.Errorf("racer %d: %v", i, err)
			}
		})
	}
	all.Wait()
	want := []string{string(signalPayload(s))}
	for _, run := range runs {
		d.wantReceived(t, project, run, map[string][]string{"a": want, "b": want})
	}
	if n := d.replica.count(t, `SELECT count(*) FROM signals`); n != 0 || d.countSignalWork(t) != 0 {
		t.Errorf("%d signals and %d pieces of work are left", n, d.countSignalWork(t))
	}
}

// TestTwoServersDispatchToManyHooks: a thousand runs get three signals that are posted at once, each once.
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
	d.exec(t, `DELETE FROM messages`) // nobody continues the runs
	for _, s := range servers {
		s.worker(t, func(o *queue.WorkerOptions) { o.Handlers = s.runs.Handlers() })
	}
	for i := range signals {
		d.postSignal(t, 0, newSignal(fmt.Sprintf(`{"n":%d}`, i)))
	}
	eventually(t, "the signals were handed over", func() bool { return d.countSignalWork(t) == 0 })
	var total, distinct int
	d.scan(t, `SELECT count(*), count(DISTINCT (run_id, data ->> 'resumeId')) FROM events WHERE type = 'hook_received'`,
		nil, &total, &distinct)
	if total != runs*signals || distinct != total {
		t.Errorf("%d were received, %d of them different; want %d", total, distinct, runs*signals)
	}
}

// TestHookThatCannotBeResumedDoesNotBlockOthers, on whichever page it is, and gets its signal when it can be.
func TestHookThatCannotBeResumedDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	d := idleServer(t, testdb.New(t))
	var runs []entities.RunID
	for range 6 {
		runs = append(runs, d.startWithHooks(t, project, hook{id: "h", signal: "paid"}))
	}
	stuck := runs[2]
	d.exec(t, `ALTER TABLE events ADD CONSTRAINT stuck CHECK (run_id <> '`+string(stuck)+`') NOT VALID`)
	s := d.postSignal(t, 0, newSignal(`1`))
	want := map[string][]string{"h": {string(signalPayload(s))}}
	h := newSignalDispatch(d.runs)
	h.page = 2
	if err := h.dispatch(t.Context(), d.claimFrom(t, d, entities.WorkSignal, string(s.ID))); err == nil {
		t.Error("no error was returned")
	}
	for _, run := range runs {
		if run == stuck {
			d.wantReceived(t, project, run, map[string][]string{})
		} else {
			d.wantReceived(t, project, run, want)
		}
	}
	d.exec(t, `ALTER TABLE events DROP CONSTRAINT stuck`)
	again := d.claimFrom(t, d, entities.WorkSignal, string(s.ID))
	if place := string(again.Body); !strings.Contains(place, string(runs[1])) {
		t.Errorf("goes on behind %q, want the last one before the failure's page", place)
	}
	if err := h.dispatch(t.Context(), again); err != nil {
		t.Error(err)
	}
	for _, run := range runs {
		d.wantReceived(t, project, run, want)
	}
}
