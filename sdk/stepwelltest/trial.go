package stepwelltest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// trial is the testing.TB of one execution of a scenario. Its failures are those of the execution, not of the test.
type trial struct {
	testing.TB

	failed   bool
	messages []string
	cleanups []func()
}

// try executes fn with a trial, in a goroutine of its own, which FailNow ends.
func try(tb testing.TB, fn func(t *trial)) *trial {
	t := &trial{TB: tb}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.clean()
		defer func() {
			if v := recover(); v != nil {
				t.Errorf("panic: %v\n%s", v, debug.Stack())
			}
		}()
		fn(t)
	}()
	<-done
	return t
}

func (t *trial) clean() {
	for _, fn := range slices.Backward(t.cleanups) {
		fn()
	}
}

// report returns all messages of the execution.
func (t *trial) report() string { return strings.Join(t.messages, "\n") }

// The methods of testing.TB that have to do with the execution.

// Cleanup implements testing.TB.
func (t *trial) Cleanup(fn func()) { t.cleanups = append(t.cleanups, fn) }

// Log implements testing.TB.
func (t *trial) Log(args ...any) {
	t.messages = append(t.messages, strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}

// Logf implements testing.TB.
func (t *trial) Logf(format string, args ...any) {
	t.messages = append(t.messages, fmt.Sprintf(format, args...))
}

// Fail implements testing.TB.
func (t *trial) Fail() { t.failed = true }

// Failed implements testing.TB.
func (t *trial) Failed() bool { return t.failed }

// FailNow implements testing.TB.
func (t *trial) FailNow() {
	t.failed = true
	runtime.Goexit()
}

// Error implements testing.TB.
func (t *trial) Error(args ...any) {
	t.Log(args...)
	t.Fail()
}

// Errorf implements testing.TB.
func (t *trial) Errorf(format string, args ...any) {
	t.Logf(format, args...)
	t.Fail()
}

// Fatal implements testing.TB.
func (t *trial) Fatal(args ...any) {
	t.Log(args...)
	t.FailNow()
}

// Fatalf implements testing.TB.
func (t *trial) Fatalf(format string, args ...any) {
	t.Logf(format, args...)
	t.FailNow()
}
