package stepwell_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestGuidesAreTheAppsThatAreTested: each block of docs/frameworks.md whose file is named is that file of an app that
// make frameworks runs, each file of those apps is in the page, and so is each of their packages with its version.
func TestGuidesAreTheAppsThatAreTested(t *testing.T) {
	t.Parallel()
	const page, apps = "docs/frameworks.md", "e2e/frameworks/"
	content := text(t, page)
	block := regexp.MustCompile("(\\[`[^`]+`\\]\\(\\.\\./e2e/frameworks/([^)]+)\\):\n\n```\\w+\n)(?s:.*?)```")
	want := block.ReplaceAllStringFunc(content, func(old string) string {
		m := block.FindStringSubmatch(old)
		return m[1] + text(t, apps+m[2]) + "```"
	})
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if content != want {
		t.Errorf("%s differs from the files of the apps: rewrite it with go test . -update", page)
	}
	for _, app := range []string{"express", "hono", "fastify", "vite", "nuxt", "astro", "nest"} {
		for _, file := range filesUnder(t, apps+app) {
			if path.Base(file) != "package.json" && !strings.Contains(want, "(../"+file+"):\n\n```") {
				t.Errorf("%s does not have %s", page, file)
			}
		}
		var manifest struct{ Dependencies, DevDependencies map[string]string }
		if err := json.Unmarshal([]byte(text(t, apps+app+"/package.json")), &manifest); err != nil {
			t.Fatal(err)
		}
		delete(manifest.Dependencies, "workflow") // each of its lines is installed
		for _, dependencies := range []map[string]string{manifest.Dependencies, manifest.DevDependencies} {
			for name, version := range dependencies {
				if !strings.Contains(want, " "+name+"@"+version) {
					t.Errorf("%s does not install %s@%s for %s", page, name, version, app)
				}
			}
		}
	}
}

// filesUnder are the files in a folder and its folders.
func filesUnder(t *testing.T, folder string) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS("."), folder, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
