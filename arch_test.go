// Package stepwell_test checks what holds the module together: which package may import which, and the
// house rules that no compiler knows.
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

// mayImport is the table of design.md, "Packages": what each package may import of ours. Tests may also
// import what testsMayImport says.
var mayImport = map[string][]string{
	"clients":                 {},
	"cmd/stepwell":            {"clients", "cmd/stepwell/completion", "cmd/stepwell/remote", "entities", "eventlog", "eventlog/access", "eventlog/archive", "handlers", "handlers/telemetry", "migrations", "migrations/localpg", "queue", "queue/egress", "queue/engine"},
	"cmd/stepwell/completion": {},
	"cmd/stepwell/remote":     {},
	"e2e":                     {},
	"e2e/harness":             {},
	"e2e/linear":              {},
	"e2e/model":               {},
	"e2e/model/client":        {"e2e/model"},
	"e2e/record":              {},
	"e2e/tools":               {},
	"e2e/torture":             {},
	"entities":                {},
	"entities/strictjson":     {"entities"},
	"eventlog":                {"entities"},
	"eventlog/access":         {"entities", "eventlog"},
	"eventlog/archive":        {"entities", "eventlog"},
	"eventlog/archive/s3test": {},
	"eventlog/payload":        {"entities"},
	"eventlog/view":           {"entities", "eventlog", "eventlog/payload"},
	"examples/function-go":    {"sdk/signature"},
	"handlers":                {"clients", "entities", "eventlog", "eventlog/access", "handlers/auth", "handlers/rest", "handlers/telemetry", "handlers/webhook", "handlers/webhook/signature", "handlers/wire", "handlers/wire/codec", "queue", "queue/egress", "queue/engine"},
	"handlers/auth":           {"entities"},
	"handlers/rest":           {"entities", "entities/strictjson", "eventlog", "eventlog/access", "eventlog/payload", "eventlog/view", "handlers/auth", "queue", "queue/continuation", "queue/contract", "queue/egress", "queue/engine"},
	"handlers/telemetry":      {"entities", "eventlog", "queue", "queue/engine"},
	"handlers/webhook":        {"entities", "eventlog", "handlers/webhook/signature", "queue", "queue/contract", "queue/egress"},
	"handlers/wire":           {"entities", "eventlog", "queue", "handlers/auth", "handlers/wire/codec"},
	"handlers/wire/codec":     {},
	"migrations":              {},
	"migrations/localpg":      {},
	"migrations/testdb":       {"migrations", "migrations/localpg"},
	"migrations/testdb/gate":  {"migrations"},
	"queue":                   {"entities", "eventlog", "queue/cluster", "queue/contract", "queue/egress", "queue/signing", "queue/tickets"},
	"queue/cluster":           {"entities", "eventlog", "queue/continuation", "queue/tickets"},
	"queue/condition":         {"entities"},
	"queue/contract":          {"entities", "entities/strictjson", "eventlog"},
	"queue/continuation":      {"entities"},
	"queue/egress":            {},
	"queue/engine":            {"entities", "eventlog", "eventlog/view", "queue", "queue/condition", "queue/contract"},
	"queue/signing":           {},
	"queue/tickets":           {"eventlog"},
	"sdk/signature":           {},

	"handlers/webhook/signature": {"entities"},
}

// testsMayImport is what tests of any package may import besides: a database, and the layers below the one
// they test to set a scene.
var testsMayImport = []string{"migrations", "migrations/testdb", "migrations/testdb/gate"}

// testsOf has tests that need more: those of a surface assemble the whole server around it.
var testsOf = map[string][]string{
	"cmd/stepwell":     {"migrations/localpg", "eventlog/archive/s3test"},
	"e2e/linear":       {"e2e/model", "e2e/model/client", "migrations/localpg"},
	"e2e/model":        {"e2e/model/client", "entities", "eventlog", "handlers", "queue", "queue/egress"},
	"e2e":              {"e2e/harness", "e2e/record"},
	"e2e/tools":        {"e2e/harness"},
	"e2e/torture":      {"e2e/harness", "migrations/localpg"},
	"entities":         {"eventlog"},
	"eventlog":         {"queue"},
	"eventlog/archive": {"eventlog/archive/s3test"},
	"handlers/rest":    {"handlers", "sdk/signature"},
	"handlers/webhook": {"handlers", "queue/engine"},
	"handlers/wire":    {"e2e/record", "handlers"},
	"queue":            {"queue/continuation", "sdk/signature"},
	"queue/engine":     {"queue/cluster", "queue/egress", "queue/tickets", "sdk/signature"},
}

