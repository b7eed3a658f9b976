package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// appFolder is the folder of the Workflow SDK app, relative to the server's module.
const appFolder = "bench/sdk/app"

// foreign matches environment variables that would change the configuration of the app.
var foreign = regexp.MustCompile(`^(DATABASE_URL=|STEPWELL_|WORKFLOW_|VERCEL|NODE_|PORT=|DEBUG=)`)

// appEnvironment returns the environment without foreign variables and proxy settings, plus the given variables.
func appEnvironment(ours []string, more ...string) []string {
	var env []string
	for _, variable := range ours {
		if !foreign.MatchString(variable) && !strings.Contains(strings.ToLower(variable), "_proxy=") {
			env = append(env, variable)
		}
	}
	return append(env, more...)
}

// buildApp installs the app's packages and builds it.
func buildApp(ctx context.Context, dir string) error {
	if err := npm(ctx, dir, "ci", "--prefer-offline"); err != nil {
		return err
	}
	return npm(ctx, dir, "run", "build")
}

func npm(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "npm", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil { // unlike the app, npm may need the proxies of the environment
		return fmt.Errorf("npm %s in %s: %w\n%s", strings.Join(args, " "), dir, err, out)
	}
	return nil
}

// app is a process of the Workflow SDK app, or of a peer's.
type app struct {
	*harness.Process
	*client // for its API
}

func startApp(ctx context.Context, dir, name string, env ...string) (*app, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "node", "server.mjs")
	cmd.Dir = dir
	return launchApp(cmd, name, append([]string{"PORT=0"}, env...)...)
}

// launchApp starts an app that prints its port and can be measured.
func launchApp(cmd *exec.Cmd, name string, env ...string) (*app, error) {
	cmd.Env = appEnvironment(os.Environ(), env...)
	p, port, err := harness.Launch(name, cmd, harness.AppReady)
	if err != nil {
		return nil, err //nolint:wrapcheck // says what has failed
	}
	// No timeout, because measurements may take long. The context can end them.
	return &app{p, &client{"http://127.0.0.1:" + port, "", standard(0)}}, nil
}

// measurement is a request to the app.
type measurement struct {
	Workflow string  `json:"workflow,omitempty"`
	Times    int     `json:"times"`
	InFlight int     `json:"inFlight"`
	PauseMs  float64 `json:"pauseMs"`
	Chunks   int     `json:"chunks,omitempty"`
	WindowMs int64   `json:"windowMs,omitempty"` // instead of a number of times
}

// measured is the app's answer. Latencies are in milliseconds.
type measured struct {
	Seconds   float64   `json:"seconds"`
	Latencies []float64 `json:"latencies"`
}

// measure lets the app perform a measurement of the given kind.
func (a *app) measure(ctx context.Context, kind string, m measurement) (got measured, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	if err := a.json(ctx, "POST", "/measure/"+kind, m, &got); err != nil {
		return got, err
	}
	if len(got.Latencies) < m.Times {
		return got, fmt.Errorf("got %d latencies, want at least %d", len(got.Latencies), m.Times)
	}
	return got, nil
}

// check runs a workflow and checks its result.
func (a *app) check(ctx context.Context, workflow string, want int) error {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	var got struct {
		Value json.RawMessage `json:"value"`
	}
	err := a.json(ctx, "POST", "/value", map[string]any{"workflow": workflow, "args": []any{}}, &got)
	if err != nil {
		return err
	}
	if string(got.Value) != fmt.Sprint(want) {
		return fmt.Errorf("workflow %s returned %s, want %d", workflow, got.Value, want)
	}
	return nil
}

// sample converts the measurement to a sample.
func (m measured) sample(times int) *sample {
	s := newSample()
	s.Ops, s.Took = int64(times), time.Duration(m.Seconds*float64(time.Second))
	for _, l := range m.Latencies {
		s.Latency.record(time.Duration(l * float64(time.Millisecond)))
	}
	return s
}
