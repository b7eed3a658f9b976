package stepwell

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stepwell-dev/stepwell/sdk/internal/schema"
)

// App has the workflows and steps of a program, and serves them.
type App struct {
	name        string
	build       string // empty: that of the program
	signingKeys string
	unsigned    string // why calls are accepted without a signature; empty if they are not
	publicURL   string
	codec       Codec // nil: payloads are sent as they are
	logger      *slog.Logger
	now         func() time.Time
	workflows   map[string]Definition
	steps       map[string]Definition
	declared    []declaration
	problems    []error
	calls       *calls
	slots       int
	serving     serving
}

// AppConfig configures an app. Only the name is needed.
type AppConfig struct {
	// Name is the name of the app. That of its deployment is orders@3f20b23, of the name and the build.
	Name string
	// Build is the ID of the build, such as 3f20b23. By default it is the revision that go
	// build stored in the program.
	Build string

	// SigningKeys has the keys with which calls are signed: one, or two separated by a comma; see [signature.ParseKeys].
	// By default they are those of STEPWELL_SIGNING_KEYS.
	SigningKeys string
	// Unsigned is why calls need no signature, for apps that accept all calls. Everybody who reaches such an app can
	// execute steps.
	Unsigned string

	// PublicURL is where the server reaches the app. [App.Serve] registers the app there, if it is set.
	PublicURL string
	// Slots is how many calls [App.Work] makes at a time: 100 by default, and 1,000 at most.
	Slots int
	// Server is the address of the server, to which workflows write during a call, such as https://stepwell.example.com.
	// By default it is STEPWELL_URL, and without that the public address that signed calls name. Without any, a call ends
	// after each step that is executed inline, and the server calls again.
	Server string
	// HTTP sends the requests to the server. By default it is a client like [http.DefaultClient] that keeps more
	// connections open.
	HTTP *http.Client
	// Codec transforms payloads before they leave the app, such as by encryption; nil by default. The app then tells the
	// server no schemas, since they would describe what it cannot see.
	Codec Codec
	// Logger is [slog.Default] by default.
	Logger *slog.Logger

	// CacheBytes limits the memory of runs that stay in it between their calls, for a minute: 64 MiB by default; fewer
	// than 0 keep none. A call of a run that is kept brings only new events, and does not repeat the workflow from its
	// beginning.
	CacheBytes int

	// InterceptSteps are wrapped around each attempt of a step, the first of them outermost. Each must call next once, and
	// return its error or another one; it can add to the context.
	InterceptSteps []func(ctx context.Context, s StepInfo, next func(context.Context) error) error
	// InterceptInvocations are wrapped around each call of a workflow in the same way. An error blocks the run. What they
	// add to the context, the workflow does not see, but its inline steps do.
	InterceptInvocations []func(ctx context.Context, i InvocationInfo, next func(context.Context) error) error

	// Now is the clock that tells when inline steps ended; [time.Now] by default. With another one, as tests have it,
	// inline steps make no pauses between attempts: the server makes them. Each heartbeat is sent.
	Now func() time.Time
	// StrictInputs makes it an error if a workflow asks for a step with another input than its log has. It is for tests
	// and checks of replays; in production the difference is only logged.
	StrictInputs bool
}

// NewApp returns an app without workflows.
func NewApp(c AppConfig) *App {
	a := &App{
		name: c.Name, build: c.Build, signingKeys: c.SigningKeys, unsigned: c.Unsigned,
		publicURL: c.PublicURL, codec: c.Codec,
		logger: cmp.Or(c.Logger, slog.Default()), now: c.Now,
		workflows: map[string]Definition{}, steps: map[string]Definition{},
		calls: newCalls(), slots: cmp.Or(c.Slots, defaultSlots), serving: newServing(c),
	}
	if a.now == nil {
		a.now = time.Now //nolint:forbidigo // unless the configuration has another one
	}
	if a.signingKeys == "" && a.unsigned == "" {
		a.signingKeys = os.Getenv("STEPWELL_SIGNING_KEYS")
	}
	if p := checkName(c.Name); p != "" {
		a.problems = append(a.problems, fmt.Errorf("app %q: %s", c.Name, p))
	}
	return a
}

