// Package stepwell_test checks the rules that hold for the whole module: which package may import which, house rules
// that the compiler does not know, and the image.
package stepwell_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/stepwell-dev/stepwell"

// data lists the packages of entities that know the database.
var data = []string{"entities", "entities/pg", "entities/store"}

// mayImport lists the packages of this module that each package may import. Tests may also import those of
// testsMayImport.
var mayImport = map[string][]string{
	"entities":            {"entities/await"},
	"entities/access":     {"entities", "entities/admin", "entities/pg"},
	"entities/admin":      {"entities", "entities/pg"},
	"entities/await":      {},
	"entities/backoff":    {},
	"entities/codec":      {},
	"entities/collection": {"entities", "entities/pg"},
	"entities/cron":       {"entities"},
	"entities/health":     {"entities", "entities/pg"},
	"entities/inbox":      {"entities"},
	"entities/kv":         {"entities", "entities/strictjson"},
	"entities/limit":      {"entities", "entities/admin", "entities/message", "entities/pg"},
	"entities/memo":       {"entities", "entities/pg"},
	"entities/message":    {"entities"},
	"entities/pg":         {"entities", "entities/rescue", "entities/share"},
	"entities/schedule":   {"entities", "entities/cron", "entities/pg"},
	"entities/cache":      {},
	"entities/rescue":     {},
	"entities/share":      {},
	"entities/store":      {"entities", "entities/kv", "entities/pg"},
	"entities/strictjson": {"entities"},
	"entities/token":      {"entities"},
	"entities/trigger":    {"entities", "entities/collection", "entities/limit", "entities/pg", "entities/webhook"},
	"entities/webhook":    {"entities"},

	"eventlog": and(data, "entities/admin", "entities/await", "entities/kv", "entities/limit", "entities/memo", "entities/message", "entities/trigger",
		"entities/webhook", "eventlog/read"),
	"eventlog/archive":        {"entities", "eventlog/upkeep"},
	"eventlog/archive/s3test": {},
	"eventlog/live":           {"entities/rescue", "entities", "entities/pg", "entities/store", "eventlog/read"},
	"eventlog/payload":        {"entities"},
	"eventlog/read":           and(data, "entities/kv", "entities/share"),
	"eventlog/stats":          {"entities/rescue", "entities", "entities/pg"},
	"eventlog/upkeep":         and(data, "entities/admin", "entities/memo", "eventlog", "eventlog/read"),
	"eventlog/view":           {"entities", "eventlog/payload", "eventlog/read"},

	"queue": and(data, "entities/backoff", "entities/rescue", "entities/admin", "entities/health", "entities/limit", "entities/message", "entities/share", "entities/trigger", "eventlog",
		"eventlog/stats", "eventlog/upkeep", "queue/cluster", "queue/concurrency", "queue/contract", "queue/egress", "queue/pull", "queue/limiter", "queue/signing",
		"queue/tickets", "queue/world"),
	"queue/cluster": {
		"entities", "entities/limit", "entities/message", "entities/pg", "eventlog", "queue/continuation", "queue/tickets",
	},
	"queue/collector":    and(data, "entities/admin", "entities/collection", "entities/limit", "entities/message", "eventlog", "queue"),
	"queue/condition":    {"entities", "entities/cache", "entities/share", "entities/store", "queue/pattern"},
	"queue/continuation": {"entities", "entities/codec", "entities/message"},
	"queue/approval":     {"entities", "queue/schema"},
	"queue/schema":       {"entities/strictjson", "queue/pattern"},
	"queue/pattern":      {},
	"queue/contract": {
		"entities", "entities/await", "entities/backoff", "entities/kv", "entities/limit", "entities/message", "entities/strictjson", "entities/webhook",
		"eventlog",
		"queue/approval",
	},
	"queue/egress":        {},
	"queue/flow":          {"entities", "entities/limit", "entities/strictjson", "entities/webhook", "eventlog/payload", "queue/approval", "queue/condition", "queue/contract", "queue/schema"},
	"queue/flow/convert":  {"queue/flow"},
	"queue/flow/flowgen":  {},
	"queue/flow/flowtest": {"entities", "queue/contract", "queue/flow"},
	"queue/flow/replay":   {"entities", "queue/contract", "queue/flow"},
	"queue/flow/goal":     {"entities", "queue/flow", "queue/schema"},
	"queue/flow/progress": {"entities", "eventlog/read", "eventlog/view", "queue/contract", "queue/flow"},
	"queue/flow/registry": {"entities", "entities/admin", "entities/cache", "entities/pg", "queue/contract", "queue/flow", "queue/flow/goal"},
	"queue/concurrency":   {"entities", "entities/pg", "queue/tickets"},
	"queue/limiter":       {"entities", "entities/rescue", "entities/limit", "entities/pg", "entities/share"},
	"queue/engine": and(data, "entities/backoff", "entities/rescue", "entities/admin", "entities/kv", "entities/memo", "entities/message", "entities/strictjson", "entities/token", "entities/webhook", "eventlog", "eventlog/payload", "eventlog/read",
		"eventlog/view", "queue", "queue/condition", "queue/contract", "queue/egress", "queue/triggers", "queue/flow",
		"queue/flow/registry"),
	"queue/overview": {
		"entities", "entities/admin", "entities/message", "entities/pg", "eventlog/stats",
	},
	"queue/prober": {"entities/health", "entities/pg", "queue", "queue/egress"},
	"queue/pull":   {},
	"queue/scheduler": and(data, "entities/admin", "entities/limit", "entities/message", "entities/schedule", "eventlog",
		"queue"),
	"queue/signing":             {},
	"queue/signing/signingtest": {"queue/signing"},
	"queue/tickets":             {"entities", "entities/pg"},
	"queue/triggers": and(data, "entities/admin", "entities/collection", "entities/limit", "entities/message", "entities/trigger", "eventlog",
		"queue", "queue/collector", "queue/condition", "queue/flow"),
	"queue/world": {"entities"},
	"queue/why": and(data, "entities/await", "entities/collection", "entities/inbox", "entities/limit", "entities/message", "entities/schedule",
		"entities/webhook", "queue/cluster", "queue/concurrency"),

	"handlers": {
		"entities/rescue", "clients", "entities", "entities/access", "entities/admin", "entities/codec", "entities/collection",
		"entities/inbox", "entities/kv", "entities/limit", "entities/message", "entities/pg", "entities/schedule",
		"entities/share", "entities/token", "entities/trigger", "entities/webhook",
		"eventlog", "eventlog/live", "eventlog/read",
		"eventlog/stats", "handlers/auth", "handlers/incoming", "handlers/rest", "handlers/telemetry", "handlers/ui",
		"handlers/webhook",
		"handlers/webhook/signature", "handlers/wire", "queue", "queue/collector", "queue/egress", "queue/engine",
		"queue/approval", "queue/flow", "queue/flow/goal", "queue/flow/registry", "queue/overview", "queue/scheduler", "queue/schema", "queue/world",
	},
	"handlers/auth":     {"entities", "entities/access", "entities/admin", "entities/token", "handlers/incoming"},
	"handlers/incoming": {},
	"handlers/rest": and(data, "entities/access", "entities/admin", "entities/codec", "entities/collection", "entities/health",
		"entities/inbox", "entities/kv",
		"entities/limit", "entities/message", "entities/schedule", "entities/share", "entities/strictjson", "entities/trigger",
		"entities/webhook", "eventlog", "eventlog/live", "eventlog/payload", "eventlog/read", "eventlog/stats", "eventlog/view", "handlers/auth",
		"handlers/incoming", "queue", "queue/approval", "queue/cluster", "queue/collector", "queue/continuation", "queue/contract",
		"queue/egress", "queue/engine", "queue/flow", "queue/flow/docschema", "queue/flow/goal", "queue/flow/progress",
		"queue/flow/registry", "queue/overview", "queue/scheduler", "queue/triggers", "queue/why"),
	"handlers/telemetry": {"entities/rescue", "entities", "entities/message", "eventlog", "queue", "queue/engine"},
	"handlers/ui":        {"entities", "entities/access", "entities/admin", "entities/share", "handlers/auth", "handlers/incoming", "ui"},
	"handlers/webhook": and(data, "entities/admin", "entities/share", "entities/strictjson", "entities/trigger", "entities/webhook", "eventlog",
		"eventlog/read", "handlers/incoming", "handlers/webhook/signature", "queue", "queue/contract", "queue/egress",
		"queue/triggers"),
	"handlers/webhook/signature": {"entities/webhook"},
	"handlers/wire": and(data, "entities/codec", "entities/message", "entities/webhook", "eventlog", "eventlog/read",
		"handlers/auth", "handlers/incoming", "queue", "queue/world"),

	"migrations":             {},
	"migrations/localpg":     {},
	"migrations/testdb":      {"migrations", "migrations/localpg"},
	"migrations/testdb/gate": {"migrations"},

	"clients": {},
	"ui":      {},
	"cmd/stepwell": {
		"entities/rescue", "clients", "cmd/stepwell/completion", "cmd/stepwell/remote", "entities", "entities/access", "entities/admin",
		"entities/message", "entities/pg", "eventlog", "eventlog/archive", "eventlog/read", "eventlog/stats", "eventlog/upkeep",
		"handlers", "handlers/telemetry", "migrations", "migrations/localpg", "queue", "queue/cluster", "queue/collector", "queue/egress",
		"queue/engine", "queue/flow", "queue/prober", "queue/scheduler",
	},
	"cmd/stepwell/completion": {},
	"cmd/stepwell/remote": {
		"cmd/stepwell/remote/redact", "queue/contract", "queue/flow", "queue/flow/convert", "queue/flow/docschema", "queue/flow/flowtest",
		"queue/flow/replay",
	},

	"cmd/stepwell/remote/redact": {},
	"queue/flow/docschema":       {},

	"e2e":              {},
	"e2e/failover":     {},
	"e2e/frameworks":   {},
	"e2e/harness":      {},
	"e2e/hostile":      {},
	"e2e/linear":       {},
	"e2e/model":        {},
	"e2e/model/client": {"e2e/model"},
	"e2e/record":       {},
	"e2e/tools":        {},
	"e2e/torture":      {},
	"e2e/ui":           {},
}

