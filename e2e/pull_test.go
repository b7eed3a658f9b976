package e2e

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// pulling starts an app that fetches its deliveries, with a key of the role write. Nobody registers it.
func (s *server) pulling(t *testing.T, l *sdkLine, deployment string) *app {
	t.Helper()
	return newApp(t, appOptions{
		line: l, stepwell: s.url(), deployment: l.named(deployment), client: harness.OwnClient,
		env: []string{"STEPWELL_API_KEY=" + s.appKey(t), "STEPWELL_PULL=1"},
	})
}

// pulled runs workflows of an app that fetches its deliveries.
func pulled(t *testing.T, s *server, a *app) {
	t.Helper()
	fan, everything := a.run(t, "fanout", 20), a.run(t, "everything", a.named("pulled"))
	a.hook(t, everything)
	a.resume(t, a.named("pulled"), "hello")
	a.want(t, fan, 190)
	a.wantCounts(t, fan, map[string]int{"add": 20})
	a.wantEverything(t, s, everything, "hello")
}

func TestPulledDeliveries(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := newServer(t)
	for _, l := range sdkLines {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			pulled(t, s, s.pulling(t, l, "pulled"))
		})
	}
}

// TestPulledDeliveriesSurviveCrashes kills an app in the middle of a step, and then the server. The step is executed
// again once the lease of the dead app has ended, and the app finds the server when it is back.
func TestPulledDeliveriesSurviveCrashes(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const work = 3 * time.Second
	for _, l := range newestLine() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			a := s.pulling(t, l, "crashes")
			id := a.run(t, "slowStep", work.Milliseconds())
			eventually(t, "the step is running", func() bool { return a.counts(t, id)["takesTime"] == 1 })
			a.Kill()
			killed := time.Now()
			a.start(t)
			a.want(t, id, work.Milliseconds())
			// A lease lasts 30 s; the rest is tolerance for a busy machine.
			if took, most := time.Since(killed), 30*time.Second+work+15*time.Second; took > most {
				t.Errorf("the run ended %s after the app was killed, want at most %s", took, most)
			}
			a.wantCounts(t, id, map[string]int{"takesTime": 2, "takesTime:end": 1})

			id = a.run(t, "slowStep", work.Milliseconds())
			eventually(t, "the step is running", func() bool { return a.counts(t, id)["takesTime"] == 1 })
			s.waitFor(t, id, "step_started") // what no server knows has not begun
			s.Kill()
			s.start(t)
			a.want(t, id, work.Milliseconds())
			a.wantCounts(t, id, map[string]int{"takesTime": 1, "takesTime:end": 1})
			pulled(t, s, a)
		})
	}
}

// TestPulledLeaseLasts: a step that takes longer than a lease is executed once.
func TestPulledLeaseLasts(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := newServer(t)
	a := s.pulling(t, stable, "long")
	const work = 40 * time.Second
	id := a.run(t, "slowStep", work.Milliseconds())
	a.want(t, id, work.Milliseconds())
	a.wantCounts(t, id, map[string]int{"takesTime": 1, "takesTime:end": 1})
}

// TestPullByDefault: an app against stepwell dev needs no address, and nobody registers it.
func TestPullByDefault(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	program, err := harness.ServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{addr: "127.0.0.1:0"}
	cmd := exec.Command(program, "dev")
	cmd.Env = cleanEnv("DATABASE_URL="+testdb.New(t), "STEPWELL_LISTEN="+s.addr, "STEPWELL_OPEN_BROWSER=false", "STEPWELL_LOG=json")
	s.process, s.addr = startProcess(t, "dev", cmd, harness.ServerReady)
	a := newApp(t, appOptions{
		line: beta55, stepwell: s.url(), deployment: "dev", client: harness.OwnClient,
		env: []string{"STEPWELL_API_KEY=", "STEPWELL_PULL="},
	})
	a.want(t, a.run(t, "sequential", 1), 4)
}

// TestPulledAppStops: an app that is asked to end finishes what it works on, and fetches no more.
func TestPulledAppStops(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := newServer(t)
	a := s.pulling(t, beta55, "stops")
	id := a.run(t, "slowStep", 1000)
	eventually(t, "the step is running", func() bool { return a.counts(t, id)["takesTime"] == 1 })
	a.Stop(t)
	s.waitFor(t, id, "step_completed")
	a.start(t)
	a.want(t, id, 1000)
	a.wantCounts(t, id, map[string]int{"takesTime": 1, "takesTime:end": 1})
}

// TestPulledFanOut: the ends of many steps at once wake a run as often. An app that fetches its deliveries replays the
// run one at a time, so that its memory does not grow with them.
func TestPulledFanOut(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const steps, most = 200, 700 // MiB
	s := newServer(t)
	for _, l := range newestLine() {
		t.Run(l.name, func(t *testing.T) {
			a := s.pulling(t, l, "fans")
			began := time.Now()
			id := a.run(t, "fanout", steps)
			a.want(t, id, steps*(steps-1)/2)
			memory := a.LargestMemory(t)
			t.Logf("%d steps took %s and %d MiB", steps, time.Since(began), memory)
			a.wantCounts(t, id, map[string]int{"add": steps})
			if memory > most {
				t.Errorf("the app took %d MiB, want at most %d", memory, most)
			}
		})
	}
}
