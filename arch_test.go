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
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/stepwell-dev/stepwell"

// layers lists the folders of the module from the bottom up. A package belongs to the longest of them that it is in, and
// may import packages of its own layer and of those below. So what a feature keeps may be below the log, and its worker,
// which appends to the log, above it. Tests may import everything.
var layers = [][]string{
	{"entities", "capacity/share", "internal"},
	{"pg"},
	{"admin"},
	{"capacity"},
	{"starts/collection", "starts/schedule", "starts/trigger"},
	{"eventlog"},
	{"schema"},
	{"contract"},
	{"queue/tickets"},
	{"capacity/concurrency"},
	{"queue"},
	{"flow"},
	{"starts/collection/collector", "starts/schedule/scheduler", "starts/trigger/triggers"},
	{"engine"},
	{"why"},
	{"clients", "ui"},
	{"handlers", "pgtx"},
	{"migrations"},
	{"server", "starts/startstest"},
	{"embedded"},
	{"cmd", "scripts"},
	{"e2e"},
}

// onlyFor lists packages, including those below them, that only a few places may import. A place is a folder with what
// is below it, a file, or "_test.go" for all tests.
var onlyFor = map[string][]string{
	module + "/e2e/harness":             {"_test.go"},
	module + "/e2e/record":              {"_test.go"},
	module + "/migrations/testdb":       {"_test.go"},
	module + "/starts/startstest":       {"_test.go"},
	module + "/eventlog/archive/s3test": {"_test.go"},
	module + "/internal/gotool": {
		"admin/encryption/awskms/kmstest", "eventlog/archive/s3test", "handlers/oidc/oidctest",
	},
	module + "/migrations/localpg": {"cmd/stepwell", "migrations/testdb", "scripts/gotest", "_test.go"},

	module + "/admin/encryption/awskms/kmstest": {"_test.go"},

	// handlers/server.go needs only the type of the pool, which the readiness probe pings.
	"github.com/jackc/pgx/v5": {
		"pg", "admin", "capacity", "starts", "eventlog", "queue", "engine", "flow/registry", "why", "migrations",
		"server", "embedded", "pgtx", "cmd/stepwell", "handlers/server.go", "e2e/harness", "_test.go",
	},
	"github.com/riverqueue":                 {"queue/tickets", "migrations", "_test.go"},
	"github.com/labstack/echo":              {"handlers"},
	"github.com/coreos/go-oidc":             {"handlers/oidc"},
	"golang.org/x/oauth2":                   {"handlers/oidc"},
	module + "/handlers/oidc/oidctest":      {"_test.go"},
	"github.com/fxamacker/cbor":             {"e2e/model/client", "e2e/record", "entities/codec", "eventlog/payload", "_test.go"},
	"cel.dev/cel-go":                        {"flow"},
	"github.com/alecthomas/kong":            {"cmd/stepwell"},
	"github.com/modelcontextprotocol":       {"cmd/stepwell/remote", "_test.go"},
	"github.com/google/jsonschema-go":       {"cmd/stepwell/remote"},
	"github.com/caarlos0/env":               {"cmd/stepwell"},
	"github.com/klauspost/compress":         {"eventlog/payload", "eventlog/runfile", "handlers/rest", "_test.go"},
	"github.com/minio/minio-go":             {"eventlog/archive", "admin/encryption/awskms"},
	"github.com/prometheus":                 {"handlers/telemetry", "_test.go"},
	"go.opentelemetry.io":                   {"handlers/telemetry", "cmd/stepwell", "_test.go"},
	"github.com/exaring/otelpgx":            {"server", "_test.go"},
	"testing":                               {"e2e/harness", "server/servertest", "starts/startstest", "migrations/testdb", "eventlog/archive/s3test", "handlers/oidc/oidctest", "admin/encryption/awskms/kmstest", "_test.go"},
	"net/http/httptest":                     {"_test.go"},
	"github.com/google/go-cmp":              {"migrations/testdb", "_test.go"},
	"pgregory.net/rapid":                    {"_test.go"},
	"github.com/anishathalye/porcupine":     {"_test.go"},
	"github.com/chromedp":                   {"_test.go"},
	"github.com/santhosh-tekuri/jsonschema": {"_test.go"},
	"go.yaml.in/yaml":                       {"handlers/rest", "flow", "_test.go"},
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
