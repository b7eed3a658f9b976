package hostile

import (
	"net/http"
	"slices"
	"testing"
	"time"
)

const (
	// victimRuns is the number of runs whose times make a median.
	victimRuns = 40
	// worstSlowdown is how much longer a run of the victim may take during an attack. Runs that take less than shortRun
	// are always good enough: other processes of the machine alone can triple the shortest times.
	worstSlowdown = 3
	shortRun      = 40 * time.Millisecond
	// measurements is how often the victim is measured during an attack. The best one counts: other processes of the
	// machine can only make it slower.
	measurements = 3
)

// victimMedian runs workflows of three steps one after the other, and returns their median time. Every request must
// succeed.
func (f *fixture) victimMedian(t *testing.T) time.Duration {
	t.Helper()
	times := make([]time.Duration, victimRuns)
	for i := range times {
		start := time.Now()
		id := f.victim.start(t, "three", nil)
		r := f.victim.send(t, http.MethodGet, "/v1/runs/"+id+"/wait?timeout=30s", nil).want(t, http.StatusOK)
		times[i] = time.Since(start)
		if run := decode[struct{ Status string }](t, r); run.Status != "completed" {
			t.Fatalf("the victim's run %s is %s, want completed", id, run.Status)
		}
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// wantUnharmed measures the victim before and during the attack. The attack must be in effect when it returns; the
// function it returns ends it.
func (f *fixture) wantUnharmed(t *testing.T, attack func() (end func())) {
	t.Helper()
	f.victimMedian(t) // warms up connections and caches
	quiet := f.victimMedian(t)
	end := attack()
	defer end()
	var attacked time.Duration
	for range measurements {
		attacked = f.victimMedian(t)
		t.Logf("the victim's median is %s, and %s during the attack", quiet, attacked)
		if attacked <= max(worstSlowdown*quiet, shortRun) {
			return
		}
	}
	t.Errorf("the victim's median went from %s to %s, want at most %d times as long", quiet, attacked, worstSlowdown)
}
