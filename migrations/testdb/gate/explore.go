package gate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Schedule is one order of the statements of two sessions.
type Schedule struct {
	// Waits is how often a session had to wait for a lock of the other.
	Waits int
	// Deadlocked says that each waited for the other, until Postgres made one give up.
	Deadlocked bool

	sessions [2]*Session
	// plan are the choices to make, as far as they are given; choices are those that were made.
	plan, choices []int
	trace         []string
}

// String tells what happened, a line each.
func (s *Schedule) String() string { return strings.Join(s.trace, "\n") }

// maxSchedules is more than any two sessions have of which one soon waits for the other.
const maxSchedules = 800

// Explore calls fn with every schedule of two sessions there is, and returns how many. It must set the same
// scene each time and call [Schedule.Run] once. Too many fail the test: sessions that never wait for each other
// have as many as there are ways to shuffle their statements.
func Explore(t testing.TB, one, two *Session, fn func(*Schedule)) int {
	t.Helper()
	var plan []int
	for n := 1; ; n++ {
		s := &Schedule{sessions: [2]*Session{one, two}, plan: plan}
		if n > maxSchedules {
			t.Fatalf("there are more than %d schedules: the sessions do not wait for each other", maxSchedules)
		}
		fn(s)
		// The next schedule differs in the last choice that still has an alternative.
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

// Serial explores the schedules of two sessions, and fails the test unless each has one of the outcomes that come of
// one session after the other, each of those is met, and nobody is deadlocked. Outcomes are named by their order. Play
// sets the scene, runs the schedule, and returns its outcome. It returns how many schedules there are, and in them
// waits.
func Serial(
	t testing.TB, one, two *Session, outcomes map[string]string, play func(*Schedule) string,
) (schedules, waits int) {
	t.Helper()
	seen := map[string]bool{}
	schedules = Explore(t, one, two, func(s *Schedule) {
		outcome := play(s)
		if s.Deadlocked {
			t.Errorf("deadlock:\n%s", s)
		}
		if _, ok := outcomes[outcome]; !ok {
			for want, order := range outcomes {
				t.Errorf("from %s (-want +got):\n%s", order, cmp.Diff(want, outcome))
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

// state is where a session is.
type state int

const (
	running state = iota
	held
	waiting
	finished
)

// actor is a session at work.
type actor struct {
	*Session
	name  string
	pid   uint32
	state state
	sql   string // what it is held before, or was last let do
	done  <-chan struct{}
}

// Run calls both functions, each with its session, in the schedule's order. It returns when both are done.
func (s *Schedule) Run(t testing.TB, one, two func()) {
	t.Helper()
	actors := make([]*actor, 2)
	for i, session := range s.sessions {
		actors[i] = &actor{Session: session, name: string(rune('A' + i)), pid: session.pid(t)}
	}
	for i, fn := range []func(){one, two} {
		actors[i].done = actors[i].start(fn)
		s.settle(t, actors)
	}
	for {
		var ready []*actor
		for _, a := range actors {
			if a.state == held {
				ready = append(ready, a)
			}
		}
		if len(ready) == 0 {
			return
		}
		a := ready[s.choose(len(ready))]
		s.trace = append(s.trace, a.name+" "+a.sql)
		a.state = running
		a.let <- goOn
		s.settle(t, actors)
	}
}

// choose says which of n sessions goes on.
func (s *Schedule) choose(n int) int {
	if n == 1 {
		return 0
	}
	choice := 0
	if i := len(s.choices); i < len(s.plan) {
		choice = s.plan[i]
	}
	s.choices = append(s.choices, choice)
	return choice
}

// settle waits until each session is held, finished, or waits for a lock of one that is.
func (s *Schedule) settle(t testing.TB, actors []*actor) {
	t.Helper()
	before := []state{actors[0].state, actors[1].state}
	for _, a := range actors {
		if a.done != nil && a.state == waiting {
			a.state = running // perhaps: let us see
		}
	}
	deadline := time.After(patience)
	for poll := time.NewTicker(time.Millisecond); ; {
		busy := slices.DeleteFunc(slices.Clone(actors), func(a *actor) bool { return a.done == nil || a.state != running })
		if len(busy) == 0 {
			poll.Stop()
			break
		}
		a, b := busy[0], busy[len(busy)-1]
		select {
		case a.sql = <-a.held:
			a.state = held
		case b.sql = <-b.held:
			b.state = held
		case <-a.done:
			a.state = finished
		case <-b.done:
			b.state = finished
		case <-poll.C:
			s.lookForWaiting(t, busy, actors)
		case <-deadline:
			t.Fatalf("nothing happens after\n%s", s)
		}
	}
	s.note(actors, before)
}

// lookForWaiting marks those that are busy if all of them wait for a lock of the other. When nobody is left to
// release one, that is a deadlock, which Postgres resolves.
func (s *Schedule) lookForWaiting(t testing.TB, busy, actors []*actor) {
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
	// The other one is not busy, so that the lock stays where it is.
	busy[0].state = waiting
}

// note writes down who began or ceased to wait.
func (s *Schedule) note(actors []*actor, before []state) {
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
