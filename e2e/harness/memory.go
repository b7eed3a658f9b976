package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// LargestMemory returns the most memory that the process has had resident, in MiB.
func (p *Process) LargestMemory(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatalf("this test needs Linux: %v", err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kB, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kB >> 10
		}
	}
	t.Fatal("the process has no VmHWM")
	return 0
}
