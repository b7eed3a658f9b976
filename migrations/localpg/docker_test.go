package localpg

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeDocker creates a docker command that records its arguments. Images are missing until they are pulled.
func fakeDocker(t *testing.T) (docker, func() []string) {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
cd ` + dir + `
echo "$*" >> calls
case "$1 $2" in
"image inspect") test -e pulled ;;
"pull --quiet") touch pulled ;;
esac
`
	path := filepath.Join(dir, "docker")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return docker{path}, func() []string {
		calls, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(calls)), "\n")
	}
}

func TestDockerPullsOnceAndIsRecordedInFolder(t *testing.T) {
	t.Parallel()
	d, calls := fakeDocker(t)
	f := newFolder(t, 0)
	if err := os.Mkdir(f.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.prepare(t.Context(), f, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"image inspect postgres:17", "pull --quiet postgres:17", "image inspect postgres:17"}
	if diff := cmp.Diff(want, calls()); diff != "" {
		t.Errorf("docker was called differently (-want +got):\n%s", diff)
	}
	if !f.usesDocker() {
		t.Error("the folder does not record that its data is in Docker")
	}
	if _, err := emptyFinder().find(t.Context(), f); err == nil || err.Error() != "no daemon" {
		t.Errorf("without Docker, got error %v, want Docker's", err)
	}
}

func TestDockerCommand(t *testing.T) {
	t.Parallel()
	lasting := newFolder(t, 0)
	lasting.dir, lasting.password = "/var/lib/stepwell/postgres", "secret"
	temporary := &folder{dir: "/tmp/x", password: "secret", temporary: true}
	common := "run --rm --shm-size 128m --publish 127.0.0.1:5433:5432 --env POSTGRES_USER=stepwell " +
		"--env POSTGRES_PASSWORD --env POSTGRES_INITDB_ARGS=--encoding=UTF8 --locale=C "
	tests := []struct {
		name   string
		folder *folder
		want   string
	}{
		{"lasting", lasting, "--name stepwell-e2373a1d0a88 --volume stepwell-e2373a1d0a88:/var/lib/postgresql/data "},
		{"temporary", temporary, "--tmpfs /var/lib/postgresql/data "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd := docker{"/bin/docker"}.command(tt.folder, 5433, map[string]string{"b": "2", "a": "1"})
			got := strings.Join(cmd.Args[1:], " ")
			if diff := cmp.Diff(common+tt.want+"postgres:17 -c a=1 -c b=2", got); diff != "" {
				t.Errorf("arguments differ (-want +got):\n%s", diff)
			}
			if !slices.Contains(cmd.Env, "POSTGRES_PASSWORD=secret") {
				t.Error("the password is not in the environment")
			}
		})
	}
}
