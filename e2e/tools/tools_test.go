package tools

import "testing"

// TestTools runs the tools of each SDK line against its own server and app: first the read-only tests in parallel, then
// those that change something.
func TestTools(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	for _, l := range testedLines() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t, l)
			d := newDashboard(t, s)
			t.Run("read-only", func(t *testing.T) { readOnlyTools(t, s, d) })
			t.Run("dashboard: buttons", func(t *testing.T) { dashboardWrites(t, d) })
			t.Run("command line: start, cancel", func(t *testing.T) { cliWrites(t, s) })
		})
	}
}

func readOnlyTools(t *testing.T, s *fixture, d *dashboard) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s *fixture)
	}{
		{"runs", cliRuns},
		{"runs with data", cliRunsWithData},
		{"table", cliTable},
		{"run", cliRun},
		{"steps", cliSteps},
		{"events", cliEvents},
		{"hooks", cliHooks},
		{"streams", cliStreams},
		{"sleeps", cliSleeps},
		{"attributes", cliAttributes},
		{"health", cliHealth},
		{"without our package", cliWithoutPackage},
	} {
		t.Run("command line: "+c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, s)
		})
	}
	t.Run("dashboard: pages", func(t *testing.T) {
		t.Parallel()
		dashboardPages(t, d)
	})
}