// and returns the list with more items.
func and(list []string, more ...string) []string { return slices.Concat(list, more) }

// testsMayImport lists the packages that the tests of every package may import in addition: they provide a database, and
// random flows.
var testsMayImport = []string{"migrations", "migrations/testdb", "migrations/testdb/gate", "queue/flow/flowgen"}

// testsOf lists further imports of the tests of some packages. Tests of an HTTP surface assemble a whole server, for
// example.
var testsOf = map[string][]string{
	"cmd/stepwell": {"migrations/localpg", "eventlog/archive/s3test"},
	"e2e/linear":   {"e2e/harness", "e2e/model", "e2e/model/client", "migrations/localpg"},
	"e2e/model": {
		"e2e/model/client", "entities", "entities/pg", "eventlog", "eventlog/read", "handlers", "queue", "queue/cluster",
		"queue/egress", "queue/why",
	},
	"e2e":              {"e2e/harness", "e2e/record"},
	"e2e/failover":     {"e2e/harness", "migrations/localpg"},
	"e2e/frameworks":   {"e2e/harness"},
	"e2e/hostile":      {"e2e/harness"},
	"e2e/tools":        {"e2e/harness"},
	"e2e/torture":      {"e2e/harness", "migrations/localpg"},
	"e2e/ui":           {"e2e/harness"},
	"eventlog":         {"eventlog/upkeep"},
	"eventlog/archive": {"entities/pg", "eventlog", "eventlog/archive/s3test", "eventlog/read"},
	"eventlog/live":    {"entities/message", "eventlog"},
	"eventlog/stats":   {"entities/message", "eventlog"},
	"eventlog/upkeep":  {"entities/access", "entities/message"},
	"handlers":         {"entities/store"},
	"handlers/rest":    {"handlers", "queue/signing/signingtest"},
	"handlers/webhook": {"entities/limit", "handlers", "queue/engine"},
	"handlers/wire":    {"e2e/record", "entities/access", "entities/admin", "handlers", "queue/egress"},
	"queue":            {"queue/continuation", "queue/signing/signingtest", "queue/why"},
	"queue/collector":  {"queue/egress", "queue/tickets"},
	"queue/flow/goal":  {"queue/contract"},
	"queue/scheduler":  {"queue/egress", "queue/tickets"},
	"queue/triggers":   {"queue/egress", "queue/engine", "queue/tickets"},
	"queue/engine":     {"entities/health", "entities/limit", "entities/trigger", "eventlog/upkeep", "queue/prober", "queue/why", "queue/cluster", "queue/flow/goal", "queue/flow/progress", "queue/flow/replay", "queue/egress", "queue/signing/signingtest", "queue/tickets"},

	"queue/flow":         {"queue/flow/docschema"},
	"queue/flow/convert": {"entities", "queue/contract"},
}

