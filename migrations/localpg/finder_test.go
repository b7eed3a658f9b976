package localpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakePrograms creates a folder with a postgres that reports the version and an initdb that fails.
func fakePrograms(t *testing.T, dir, version string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"postgres": "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n",
		"initdb":   "#!/bin/sh\necho cannot initialise >&2\nexit 3\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// emptyFinder is a finder that finds nothing.
func emptyFinder() finder {
	return finder{
		download: func(context.Context) (string, error) { return "", errors.New("no network") },
	}
}

// newFolder returns a folder with data of the major version, or without data if major is 0.
func newFolder(t *testing.T, major int) *folder {
	t.Helper()
	dir := newDir(t)
	acct, err := accountFor(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := &folder{dir: dir, account: acct}
	if major == 0 {
		return f
	}
	if err := os.MkdirAll(f.data(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.data(), "PG_VERSION"), fmt.Appendln(nil, major), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFinderTakesFirstSuitablePostgres(t *testing.T) {
	t.Parallel()
	root := filepath.Dir(newDir(t))
	path := fakePrograms(t, filepath.Join(root, "path"), "15.14 (Debian 15.14-1)")
	stale := fakePrograms(t, filepath.Join(root, "stale"), "9.6.1")
	half := filepath.Join(root, "half")
	if err := os.MkdirAll(half, 0o755); err != nil {
		t.Fatal(err)
	}
	fakePrograms(t, filepath.Join(root, "packages", "9", "bin"), "14.2")
	newest := fakePrograms(t, filepath.Join(root, "packages", "17", "bin"), "18beta1")
	packages := []string{filepath.Join(root, "packages", "*", "bin")}
	loaded := fakePrograms(t, filepath.Join(root, "loaded"), "17.5")

	loads := func(context.Context) (string, error) { return loaded, nil }
	tests := []struct {
		name   string
		finder finder
		major  int
		want   programs
	}{
		{"PATH first", finder{[]string{"", half, path}, packages, loads, false}, 0, programs{path, 15}},
		{"skips old versions", finder{[]string{stale, path}, packages, loads, false}, 0, programs{path, 15}},
		{"newest package", finder{nil, packages, loads, false}, 0, programs{newest, 18}},
		{"installed only", finder{nil, packages, loads, true}, 0, programs{newest, 18}},
		{"download last", finder{[]string{stale}, nil, loads, false}, 0, programs{loaded, 17}},
		{"same major version as the data", finder{[]string{path}, packages, loads, false}, 18, programs{newest, 18}},
		{"download for its own version", finder{nil, nil, loads, false}, 17, programs{loaded, 17}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.finder.find(t.Context(), newFolder(t, tt.major))
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestInstalledOnlyDownloadsNothing(t *testing.T) {
	t.Parallel()
	fd := finder{
		download:      func(context.Context) (string, error) { t.Error("the finder downloaded programs"); return "", nil },
		installedOnly: true,
	}
	_, err := fd.find(t.Context(), newFolder(t, 0))
	_ = wantError[*MissingError](t, err)
}

func TestVersionErrorNamesVersionsFound(t *testing.T) {
	t.Parallel()
	root := filepath.Dir(newDir(t))
	fd := emptyFinder()
	fd.path = []string{fakePrograms(t, filepath.Join(root, "bin"), "15.14")}
	f := newFolder(t, 16)
	_, err := fd.find(t.Context(), f)
	want := "data folder " + f.dir + " was written by Postgres 16, and only that version can open it " +
		"(found: Postgres 15 in " + fd.path[0] + "): install Postgres 16, or choose another folder"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestMissingPostgresErrorSaysWhatToInstall(t *testing.T) {
	t.Parallel()
	root := filepath.Dir(newDir(t))
	fd := emptyFinder()
	fd.packages = []string{filepath.Join(root, "*", "bin")}
	dir := newDir(t)
	_, err := start(t.Context(), Options{Dir: dir}, fd)
	got := strings.ReplaceAll(wantError[*MissingError](t, err).Error(), root, "ROOT")
	want, err := os.ReadFile("testdata/missing.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
		t.Errorf("the message differs (-want +got):\n%s", diff)
	}
	f, err := openFolder(t.Context(), dir)
	if err != nil {
		t.Fatalf("the failed start has not released its folder: %v", err)
	}
	_ = f.close()
}

func TestFailedInitdbReportsOutputAndLeavesNoData(t *testing.T) {
	t.Parallel()
	fd := emptyFinder()
	fd.path = []string{fakePrograms(t, filepath.Join(filepath.Dir(newDir(t)), "bin"), "15.14")}
	dir := newDir(t)
	_, err := start(t.Context(), Options{Dir: dir}, fd)
	e := wantError[*ExitError](t, err)
	if e.Program != "initdb" || e.Status != "exit status 3" || e.Log != "cannot initialise" {
		t.Errorf("got %+v", e)
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); !os.IsNotExist(err) {
		t.Error("the data folder exists")
	}
}
