package stepwelltest

import "testing"

// Failures returns what fn reports; empty if it does not fail.
func Failures(t testing.TB, fn func(testing.TB)) string {
	got := try(t, func(t *trial) { fn(t) })
	if !got.failed {
		return ""
	}
	return got.report()
}

// Crash returns where an execution of EveryCrash has crashed; empty if it has not yet.
func Crash(e *Env) string { return e.caller.faults.what }
