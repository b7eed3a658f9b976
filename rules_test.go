package stepwell_test

import (
	"go/ast"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPackagesImportOnlyLayersBelow checks layers.
func TestPackagesImportOnlyLayersBelow(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, f := range files(t) {
		if f.pkg() == "." {
			continue // the tests beside this file
		}
		own, folder := layerOf(f.pkg())
		if own < 0 {
			t.Errorf("%s: package %s is in no layer", f.path, f.pkg())
			continue
		}
		used[folder] = true
		if f.isTest() {
			continue
		}
		for _, imported := range f.imports(t) {
			ours, ok := strings.CutPrefix(imported, module+"/")
			if layer, folder := layerOf(ours); ok && layer > own {
				t.Errorf("%s must not import %s: layer %s is above it", f.path, ours, folder)
			}
		}
	}
	for _, folder := range slices.Concat(layers...) {
		if !used[folder] {
			t.Errorf("layers names %s, which has no package", folder)
		}
	}
}

// layerOf returns the number of a package's layer, and the folder that it is in; -1 if there is none.
func layerOf(pkg string) (layer int, folder string) {
	layer = -1
	for i, folders := range layers {
		for _, f := range folders {
			if within(pkg, f) && len(f) > len(folder) {
				layer, folder = i, f
			}
		}
	}
	return layer, folder
}

// within reports whether a path is a folder or below it.
func within(name, folder string) bool { return name == folder || strings.HasPrefix(name, folder+"/") }

// within reports whether a file is in a place: a folder or below it, a file, or all tests.
func (f file) within(place string) bool {
	return within(f.path, place) || place == "_test.go" && f.isTest()
}

// TestRestrictedPackagesStayInTheirPlaces checks onlyFor.
func TestRestrictedPackagesStayInTheirPlaces(t *testing.T) {
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
			t.Errorf("onlyFor names %s, which no file imports", guarded)
		}
		for _, place := range places {
			exists := func(f file) bool { return f.within(place) }
			if !slices.ContainsFunc(all, exists) {
				t.Errorf("onlyFor allows %s in %s, which does not exist", guarded, place)
			}
		}
	}
}

// TestModulesNeedLittle checks what users get with the SDK and the examples: the SDK needs no other module, and an
// example only the SDK.
func TestModulesNeedLittle(t *testing.T) {
	t.Parallel()
	for folder, needed := range map[string]string{
		"sdk":                  "",
		"examples/function-go": "require " + module + "/sdk v0.0.0",
		"examples/sdk-go":      "require " + module + "/sdk v0.0.0",
	} {
		text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(regexp.MustCompile(`(?m)^require.*$`).FindAllString(string(text), -1), "\n"); got != needed {
			t.Errorf("%s: got %q, want %q", folder, got, needed)
		}
	}
}

// TestEmbeddedIsALibrary checks what a program gets with package embedded: no dashboard, no command line, nothing for
// tests.
func TestEmbeddedIsALibrary(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "go", "vet", "-C", "examples/embedded", ".").CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-C", "examples/embedded", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, module+"/embedded") {
		t.Fatalf("the example imports %d packages, but not embedded", len(deps))
	}
	for _, dep := range deps {
		for _, unwanted := range []string{
			module + "/ui", module + "/cmd", module + "/e2e", module + "/scripts", module + "/eventlog/archive",
			module + "/migrations/testdb", module + "/migrations/localpg", "github.com/alecthomas/kong", "github.com/caarlos0/env",
			"github.com/KimMachineGun", "github.com/chromedp", "github.com/fergusstrange",
			"pgregory.net/rapid", "testing", "flag",
		} {
			if within(dep, unwanted) {
				t.Errorf("the example gets %s", dep)
			}
		}
	}
}

