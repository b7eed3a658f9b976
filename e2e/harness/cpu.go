package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// CPUTime returns the processor time that the process has taken.
func (p *Process) CPUTime(t *testing.T) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		t.Fatalf("this test needs Linux: %v", err)
	}
	_, fields, _ := strings.Cut(string(stat), ") ") // from the state on
	const tick = time.Second / 100
	var sum time.Duration
	for _, field := range strings.Fields(fields)[11:13] { // of the program, and of the system for it
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n) * tick
	}
	return sum
}
