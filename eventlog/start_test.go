package eventlog

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestRunsOfAppsHaveNoBuild: nothing is read for them, even if the run that they are a copy of had one.
func TestRunsOfAppsHaveNoBuild(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	errFlow := errors.New("asked about the build")
	f.NoteBuilds(func(context.Context, entities.Project, string, string) (string, error) { return "", errFlow })
	r := NewRun(day, nil, entities.EventData{DeploymentID: "app@1", WorkflowName: "order", Build: "of a flow"})
	if _, _, err := f.Start(t.Context(), home, r); !errors.Is(err, errFlow) {
		t.Errorf("a deployment that may be a flow: got %v", err)
	}
	r.OfApp = true
	run, created, err := f.Start(t.Context(), home, r)
	if err != nil || !created {
		t.Fatal(created, err)
	}
	if first := f.events(t, run.ID)[0]; first.Data.Build != "" {
		t.Errorf("the run was started with the build %q", first.Data.Build)
	}
}

// TestRacersStartOneNewRun: none of them has seen the run of another, and all return the same.
func TestRacersStartOneNewRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	logs := []*Log{f.Log, f.with(noQueue{})}
	const racers = 16
	var wg sync.WaitGroup
	var mu sync.Mutex
	created, started := 0, map[entities.RunID]bool{}
	for i := range racers {
		wg.Go(func() {
			r := NewRun(day, nil, entities.EventData{DeploymentID: "app", WorkflowName: "order", IdempotencyKey: "k"})
			run, isNew, err := logs[i%2].Start(t.Context(), home, r)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			started[run.ID] = true
			if isNew {
				created++
			}
		})
	}
	wg.Wait()
	if created != 1 || len(started) != 1 {
		t.Errorf("%d racers created the runs %v, want one and one", created, started)
	}
}

// TestRepeatedStartIsARepetition: it finds the run, also if the project may start no further one, and although the build of
// its deployment is gone. Another request with the key is refused.
func TestRepeatedStartIsARepetition(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var last Appended
	l := New(f.pool, f.hub, noQueue{}, f.clock.now, WithObserver(observerFunc(func(a Appended) { last = a })))
	start := func(digest string) (entities.Run, bool, error) {
		return l.Start(t.Context(), home, NewRun(day, nil, entities.EventData{
			DeploymentID: "app", WorkflowName: "order", IdempotencyKey: "k", RequestDigest: digest,
		}))
	}
	first, created, err := start("a")
	if err != nil || !created {
		t.Fatal(created, err)
	}
	last = Appended{Err: errors.New("nothing observed")}
	again, created, err := start("a")
	if err != nil || created || again.ID != first.ID || last.Err != nil || len(last.Events) > 0 {
		t.Errorf("repeated: run %s, created %t, %v, observed %v; want %s", again.ID, created, err, last, first.ID)
	}
	f.exec(t, `UPDATE projects SET daily_starts = 1`)
	l = f.with(noQueue{})
	if again, created, err = start("a"); err != nil || created || again.ID != first.ID {
		t.Errorf("beyond the quota: run %s, created %t, %v", again.ID, created, err)
	}
	l.NoteBuilds(func(context.Context, entities.Project, string, string) (string, error) { return "", errors.New("gone") })
	if again, created, err = start("a"); err != nil || created || again.ID != first.ID {
		t.Errorf("on a deployment that is gone: run %s, created %t, %v", again.ID, created, err)
	}
	if _, _, err := start("b"); !errors.Is(err, entities.ErrKeyReused) {
		t.Errorf("another request with the key: got %v", err)
	}
}
