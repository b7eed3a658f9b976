package e2e

import "testing"

// TestStepwell runs every case on one server and one database, all at once. The first group shares one
// app, too; the second needs apps that were set up or are treated in some other way.
func TestStepwell(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := newServer(t)
	a := s.app(t, "shared")
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s *server, a *app)
	}{
		{"sequential steps", sequentialSteps},
		{"parallel steps", parallelSteps},
		{"fan-out of 50 steps", fanOut},
		{"RetryableError with retryAfter", retryableError},
		{"FatalError", fatalError},
		{"retries exhausted", retriesExhausted},
		{"sleep", shortSleep},
		{"hook with many payloads", hookManyPayloads},
		{"hook conflict and token reuse", hookConflict},
		{"webhook answered at once", webhookDefault},
		{"webhook with a stored response", webhookStatic},
		{"webhook answered by the workflow", webhookManual},
		{"stream read while written", streamWhileWritten},
		{"cancel while running", cancelWhileRunning},
		{"World from the server's own package", worldFromServer},
		{"requests without the key", noKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, s, a)
		})
	}
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s *server)
	}{
		{"World by preload", worldByPreload},
		{"sleep beyond the longest hop", longSleep},
		{"run_created or its answer lost", runCreatedLost},
		{"every message delivered twice", deliveredTwice},
		{"payload of 20 MB", largePayload},
		{"app down for ten seconds", appDown},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, s)
		})
	}
}
