package main

import (
	"bytes"
	"compress/gzip"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"
)

// committed returns the files of dist.
func committed(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	dist := os.DirFS(filepath.Join(root, "dist"))
	err := fs.WalkDir(dist, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[name], err = fs.ReadFile(dist, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestDistIsBuiltFromSource bundles again and compares bytes.
func TestDistIsBuiltFromSource(t *testing.T) {
	t.Parallel()
	want, err := bundle()
	if err != nil {
		t.Fatalf("%v\nIs `npm ci` in the folder ui missing?", err)
	}
	got := committed(t)
	if !slices.Equal(sortedNames(got), sortedNames(want)) {
		t.Errorf("dist has the files %q, a new build %q: go run .", sortedNames(got), sortedNames(want))
	}
	for name := range maps.Keys(want) {
		if !bytes.Equal(got[name], want[name]) {
			t.Errorf("%s differs from a new build: go run .", name)
		}
	}
}

// TestBundleIsSmall checks the budgets of compressed sizes: of a first page's JavaScript, and of all files of a kind.
func TestBundleIsSmall(t *testing.T) {
	t.Parallel()
	limits := map[string]int{"first page": 45_000, ".js": 135_000, ".css": 10_000, ".html": 2_000, ".svg": 4_000}
	sizes := map[string]int{}
	files := committed(t)
	first := loadedFirst(files)
	if len(first) != 1 {
		t.Errorf("a page loads %v first, want one script", first)
	}
	for name, data := range files {
		var zipped bytes.Buffer
		w, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
		_, _ = w.Write(data)
		_ = w.Close()
		sizes[path.Ext(name)] += zipped.Len()
		if first[path.Base(name)] {
			sizes["first page"] += zipped.Len()
		}
	}
	for kind, size := range sizes {
		if size > limits[kind] {
			t.Errorf("%s: %d bytes compressed, more than %d", kind, size, limits[kind])
		}
	}
	t.Logf("compressed: %v", sizes)
}

// loadedFirst returns the names of the scripts that every page loads: the program, and what it imports.
func loadedFirst(files map[string][]byte) map[string]bool {
	imports := regexp.MustCompile(`(?:from|import)\s*"\./([\w-]+\.js)"`)
	scripts := regexp.MustCompile(`src="[^"]*/([\w-]+\.js)"`)
	found := map[string]bool{}
	var add func(string)
	add = func(name string) {
		if found[name] {
			return
		}
		found[name] = true
		for _, m := range imports.FindAllSubmatch(files["assets/"+name], -1) {
			add(string(m[1]))
		}
	}
	for _, m := range scripts.FindAllSubmatch(files["index.html"], -1) {
		add(string(m[1]))
	}
	return found
}

// TestBundleHasNothingForbidden checks that the dashboard makes HTML and code of no text, and requests nothing from
// elsewhere.
func TestBundleHasNothingForbidden(t *testing.T) {
	t.Parallel()
	forbidden := regexp.MustCompile(`\beval\(|new Function|document\.write|insertAdjacentHTML|outerHTML|@import|@font-face`)
	absolute := regexp.MustCompile(`https?://[^\s"'` + "`" + `)]+`)
	for name, data := range committed(t) {
		if found := forbidden.Find(data); found != nil {
			t.Errorf("%s has %s", name, found)
		}
		for _, address := range absolute.FindAllString(string(data), -1) {
			// Names of XML, addresses in commands to paste, and links to the documentation, which a click opens.
			if !strings.HasPrefix(address, "http://www.w3.org/") && address != "http://127.0.0.1:3000" &&
				address != "https://github.com/stepwell-dev/stepwell" &&
				!strings.HasPrefix(address, "https://github.com/stepwell-dev/stepwell/blob/main/docs/") {
				t.Errorf("%s has the address %s", name, address)
			}
		}
	}
}

// imported matches what a source file imports.
var imported = regexp.MustCompile(`(?m)^(?:import .*|\} )?from "([^"]+)";$|^import "([^"]+)";$`)

// TestSourcesFollowHouseRules checks the length of files, the packages that they import, and what they may not use.
func TestSourcesFollowHouseRules(t *testing.T) {
	t.Parallel()
	allowed := []string{"preact", "preact/hooks", "@preact/signals"}
	folder := os.DirFS(root)
	for _, pattern := range []string{"src/*.ts*", "src/*/*.ts*", "src/css/*.css"} {
		names, err := fs.Glob(folder, pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %v", pattern, names, err)
		}
		for _, name := range names {
			data, err := fs.ReadFile(folder, name)
			if err != nil {
				t.Fatal(err)
			}
			text := string(data)
			if n := strings.Count(text, "\n"); n > 400 && !strings.HasSuffix(name, ".gen.ts") {
				t.Errorf("%s has %d lines; the limit is 400", name, n)
			}
			for _, banned := range []string{"dangerouslySetInnerHTML", "innerHTML", `style="`, "eval("} {
				if strings.Contains(text, banned) {
					t.Errorf("%s uses %s", name, banned)
				}
			}
			if name != "src/api.ts" && strings.Contains(text, "fetch(") {
				t.Errorf("%s calls fetch: only src/api.ts may", name)
			}
			for _, match := range imported.FindAllStringSubmatch(text, -1) {
				from := match[1] + match[2]
				if !strings.HasPrefix(from, ".") && !slices.Contains(allowed, from) {
					t.Errorf("%s imports %s", name, from)
				}
				if strings.HasPrefix(name, "src/lib/") && !strings.HasPrefix(from, "./") && from != "../api.gen" {
					t.Errorf("%s imports %s: what is in lib is pure", name, from)
				}
			}
		}
	}
}

// TestUnits bundles the tests of the pure modules and has Node run them.
func TestUnits(t *testing.T) {
	t.Parallel()
	tests, err := filepath.Glob(filepath.Join(root, "test", "*.test.ts"))
	if err != nil || len(tests) == 0 {
		t.Fatalf("found no tests: %v", err)
	}
	o := options()
	o.Outdir, o.EntryNames, o.Write = t.TempDir(), "[name]", true
	for _, name := range tests {
		o.EntryPoints = append(o.EntryPoints, "test/"+filepath.Base(name))
	}
	o.Platform, o.OutExtension, o.Sourcemap = api.PlatformNode, map[string]string{".js": ".mjs"}, api.SourceMapInline
	if result := api.Build(o); len(result.Errors) > 0 {
		t.Fatal(errorOf(result.Errors))
	}
	built, err := filepath.Glob(filepath.Join(o.Outdir, "*.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", append([]string{"--enable-source-maps", "--test"}, built...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
