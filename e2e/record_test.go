package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

var recordTo = flag.String("record", "", "the folder that TestRecord writes all recordings to")

// largestRecording is how many bytes of a case are worth keeping: each has to be read by somebody.
const largestRecording = 120 << 10

// recordedAlone are cases for the recordings alone: less of what others have much of.
var recordedAlone = []sharedCase{
	{"fan-out of six steps", beta35, func(t *testing.T, _ *server, a *app) {
		a.want(t, a.run(t, "fanout", 6), 15)
	}},
	{"hook with three payloads", stable, func(t *testing.T, _ *server, a *app) {
		token := a.named("few")
		id := a.run(t, "hookMany", token, 3)
		a.hook(t, id)
		for i := range 3 {
			a.resume(t, token, i)
		}
		a.want(t, id, []int{0, 1, 2})
	}},
}

// notRecorded are cases whose traffic is in other recordings, or in none because there would be too much.
var notRecorded = map[string]string{
	"fan-out of 50 steps":                 "parallel steps",
	"fan-outs of 12 and 60 steps":         "fan-out of six steps",
	"hook with many payloads":             "hook with three payloads",
	"steps run inline, with deltas":       "sequential steps",
	"preload and its opt-out":             "sleep",
	"webhook answered at once":            "the other webhooks",
	"requests without the key":            "sequential steps; the other requests are no client's",
	"World from the server's own package": "sequential steps",
	"app down for ten seconds":            "sleep and others; it is about an app of its own",
	"payload of 20 MB":                    "none",
}

// TestRecord writes down what the clients say while the cases run, each with a server and an app of its own. The
// recordings are kept, and TestReplay of handlers/wire replays them without clients. Unless it is told where to
// write, it tries no more than that one case of each line can be recorded.
func TestRecord(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	dir, cases := *recordTo, slices.Concat(sharedCases, recordedAlone)
	if dir == "" {
		dir, cases = t.TempDir(), cases[:1]
	}
	for _, l := range lines {
		t.Run(l.name, func(t *testing.T) {
			for _, c := range cases {
				if _, left := notRecorded[c.name]; left || !l.later(c.from) {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					recordCase(t, dir, l, c)
				})
			}
		})
	}
}

func recordCase(t *testing.T, dir string, l *line, c sharedCase) {
	s := newServer(t)
	r := newRecorder(t, s)
	between := newTap(t, r.URL)
	a := newApp(t, appOptions{
		line: l, stepwell: between.URL, deployment: l.named("recorded"),
		env: []string{"NODE_OPTIONS=--stack-trace-limit=0"}, // stacks are long and name the folders of this machine
	})
	a.tap = between
	r.Client, r.Case = l.versions(t), c.name // of what the app has installed by now
	s.register(t, l.named("recorded"), r.deliveries(t, a.url()).URL)
	c.run(t, s, a)
	a.Stop(t) // which lets it finish what it has begun
	if !t.Failed() {
		r.save(t, filepath.Join(dir, l.name))
	}
}

// versions names the packages that speak.
func (l *line) versions(t *testing.T) (names string) {
	t.Helper()
	for i, name := range []string{"workflow", "@workflow/world-vercel"} {
		data, err := os.ReadFile(filepath.Join(l.dir, "node_modules", name, "package.json"))
		if err != nil {
			t.Fatal(err)
		}
		var installed struct{ Version string }
		if err := json.Unmarshal(data, &installed); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			names += ", "
		}
		names += fmt.Sprintf("%s %s", name, installed.Version)
	}
	return names
}
