package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRelease makes the release of the commit that is checked out, twice, which must give the same bytes, and tries what
// is in it as the people would who install it.
func TestRelease(t *testing.T) {
	t.Parallel()
	version := currentVersion(t)
	r := release{source: source{version: version}, out: filepath.Join(t.TempDir(), "first")}
	makeRelease(t, version, r.out)
	t.Run("the same bytes", func(t *testing.T) {
		again := filepath.Join(t.TempDir(), "second")
		makeRelease(t, version, again)
		wantSame(t, r.out, again)
	})
	t.Run("checksums", func(t *testing.T) { want(t, "", r.out, nil, "sha256sum", "--check", "--quiet", "SHA256SUMS") })
	t.Run("archive", func(t *testing.T) { tryArchive(t, r) })
	t.Run("image", func(t *testing.T) { tryImage(t, r) })
	t.Run("packages", func(t *testing.T) { tryPackages(t, r) })
	t.Run("npm", func(t *testing.T) { tryNPM(t, r) })
	t.Run("Python", func(t *testing.T) { tryPython(t, r) })
	t.Run("Go modules", func(t *testing.T) { tryModules(t, r) })
}

// currentVersion is that in the files of the repository.
func currentVersion(t *testing.T) string {
	t.Helper()
	number, err := output(t.Context(), "../clients/world", nil, "node", "-p", "require('./package.json').version")
	if err != nil {
		t.Fatal(err)
	}
	return "v" + number
}

func makeRelease(t *testing.T, version, out string) {
	t.Helper()
	began := time.Now()
	if err := writeRelease(t.Context(), version, out); err != nil {
		t.Fatal(err)
	}
	t.Logf("made in %s", time.Since(began).Round(time.Second))
}

// want executes a command, which must succeed and print a text.
func want(t *testing.T, text, folder string, env []string, name string, args ...string) {
	t.Helper()
	out, err := output(t.Context(), folder, env, name, args...)
	if err != nil || !strings.Contains(out, text) {
		t.Errorf("%s %q: got %q (%v), want %q in it", name, args, out, err, text)
	}
}

// wantSame compares the files of two folders.
func wantSame(t *testing.T, a, b string) {
	t.Helper()
	files, err := os.ReadDir(a)
	if err != nil || len(files) < 15 {
		t.Fatalf("found %d files (%v)", len(files), err)
	}
	for _, f := range files {
		one, err := hash(filepath.Join(a, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		other, err := hash(filepath.Join(b, f.Name()))
		if err != nil || !bytes.Equal(one, other) {
			t.Errorf("%s differs (%v)", f.Name(), err)
		}
	}
}

// tryArchive unpacks that of this machine, whose binary says what it is.
func tryArchive(t *testing.T, r release) {
	folder := t.TempDir()
	want(t, "", folder, nil, "tar", "-xf", r.file("_linux_amd64.tar.gz"))
	want(t, "stepwell "+r.version+", commit "+head(t), folder, nil, "./stepwell", "version")
	text, err := os.ReadFile(filepath.Join(folder, "THIRD_PARTY_LICENSES"))
	if err != nil || !strings.Contains(string(text), "github.com/jackc/pgx/v5") || !strings.Contains(string(text), "preact") {
		t.Errorf("the licences are %d bytes (%v), without those of pgx or preact", len(text), err)
	}
}

func head(t *testing.T) string {
	t.Helper()
	commit, err := output(t.Context(), "..", nil, "git", "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	return commit
}

// tryPackages unpacks the package for Debian. What it has but the binary is tried by those who read it: bash, man,
// systemd.
func tryPackages(t *testing.T, r release) {
	folder := t.TempDir()
	want(t, "", folder, nil, "dpkg-deb", "--extract", r.file("_linux_amd64.deb"), folder)
	want(t, r.number(), folder, nil, "dpkg-deb", "--field", r.file("_linux_amd64.deb"), "Version")
	want(t, "arm64", folder, nil, "dpkg-deb", "--field", r.file("_linux_arm64.deb"), "Architecture")
	want(t, r.version, folder, nil, "./usr/bin/stepwell", "version")
	want(t, "complete -o default -F _stepwell stepwell", folder, nil, "bash", "-c",
		"source usr/share/bash-completion/completions/stepwell && complete -p stepwell")
	want(t, "600 ./etc/stepwell/stepwell.env", folder, nil, "stat", "-c", "%a %n", "./etc/stepwell/stepwell.env")
	for _, name := range []string{
		"lib/systemd/system/stepwell.service", "share/man/man1/stepwell.1.gz", "share/zsh/vendor-completions/_stepwell",
		"share/fish/vendor_completions.d/stepwell.fish", "share/doc/stepwell/copyright",
	} {
		if _, err := os.Stat(filepath.Join(folder, "usr", name)); err != nil {
			t.Error(err)
		}
	}
}

// tryNPM installs the package in an empty app.
func tryNPM(t *testing.T, r release) {
	folder := t.TempDir()
	if err := writeAll(folder, map[string]string{"package.json": `{"private": true, "type": "module"}`}); err != nil {
		t.Fatal(err)
	}
	packed := filepath.Join(r.out, "stepwell-world-"+r.number()+".tgz")
	want(t, "", folder, nil, "npm", "install", "--no-audit", "--no-fund", "--omit=optional", packed)
	want(t, r.number(), folder, nil, "node", "-p", "require('@stepwell/world/package.json').version")
	want(t, "function", folder, nil, "node", "--input-type=module", "-e",
		"import * as world from '@stepwell/world'; console.log(Object.values(world).map(v => typeof v).join())")
}

// tryPython installs both packages, each in an environment of its own, and imports them.
func tryPython(t *testing.T, r release) {
	python, err := findPython(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"stepwell-" + r.number() + "-py3-none-any.whl", "stepwell-" + r.number() + ".tar.gz"} {
		folder := t.TempDir()
		want(t, "", folder, nil, python, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps",
			"--disable-pip-version-check", "--target", filepath.Join(folder, "site"), filepath.Join(r.out, name))
		want(t, r.number(), folder, []string{"PYTHONPATH=" + filepath.Join(folder, "site")}, python, "-c",
			"import stepwell, stepwell.testing, importlib.metadata as m; print(m.version('stepwell'))")
	}
}

func TestVersionsAreSemantic(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "0.1.0", "v0.1", "v0.1.0 ", "latest"} {
		if _, err := checkOut(context.Background(), "..", version, t.TempDir()); err == nil || !strings.Contains(err.Error(), "make release") {
			t.Errorf("%q: got %v", version, err)
		}
	}
}
