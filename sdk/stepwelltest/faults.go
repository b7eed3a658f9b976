package stepwelltest

import "fmt"

// faults counts the places where a run can crash, and crashes at one of them.
type faults struct {
	count int
	at    int // the number of the place; 0: none
	what  string
}

// crash reports whether to crash here.
func (f *faults) crash(format string, args ...any) bool {
	f.count++
	if f.count != f.at {
		return false
	}
	f.what = fmt.Sprintf(format, args...)
	return true
}
