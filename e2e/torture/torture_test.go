package torture

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// scale configures the length and severity of the test.
type scale struct {
	seed uint64
	// lasting is the minimum time during which faults are injected.
	lasting time.Duration
	// calm is the average time between two faults of a victim.
	calm time.Duration
	// runs is the minimum number of runs per app, atOnce the maximum number of open runs.
	runs   uint64
	atOnce int
	// grace is how long stopping servers wait for deliveries. If it is short, functions keep their leases, and if they
	// die, the leases must expire.
	grace time.Duration
	// long adds freezes that are long enough for a takeover.
	long bool
	// delay is the longest time that a run may be delayed, and recovery the longest time from the last fault until all
	// work is done. They are loose in the short test, which shares the machine with others.
	delay, recovery time.Duration
}

// newScale returns the short scale, or one configured by the environment.
func newScale(t *testing.T) scale {
	t.Helper()
	s := scale{seed: 1, lasting: 10 * time.Second, calm: 3 * time.Second, runs: 15, atOnce: 12, grace: 10 * time.Second,
		delay: 5 * time.Minute, recovery: 5 * time.Minute}
	if lasting := os.Getenv("TORTURE_FOR"); lasting != "" {
		var err error
		if s.lasting, err = time.ParseDuration(lasting); err != nil {
			t.Fatalf("TORTURE_FOR: %v", err)
		}
		s.seed = uint64(time.Now().UnixNano() % 1e6)
		s.calm, s.runs, s.atOnce, s.grace, s.long = 10*time.Second, 30, 20, 2*time.Second, true
		s.delay, s.recovery = 2*time.Minute, time.Minute
	}
	if seed := os.Getenv("TORTURE_SEED"); seed != "" {
		var err error
		if s.seed, err = strconv.ParseUint(seed, 10, 64); err != nil {
			t.Fatalf("TORTURE_SEED: %v", err)
		}
	}
	return s
}

// TestTorture injects faults while runs are in progress, and then checks every run and everything that is left over.
func TestTorture(t *testing.T) {
	t.Parallel()
	harness.SkipIfShort(t)
	scale := newScale(t)
	t.Logf("seed %d, faults for %s", scale.seed, scale.lasting)
	life, end := context.WithCancel(t.Context())
	defer end()
	s := newCluster(life, t, scale.grace)
	v := newReport(s)
	for _, a := range s.apps {
		v.drivers = append(v.drivers, newDriver(a, s.postgres, scale.seed, scale.atOnce, &v.events))
	}

	faults := time.Now()
	drivingCtx, stopDriving := context.WithCancel(life)
	var driving, injecting sync.WaitGroup
	for _, d := range v.drivers {
		driving.Go(func() { d.drive(drivingCtx, life, scale.runs) })
	}
	injectors := s.injectors(scale.seed, scale.calm)
	if scale.long {
		last := injectors[2] // the second server's
		last.deck = append(last.deck, s.longFreeze())
	}
	for _, m := range injectors {
		injecting.Go(func() { m.run(life, t, faults.Add(scale.lasting), &v.faults) })
	}
	injecting.Wait()
	calm := time.Now()
	v.tortured = calm.Sub(faults)
	stopDriving()
	driving.Wait()

	v.await(life, t, calm)
	v.check(t)
	v.checkTimes(t, scale.delay, scale.recovery)
	end()
	v.checkLeaks(t)
	if scale.long {
		t.Logf("the slowest run was %s:\n%s", v.slowest, v.history(t, v.slowest))
	}
	t.Logf("\n%s", v.table(scale.seed))
}
