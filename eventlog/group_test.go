package eventlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/pg"
)

// groupFixture is a log with cached runs, to which it appends in one group commit.
type groupFixture struct {
	*fixture

	log *Log
	ids []entities.RunID
}

// newGroupFixture creates runs that the log has cached.
func (f *fixture) newGroupFixture(t *testing.T, log *Log, runs int) *groupFixture {
	t.Helper()
	g := &groupFixture{fixture: f, log: log}
	for range runs {
		id := f.run(t, started)
		log.cacheRun(f.rows(t, id))
		g.ids = append(g.ids, id)
	}
	return g
}

// runTogether appends to all runs at once, so that the statements share a transaction, and returns the errors.
func (g *groupFixture) runTogether(t *testing.T, ask func(ctx context.Context, i int) error) []error {
	t.Helper()
	return runInOneGroup(t, g.log.group, len(g.ids), ask)
}

// runInOneGroup calls the function n times at once while the group is paused, and returns the errors.
func runInOneGroup(t *testing.T, g *pg.GroupCommit, n int, ask func(ctx context.Context, i int) error) []error {
	t.Helper()
	resume := g.Pause()
	errs := make([]error, n)
	var asked sync.WaitGroup
	for i := range n {
		asked.Go(func() { errs[i] = ask(t.Context(), i) })
	}
	awaitQueued(t, g, n)
	resume()
	asked.Wait()
	return errs
}

// awaitQueued waits until n statements are queued.
func awaitQueued(t *testing.T, g *pg.GroupCommit, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d statements are queued", n), func() bool {
		_, waiting := g.Load()
		return waiting == n
	})
}

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	late, tick := time.After(30*time.Second), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Errorf("timed out before %s", what)
			return
		}
	}
}

func (g *groupFixture) createStep(ctx context.Context, i int) error {
	_, err := g.log.Append(ctx, home, on(g.ids[i], "step_created", "step_1"))
	return err
}

// eventCounts returns the number of events of each run, and verifies its rows.
func (g *groupFixture) eventCounts(t *testing.T) (n []int) {
	t.Helper()
	for _, id := range g.ids {
		n = append(n, len(g.events(t, id)))
		g.wantVerified(t, id)
	}
	return n
}

// TestCrashedGroupCommitWritesAllOrNothing checks that a crashed group writes all its statements or none, and that none
// of them succeeds.
func TestCrashedGroupCommitWritesAllOrNothing(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	f := fixtureOn(t, dsn)
	session := gate.Open(t, dsn, f.pool, nil)
	const runs = 3
	for n := range runs + 1 { // the last is the commit
		for _, crash := range []gate.Crash{gate.Terminated, gate.AnswerLost} {
			t.Run(fmt.Sprintf("%s at %d", crash, n), func(t *testing.T) {
				g := f.newGroupFixture(t, f.logOver(session.Pool, 0), runs)
				var errs []error
				session.Run(t, n, crash, func() { errs = g.runTogether(t, g.createStep) })
				want := 2
				if n == runs && crash == gate.AnswerLost {
					want = 3
				}
				for i, length := range g.eventCounts(t) {
					if length != want || errs[i] == nil {
						t.Errorf("run %d has %d events and error %v; want %d and an error", i, length, errs[i], want)
					}
				}
			})
		}
	}
}

func TestCancelledWaitForGroupCommitWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := f.newGroupFixture(t, f.with(noQueue{}), 1)
	resume := g.log.group.Pause()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() { result <- g.createStep(ctx, 0) }()
	awaitQueued(t, g.log.group, 1)
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	awaitQueued(t, g.log.group, 0)
	resume()
	if got := g.eventCounts(t); got[0] != 2 {
		t.Errorf("the run has %d events, want 2 as before", got[0])
	}
}
