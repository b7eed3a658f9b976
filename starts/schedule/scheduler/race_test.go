package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/starts/schedule"
)

// TestRacersDecideATickOnce lets two servers and many deliveries decide the same ticks at once, while others change the
// schedule.
func TestRacersDecideATickOnce(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	servers := []*server{newServer(t, dsn), newServer(t, dsn)}
	servers[0].Register(t, "report")
	sched := servers[0].put(t, overlap(schedule.OverlapAllow))
	const rounds, racers = 5, 8
	for round := 1; round <= rounds; round++ {
		d := servers[0].claim(t, sched.ID)
		var race sync.WaitGroup
		for i := range racers {
			s := servers[i%2]
			s.At(time.Duration(round) * time.Hour)
			bound := s.Bind(t, d)
			race.Go(func() {
				if err := s.handle(t.Context(), bound); err != nil && !errors.Is(err, message.ErrStale) {
					t.Error(err)
				}
			})
		}
		race.Go(func() {
			if _, err := servers[0].Pause(t.Context(), project, "hourly", ""); err != nil {
				t.Error(err)
			}
			if _, err := servers[1].Resume(t.Context(), project, "hourly"); err != nil {
				t.Error(err)
			}
		})
		race.Wait()
		servers[0].deliver(t, sched.ID)
	}
	// Whether a tick started or was missed in a pause is a matter of chance, but each was decided, and none twice.
	_, list := servers[0].read(t)
	next := noon
	for _, tick := range list {
		if next = next.Add(time.Hour); !tick.At.Equal(next) || tick.Count != 1 {
			t.Fatalf("got %s", decisions(list))
		}
	}
	if len(list) != rounds {
		t.Errorf("got %s, want %d decisions", decisions(list), rounds)
	}
	started := servers[0].Count(t, `SELECT count(*) FROM schedule_ticks WHERE decision = 'started'`)
	if n := servers[0].Count(t, `SELECT count(*) FROM runs`); n != started {
		t.Errorf("there are %d runs for %d ticks", n, started)
	}
}

// TestRacingTriggersStartOneRun because the schedule skips overlap.
func TestRacingTriggersStartOneRun(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	servers := []*server{newServer(t, dsn), newServer(t, dsn)}
	servers[0].Register(t, "report")
	servers[0].put(t)
	var race sync.WaitGroup
	var started atomic.Int64
	for i := range 8 {
		race.Go(func() {
			_, err := servers[i%2].Trigger(t.Context(), project, "hourly")
			switch {
			case err == nil:
				started.Add(1)
			case !errors.Is(err, entities.ErrConflict):
				t.Error(err)
			}
		})
	}
	race.Wait()
	if n := started.Load(); n != 1 {
		t.Errorf("%d triggers say that they started a run", n)
	}
	servers[0].wantTicks(t, "trigger 12:00 started")
}

// TestDecisionSurvivesACrashAtAnyStatement interrupts a delivery at each statement: it kills the session before it, or
// cuts the connection after it, the commit included. Afterwards the run, the tick, the schedule and its work are as
// before or as after the decision. Another server then decides, and everything is there once. A decision that cancels a
// run takes several statements, and one that does not takes one.
func TestDecisionSurvivesACrashAtAnyStatement(t *testing.T) {
	t.Parallel()
	for o, orders := range map[schedule.Overlap]int{schedule.OverlapCancel: 1, schedule.OverlapAllow: 0} {
		t.Run(string(o), func(t *testing.T) {
			t.Parallel()
			crashDecisions(t, o, orders)
		})
	}
}

// crashDecisions interrupts decisions about schedules with the overlap, which give so many orders to cancel a run.
func crashDecisions(t *testing.T, o schedule.Overlap, orders int) {
	t.Helper()
	dsn := testdb.New(t)
	home := newServer(t, dsn)
	home.Register(t)
	session := gate.Open(t, dsn, home.pool, nil)
	broken := serverOn(t, session.Pool)
	attempt := func(n int, crash gate.Crash) (statements []string, id schedule.ID, err error) {
		for _, table := range []string{"messages", "runs", "schedules", "schedule_ticks"} {
			home.Exec(t, `DELETE FROM `+table)
		}
		home.At(0)
		id = home.put(t, overlap(o)).ID
		home.At(time.Hour)
		home.deliver(t, id)
		home.At(2 * time.Hour)
		broken.At(2 * time.Hour)
		d := broken.Bind(t, home.claim(t, id))
		statements = session.Run(t, n, crash, func() { err = broken.handle(t.Context(), d) })
		return statements, id, err
	}
	var statements []string
	for range 2 { // the first also reads the project's limits, which are then known
		var err error
		if statements, _, err = attempt(-1, gate.None); err != nil {
			t.Fatal(err)
		}
	}
	commit := -1
	for n, sql := range statements {
		if sql == "COMMIT" {
			commit = n
		}
	}
	if commit < 3 {
		t.Fatalf("no transaction in %q", statements)
	}
	for n, sql := range statements {
		for _, how := range gate.Crashes(sql) {
			what := fmt.Sprintf("%s at %d, %.40s", how, n, strings.TrimSpace(sql))
			_, id, err := attempt(n, how)
			committed := n == commit && how == gate.AnswerLost || n > commit
			if err == nil && n <= commit {
				t.Errorf("%s: got no error", what)
			}
			_, list := home.read(t)
			got := fmt.Sprintf("%s; %d runs, %d orders to cancel", decisions(list), home.Count(t, `SELECT count(*) FROM runs`),
				home.Count(t, `SELECT count(*) FROM messages WHERE work = 'cancel'`))
			want := "tick 13:00 started; 1 runs, 0 orders to cancel"
			if committed {
				want = fmt.Sprintf("tick 13:00 started, tick 14:00 started; 2 runs, %d orders to cancel", orders)
			}
			if got != want {
				t.Errorf("%s: got %s, want %s", what, got, want)
			}
			home.deliver(t, id)
			home.wantTicks(t, "tick 13:00 started, tick 14:00 started")
		}
	}
	t.Logf("%d statements", len(statements))
}

// TestFailedDecisionLeavesNoTrace makes the last statement fail, or the last part of the only one: it moves the work. A
// tick that is alone takes one statement, and one after a missed tick takes several.
func TestFailedDecisionLeavesNoTrace(t *testing.T) {
	t.Parallel()
	for hours, want := range map[int]string{1: "tick 13:00 started", 2: "tick 13:00 missed, tick 14:00 started"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, testdb.New(t))
			s.Register(t, "report")
			sched := s.put(t)
			s.At(time.Duration(hours) * time.Hour)
			before, _ := s.read(t)
			d := s.claim(t, sched.ID)
			s.Exec(t, `ALTER TABLE messages ADD CONSTRAINT broken CHECK (work <> 'schedule' OR lease <> '') NOT VALID`)
			if err := s.handle(t.Context(), d); err == nil {
				t.Fatal("got no error")
			}
			s.wantTicks(t, "")
			if n := s.Count(t, `SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM messages WHERE work = 'run')`); n != 0 {
				t.Errorf("%d events and invocations are left", n)
			}
			if after, _ := s.read(t); after.Revision != before.Revision || !after.DecidedUntil.Equal(before.DecidedUntil) {
				t.Errorf("the schedule changed from %+v to %+v", before, after)
			}
			s.Exec(t, `ALTER TABLE messages DROP CONSTRAINT broken`)
			s.deliver(t, sched.ID)
			s.wantTicks(t, want)
		})
	}
}
