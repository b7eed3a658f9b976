package tools

import "testing"

// TestTools drives the tools of each line against a server and an app of its own. What only looks runs all
// at once; then comes what changes something.
func TestTools(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	for _, l := range lines {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, l)
			d := newDashboard(t, s)
			t.Run("looking", func(t *testing.T) { looking(t, s, d) })
			t.Run("dashboard: buttons", func(t *testing.T) { dashboardWrites(t, d) })
			t.Run("dashboard: all methods", func(t *testing.T) { d.wantAllDriven(t) })
			t.Run("command line: start, cancel", func(t *testing.T) { cliWrites(t, s) })
		})
	}
}

func looking(t *testing.T, s *scene, d *dashboard) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s *scene)
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
	for _, c := range []struct {
		name string
		run  func(t *testing.T, d *dashboard)
	}{
		{"runs", dashboardRuns},
		{"run", dashboardRun},
		{"steps", dashboardSteps},
		{"events", dashboardEvents},
		{"hooks", dashboardHooks},
		{"streams", dashboardStreams},
		{"health", dashboardHealth},
		{"pages", dashboardPages},
	} {
		t.Run("dashboard: "+c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, d)
		})
	}
}
