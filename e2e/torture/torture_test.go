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

// scale is how hard the torture is.
type scale struct {
	seed uint64
	// lasting is how long faults are done, at least.
	lasting time.Duration
	// calm is about how long each victim has between two faults.
	calm time.Duration
	// runs is how many runs each app has at least, atOnce how many may be open.
	runs   uint64
	atOnce int
	// grace is what servers give deliveries when they stop. With a short one, leases are left with functions, and
	// those of functions that then die take their time to run out.
	grace time.Duration
	// long says that servers are also frozen until others have taken over.
	long bool
}

// newScale is short, or as long as the environment says.
func newScale(t *testing.T) scale {
	t.Helper()
	s := scale{seed: 1, lasting: 10 * time.Second, calm: 3 * time.Second, runs: 15, atOnce: 12, grace: 10 * time.Second}
	if lasting := os.Getenv("TORTURE_FOR"); lasting != "" {
		var err error
		if s.lasting, err = time.ParseDuration(lasting); err != nil {
			t.Fatalf("TORTURE_FOR: %v", err)
		}
		s.seed = uint64(time.Now().UnixNano() % 1e6)
		s.calm, s.runs, s.atOnce, s.grace, s.long = 10*time.Second, 30, 20, 2*time.Second, true
	}
	if seed := os.Getenv("TORTURE_SEED"); seed != "" {
		var err error
		if s.seed, err = strconv.ParseUint(seed, 10, 64); err != nil {
			t.Fatalf("TORTURE_SEED: %v", err)
		}
	}
	return s
}

// TestTorture is what this package is for.
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
	over, enough := context.WithCancel(life)
	var driving, tormenting sync.WaitGroup
	for _, d := range v.drivers {
		driving.Go(func() { d.drive(over, life, scale.runs) })
	}
	tormentors := s.injectors(scale.seed, scale.calm)
	if scale.long {
		last := tormentors[2] // the second server's
		last.deck = append(last.deck, s.longFreeze())
	}
	for _, m := range tormentors {
		tormenting.Go(func() { m.run(life, t, faults.Add(scale.lasting), &v.faults) })
	}
	tormenting.Wait()
	v.tortured = time.Since(faults)
	enough()
	driving.Wait()

	v.await(life, t)
	v.check(t)
	end()
	v.checkLeaks(t)
	if scale.long {
		t.Logf("the slowest run was %s:\n%s", v.slowest, v.history(t, v.slowest))
	}
	t.Logf("\n%s", v.table(scale.seed))
}
