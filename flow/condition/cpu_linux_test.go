package condition

import (
	"syscall"
	"testing"
	"time"
)

// TestAttacksTakeSimilarTime compares the time that the attacks take of a processor, which does not depend on what else
// runs. All are stopped at the same cost, so none may take much longer than a plain loop. Without the charge for matches,
// one took seventy times as long as with it.
func TestAttacksTakeSimilarTime(t *testing.T) {
	took := map[string]time.Duration{}
	for _, attack := range attacks {
		c := New(time.Now)
		if err := c.Check(t.Context(), "attacker", attack.text); err != nil {
			t.Fatal(err)
		}
		v := variables(t, attack.data)
		took[attack.name] = time.Hour
		for range 3 {
			start := processorTime(t)
			_, _ = c.Matches(t.Context(), attack.text, v)
			took[attack.name] = min(took[attack.name], processorTime(t)-start)
		}
	}
	t.Log(took)
	for name, d := range took {
		if limit := 20 * took["loops"]; d > limit {
			t.Errorf("%s: took %s, a loop %s", name, d, took["loops"])
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
