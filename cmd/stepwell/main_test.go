package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/cmd/stepwell/remote"
	"github.com/stepwell-dev/stepwell/migrations/localpg"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

// commandLine executes the command lines of a test one after the other with one parser: with the race detector, making
// one takes a third of a second.
type commandLine struct {
	parser  *kong.Kong
	console remote.Console
	stdout  bytes.Buffer
	stderr  bytes.Buffer
}

func newCommandLine(t *testing.T, console remote.Console) *commandLine {
	t.Helper()
	c := &commandLine{console: console}
	c.console.Stdout, c.console.Stderr = &c.stdout, &c.stderr
	var err error
	if c.parser, err = newParser(new(cli), c.console); err != nil {
		t.Fatal(err)
	}
	return c
}

// execute executes a line, whose output replaces that of the one before.
func (c *commandLine) execute(ctx context.Context, args ...string) error {
	c.stdout.Reset()
	c.stderr.Reset()
	return executeWith(ctx, forgetful(c.parser), args, c.console)
}

// forgetful returns a parser that has parsed a line as if it had not: kong resets values, but not which ones were set.
func forgetful(parser *kong.Kong) *kong.Kong {
	_ = kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		if value, ok := node.(*kong.Value); ok {
			value.Set = false
		}
		return next(nil)
	})
	return parser
}

// run is execute with an empty standard input.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return execute(ctx, args, remote.Console{Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr, Now: time.Now})
}

func TestInvalidCommandLines(t *testing.T) { // sets the environment
	t.Setenv("DATABASE_URL", "")
	t.Setenv("STEPWELL_ROLE", "all")
	for _, tt := range []struct {
		name string
		args []string
		env  string // the value of STEPWELL_LOG
		want string
	}{
		{"no command", nil, "", `expected one of "dev", "serve", "migrate", "health", "version"`},
		{"unknown command", []string{"run"}, "", "unexpected argument run"},
		{"unknown flag", []string{"serve", "--port", "1"}, "", "unknown flag --port"},
		{"unknown role", []string{"serve", "--role", "boss"}, "", `--role must be one of "all","api","worker"`},
		{"serve without a database", []string{"serve"}, "", errNoDatabase.Error()},
		{"worker without a database", []string{"serve", "--role", "worker"}, "", errNoDatabase.Error()},
		{"migrate without a database", []string{"migrate"}, "", errNoDatabase.Error()},
		{"verify without a database", []string{"verify"}, "", errNoDatabase.Error()},
		{"rebuild without a database", []string{"rebuild"}, "", errNoDatabase.Error()},
		{"no subcommand", []string{"deployments"}, "", `expected one of "add", "move", "list", "show", "pause"`},
		{"add without URL", []string{"deployments", "add", "a"}, "", `expected "<url>"`},
		{"remove nothing", []string{"deployments", "remove"}, "", `expected "<id> ..."`},
		{"retry nothing", []string{"messages", "retry"}, "", "give IDs of messages, or flags that select messages"},
		{"state", []string{"messages", "list", "--state", "lost"}, "", "--state must be one of"},
		{"configuration", []string{"serve"}, "xml", "STEPWELL_LOG"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("STEPWELL_LOG", tt.env)
			if tt.env == "" {
				t.Setenv("STEPWELL_LOG", "text")
			}
			err := run(t.Context(), tt.args, io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %s", err, tt.want)
			}
		})
	}
	t.Run("role from the environment", func(t *testing.T) {
		t.Setenv("STEPWELL_ROLE", "boss")
		if err := run(t.Context(), []string{"serve"}, io.Discard, io.Discard); err == nil ||
			!strings.Contains(err.Error(), "boss") {
			t.Errorf("got %v, want an error with the role", err)
		}
	})
}

func TestMigrateIsRepeatable(t *testing.T) { // sets the environment
	dsn := testdb.Empty(t)
	t.Setenv("DATABASE_URL", dsn)
	for range 2 { // the second migration has nothing to do
		var logged bytes.Buffer
		if err := run(t.Context(), []string{"migrate"}, io.Discard, &logged); err != nil ||
			!strings.Contains(logged.String(), "database is up to date") {
			t.Fatalf("got %v; log: %s", err, &logged)
		}
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), `SELECT FROM stepwell.runs, stepwell.messages, stepwell.river_job`); err != nil {
		t.Error(err)
	}
}

// startDev runs stepwell dev with a data folder until cancel, and returns the addresses in its banner.
func startDev(t *testing.T, dir string) (addr, dsn string, cancel context.CancelFunc, done <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var banner bytes.Buffer
	out := newSignalWriter(&banner, "psql")
	c := newServer(t, "", server.RoleAll)
	c.config.DataDir, c.config.Open, c.config.UI = dir, false, true
	ended := make(chan error, 1)
	go func() { ended <- devCmd{}.Run(ctx, out, c.config, c.logger) }()
	select {
	case <-out.seen:
	case err := <-ended:
		t.Fatalf("dev: %v", err)
	}
	found := regexp.MustCompile(`(?s)up at http://(\S+).*psql '(\S+)'`).FindStringSubmatch(banner.String())
	if found == nil {
		t.Fatalf("banner: %s", &banner)
	}
	if first := "\nDashboard: http://" + found[1] + "/ui/\n"; !strings.HasPrefix(banner.String(), first) {
		t.Errorf("the banner does not begin with %q: %s", first, &banner)
	}
	return found[1], found[2], cancel, ended
}

// devDir returns a folder that the user who runs Postgres can access.
func devDir(t *testing.T) string {
	t.Helper()
	parent := t.TempDir()
	for _, dir := range []string{parent, filepath.Dir(parent)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(parent, "db")
}

func TestDevRunsAPrivatePostgres(t *testing.T) {
	t.Parallel()
	dir := devDir(t)
	addr, dsn, cancel, done := startDev(t, dir)
	if got := servertest.Request(t, http.MethodGet, "http://"+addr+"/readyz", ""); got.StatusCode != http.StatusOK {
		t.Errorf("got %s", got.Status)
	}
	put := servertest.Request(t, http.MethodPut, "http://"+addr+"/v1/deployments/shop", `{"url":"http://127.0.0.1:9"}`,
		"Content-Type", "application/json")
	if put.StatusCode != http.StatusOK {
		t.Errorf("put: got %s", put.Status)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("dev: %v", err)
	}
	if conn, err := pgx.Connect(t.Context(), dsn); err == nil {
		_ = conn.Close(t.Context())
		t.Error("Postgres is still running")
	}

	// The data is kept, and the server ends when its Postgres does.
	addr, _, _, done = startDev(t, dir)
	list, err := io.ReadAll(servertest.Request(t, http.MethodGet, "http://"+addr+"/v1/deployments", "").Body)
	if err != nil || !strings.Contains(string(list), `"id":"shop"`) {
		t.Errorf("got %s and %v, want the deployment", list, err)
	}
	first, _, _ := strings.Cut(mustRead(t, filepath.Join(dir, "data", "postmaster.pid")), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var exit *localpg.ExitError
	if err := <-done; !errors.As(err, &exit) {
		t.Errorf("after Postgres was killed: got %v, want its exit error", err)
	}
}

func mustRead(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
