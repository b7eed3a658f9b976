package rescue

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
)

// TestDo: the error says nothing of the panic, and the log has everything. Other errors are returned as they are.
func TestDo(t *testing.T) { //nolint:paralleltest // its panics are counted
	var log bytes.Buffer
	ctx := WithLogger(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
	counted := Panics()
	err := Do(ctx, "test", func() error {
		return setIn(nil)
	})
	if !IsPanic(err) || !strings.Contains(err.Error(), Code) || strings.Contains(err.Error(), "nil map") {
		t.Errorf("got %v", err)
	}
	if text := log.String(); !strings.Contains(text, "nil map") || !strings.Contains(text, "rescue_test.go") {
		t.Errorf("logged %s", text)
	}
	if got := Panics() - counted; got != 1 {
		t.Errorf("counted %d", got)
	}
	other := errors.New("other")
	if err := Do(t.Context(), "fine", func() error { return other }); err != other || Panics() != counted+1 { //nolint:errorlint // the same
		t.Errorf("got %v, counted %d", err, Panics()-counted)
	}
}

// setIn panics if the map is nil.
func setIn(m map[string]int) error {
	m["secret"]++
	return nil
}

// TestLoopGoesOn after a panic, and ends with its work.
func TestLoopGoesOn(t *testing.T) { //nolint:paralleltest // its panics are counted
	var runs atomic.Int32
	Loop(t.Context(), "loop", func() {
		if runs.Add(1) == 1 {
			panic("once")
		}
	})
	if runs.Load() != 2 {
		t.Errorf("ran %d times", runs.Load())
	}
	runs.Store(0)
	ctx, cancel := context.WithCancel(t.Context())
	Loop(ctx, "ended", func() {
		runs.Add(1)
		cancel()
		panic("always")
	})
	if runs.Load() != 1 {
		t.Errorf("ran %d times, though its context had ended", runs.Load())
	}
}
