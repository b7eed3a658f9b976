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
			run, isNew, err := logs[i%2].StartNew(t.Context(), home, r)
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
