package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

var recordTo = flag.String("record", "", "the folder to which TestRecord writes all recordings")

// largestRecording limits the size of a recording in bytes, because people review them.
const largestRecording = 120 << 10

// recordingCases are run only for recordings: smaller versions of other cases.
var recordingCases = []sharedCase{
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

// notRecorded lists the cases that are not recorded, with the recordings that cover their traffic.
var notRecorded = map[string]string{
	"fan-out of 50 steps":                 "parallel steps",
	"fan-outs of 12 and 60 steps":         "fan-out of six steps",
	"hook with many payloads":             "hook with three payloads",
	"steps run inline, with deltas":       "sequential steps",
	"preload and its opt-out":             "sleep",
	"webhook answered at once":            "the other webhooks",
	"requests without the key":            "sequential steps; no client sends the other requests",
	"World from the server's own package": "sequential steps",
	"app down for ten seconds":            "sleep and others; it starts its own app",
	"payload of 20 MB":                    "none, it is too large",
}

// TestRecord records the traffic of the cases, each with its own server and app. TestReplay in handlers/wire replays
// the recordings without clients. Without the flag -record, the test only checks that one case of each line can be
// recorded.
func TestRecord(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	dir, cases := *recordTo, slices.Concat(sharedCases, requestCases, recordingCases)
	if dir == "" {
		dir, cases = t.TempDir(), cases[:1]
	}
	for _, l := range sdkLines {
		t.Run(l.name, func(t *testing.T) {
			for _, c := range cases {
				if _, skip := notRecorded[c.name]; skip || !l.atLeast(c.from) {
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

func recordCase(t *testing.T, dir string, l *sdkLine, c sharedCase) {
	s := newServer(t)
	r := newRecorder(t, s)
	between := newTap(t, r.URL)
	a := newApp(t, appOptions{
		line: l, stepwell: between.URL, deployment: l.named("recorded"), client: harness.OfficialClient,
		env: []string{"NODE_OPTIONS=--stack-trace-limit=0"}, // stack traces are long and contain local paths
	})
	a.tap = between
	r.Client, r.Case = l.versions(t), c.name // the app's packages are installed by now
	s.register(t, l.named("recorded"), r.deliveries(t, a.url()).URL)
	c.run(t, s, a)
	a.Stop(t) // lets it finish its requests
	if !t.Failed() {
		r.save(t, filepath.Join(dir, l.name))
	}
}

// versions returns the names and versions of the recorded client packages.
func (l *sdkLine) versions(t *testing.T) (names string) {
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
