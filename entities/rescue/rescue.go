// Package rescue keeps a panic in the work of one project from ending the process, and with it the work of all others.
// Each goroutine that works for a project does its work in [Do], or in [Loop] if it never ends. It logs to the logger
// of its context; see [WithLogger].
package rescue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Code is the code of what a [Panic] has stopped.
const Code = "server_panic"

// Panic is the error of work that has panicked.
type Panic struct {
	// Work names the work.
	Work string
}

// Error implements error. The text has nothing of the value, which may quote a payload: the server's log has it.
func (p *Panic) Error() string {
	return fmt.Sprintf("the server panicked in %s, which is a bug: its log has the stack, with the code %s", p.Work, Code)
}

// Redacted returns the whole text.
func (p *Panic) Redacted() string { return p.Error() }

// IsPanic reports whether the error is that of work that has panicked.
func IsPanic(err error) bool {
	_, ok := errors.AsType[*Panic](err)
	return ok
}

type loggerKey struct{}

// WithLogger returns a context in which panics are logged to the logger. Without one they are logged to [slog.Default].
func WithLogger(ctx context.Context, logger *slog.Logger) context.Context {
	return context.WithValue(ctx, loggerKey{}, logger)
}

func loggerOf(ctx context.Context) *slog.Logger {
	if logger, ok := ctx.Value(loggerKey{}).(*slog.Logger); ok {
		return logger
	}
	return slog.Default()
}

// Do does work. If it panics, Do logs the stack, counts the panic, and returns a [Panic]. The locks and slots that the
// work holds must be released by its deferred calls.
func Do(ctx context.Context, work string, do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = Caught(ctx, loggerOf(ctx), work, value, debug.Stack())
		}
	}()
	return do()
}

// Caught logs and counts a panic that was recovered elsewhere, and returns its error.
func Caught(ctx context.Context, logger *slog.Logger, work string, value any, stack []byte) error {
	panics.Add(1)
	logger.ErrorContext(ctx, "panic", "code", Code, "work", work, "panic", fmt.Sprint(value), "stack", string(stack))
	return &Panic{work}
}

// pause is how long a [Loop] waits after a panic.
const pause = time.Second

// Loop runs what ends only with the context. If it panics, it is run again after a pause.
func Loop(ctx context.Context, work string, run func()) {
	for {
		err := Do(ctx, work, func() error {
			run()
			return nil
		})
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

var panics atomic.Int64

// Panics returns how often something has panicked in this process.
func Panics() int64 { return panics.Load() }
