package condition

import (
	"syscall"
	"testing"
	"time"
)

// TestAttacksTakeMilliseconds measures the time that each attack takes of a processor, which does not depend on what
// else runs. The worst takes 10 ms; without the charge for matches one took 400 ms.
func TestAttacksTakeMilliseconds(t *testing.T) {
	for _, attack := range attacks {
		c := New(time.Now)
		if err := c.Check(t.Context(), "attacker", attack.text); err != nil {
			t.Fatal(err)
		}
		v := variables(t, attack.data)
		start := processorTime(t)
		_, _ = c.Matches(t.Context(), attack.text, v)
		if took := processorTime(t) - start; took > 200*time.Millisecond {
			t.Errorf("%s: took %s", attack.name, took)
		}
	}
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
