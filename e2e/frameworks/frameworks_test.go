package frameworks

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// framework is how an app in a framework is started.
type framework struct {
	// name is also the folder of the app.
	name string
	// envFile is the file from which the framework reads the environment.
	envFile string
	// dev, build and start are the commands. HOST and PORT are set.
	dev, build, start string
	// steps is the file of the steps.
	steps string
	// ready matches the output of an app that listens.
	ready *regexp.Regexp
}

// inspect is the SDK's command line.
const inspect = "node_modules/.bin/workflow inspect runs --json"

var frameworks = []framework{
	{
		name: "next", envFile: ".env.local", steps: "workflows/steps.ts",
		dev: "node_modules/.bin/next dev", build: "node_modules/.bin/next build", start: "node_modules/.bin/next start",
		ready: regexp.MustCompile(`(Ready) in`),
	},
	{
		// The SDK's plugin does not notice changes of a file that has only steps.
		name: "nitro", envFile: ".env", steps: "workflows/greet.ts",
		dev: "node_modules/.bin/nitro dev", build: "node_modules/.bin/nitro build",
		start: "node --env-file=.env .output/server/index.mjs",
		ready: regexp.MustCompile(`(Listening) on`),
	},
}

func TestFrameworks(t *testing.T) {
	if os.Getenv("FRAMEWORKS") == "" {
		t.Skip("make frameworks runs it")
	}
	t.Parallel()
	s := startServer(t)
	for _, f := range frameworks {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			a := install(t, s, f)
			t.Run("fetching", func(t *testing.T) { fetching(t, a) })
			t.Run("development", func(t *testing.T) { development(t, a) })
			t.Run("production", func(t *testing.T) { production(t, a) })
		})
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
	a.edit(t, "workflows/greet.ts", "bye", "farewell")
	id := a.wantGreeting(t, "HOWDY ANN! farewell")
	if out := a.command(t, inspect); !strings.Contains(out, id) {
		t.Errorf("the command line does not list the run %s:\n%s", id, out)
	}
}

// production starts with no deployment, which only the start of the app registers.
func production(t *testing.T, a *app) {
	a.server.call(t, http.MethodDelete, "/v1/deployments/"+a.name)
	a.command(t, a.build)
	a.command(t, inspect)
	if got := a.registered(t); got != "" {
		t.Fatalf("the build or the command line registered the app at %s", got)
	}
	a.launch(t, a.start)
	harness.Eventually(t, "the registration", func() bool { return a.registered(t) == a.url() })
	a.wantGreeting(t, "HOWDY ANN! farewell")
}
