package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// ways are the ways in which an app and a server work together.
var ways = []struct {
	name, client string
	pulls        bool
}{
	{"own client", harness.OwnClient, false},
	{"own client that pulls", harness.OwnClient, true},
	{"official client", harness.OfficialClient, false},
}

// TestSkew: apps and servers need not be replaced in any order, nor all at once. Runs end, and execute each step once,
// though the app is there before the server, two versions of the app serve one deployment, the server is replaced, and the
// next version of the app has another deployment ID.
func TestSkew(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	for _, l := range newestLine() {
		for _, way := range ways {
			t.Run(l.name+", "+way.name, func(t *testing.T) {
				t.Parallel()
				skew(t, l, way.client, way.pulls)
			})
		}
	}
}

func skew(t *testing.T, l *sdkLine, client string, pulls bool) {
	s := newServer(t)
	s.Kill()
	effects := filepath.Join(t.TempDir(), "effects.jsonl")
	deploy := func(deployment string) *app {
		return newApp(t, appOptions{
			line: l, stepwell: s.url(), deployment: l.named(deployment), client: client,
			env: []string{"EFFECTS_FILE=" + effects, fmt.Sprint("STEPWELL_PULL=", map[bool]int{true: 1}[pulls])},
		})
	}
	begin := func(a *app, name string) string {
		id := a.run(t, "everything", name)
		a.hook(t, id)
		return id
	}
	one := deploy("skewed") // before the server
	s.start(t)
	var serving atomic.Pointer[[]*app]
	serving.Store(&[]*app{one})
	var turn atomic.Int64
	balancer := newProxy(t, one.url(), func(http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			apps := *serving.Load()
			forwardTo(t, apps[int(turn.Add(1))%len(apps)].url()).ServeHTTP(w, r)
		}
	})
	if !pulls {
		s.register(t, l.named("skewed"), balancer.URL)
	}
	runs := map[string]string{"first": begin(one, "first")}

	two := deploy("skewed") // beside the first
	serving.Store(&[]*app{one, two})
	runs["second"] = begin(two, "second")
	s.Stop(t)
	s.start(t)
	one.Stop(t)

	next := deploy("skewed-next") // in whose place the operator puts it; an app that pulls stays until its runs have ended
	serving.Store(&[]*app{next})
	if !pulls {
		s.register(t, l.named("skewed-next"), next.url())
		two.Stop(t)
	}
	runs["third"] = begin(next, "third")
	for name, id := range runs {
		next.resume(t, name, name)
		next.wantEverything(t, s, id, name)
	}
}

// TestTimeOfAWorkflowDoesNotJump though the clock of the app is wrong: it is that of the server from its start on. The
// official client of the 5 line starts it by the clock of the app.
func TestTimeOfAWorkflowDoesNotJump(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const most = time.Minute // for a busy machine
	libraries, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if len(libraries) == 0 {
		t.Fatal("libfaketime is missing: scripts/need faketime installs it on Debian")
	}
	s := newServer(t)
	for _, l := range sdkLines {
		for _, wrong := range []string{"-20m", "+4m"} {
			t.Run(l.name+" "+wrong, func(t *testing.T) {
				t.Parallel()
				a := newApp(t, appOptions{
					line: l, stepwell: s.url(), deployment: l.named("clock" + wrong[1:]), client: harness.OwnClient,
					env: []string{"LD_PRELOAD=" + libraries[0], "FAKETIME=" + wrong, "FAKETIME_DONT_FAKE_MONOTONIC=1"},
				})
				s.register(t, l.named("clock"+wrong[1:]), a.url())
				before := time.Now()
				times, ok := a.outcome(t, a.run(t, "clock")).Value.([]any)
				if !ok || len(times) != 3 {
					t.Fatalf("got %v, want three times", times)
				}
				last := before
				for _, ms := range times {
					at := time.UnixMilli(int64(ms.(float64)))
					if step := at.Sub(last); step < -2*time.Second || step > most {
						t.Errorf("the time goes from %s to %s", last, at)
					}
					last = at
				}
			})
		}
	}
}
