package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

func TestDeploymentsCommand(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t), server.RoleAPI)
	s.config.APIKey, s.config.Open = "key", false
	mustStart(t, s)
	base := "http://" + s.Addr()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "<html>a proxy</html>", http.StatusBadGateway)
	}))
	t.Cleanup(broken.Close)
	type call struct {
		name, url, key string
		args           []string
		out            string // a pattern
		err            string
	}
	line := newCommandLine(t, remote.Console{Now: time.Now})
	for _, tt := range []call{
		{"empty", base, "key", []string{"list"}, `^ID +URL +OPEN RUNS +UPDATED +AWAY SINCE +WORKFLOWS\n$`, ""},
		{"add", base, "key", []string{"add", "shop", "http://127.0.0.1:3000"}, `^registered shop at http://127.0.0.1:3000\n$`, ""},
		{"move", base, "key", []string{"add", "shop", "http://127.0.0.1:3001"}, `^registered shop at http://127.0.0.1:3001\n$`, ""},
		{"odd ID", base, "key", []string{"add", "a,;?#%2F:b", "http://x.test"}, `^registered a,;\?#%2F:b at http://x.test\n$`, ""},
		{
			"list", base, "key", []string{"list"},
			`^ID +URL +OPEN RUNS +UPDATED +AWAY SINCE +WORKFLOWS\na,;\?#%2F:b +http://x\.test +0 +2\S+Z\nshop +http://127\.0\.0\.1:3001 +0 +2\S+Z\n$`, "",
		},
		{"address with a slash", base + "/", "key", []string{"add", "b", "http://b.test"}, `^registered b at`, ""},
		{"remove", base, "key", []string{"remove", "b"}, `^$`, ""},
		{"remove odd ID", base, "key", []string{"remove", "a,;?#%2F:b"}, `^$`, ""},
		{"remove", base, "key", []string{"remove", "shop"}, `^$`, ""},
		{"remove again", base, "key", []string{"remove", "shop"}, `^$`, "remove deployment shop: deployment not found"},
		{"no URL", base, "key", []string{"add", "shop", "127.0.0.1:3000"}, `^$`, "not an absolute http or https URL"},
		{"no ID", base, "key", []string{"add", "a b", "http://x.test"}, `^$`, "characters an ID may not have"},
		{"no key", base, "", []string{"list"}, `^$`, "STEPWELL_API_KEY"},
		{"wrong key", base, "other", []string{"add", "a", "http://x.test"}, `^$`, "STEPWELL_API_KEY"},
		{"no server", "http://127.0.0.1:1", "", []string{"list"}, `^$`, "is the server running?"},
		{"no address", "http://a b", "", []string{"list"}, `^$`, "want one such as http://127.0.0.1:8788"},
		{"another server", broken.URL, "", []string{"list"}, `^$`, "GET /v1/deployments: 502 Bad Gateway"},
	} {
		err := line.execute(t.Context(), append([]string{"deployments", "--url", tt.url, "--api-key", tt.key}, tt.args...)...)
		out := &line.stdout
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %v, want an error with %q", tt.name, err, tt.err)
		}
		if !regexp.MustCompile(tt.out).MatchString(out.String()) {
			t.Errorf("%s: got %q, want %s", tt.name, out, tt.out)
		}
	}
}

func TestMessagesCommand(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t), server.RoleAPI)
	mustStart(t, s)
	base := "http://" + s.Addr()
	for range 3 {
		send(t, base)
	}
	parked := make([]string, 0, 2)
	rows, err := s.Pool().Query(t.Context(), `
		UPDATE messages SET parked_at = now(), last_error = E'no\n good', delivery_count = 64
		WHERE id IN (SELECT id FROM messages ORDER BY id LIMIT 2) RETURNING id`)
	if err == nil {
		parked, err = pgx.AppendRows(parked, rows, pgx.RowTo[string])
	}
	if err != nil || len(parked) != 2 {
		t.Fatalf("park: got %v, %v", parked, err)
	}
	slices.Sort(parked)
	line := newCommandLine(t, remote.Console{Now: time.Now})
	for _, tt := range []struct {
		args     []string
		out, err string // patterns
	}{
		{
			[]string{"list"}, `^ID +STATE.*\n` + parked[0] + ` +parked +shop +__wkf_step_a .*64 .* no\\n good\n` +
				parked[1] + ` .*\n$`, "",
		},
		{[]string{"list", "--state", "all"}, `^.*\n.* parked .*\n.* parked .*\n.* waiting .*\n$`, ""},
		{[]string{"retry", parked[0]}, `^retrying ` + parked[0] + `\n$`, ""},
		{[]string{"discard", parked[1], "msg_none"}, `^$`, "discard message msg_none: message not found"},
		{[]string{"list"}, `^ID.*\n$`, ""},
		{[]string{"list", "--state", "waiting"}, `^ID.*\n.* waiting .*\n.* waiting .*\n$`, ""},
		{[]string{"retry", parked[1]}, `^$`, "message not found"},
	} {
		err := line.execute(t.Context(), append([]string{"messages", "--url", base}, tt.args...)...)
		out := &line.stdout
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %v, want an error with %q", tt.args, err, tt.err)
		}
		if !regexp.MustCompile(tt.out).MatchString(out.String()) {
			t.Errorf("%s: got %q, want %s", tt.args, out, tt.out)
		}
	}
}

func TestNonJSONResponseIsAnError(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>")
	}))
	t.Cleanup(web.Close)
	err := run(t.Context(), []string{"deployments", "--url", web.URL, "list"}, io.Discard, io.Discard)
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		t.Errorf("got %v, want a syntax error", err)
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
