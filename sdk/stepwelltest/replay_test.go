package stepwelltest_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var (
	replayed = stepwell.NewWorkflow[string, string]("order")
	ship     = stepwell.NewStep[string, string]("ship")
)

type replayedCode func(w *stepwell.Context, id string) (string, error)

func original(w *stepwell.Context, id string) (string, error) {
	ref, err := charge.Run(w, id)
	if err != nil {
		return "", err
	}
	note, err := stepwell.Do(w, "note", func(context.Context) (string, error) { return "noted", nil })
	if err != nil {
		return "", err
	}
	if _, err := approval.Open(w, stepwell.Token("approve-"+id)).ReceiveWithin(w, time.Hour); err != nil {
		return "", err
	}
	parcel, err := ship.Run(w, id)
	return ref + " " + note + " " + parcel, err
}

// logs returns the logs of a run that waits for its approval, and of one that has completed.
func logs(t *testing.T) (waiting, completed stepwell.RunLog) {
	t.Helper()
	env := stepwelltest.New(t, replayed.Bind(original))
	answer := func(_ context.Context, id string) (string, error) { return "done for " + id, nil }
	stepwelltest.Stub(env, charge, answer)
	stepwelltest.Stub(env, ship, answer)
	first, second := stepwelltest.Start(env, replayed, "1"), stepwelltest.Start(env, replayed, "2")
	env.RunUntilIdle()
	env.Resume("approve-2", true)
	env.RunUntilIdle()
	if _, err := second.Result(); err != nil {
		t.Fatal(err)
	}
	return first.Log(), second.Log()
}

func replay(t *testing.T, fn replayedCode, log stepwell.RunLog) error {
	t.Helper()
	app := stepwell.NewApp(stepwell.AppConfig{Name: "test"})
	app.Register(replayed.Bind(fn))
	err := app.Replay(t.Context(), log)
	if e := (*stepwell.ReplayError)(nil); err != nil && !errors.As(err, &e) {
		t.Fatal(err)
	}
	return err
}

// TestReplayFindsChanges replays both runs with changed code. The executed steps would fail the test.
func TestReplayFindsChanges(t *testing.T) {
	t.Parallel()
	waiting, completed := logs(t)
	never := func(context.Context) (string, error) {
		t.Error("a replay has executed a step")
		return "", errors.New("it must not be executed")
	}
	tests := []struct {
		change             string
		code               replayedCode
		waiting, completed string // part of the errors; empty if the run replays
	}{
		{"none", original, "", ""},
		{"a step is inserted", func(w *stepwell.Context, id string) (string, error) {
			if _, err := stepwell.Do(w, "check", never); err != nil {
				return "", err
			}
			return original(w, id)
		}, "check", "check"},
		{"a step is inserted with a patch", func(w *stepwell.Context, id string) (string, error) {
			if w.Patched("check") {
				if _, err := stepwell.Do(w, "check", never); err != nil {
					return "", err
				}
			}
			return original(w, id)
		}, "", ""},
		{"a step is appended", func(w *stepwell.Context, id string) (string, error) {
			out, err := original(w, id)
			if err != nil {
				return "", err
			}
			_, err = stepwell.Do(w, "late", never)
			return out, err
		}, "", "asks for inline step late"},
		{"the output has changed", func(w *stepwell.Context, id string) (string, error) {
			out, err := original(w, id)
			return out + "!", err
		}, "", `completes it with "done for 2 noted done for 2!"`},
		{"a step is removed", func(w *stepwell.Context, id string) (string, error) {
			ref, err := charge.Run(w, id)
			if err != nil {
				return "", err
			}
			_, err = approval.Open(w, stepwell.Token("approve-"+id)).ReceiveWithin(w, time.Hour)
			return ref, err
		}, "note", "note"},
		{"it fails", func(*stepwell.Context, string) (string, error) { return "", errors.New("no") }, "charge", "charge"},
		{"it is blocked", func(*stepwell.Context, string) (string, error) { return "", stepwell.Block(errors.New("no bank")) }, "no bank", "no bank"},
		{"it panics", func(*stepwell.Context, string) (string, error) { panic("a bug") }, "a bug", "a bug"},
	}
	for _, test := range tests {
		for log, want := range map[*stepwell.RunLog]string{&waiting: test.waiting, &completed: test.completed} {
			err := replay(t, test.code, *log)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", test.change, err, want)
			}
		}
	}
}