// TestOnlyProgramsChangeGlobalState checks that packages handle no signals, end no process, and have no flags, logger,
// metrics or tracer that is global: the program that has them in it may have its own.
func TestOnlyProgramsChangeGlobalState(t *testing.T) {
	t.Parallel()
	banned := map[string][]string{
		"signal": {"Notify", "NotifyContext", "Ignore"}, "os": {"Exit", "Setenv"}, "slog": {"SetDefault"},
		"log": {"SetOutput", "Fatal", "Print", "Printf"}, "otel": {"SetErrorHandler", "SetTracerProvider"},
		"prometheus": {"MustRegister", "Register", "DefaultRegisterer"}, "debug": {"SetGCPercent", "SetMemoryLimit"},
	}
	programs := []string{"cmd", "scripts", "e2e", "migrations/testdb", "eventlog/archive/s3test", "_test.go"}
	found := 0
	for _, f := range files(t) {
		ast.Inspect(f.File, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := selector.X.(*ast.Ident); !ok || !slices.Contains(banned[x.Name], selector.Sel.Name) {
				return true
			}
			if found++; !slices.ContainsFunc(programs, f.within) {
				t.Errorf("%s uses %s, which is for programs", f.path, selector.Sel.Name)
			}
			return true
		})
	}
	if found == 0 {
		t.Error("found no use, not even in cmd")
	}
}

// TestPackagesHaveOneComment checks that each package has one package comment, in godoc's form.
func TestPackagesHaveOneComment(t *testing.T) {
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

// TestClocksAreInjected checks that only the wiring, commands, examples, tests and test helpers read the clock.
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
				f.pkg() != "server" && f.pkg() != "e2e/harness" {
				t.Errorf("%s uses time.%s: have the clock passed in", f.path, selector.Sel.Name)
			}
			return true
		})
	}
	if found == 0 {
		t.Error("found no use of the clock, not even in cmd")
	}
}

// TestGoModHasNoReplace checks that go.mod has no directive that dependents would ignore.
func TestGoModHasNoReplace(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(data), "module "+module+"\n") {
		t.Errorf("go.mod is not that of %s", module)
	}
	for line := range strings.Lines(string(data)) {
		for _, directive := range []string{"replace", "exclude", "toolchain"} {
			if strings.HasPrefix(line, directive+" ") {
				t.Errorf("go.mod has the line %q", line)
			}
		}
	}
}

// TestHandlersDoNotUseDatabase checks that handlers know no SQL, rows or database errors: they only pass on the pool.
func TestHandlersDoNotUseDatabase(t *testing.T) {
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

// TestDeployHasNoGo checks that deploy holds manifests only.
func TestDeployHasNoGo(t *testing.T) {
	t.Parallel()
	found := 0
	err := filepath.WalkDir("deploy", func(path string, d fs.DirEntry, err error) error {
		found++
		if filepath.Ext(path) == ".go" {
			t.Errorf("%s is Go", path)
		}
		return err
	})
	if err != nil || found < 10 {
		t.Errorf("found %d files, %v", found, err)
	}
}

// TestNamedTestsRun: make test runs the tests ONE_BY_ONE in ONE_BY_ONE_IN only, and of PAGES_IN only the tests PAGES. A
// name that no test has, or one elsewhere, would leave a test out.
func TestNamedTestsRun(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	variable := func(name string) string {
		found := regexp.MustCompile(`(?m)^` + name + ` *:= ((?:.*\\\n)*.*)$`).FindSubmatch(makefile)
		if found == nil {
			t.Fatalf("the Makefile has no %s", name)
		}
		return string(found[1])
	}
	in := map[string][]string{}
	for _, f := range files(t) {
		for _, d := range f.Decls {
			if function, ok := d.(*ast.FuncDecl); ok && f.isTest() {
				in[function.Name.Name] = append(in[function.Name.Name], "./"+f.pkg())
			}
		}
	}
	for _, list := range []string{"ONE_BY_ONE", "PAGES"} {
		packages := strings.Fields(variable(list + "_IN"))
		names := regexp.MustCompile(`\bTest\w+`).FindAllString(variable(list), -1)
		if len(names) == 0 {
			t.Errorf("%s has no tests", list)
		}
		for _, name := range names {
			if len(in[name]) != 1 || !slices.Contains(packages, in[name][0]) {
				t.Errorf("%s: %s is in %v, want one package of %v", list, name, in[name], packages)
			}
		}
	}
}
