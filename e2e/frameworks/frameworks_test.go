package frameworks

import (
	"cmp"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// line is a version line of the SDK.
type line struct{ name, packages string }

// The apps have version 4 in their package.json.
var lines = []line{
	{name: "stable"},
	{name: "beta35", packages: "workflow@5.0.0-beta.35"},
	{name: "beta55", packages: "workflow@5.0.0-beta.55"},
}

// framework is how an app in a framework is started.
type framework struct {
	// folder has the sources of the app.
	folder string
	// envFile is the file from which the framework reads the environment.
	envFile string
	// dev, build and start are the commands. HOST and PORT are set.
	dev, build, start string
	// workflows and steps are the files of the workflows and of the steps.
	workflows, steps string
	// ready matches the output of an app that listens.
	ready *regexp.Regexp
	// on is what the app needs only on some lines.
	on map[string]need
}

// need is what an app needs on a line of the SDK.
type need struct{ packages, nodeOptions, build string }

var frameworks = []framework{
	{
		folder: "next", envFile: ".env.local", workflows: "workflows/greet.ts", steps: "workflows/steps.ts",
		dev: "next dev", build: "next build", start: "next start",
		ready: regexp.MustCompile(`(Ready) in`),
	},
	{
		// The SDK's plugin does not notice changes of a file that has only steps.
		folder: "nitro", envFile: ".env", workflows: "workflows/greet.ts", steps: "workflows/greet.ts",
		dev: "nitro dev", build: "nitro build", start: "node --env-file=.env .output/server/index.mjs",
		ready: regexp.MustCompile(`(Listening) on`),
		// It compiles the World in, and the build does not read the file.
		on: map[string]need{"beta35": {build: "node --env-file=.env node_modules/.bin/nitro build"}},
	},
	{
		folder: "sveltekit", envFile: ".env", workflows: "src/workflows/greet.ts", steps: "src/workflows/steps.ts",
		dev: "vite dev --host=127.0.0.1 --port=$PORT", build: "vite build", start: "node --env-file=.env build",
		ready: regexp.MustCompile(`(ready in|Listening on)`),
		// Its plugin is made for SvelteKit 2, and does not compile the World in.
		on: map[string]need{"beta35": {
			packages:    "@sveltejs/kit@2.70.4 @sveltejs/adapter-node@5.5.7",
			nodeOptions: "--import=@stepwell/world/preload",
		}},
	},
}

func TestFrameworks(t *testing.T) {
	if os.Getenv("FRAMEWORKS") == "" {
		t.Skip("make frameworks runs it")
	}
	t.Parallel()
	s := startServer(t)
	for _, f := range frameworks {
		for _, l := range lines {
			t.Run(f.folder+"-"+l.name, func(t *testing.T) {
				t.Parallel()
				a := install(t, s, f, l)
				t.Run("fetching", func(t *testing.T) { fetching(t, a) })
				t.Run("development", func(t *testing.T) { development(t, a) })
				t.Run("production", func(t *testing.T) { production(t, a) })
			})
		}
	}
}

// fetching changes a step and back while the app runs, which fetches its deliveries and has no registered address.
func fetching(t *testing.T, a *app) {
	a.configure(t, "STEPWELL_PULL=1")
	defer a.configure(t, "STEPWELL_APP_URL="+a.url())
	a.launch(t, a.dev)
	a.wantGreeting(t, "HELLO ANN! bye")
	if got := a.registered(t); got != "pull:" {
		t.Errorf("the app is registered at %q, not as one that fetches", got)
	}
	a.edit(t, a.steps, "hello", "howdy")
	a.wantGreeting(t, "HOWDY ANN! bye")
	a.edit(t, a.steps, "howdy", "hello")
}

// development changes a step and a workflow while the app runs.
func development(t *testing.T, a *app) {
	a.launch(t, a.dev)
	a.wantGreeting(t, "HELLO ANN! bye")
	if got := a.registered(t); got != a.url() {
		t.Errorf("the app is registered at %q, not at %s", got, a.url())
	}
	a.edit(t, a.steps, "hello", "howdy")
	a.wantGreeting(t, "HOWDY ANN! bye")
	a.edit(t, a.workflows, "bye", "farewell")
	id := a.wantGreeting(t, "HOWDY ANN! farewell")
	commandLine(t, a, id)
}

// commandLine finds a run, starts another one, cancels that, and checks the app's health.
func commandLine(t *testing.T, a *app, id string) {
	type run struct{ RunID, WorkflowName, Status string }
	var list struct{ Data []run }
	a.workflow(t, "inspect runs", &list)
	i := slices.IndexFunc(list.Data, func(r run) bool { return r.RunID == id })
	if i < 0 || list.Data[i].Status != "completed" {
		t.Fatalf("the runs do not have %s, completed: %+v", id, list)
	}
	var started, cancelled run
	a.workflow(t, "start "+list.Data[i].WorkflowName+` "sleeper"`, &started)
	a.command(t, "workflow cancel "+started.RunID+" --backend @stepwell/world")
	a.workflow(t, "inspect run "+started.RunID, &cancelled)
	if cancelled.RunID != started.RunID || cancelled.Status != "cancelled" {
		t.Errorf("the cancelled run is %+v, not %s", cancelled, started.RunID)
	}
	var health struct{ AllHealthy bool }
	a.workflow(t, "health", &health)
	if !health.AllHealthy {
		t.Error("the app is not healthy")
	}
}

// production starts with no deployment, which only the start of the app registers.
func production(t *testing.T, a *app) {
	a.server.call(t, http.MethodDelete, "/v1/deployments/"+a.name)
	// A development server of Next.js that ended may leave a file of types half written, which the build compiles.
	if err := os.RemoveAll(filepath.Join(a.dir, ".next")); err != nil {
		t.Fatal(err)
	}
	a.command(t, cmp.Or(a.need.build, a.build))
	a.command(t, "workflow inspect runs --json")
	if got := a.registered(t); got != "" {
		t.Fatalf("the build or the command line registered the app at %s", got)
	}
	a.launch(t, a.start)
	harness.Eventually(t, "the registration", func() bool { return a.registered(t) == a.url() })
	a.wantGreeting(t, "HOWDY ANN! farewell")
}
