package eventlog

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// TestFollowersShareReads: 100 followers of a run and 100 of its project get an event by a few reads, not by one each. So
// do followers that join late, from the start of the log.
func TestFollowersShareReads(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.FollowPoll = time.Hour // so that only notifications are noticed
	id := f.run(t)
	f.waitForOpenTransactions(t)
	var followers []*read.Follower
	for range 100 {
		run, err := f.FollowRun(t.Context(), home, id, read.EventQuery{After: 1}, read.WithPayloads)
		if err != nil {
			t.Fatal(err)
		}
		project, err := f.FollowProject(t.Context(), home, read.EventQuery{}, nil, read.WithPayloads)
		if err != nil {
			t.Fatal(err)
		}
		followers = append(followers, run, project)
	}
	next := followAll(t, followers)
	before := f.pool.Stat().AcquireCount()
	f.must(t, onRun(id, "run_started"))
	for n := range followers {
		select {
		case got := <-next:
			if want := string(id) + "/2 run_started"; got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		case <-time.After(testTimeout):
			t.Fatalf("only %d of %d followers got the event", n, len(followers))
		}
	}
	// A transaction of another test that blocks the feed costs further reads.
	if reads := f.pool.Stat().AcquireCount() - before; reads > int64(len(followers))/2 {
		t.Errorf("%d followers and the append used %d connections, want a few", len(followers), reads)
	}
	late, err := f.FollowRun(t.Context(), home, id, read.EventQuery{}, read.WithPayloads)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	entries, err := late.Next(t.Context(), t.Context())
	if got := names(entries); err != nil || len(got) != 2 {
		t.Errorf("a late follower got %v, error %v; want both events", got, err)
	}
}

// followAll returns the names of what each follower gets next. It closes the followers at the end of the test.
func followAll(t *testing.T, followers []*read.Follower) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	next := make(chan string, len(followers))
	var wg sync.WaitGroup
	for _, follower := range followers {
		wg.Go(func() {
			defer follower.Close()
			entries, err := follower.Next(ctx, ctx)
			if err != nil || len(entries) != 1 {
				next <- fmt.Sprintf("%d events, error %v", len(entries), err)
				return
			}
			next <- names(entries)[0]
			<-ctx.Done() // stays, so that the followers remain as many
		})
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return next
}
