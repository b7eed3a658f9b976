package e2e

import (
	"slices"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestStepwell runs all cases on one server and one database, one SDK line after the other. The cases of a line run in
// parallel and share one app, except those that need an app with another setup. Some of them run again with the SDK's
// own client.
func TestStepwell(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := newServer(t)
	for _, l := range sdkLines {
		t.Run(l.name, func(t *testing.T) {
			runCases(t, s, l, harness.Client(), sharedCases)
			for _, c := range ownCases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(t, s, l)
				})
			}
		})
	}
	for _, l := range newestLine() { // TestReplay of handlers/wire has the requests of the others
		t.Run(l.name+" with the official client", func(t *testing.T) {
			runCases(t, s, l, harness.OfficialClient, officialCases())
		})
	}
}

func runCases(t *testing.T, s *server, l *sdkLine, client string, cases []sharedCase) {
	between := newTap(t, s.url())
	deployment := l.named("shared-" + client)
	a := newApp(t, appOptions{line: l, stepwell: between.URL, deployment: deployment, client: client})
	s.register(t, deployment, a.url())
	a.tap = between
	t.Cleanup(func() { between.wantCorrectDeltas(t) }) // after all cases
	for _, c := range cases {
		if l.atLeast(c.from) {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(t, s, a)
			})
		}
	}
}

// requestCases check which requests the SDK's own client sends.
var requestCases = []sharedCase{
	{"steps run inline, with deltas", beta35, inlineSteps},
	{"preload and its opt-out", stable, preload},
	{"hook resumed once", beta55, resumedOnce},
}

// officialCases returns the cases that run with the SDK's own client: those about its requests, and one for each group
// of endpoints.
func officialCases() []sharedCase {
	cases := slices.Clone(requestCases)
	for _, c := range sharedCases {
		if slices.Contains([]string{
			"sequential steps", "parallel steps", "RetryableError with retryAfter", "sleep", "hook with many payloads",
			"webhook answered by the workflow", "stream read while written", "cancel while running",
			"fan-outs of 12 and 60 steps", "attributes by event", "returnValue by long poll", "cancel of many runs",
		}, c.name) {
			cases = append(cases, c)
		}
	}
	return cases
}

// ownCases are the cases that start their own apps.
var ownCases = []struct {
	name string
	run  func(t *testing.T, s *server, l *sdkLine)
}{
	{"World by preload", worldByPreload},
	{"faulty link", faultyLinks},
	{"answers to commits lost", lostAnswers},
	{"client changed", clientChanged},
	{"every message delivered twice", deliveredTwice},
}

// sharedCase is a case that shares its app with others. from is the first SDK line with the features it needs.
// Recordings are named after the case.
type sharedCase struct {
	name string
	from *sdkLine
	run  func(t *testing.T, s *server, a *app)
}

// sharedCases lists all cases that share an app.
var sharedCases = []sharedCase{
	{"sequential steps", stable, sequentialSteps},
	{"parallel steps", stable, parallelSteps},
	{"fan-out of 50 steps", stable, fanOut},
	{"RetryableError with retryAfter", stable, retryableError},
	{"FatalError", stable, fatalError},
	{"retries exhausted", stable, retriesExhausted},
	{"sleep", stable, shortSleep},
	{"hook with many payloads", stable, hookManyPayloads},
	{"hook conflict and token reuse", stable, hookConflict},
	{"webhook answered at once", stable, webhookDefault},
	{"webhook with a stored response", stable, webhookStatic},
	{"webhook answered by the workflow", stable, webhookManual},
	{"webhooks by the server's own URL", stable, webhooksByServerURL},
	{"hook resumed by the native API", stable, resumedByAPI},
	{"stream read while written", stable, streamWhileWritten},
	{"cancel while running", stable, cancelWhileRunning},
	{"World from the server's own package", stable, worldFromServer},
	{"requests without the key", stable, noKey},
	{"payload of 20 MB", stable, largePayload},
	{"app down for ten seconds", stable, appDown},

	{"fan-outs of 12 and 60 steps", beta35, fans},
	{"attributes by event", beta35, attributesByEvent},
	{"attributes by endpoint", beta35, attributesByEndpoint},
	{"AbortController", beta35, aborts},
	{"child workflow", beta35, childWorkflow},
	{"compressed payload", beta35, compressedPayload},
	{"stream endpoints", beta35, streamEndpoints},
	{"hook retained beyond its run", beta55, hookRetained},
	{"hook released in time", beta55, hookReleased},
	{"returnValue by long poll", beta55, returnValue},
	{"cancel of many runs", beta55, cancelMany},
	{"many runs at once", beta55, getMany},
}