// onlyFor lists packages, including those below them, that only a few places may import. A place is a folder, a file,
// or "_test.go" for all tests.
var onlyFor = map[string][]string{
	module + "/e2e/harness":             {"_test.go"},
	module + "/e2e/record":              {"_test.go"},
	module + "/migrations/testdb":       {"_test.go"},
	module + "/eventlog/archive/s3test": {"_test.go"},
	module + "/migrations/localpg":      {"cmd/stepwell", "migrations/testdb", "_test.go"},
	// handlers/server.go needs only the type of the pool, which the readiness probe pings.
	"github.com/jackc/pgx/v5": {
		"entities/access", "entities/admin", "entities/health", "entities/limit", "entities/memo", "queue/prober", "entities/collection", "entities/pg", "entities/schedule",
		"entities/store", "entities/trigger", "eventlog", "eventlog/read", "eventlog/stats", "eventlog/upkeep", "queue",
		"queue/cluster", "queue/concurrency", "queue/engine", "queue/limiter", "queue/flow/registry", "queue/overview", "queue/collector",
		"queue/scheduler", "queue/tickets", "queue/triggers", "queue/why",
		"migrations", "migrations/localpg", "migrations/testdb", "migrations/testdb/gate",
		"cmd/stepwell", "handlers/server.go", "_test.go",
	},
	"github.com/riverqueue":                 {"queue/tickets", "migrations", "_test.go"},
	"github.com/labstack/echo":              {"handlers", "handlers/auth", "handlers/incoming", "handlers/rest", "handlers/ui", "handlers/wire", "handlers/webhook"},
	"github.com/fxamacker/cbor":             {"e2e/model/client", "e2e/record", "entities/codec", "eventlog/payload", "_test.go"},
	"cel.dev/cel-go":                        {"queue/condition", "queue/flow"},
	"github.com/alecthomas/kong":            {"cmd/stepwell", "cmd/stepwell/completion"},
	"github.com/caarlos0/env":               {"cmd/stepwell"},
	"github.com/klauspost/compress":         {"eventlog/archive", "eventlog/payload", "_test.go"},
	"github.com/minio/minio-go":             {"eventlog/archive"},
	"github.com/prometheus":                 {"handlers/telemetry", "_test.go"},
	"go.opentelemetry.io":                   {"handlers/telemetry", "cmd/stepwell", "_test.go"},
	"github.com/exaring/otelpgx":            {"cmd/stepwell", "_test.go"},
	"testing":                               {"e2e/harness", "migrations/testdb", "eventlog/archive/s3test", "migrations/testdb/gate", "_test.go"},
	"net/http/httptest":                     {"_test.go"},
	"github.com/google/go-cmp":              {"migrations/testdb/gate", "_test.go"},
	"pgregory.net/rapid":                    {"_test.go"},
	"github.com/anishathalye/porcupine":     {"_test.go"},
	"github.com/chromedp":                   {"_test.go"},
	"github.com/testcontainers":             {"migrations/testdb", "_test.go"}, // so the binary does not link it
	"github.com/santhosh-tekuri/jsonschema": {"_test.go"},
	"go.yaml.in/yaml":                       {"handlers/rest", "queue/flow", "_test.go"},
}

// file is a parsed Go file of the module.
type file struct {
	path string // from the module's root
	*ast.File
}

func (f file) pkg() string  { return path.Dir(f.path) }
func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// imports are the paths of the packages the file imports.
func (f file) imports(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths
}

// files parses all Go files of the module.
func files(t *testing.T) []file {
	t.Helper()
	list := filesOf(t, ".")
	if len(list) < 50 {
		t.Fatalf("found only %d files", len(list))
	}
	return list
}

// filesOf parses all Go files of the module in a folder.
func filesOf(t *testing.T, folder string) []file {
	t.Helper()
	var list []file
	set := token.NewFileSet()
	err := fs.WalkDir(os.DirFS("."), folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := d.Name(); d.IsDir() && name != folder &&
			(base == "node_modules" || base == "testdata" || base[0] == '.' || base[0] == '_') {
			return fs.SkipDir
		}
		if d.IsDir() && name != folder && isModule(name) {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(name) != ".go" {
			return nil
		}
		parsed, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		list = append(list, file{name, parsed})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// isModule reports whether the folder is a module of its own, to which these rules do not apply.
func isModule(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil
}