// Register adds workflows and steps. Definitions that cannot work make [App.Handler] fail, with all problems at once.
func (a *App) Register(definitions ...Definition) {
	for _, d := range definitions {
		kind := a.steps
		if d.workflow != nil {
			kind = a.workflows
		}
		if _, twice := kind[d.name]; twice {
			a.problems = append(a.problems, fmt.Errorf("two functions are bound to %s %q", d.kind, d.name))
		}
		if p := checkName(d.name); p != "" {
			a.problems = append(a.problems, fmt.Errorf("%s %q: %s", d.kind, d.name, p))
		}
		for _, p := range d.problems {
			a.problems = append(a.problems, fmt.Errorf("%s %q: %s", d.kind, d.name, p))
		}
		kind[d.name] = d
	}
}

// Override registers definitions in place of those of the same name. It is for tests.
func (a *App) Override(definitions ...Definition) {
	for _, d := range definitions {
		delete(a.workflows, d.name)
		delete(a.steps, d.name)
	}
	a.Register(definitions...)
}

// check returns all problems of the definitions.
func (a *App) check() error { return errors.Join(a.problems...) }

// checkName returns why a name cannot be one of a workflow or step; empty if it can. Names become parts of IDs.
func checkName(name string) string {
	switch {
	case name == "" || len(name) > 256:
		return "the name must have 1 to 256 bytes"
	case name == "." || name == ".." || !utf8.ValidString(name) || strings.ContainsFunc(name, notInID):
		return "the name has characters that no ID may have: use printable ones without spaces and slashes"
	}
	return ""
}

func notInID(r rune) bool {
	return r == '/' || r == '\\' || unicode.IsSpace(r) || !unicode.IsPrint(r)
}

// roundTrips returns why the types of an input and output do not survive the log, if they do not.
func roundTrips[I, O any]() []string {
	return append(unkeepable[I]("input", ""), unkeepable[O]("output", "")...)
}

// unkeepable returns why values of a type cannot be kept in the log, if they cannot. It names them by what they are
// before their type, and of what they are after it.
func unkeepable[T any](what, of string) []string {
	t := reflect.TypeFor[T]()
	if _, err := schema.Of(t); err != nil {
		return []string{fmt.Sprintf("the %s %s%s cannot be kept in the log: %v", what, t, of, err)}
	}
	return nil
}

// revision identifies the program. It is empty if the program can neither tell where it comes from nor read itself.
var revision = sync.OnceValue(func() string {
	settings := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
	}
	return revisionOf(settings["vcs.revision"], settings["vcs.modified"] == "true", programHash)
})

// revisionOf returns the commit that a program was built from. If that does not say all, because there are changes that
// are not committed, or there is no repository, the hash of the program tells builds apart.
func revisionOf(commit string, modified bool, hash func() string) string {
	commit = commit[:min(len(commit), 12)]
	if commit != "" && !modified {
		return commit
	}
	return strings.Trim(commit+"-"+hash(), "-")
}

// programHash returns a hash of the running program; empty if it cannot be read.
func programHash() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	program, err := os.Open(path) //nolint:gosec // it is this one itself
	if err != nil {
		return ""
	}
	defer func() { _ = program.Close() }() // it was only read
	h := sha256.New()
	if _, err := io.Copy(h, program); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// deployment is how the API registers a deployment.
type deployment struct {
	URL       string             `json:"url,omitempty"` // a worker has none
	Build     string             `json:"build"`
	Workflows []string           `json:"workflows"`
	Schemas   map[string]schemas `json:"schemas"`
}

// schemas are those of a workflow.
type schemas struct {
	Input  schema.Schema `json:"input"`
	Output schema.Schema `json:"output"`
}

// Announce registers the app at its URL, with its workflows and the schemas of their inputs and outputs. The ID of the
// deployment is the app's name and its build: orders@3f20b23. New runs of the workflows go to it, and runs that have
// begun stay on the deployment they have. The client's key needs the role admin, or worker with a pattern such as
// orders@*.
func (a *App) Announce(ctx context.Context, c *Client, url string) error {
	id, registration, err := a.Registration(url)
	if err != nil {
		return err
	}
	put := apiRequest{method: http.MethodPut, path: apiPath("deployments", id), body: registration}
	if err := c.do(ctx, put, nil); err != nil {
		return fmt.Errorf("register deployment %s: %w", id, err)
	}
	a.logger.InfoContext(ctx, "registered", "deployment", id, "url", url)
	return nil
}
