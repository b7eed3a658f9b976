package stepwell_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocumentsLinkToFilesThatExist checks the relative links of all Markdown files, and the paths of source files that
// CONTRIBUTING.md names.
func TestDocumentsLinkToFilesThatExist(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^):#\s]+)(?:#[^)]*)?\)`)
	code := regexp.MustCompile("(?s)```.*?```")
	links := 0
	for _, name := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text(t, name), ""), -1) {
			links++
			if target := path.Join(path.Dir(name), m[1]); !exists(target) {
				t.Errorf("%s links to %s, which does not exist", name, target)
			}
		}
	}
	if links < 100 {
		t.Errorf("found only %d links", links)
	}
	sources := regexp.MustCompile("`([a-z/_]+/[a-z_]+\\.(?:go|yaml))`")
	for _, m := range sources.FindAllStringSubmatch(text(t, "CONTRIBUTING.md"), -1) {
		if !exists(m[1]) {
			t.Errorf("CONTRIBUTING.md names %s, which does not exist", m[1])
		}
	}
}

// TestDocumentsCiteTestsThatExist keeps docs/guarantees.md and other pages true: each promise names the test that would
// fail, and the package that has it.
func TestDocumentsCiteTestsThatExist(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{"TestName": true, "TestCase": true} // the placeholder of CONTRIBUTING.md; a class of Python
	in := map[string]bool{}                                      // package and test
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	for _, f := range slices.Concat(files(t), filesOf(t, "sdk"), filesOf(t, "sdk/vet"), filesOf(t, "sdk/stepwellotel"), filesOf(t, "sdk/tests"), filesOf(t, "ui/build")) {
		for _, m := range declared.FindAllStringSubmatch(text(t, f.path), -1) {
			tests[m[1]], in[f.pkg()+"."+m[1]] = true, true
		}
	}
	cited := 0
	citation := regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`)
	for _, name := range documents(t) {
		for _, test := range citation.FindAllString(text(t, name), -1) {
			if cited++; !tests[test] {
				t.Errorf("%s cites %s, which does not exist", name, test)
			}
		}
	}
	if cited < 100 {
		t.Errorf("found only %d citations", cited)
	}
	packaged := regexp.MustCompile("`([a-z0-9/]+)`:\\s((?:(?:,\\s)?(?:Test|Fuzz|Benchmark)\\w+(?: \\([^()]*\\))?)+)")
	for _, name := range documents(t) {
		for _, m := range packaged.FindAllStringSubmatch(text(t, name), -1) {
			for _, test := range citation.FindAllString(m[2], -1) {
				if cited--; !in[m[1]+"."+test] {
					t.Errorf("%s cites %s of %s, which has no such test", name, test, m[1])
				}
			}
		}
	}
	if cited > 30 { // in tables, and in sentences
		t.Errorf("%d citations have no package before them", cited)
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// documents are all Markdown files of the repository.
func documents(t *testing.T) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() && name != "." && (base == "node_modules" || base == "testdata" || strings.HasPrefix(base, ".")) {
			return fs.SkipDir
		}
		if !d.IsDir() && path.Ext(name) == ".md" {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestGoInDocumentsIsTested: the Go code of these documents stands, as it is, in files that the SDK's tests compile and
// run, or in the example that TestEmbeddedIsALibrary checks. The program of the quick start is built and run by package
// e2e.
func TestGoInDocumentsIsTested(t *testing.T) {
	t.Parallel()
	var tested strings.Builder
	for _, f := range filesOf(t, "sdk") {
		if f.isTest() {
			tested.WriteString(text(t, f.path))
		}
	}
	tested.WriteString(text(t, "examples/embedded/main.go"))
	blocks := 0
	fence := regexp.MustCompile("(?s)```go\n(.*?)```")
	for _, name := range []string{"README.md", "docs/sdk-go.md", "docs/embedded.md", "docs/workers.md"} {
		for _, m := range fence.FindAllStringSubmatch(text(t, name), -1) {
			if strings.HasPrefix(m[1], "package main\n") {
				continue
			}
			if blocks++; !strings.Contains(tested.String(), m[1]) {
				t.Errorf("%s: no test of the SDK contains\n%s", name, m[1])
			}
		}
	}
	if blocks < 10 {
		t.Errorf("found only %d blocks", blocks)
	}
}

// text returns the content of a file.
func text(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
