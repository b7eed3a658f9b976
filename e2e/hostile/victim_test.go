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
	// worstRun is how much longer than the median without an attack any single run may take. Runs that take less than
	// longRun are good enough.
	worstRun = 100
	longRun  = 2 * time.Second
	// measurements is how often the victim is measured during an attack. The best one counts: other processes of the
	// machine can only make it slower.
	measurements = 3
)

// victimTimes runs workflows of three steps one after the other, and returns their median and longest time. Every
// request must succeed.
func (f *fixture) victimTimes(t *testing.T) (median, longest time.Duration) {
	t.Helper()
	times := make([]time.Duration, victimRuns)
	for i := range times {
		start := time.Now()
		id := f.victim.start(t, "three", nil)
		r := f.victim.send(t, http.MethodGet, "/v1/runs/"+id+"/wait?timeout=30s", nil).Want(t, http.StatusOK)
		times[i] = time.Since(start)
		if run := decode[struct{ Status string }](t, r); run.Status != "completed" {
			t.Fatalf("the victim's run %s is %s, want completed", id, run.Status)
		}
	}
	slices.Sort(times)
	return times[len(times)/2], times[len(times)-1]
}

// wantUnharmed measures the victim before and during the attack. The attack must be in effect when it returns; the
// function it returns ends it.
func (f *fixture) wantUnharmed(t *testing.T, attack func() (end func())) {
	t.Helper()
	cold, _ := f.victimTimes(t) // connections and caches are not warm
	warm, _ := f.victimTimes(t)
	quiet := max(cold, warm) // other processes may have started meanwhile
	end := attack()
	defer end()
	var attacked time.Duration
	for range measurements {
		var longest time.Duration
		attacked, longest = f.victimTimes(t)
		t.Logf("the victim's median is %s, and %s during the attack, at most %s", quiet, attacked, longest)
		if most := max(worstRun*quiet, longRun); longest > most {
			t.Errorf("a run of the victim took %s during the attack, want at most %s", longest, most)
		}
		if attacked <= max(worstSlowdown*quiet, shortRun) {
			return
		}
	}
	t.Errorf("the victim's median went from %s to %s, want at most %d times as long", quiet, attacked, worstSlowdown)
}
