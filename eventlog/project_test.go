package eventlog

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// TestI9OtherProjectCannotAppend requests every event for a run of another project.
func TestI9OtherProjectCannotAppend(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, step("step_created"), step("step_started"), hook("hook_created"), sleep("wait_created"))
	before, log := f.rows(t, id), f.events(t, id)
	for _, event := range allEvents {
		ask, want := onRun(id, event), entities.ErrRunNotFound
		switch event.Kind() {
		case entities.KindStep:
			ask = on(id, event, "step_1")
		case entities.KindHook:
			ask = on(id, event, "hook_1")
		case entities.KindWait:
			ask = on(id, event, "wait_1")
		case entities.KindRun:
			ask = on(id, event, "")
		}
		if event == entities.EventRunCreated {
			ask, want = runCreated(id), entities.ErrConflict // IDs are global; the run is not shown
		}
		got, err := f.Append(t.Context(), stranger, ask)
		if !errors.Is(err, want) {
			t.Errorf("%s: got error %v, want %v", event, err, want)
		}
		if got.Run.ID != "" || got.Step != nil || got.Hook != nil || got.Wait != nil || got.Event != nil {
			t.Errorf("%s: the result is not empty: %+v", event, got)
		}
	}
	if _, err := f.Append(t.Context(), stranger, runRepaired(id)); !errors.Is(err, entities.ErrConflict) {
		t.Errorf("run_started with creation data: got error %v, want ErrConflict", err)
	}
	if diff := cmp.Diff(before, f.rows(t, id)); diff != "" {
		t.Errorf("rows changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(log, f.events(t, id)); diff != "" {
		t.Errorf("the log changed (-before +after):\n%s", diff)
	}
}

func TestI9TokensAreScopedToProject(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, hookCreated(theRun, "hook_1", "T"))
	other := newRunID()
	for _, r := range []Request{runCreated(other), hookCreated(other, "hook_1", "T")} {
		got, err := f.Append(t.Context(), stranger, r)
		if err != nil {
			t.Fatal(err)
		}
		if got.Event.Type != r.Type {
			t.Errorf("got %s, want %s", got.Event.Type, r.Type)
		}
	}
	for project, want := range map[entities.Project]entities.RunID{home: id, stranger: other} {
		hook, err := store.HookByToken(t.Context(), f.pool, project, "T", day)
		if err != nil || hook.RunID != want {
			t.Errorf("in %s the token belongs to run %q, %v; want %s", project, hook.RunID, err, want)
		}
	}
}

// TestI9OtherProjectCannotRead calls every read as the owner, which must see something, and as another project, which
// must not.
func TestI9OtherProjectCannotRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.run(t, started, step("step_created"), hookCreated(theRun, "hook_1", "T"), sleep("wait_created"))
	streams := read.NewStreams(f.pool, pg.NewHub(f.pool, "test", slog.New(slog.DiscardHandler)), f.clock.now)
	if err := streams.Write(t.Context(), home, id, "strm_1", [][]byte{{1}}); err != nil {
		t.Fatal(err)
	}
	ctx, page := t.Context(), pg.Page{Limit: 10}
	// Each returns how many items it read.
	reads := map[string]func(entities.Project) (int, error){
		"Events": func(p entities.Project) (int, error) {
			got, err := f.Events(ctx, p, id, page, read.WithPayloads)
			return len(got.Events), err
		},
		"EventsByCorrelation in the run": func(p entities.Project) (int, error) {
			got, err := f.EventsByCorrelation(ctx, p, id, "step_1", page, read.WithPayloads)
			return len(got.Events), err
		},
		"EventsByCorrelation in any run": func(p entities.Project) (int, error) {
			got, err := f.EventsByCorrelation(ctx, p, "", "step_1", page, read.WithPayloads)
			return len(got.Events), err
		},
		"Event": func(p entities.Project) (int, error) { got, err := f.Event(ctx, p, id, 1); return int(got.Seq), err },
		"RunByID": func(p entities.Project) (int, error) {
			got, err := store.RunByID(ctx, f.pool, p, id)
			return len(got.ID), err
		},
		"ListRuns": func(p entities.Project) (int, error) {
			got, _, err := store.ListRuns(ctx, f.pool, p, store.RunFilter{}, page)
			return len(got), err
		},
		"StepByID in the run": func(p entities.Project) (int, error) {
			got, err := store.StepByID(ctx, f.pool, p, id, "step_1")
			return len(got.ID), err
		},
		"StepByID in any run": func(p entities.Project) (int, error) {
			got, err := store.StepByID(ctx, f.pool, p, "", "step_1")
			return len(got.ID), err
		},
		"ListSteps": func(p entities.Project) (int, error) {
			got, _, err := store.ListSteps(ctx, f.pool, p, id, page)
			return len(got), err
		},
		"HookByToken": func(p entities.Project) (int, error) {
			got, err := store.HookByToken(ctx, f.pool, p, "T", day)
			return len(got.ID), err
		},
		"HookByID": func(p entities.Project) (int, error) {
			got, err := store.HookByID(ctx, f.pool, p, "hook_1", day)
			return len(got.ID), err
		},
		"ListHooks of the run": func(p entities.Project) (int, error) {
			got, _, err := store.ListHooks(ctx, f.pool, p, id, day, page)
			return len(got), err
		},
		"ListHooks": func(p entities.Project) (int, error) {
			got, _, err := store.ListHooks(ctx, f.pool, p, "", day, page)
			return len(got), err
		},
		"stream Info": func(p entities.Project) (int, error) {
			got, err := streams.Info(ctx, p, "strm_1")
			return int(got.Chunks), err
		},
		"stream List": func(p entities.Project) (int, error) { got, err := streams.List(ctx, p, id); return len(got), err },
		"stream Chunks": func(p entities.Project) (int, error) {
			got, _, err := streams.Chunks(ctx, p, "strm_1", 0, 10)
			return len(got), err
		},
	}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			if n, err := read(home); err != nil || n == 0 {
				t.Fatalf("the owner read %d items, error %v", n, err)
			}
			n, err := read(stranger)
			if n != 0 {
				t.Errorf("another project read %d items", n)
			}
			if err != nil && !isNotFound(err) {
				t.Errorf("got error %v, want a not-found error or none", err)
			}
		})
	}
}

func isNotFound(err error) bool {
	return errors.Is(err, entities.ErrRunNotFound) || errors.Is(err, entities.ErrStepNotFound) ||
		errors.Is(err, entities.ErrHookNotFound) || errors.Is(err, entities.ErrEventNotFound)
}

func TestI9StreamsAreScopedToProject(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	streams := read.NewStreams(f.pool, pg.NewHub(f.pool, "test", slog.New(slog.DiscardHandler)), f.clock.now)
	for project, data := range map[entities.Project]string{home: "ours", stranger: "theirs"} {
		if err := streams.Write(t.Context(), project, "wrun_1", "strm_1", [][]byte{[]byte(data)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := streams.Close(t.Context(), stranger, "wrun_1", "strm_1"); err != nil {
		t.Fatal(err)
	}
	if info, err := streams.Info(t.Context(), home, "strm_1"); err != nil || info.ClosedAt != nil || info.Chunks != 1 {
		t.Errorf("got %+v and error %v, want an open stream of one chunk", info, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []string
	err := streams.Tail(ctx, stranger, "strm_1", 0, func(data store.Chunk) error {
		got = append(got, string(data.Data))
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"theirs"}, got); diff != "" {
		t.Errorf("chunks differ (-want +got):\n%s", diff)
	}
}