func TestExportedRunsAreReplayed(t *testing.T) {
	t.Parallel()
	waiting, completed := logs(t)
	dir := t.TempDir()
	var lines []byte
	for _, log := range []stepwell.RunLog{waiting, completed} {
		line, err := json.Marshal(log)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(append(lines, line...), '\n')
	}
	if err := os.WriteFile(filepath.Join(dir, "runs.jsonl"), lines, 0o600); err != nil {
		t.Fatal(err)
	}
	stepwelltest.Replay(t, dir, replayed.Bind(original))
}

func TestReplayRefusesIncompleteLogs(t *testing.T) {
	t.Parallel()
	waiting, _ := logs(t)
	waiting.Events = waiting.Events[1:]
	app := stepwell.NewApp(stepwell.AppConfig{Name: "test"})
	if err := app.Replay(t.Context(), waiting); err == nil || !strings.Contains(err.Error(), "event 1 is missing") {
		t.Errorf("got %v", err)
	}
}

// TestRunsFromBeforeAPatchReplay has a patch behind the last event of each run.
func TestRunsFromBeforeAPatchReplay(t *testing.T) {
	t.Parallel()
	waiting, completed := logs(t)
	patched := func(w *stepwell.Context, id string) (string, error) {
		out, err := original(w, id)
		if err == nil && w.Patched("audit") {
			_, err = charge.Run(w, "audit")
		}
		return out, err
	}
	for _, log := range []stepwell.RunLog{waiting, completed} {
		if err := replay(t, patched, log); err != nil {
			t.Error(err)
		}
	}
}

// TestReplaysAtOnceAreApart replays another run while one replay is under way.
func TestReplaysAtOnceAreApart(t *testing.T) {
	t.Parallel()
	began, other := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(began) })
	echo := func(_ *stepwell.Context, in string) (string, error) { return in, nil }
	workflow := stepwell.NewWorkflow[string, string]("echo")
	definition := workflow.Bind(func(_ *stepwell.Context, in string) (string, error) {
		if in == "first" {
			begin()
			select {
			case <-other:
			case <-time.After(time.Minute):
				t.Error("the other replay waits for this one")
			}
		}
		return in, nil
	})
	env := stepwelltest.New(t, workflow.Bind(echo))
	first, second := stepwelltest.Start(env, workflow, "first"), stepwelltest.Start(env, workflow, "second")
	env.RunUntilDone()
	app := stepwell.NewApp(stepwell.AppConfig{Name: "test"})
	app.Register(definition)
	result := make(chan error, 1)
	go func() { result <- app.Replay(t.Context(), first.Log()) }()
	<-began
	if err := app.Replay(t.Context(), second.Log()); err != nil {
		t.Error(err)
	}
	close(other)
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// TestReplayDoesNotRoundNumbers has outputs that are equal as floating-point numbers.
func TestReplayDoesNotRoundNumbers(t *testing.T) {
	t.Parallel()
	output := int64(1) << 53
	workflow := stepwell.NewWorkflow[stepwell.None, int64]("big")
	definition := workflow.Bind(func(*stepwell.Context, stepwell.None) (int64, error) { return output, nil })
	env := stepwelltest.New(t, definition)
	run := stepwelltest.Start(env, workflow, stepwell.None{})
	env.RunUntilDone()
	app := stepwell.NewApp(stepwell.AppConfig{Name: "test"})
	app.Register(definition)
	if err := app.Replay(t.Context(), run.Log()); err != nil {
		t.Error(err)
	}
	output++
	if err := app.Replay(t.Context(), run.Log()); err == nil || !strings.Contains(err.Error(), "9007199254740993") {
		t.Errorf("with another output: %v", err)
	}
}
