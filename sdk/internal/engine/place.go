package engine

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// MisuseError says that a coroutine's handle was used by another goroutine or coroutine, or in a condition.
type MisuseError struct{ text string }

// Error implements error.
func (e *MisuseError) Error() string { return e.text }

// The texts of misuses, with where the handle was used, where its coroutine was started, and where what has used it was
// started; each as file:line.
const (
	usedInside = "%s: the Context of the function started at %s was used inside the function started at %s;" +
		" use the Context that it gets"
	usedInCondition = "%s: a condition has used the Context of the function started at %s; a condition is evaluated" +
		" again and again, so it may read, but not ask for anything or wait"
	usedInGoroutine = "%s: the Context of the function started at %s was used in another goroutine;" +
		" start coroutines with stepwell.Go; a step cannot ask for anything: let it return, and ask in the workflow"
)

// misuse returns the error of a use of the coroutine by the present caller.
func (c *Coroutine) misuse(text string, by ...any) *MisuseError {
	return &MisuseError{fmt.Sprintf(text, append([]any{Caller(), c.Place}, by...)...)}
}

// sdk is the path that all functions of the SDK begin with, except its tests.
const sdk = "github.com/stepwell-dev/stepwell/sdk"

// places has the places of calls, by program counter; empty for calls in the SDK.
var places sync.Map

// Caller returns the nearest caller outside the SDK, as file:line.
func Caller() string {
	var calls [32]uintptr
	for _, pc := range calls[:runtime.Callers(1, calls[:])] {
		place, ok := places.Load(pc)
		if !ok {
			place, _ = places.LoadOrStore(pc, placeOf(pc))
		}
		if place != "" {
			return place.(string)
		}
	}
	return "unknown"
}

// placeOf returns the place of a call, as file:line; empty if it is in the SDK.
func placeOf(pc uintptr) string {
	frames := runtime.CallersFrames([]uintptr{pc})
	for more := true; more; { // calls that were inlined
		var frame runtime.Frame
		frame, more = frames.Next()
		if !strings.HasPrefix(frame.Function, sdk) || strings.HasSuffix(frame.File, "_test.go") {
			return fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line)
		}
	}
	return ""
}
