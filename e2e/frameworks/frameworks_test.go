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

// The apps have version 4 in their package.json. The oldest frameworks here are tested with the early beta, too.
var (
	stable   = line{name: "stable"}
	beta35   = line{name: "beta35", packages: "workflow@5.0.0-beta.35"}
	beta55   = line{name: "beta55", packages: "workflow@5.0.0-beta.55"}
	newLines = []line{stable, beta55}
	allLines = []line{stable, beta35, beta55}
)

// framework is how an app in a framework is started.
type framework struct {
	// folder has the sources of the app.
	folder string
	// lines are those of the SDK with which it is tested.
	lines []line
	// workflows is the folder of the app into which those of all apps are copied, and nitro are folders that it has from
	// the app in Nitro.
	workflows string
	nitro     []string
	// envFile is the file from which the framework reads the environment.
	envFile string
	// setup is the command after the installation, if there is one.
	setup string
	// steps is what the workflow imports the steps from, if it is not ./steps.
	steps string
	// dev, build and start are the commands. HOST and PORT are set.
	dev, build, start string
	// ready matches the output of an app that listens.
	ready *regexp.Regexp
	// stepsUnseen says that the SDK's plugin does not notice changes of a file that has only steps.
	stepsUnseen bool
	// savedAgain says that the SDK's plugin misses a change of a step soon after the start, and sees the next one.
	savedAgain bool
	// on is what the app needs only on some lines.
	on map[string]need
}

// need is what an app needs on a line of the SDK. Its commands come before those of the framework.
type need struct{ packages, nodeOptions, dev, build, start string }

const builtByNitro = "node --env-file=.env .output/server/index.mjs"

// byNitro is a framework whose apps the SDK's module for Nitro builds.
func byNitro(folder string, lines []line, nitro ...string) framework {
	return framework{
		folder: folder, lines: lines, workflows: "workflows", nitro: nitro, envFile: ".env", stepsUnseen: true,
		dev: "nitro dev", build: "nitro build", start: builtByNitro,
		ready: regexp.MustCompile(`(Listening) on`),
		// It compiles the World in, and the build does not read the file.
		on: map[string]need{"beta35": {build: "node --env-file=.env node_modules/.bin/nitro build"}},
	}
}

var frameworks = []framework{
	{
		folder: "next", lines: allLines, workflows: "workflows", envFile: ".env.local", savedAgain: true,
		dev: "next dev", build: "next build", start: "next start",
		ready: regexp.MustCompile(`(Ready) in`),
	},
	byNitro("nitro", allLines),
	byNitro("express", newLines, "plugins"),
	byNitro("hono", newLines, "plugins"),
	byNitro("fastify", newLines, "plugins"),
	{
		folder: "vite", lines: newLines, workflows: "workflows", nitro: []string{"plugins", "routes"}, envFile: ".env",
		dev: "vite dev --host=127.0.0.1 --port=$PORT", build: "vite build", start: builtByNitro,
		ready: regexp.MustCompile(`(ready in|Listening on)`),
	},
	{
		folder: "nuxt", lines: newLines, workflows: "server/workflows", envFile: ".env", stepsUnseen: true,
		dev: "nuxt dev", build: "nuxt build", start: builtByNitro,
		ready: regexp.MustCompile(`(Local:|Listening on)`),
	},
	{
		folder: "astro", lines: newLines, workflows: "src/workflows", envFile: ".env",
		dev: "astro dev --host=127.0.0.1 --port=$PORT", build: "astro build", start: "node --env-file=.env server.mjs",
		ready: regexp.MustCompile(`(ready in|Server listening on)`),
	},
	{
		folder: "nest", lines: newLines, workflows: "src/workflows", envFile: ".env", setup: "workflow-nest init --force",
		steps: "./steps.js",
		dev:   "nest start --watch --env-file=.env", build: "nest build", start: "node --env-file=.env dist/main.js",
		ready: regexp.MustCompile(`(successfully started)`),
		// Its module passes only text on, and main4.ts does that instead.
		on: map[string]need{"stable": {
			dev:   "nest start --watch --env-file=.env --entryFile=main4",
			start: "node --env-file=.env dist/main4.js",
		}},
	},
	{
		folder: "sveltekit", lines: allLines, workflows: "src/workflows", envFile: ".env",
		dev: "vite dev --host=127.0.0.1 --port=$PORT", build: "vite build", start: "node --env-file=.env build",
		ready: regexp.MustCompile(`(ready in|Listening on)`),
		// Its plugin is made for SvelteKit 2, and does not compile the World in.
		on: map[string]need{"beta35": {
			packages:    "@sveltejs/kit@2.70.4 @sveltejs/adapter-node@5.5.7",
			nodeOptions: "--import=@stepwell/world/preload",
		}},
	},
}

// sources are the folders that make the app, each with its place in it.
func (f framework) sources() map[string]string {
	places := map[string]string{f.folder: ".", "workflows": f.workflows}
	for _, folder := range f.nitro {
		places["nitro/"+folder] = folder
	}
	return places
}

func TestFrameworks(t *testing.T) {
	if os.Getenv("FRAMEWORKS") == "" {
		t.Skip("make frameworks runs it")
	}
	t.Parallel()
	s := startServer(t)
	for _, f := range frameworks {
		for _, l := range f.lines {
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
	a.launch(t, cmp.Or(a.need.dev, a.dev))
	a.wantGreeting(t, "HELLO ANN! bye")
	if got := a.registered(t); got != "pull:" {
		t.Errorf("the app is registered at %q, not as one that fetches", got)
	}
	a.editStep(t, "hello", "howdy")
	a.wantGreeting(t, "HOWDY ANN! bye")
	a.editStep(t, "howdy", "hello")
}

// development changes a step and a workflow while the app runs.
func development(t *testing.T, a *app) {
	a.launch(t, cmp.Or(a.need.dev, a.dev))
	a.wantGreeting(t, "HELLO ANN! bye")
	if got := a.registered(t); got != a.url() {
		t.Errorf("the app is registered at %q, not at %s", got, a.url())
	}
	a.editStep(t, "hello", "howdy")
	a.wantGreeting(t, "HOWDY ANN! bye")
	a.edit(t, "greet.ts", "bye", "farewell")
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
	a.launch(t, cmp.Or(a.need.start, a.start))
	harness.Eventually(t, "the registration", func() bool { return a.registered(t) == a.url() })
	a.wantGreeting(t, "HOWDY ANN! farewell")
}
