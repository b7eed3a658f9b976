package gate

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Schedule is one interleaving of the statements of two sessions.
type Schedule struct {
	// Waits counts how often a session waited for a lock of the other.
	Waits int
	// Deadlocked reports that each session waited for the other, until Postgres aborted one.
	Deadlocked bool

	sessions [2]*Session
	plan     []int // the first choices to make
	choices  []int // the choices made
	asleep   *actor
	last     *actor // which continued last
	switches int    // how often a session that can go on may still have to stop; negative if that is not limited
	trace    []string
}

// String returns the steps of the schedule, one per line.
func (s *Schedule) String() string { return strings.Join(s.trace, "\n") }

// maxSchedules is more than two sessions have if one of them soon waits for the other.
const maxSchedules = 800

// Explore calls fn with the schedules of two sessions and returns their number. Of schedules that differ only in the
// order of statements that commute, it need not call fn with more than one. Each time, fn must create the same initial
// state and call [Schedule.Run] once. More than maxSchedules fail the test: without lock waits, the number is that of
// all ways to shuffle the statements.
func Explore(t testing.TB, one, two *Session, fn func(*Schedule)) int {
	t.Helper()
	return explore(t, one, two, unlimited, fn)
}

// unlimited is for schedules with any number of switches.
const unlimited = -1

// explore calls fn with the schedules in which a session that can go on has to stop at most so many times.
func explore(t testing.TB, one, two *Session, switches int, fn func(*Schedule)) int {
	t.Helper()
	var plan []int
	for n := 1; ; n++ {
		s := &Schedule{sessions: [2]*Session{one, two}, plan: plan, switches: switches}
		if n > maxSchedules {
			t.Fatalf("more than %d schedules: the sessions do not wait for each other", maxSchedules)
		}
		fn(s)
		// The next schedule takes the alternative of the last choice that has an untried one.
		last := len(s.choices) - 1
		for last >= 0 && s.choices[last] == 1 {
			last--
		}
		if last < 0 {
			return n
		}
		plan = append(slices.Clone(s.choices[:last]), 1)
	}
}

// Interrupt is [Explore] with the schedules in which one session at most is interrupted, once. They are a quarter of
// all, and most errors need no more. (This is the method of context bounds: M. Musuvathi and S. Qadeer, Iterative
// Context Bounding for Systematic Testing of Multithreaded Programs.) If STEPWELL_TEST_LONG is set, it is Explore.
func Interrupt(t testing.TB, one, two *Session, fn func(*Schedule)) int {
	t.Helper()
	switches := 1
	if isLong() {
		switches = unlimited
	}
	return explore(t, one, two, switches, fn)
}

// isLong reports whether to test in full, as make test-long does.
func isLong() bool { return os.Getenv("STEPWELL_TEST_LONG") != "" }

// Serial checks that two sessions are serializable: it explores their schedules, and fails the test if one deadlocks or
// has an outcome other than those of running one session after the other, or if one of these outcomes does not occur.
// The keys of outcomes are the allowed outcomes, its values the serial orders that lead to them. Play creates the
// initial state, runs the schedule, and returns its outcome. Serial returns the number of schedules and of lock waits
// in them.
//
// The schedules are those of [Interrupt].
func Serial(
	t testing.TB, one, two *Session, outcomes map[string]string, play func(*Schedule) string,
) (schedules, waits int) {
	t.Helper()
	seen := map[string]bool{}
	schedules = Interrupt(t, one, two, func(s *Schedule) {
		outcome := play(s)
		if s.Deadlocked {
			t.Errorf("deadlock:\n%s", s)
		}
		if _, ok := outcomes[outcome]; !ok {
			for want, order := range outcomes {
				t.Errorf("differs from %s (-want +got):\n%s", order, cmp.Diff(want, outcome))
			}
			t.Fatalf("not serial:\n%s", s)
		}
		seen[outcome] = true
		waits += s.Waits
	})
	if len(seen) != len(outcomes) {
		t.Errorf("%d schedules had %d outcomes, want the %d serial ones", schedules, len(seen), len(outcomes))
	}
	t.Logf("%d schedules, %d outcomes", schedules, len(seen))
	return schedules, waits
}

// state is the state of a session within a schedule.
type state int

const (
	running state = iota
	stopped       // before a statement
	waiting       // for a lock of the other session
	finished
)

// actor is a session within a schedule.
type actor struct {
	*Session
	name  string
	pid   uint32
	state state
	sql   string // the statement that it is stopped before, or executes
	done  <-chan struct{}
}

// Run calls both functions, which use the first and the second session, and orders their statements by the schedule. It
// returns when both have returned.
func (s *Schedule) Run(t testing.TB, one, two func()) {
	t.Helper()
	actors := make([]*actor, 2)
	for i, session := range s.sessions {
		actors[i] = &actor{Session: session, name: string(rune('A' + i)), pid: session.pid(t)}
	}
	for i, fn := range []func(){one, two} {
		actors[i].done = actors[i].start(fn)
		s.awaitStop(t, actors)
	}
	for {
		var ready []*actor
		for _, a := range actors {
			if a.state == stopped {
				ready = append(ready, a)
			}
		}
		if len(ready) == 0 {
			return
		}
		a := s.next(ready)
		s.trace = append(s.trace, a.name+" "+a.sql)
		a.state = running
		a.resume <- proceed
		s.awaitStop(t, actors)
	}
}

