package stepwell_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestImageIsBuiltWithTheGoOfTheModule: the Dockerfile takes the newest release of the version in go.mod.
func TestImageIsBuiltWithTheGoOfTheModule(t *testing.T) {
	t.Parallel()
	module := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(text(t, "go.mod"))
	image := regexp.MustCompile(`(?m)^FROM golang:(\S+) AS build$`).FindStringSubmatch(text(t, "Dockerfile"))
	if module == nil || image == nil || module[1] != image[1] {
		t.Errorf("go.mod has Go %v, the Dockerfile %v", module, image)
	}
}

// TestImageHasAllOfTheBinary: what the binary imports of ours is let into the build, and no other folder is.
func TestImageHasAllOfTheBinary(t *testing.T) {
	t.Parallel()
	want := map[string]bool{"cmd": true, "go.mod": true, "go.sum": true}
	var add func(pkg string)
	seen := map[string]bool{}
	add = func(pkg string) {
		if seen[pkg] {
			return
		}
		seen[pkg] = true
		top, _, _ := strings.Cut(pkg, "/")
		want[top] = true
		for _, imported := range mayImport[pkg] {
			add(imported)
		}
	}
	add("cmd/stepwell")
	var got []string
	for line := range strings.Lines(text(t, ".dockerignore")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			got = append(got, name)
			if !want[name] {
				t.Errorf(".dockerignore lets %s in, which the binary does not need", name)
			}
		}
	}
	for name := range want {
		if !slices.Contains(got, name) {
			t.Errorf(".dockerignore keeps %s out", name)
		}
	}
}

// TestDeployHasNoGo: it is for those who run the server, by whatever means.
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

func text(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