// onlyFor are packages, each with those below it, and the few places that may import them. A place is a
// folder, a file, or all tests.
var onlyFor = map[string][]string{
	module + "/e2e/harness":             {"_test.go"},
	module + "/e2e/record":              {"_test.go"},
	module + "/migrations/testdb":       {"_test.go"},
	module + "/eventlog/archive/s3test": {"_test.go"},
	module + "/migrations/localpg":      {"cmd/stepwell", "migrations/testdb", "_test.go"},
	// In handlers only the type of the pool, which the readiness probe pings.
	"github.com/jackc/pgx/v5": {
		"entities", "eventlog", "eventlog/access", "queue", "queue/cluster", "queue/engine", "queue/tickets", "migrations", "migrations/localpg", "migrations/testdb", "migrations/testdb/gate",
		"cmd/stepwell", "handlers/server.go", "_test.go",
	},
	"github.com/riverqueue":                 {"queue/tickets", "migrations", "_test.go"},
	"github.com/labstack/echo":              {"handlers", "handlers/auth", "handlers/rest", "handlers/wire", "handlers/webhook"},
	"github.com/fxamacker/cbor":             {"e2e/model/client", "e2e/record", "eventlog/payload", "handlers/wire/codec", "queue/continuation", "_test.go"},
	"cel.dev/cel-go":                        {"queue/condition"},
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
	"github.com/santhosh-tekuri/jsonschema": {"_test.go"},
	"go.yaml.in/yaml":                       {"handlers/rest", "_test.go"},
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

// files are all Go files of the module, parsed.
func files(t *testing.T) []file {
	t.Helper()
	var list []file
	set := token.NewFileSet()
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := d.Name(); d.IsDir() && name != "." &&
			(base == "node_modules" || base == "testdata" || base[0] == '.' || base[0] == '_') {
			return fs.SkipDir
		}
		if d.IsDir() && isModule(name) {
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
	if len(list) < 50 {
		t.Fatalf("found %d files only", len(list))
	}
	return list
}

// isModule reports whether the folder is a module of its own, for which the rules here are not.
func isModule(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return folder != "." && err == nil
}

// TestImportsOfOurs holds the table of design.md.
func TestImportsOfOurs(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, f := range files(t) {
		if f.pkg() == "." {
			continue // this file
		}
		allowed, known := mayImport[f.pkg()]
		if !known {
			t.Errorf("%s: package %s is not in the table of imports", f.path, f.pkg())
			continue
		}
		seen[f.pkg()] = true
		if f.isTest() {
			allowed = slices.Concat(allowed, testsMayImport, testsOf[f.pkg()], []string{f.pkg()})
		}
		for _, imported := range f.imports(t) {
			ours, ok := strings.CutPrefix(imported, module+"/")
			if ok && !slices.Contains(allowed, ours) {
				t.Errorf("%s must not import %s", f.path, ours)
			}
		}
	}
	for pkg, allowed := range mayImport {
		for _, p := range append(allowed, pkg) {
			if !seen[p] {
				t.Errorf("the table of imports is about package %s, which does not exist", p)
			}
		}
	}
	for pkg, allowed := range testsOf {
		for _, p := range append(allowed, pkg) {
			if !seen[p] {
				t.Errorf("the table of tests' imports is about package %s, which does not exist", p)
			}
		}
	}
}

// within reports whether a file is in a place: a folder, a file, or all tests.
func (f file) within(place string) bool {
	return f.path == place || f.pkg() == place || place == "_test.go" && f.isTest()
}

// TestImportsOfFew holds the packages that only few places may import.
func TestImportsOfFew(t *testing.T) {
	t.Parallel()
	all := files(t)
	for guarded, places := range onlyFor {
		used := false
		for _, f := range all {
			for _, imported := range f.imports(t) {
				if imported != guarded && !strings.HasPrefix(imported, guarded+"/") {
					continue
				}
				used = true
				if !slices.ContainsFunc(places, f.within) {
					t.Errorf("%s must not import %s: only %q may", f.path, imported, places)
				}
			}
		}
		if !used {
			t.Errorf("there is a rule about %s, which nobody imports", guarded)
		}
		for _, place := range places {
			exists := func(f file) bool { return f.within(place) }
			if !slices.ContainsFunc(all, exists) {
				t.Errorf("the rule about %s names %s, which does not exist", guarded, place)
			}
		}
	}
}

// TestExamplesStandAlone: an example can be taken out of the module and built, with nothing but the standard library
// and what users import of ours.
func TestExamplesStandAlone(t *testing.T) {
	t.Parallel()
	found := 0
	for _, f := range files(t) {
		if !strings.HasPrefix(f.path, "examples/") {
			continue
		}
		found++
		for _, imported := range f.imports(t) {
			if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") &&
				!strings.HasPrefix(imported, module+"/sdk/") {
				t.Errorf("%s must not import %s", f.path, imported)
			}
		}
	}
	if found == 0 {
		t.Error("found no example in Go")
	}
}

// TestPackageComments: each package has one, in one place, that begins as godoc wants it.
func TestPackageComments(t *testing.T) {
	t.Parallel()
	comments := map[string][]string{}
	for _, f := range files(t) {
		if f.isTest() {
			continue
		}
		if _, ok := comments[f.pkg()]; !ok {
			comments[f.pkg()] = nil
		}
		if f.Doc == nil {
			continue
		}
		comments[f.pkg()] = append(comments[f.pkg()], f.path)
		want := "Package " + f.Name.Name + " "
		if f.Name.Name == "main" {
			want = "Command " + path.Base(f.pkg()) + " "
		}
		if text := f.Doc.Text(); !strings.HasPrefix(text, want) {
			t.Errorf("%s: the package comment does not begin with %q", f.path, want)
		}
	}
	for pkg, where := range comments {
		if len(where) != 1 {
			t.Errorf("package %s has %d package comments, want one: %v", pkg, len(where), where)
		}
	}
}

// TestClocksAreInjected: only commands, examples and tests ask what time it is, and what is for tests alone.
func TestClocksAreInjected(t *testing.T) {
	t.Parallel()
	banned := []string{"Now", "Since", "Until"}
	found := 0
	for _, f := range files(t) {
		ast.Inspect(f.File, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains(banned, selector.Sel.Name) {
				return true
			}
			if x, ok := selector.X.(*ast.Ident); !ok || x.Name != "time" {
				return true
			}
			found++
			if !f.isTest() && !strings.HasPrefix(f.path, "cmd/") && !strings.HasPrefix(f.path, "examples/") &&
				f.pkg() != "e2e/harness" {
				t.Errorf("%s uses time.%s: have the clock passed in", f.path, selector.Sel.Name)
			}
			return true
		})
	}
	if found == 0 {
		t.Error("found no clock at all, not even that of the command")
	}
}

// TestFilesAreOfReadableSize has the limit of the house style.
func TestFilesAreOfReadableSize(t *testing.T) {
	t.Parallel()
	const limit = 500
	for _, f := range files(t) {
		data, err := os.ReadFile(f.path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(data), "\n"); n > limit {
			t.Errorf("%s has %d lines; the limit is %d", f.path, n, limit)
		}
	}
}

// TestNoReplace: the module builds from what it names.
func TestNoReplace(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(data), "module "+module+"\n") {
		t.Error("go.mod is of another module")
	}
	for line := range strings.Lines(string(data)) {
		for _, directive := range []string{"replace", "exclude", "toolchain"} {
			if strings.HasPrefix(line, directive+" ") {
				t.Errorf("go.mod has the line %q", line)
			}
		}
	}
}

// TestHandlersOnlyPassThePoolOn: they know no SQL, no rows and no errors of the database.
func TestHandlersOnlyPassThePoolOn(t *testing.T) {
	t.Parallel()
	const pool = "github.com/jackc/pgx/v5/pgxpool"
	for _, f := range files(t) {
		if f.isTest() || !strings.HasPrefix(f.path, "handlers/") {
			continue
		}
		for _, imported := range f.imports(t) {
			if strings.HasPrefix(imported, "github.com/jackc/") && (imported != pool || f.path != "handlers/server.go") {
				t.Errorf("%s must not import %s", f.path, imported)
			}
		}
	}
}
