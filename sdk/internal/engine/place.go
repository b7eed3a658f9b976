package engine

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// MisuseError says that a coroutine's handle was used by another goroutine or coroutine.
type MisuseError struct {
	// Used is where it was used, Started where its coroutine was started, and Inner where the coroutine was started that
	// used it; each as file:line.
	Used, Started, Inner string
	// Foreign is set if the user is no coroutine of the workflow, and Inline if it is an inline step, which was asked for
	// at Inner.
	Foreign, Inline bool
}

// Error implements error.
func (e *MisuseError) Error() string {
	if e.Inline {
		return fmt.Sprintf("%s: the W of the function started at %s was used inside the inline step at %s;"+
			" a step cannot ask for anything: let it return, and ask for the rest in the workflow", e.Used, e.Started, e.Inner)
	}
	if e.Foreign {
		return fmt.Sprintf("%s: the W of the function started at %s was used in another goroutine;"+
			" start a coroutine with stepwell.Go, or use the step's context", e.Used, e.Started)
	}
	return fmt.Sprintf("%s: the W of the function started at %s was used inside the function started at %s;"+
		" use the W that it gets", e.Used, e.Started, e.Inner)
}

// sdk is the path that all functions of the SDK begin with, except its tests.
const sdk = "github.com/stepwell-dev/stepwell/sdk"

// Caller returns the nearest caller outside the SDK, as file:line.
func Caller() string {
	var calls [32]uintptr
	frames := runtime.CallersFrames(calls[:runtime.Callers(2, calls[:])])
	for {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, sdk) || strings.HasSuffix(frame.File, "_test.go") {
			return fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line)
		}
		if !more {
			return "unknown"
		}
	}
}