// next returns which session continues.
//
// Where both can continue, the schedules in which the first one does are explored first. In the others it sleeps until
// the second has executed a statement that does not commute with its own: before that, it would only repeat one of
// them. (This is the method of sleep sets: P. Godefroid, Partial-Order Methods for the Verification of Concurrent
// Systems.) If switches are limited, nothing sleeps: a schedule may have fewer switches than the one that it repeats.
func (s *Schedule) next(ready []*actor) *actor {
	a := ready[0]
	switch {
	case len(ready) == 1:
	case s.asleep != nil:
		if a == s.asleep {
			a = ready[1]
		}
	case s.last != nil && s.switches == 0:
		a = s.last
	case s.chooseSecond():
		a = ready[1]
		if s.switches == unlimited {
			s.asleep = ready[0]
		}
	}
	if s.switches > 0 && a != s.last && slices.Contains(ready, s.last) {
		s.switches--
	}
	s.last = a
	if s.asleep != nil && (a == s.asleep || !commute(a.sql, s.asleep.sql)) {
		s.asleep = nil
	}
	return a
}

// chooseSecond returns whether the second of two sessions continues.
func (s *Schedule) chooseSecond() bool {
	choice := 0
	if i := len(s.choices); i < len(s.plan) {
		choice = s.plan[i]
	}
	s.choices = append(s.choices, choice)
	return choice == 1
}

// commute reports whether the order of two statements makes no difference: one only reads, and the other does not end
// its transaction. Postgres takes a statement's snapshot when the statement begins, and shows it what is committed.
func commute(one, two string) bool {
	return onlyReads(one) && !ends(two) || onlyReads(two) && !ends(one)
}

// ends reports whether a statement ends its transaction.
func ends(sql string) bool { return strings.HasSuffix(sql, "COMMIT") || sql == "ROLLBACK" }

// onlyReads reports whether a statement is a query that takes no lock, and calls no function that writes.
func onlyReads(sql string) bool {
	return strings.HasPrefix(sql, "SELECT ") &&
		!strings.Contains(sql, " FOR ") && !strings.Contains(sql, "pg_") && !strings.Contains(sql, "set_config") &&
		!strings.Contains(sql, "nextval")
}

// awaitStop waits until each session is stopped, has finished, or waits for a lock of a session that is stopped.
func (s *Schedule) awaitStop(t testing.TB, actors []*actor) {
	t.Helper()
	before := []state{actors[0].state, actors[1].state}
	for _, a := range actors {
		if a.done != nil && a.state == waiting {
			a.state = running // unless the loop below finds it still waiting
		}
	}
	deadline := time.After(timeout)
	for poll := time.NewTicker(time.Millisecond); ; {
		busy := slices.DeleteFunc(slices.Clone(actors), func(a *actor) bool { return a.done == nil || a.state != running })
		if len(busy) == 0 {
			poll.Stop()
			break
		}
		a, b := busy[0], busy[len(busy)-1]
		select {
		case a.sql = <-a.statements:
			a.state = stopped
		case b.sql = <-b.statements:
			b.state = stopped
		case <-a.done:
			a.state = finished
		case <-b.done:
			b.state = finished
		case <-poll.C:
			s.detectWaiting(t, busy, actors)
		case <-deadline:
			t.Fatalf("the sessions hang after\n%s", s)
		}
	}
	s.traceWaits(actors, before)
}

// detectWaiting marks a busy session as waiting if it waits for a lock of the other. If both are busy and wait for each
// other, that is a deadlock, which Postgres resolves by aborting one.
func (s *Schedule) detectWaiting(t testing.TB, busy, actors []*actor) {
	t.Helper()
	for _, a := range busy {
		var waits bool
		if err := a.observer.QueryRow(t.Context(),
			`SELECT pg_blocking_pids($1) && ARRAY[$2::int, $3]`, a.pid, actors[0].pid, actors[1].pid).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		if !waits {
			return
		}
	}
	if len(busy) == 2 {
		s.Deadlocked = true
		return
	}
	// The other session is stopped, so it keeps the lock.
	busy[0].state = waiting
}

// traceWaits records which sessions started or stopped waiting.
func (s *Schedule) traceWaits(actors []*actor, before []state) {
	for i, a := range actors {
		switch {
		case a.state == waiting && before[i] != waiting:
			s.Waits++
			s.trace = append(s.trace, fmt.Sprintf("%s waits in %s", a.name, a.sql))
		case a.state != waiting && before[i] == waiting:
			s.trace = append(s.trace, fmt.Sprintf("%s waits no longer", a.name))
		}
	}
}
