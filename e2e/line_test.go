package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// line is a line of the SDK: the same app on other packages. What only the 5.x line has is in folder beta.
type line struct {
	name string
	dir  string
	// spec is the version that the World announces, and that runs carry.
	spec int
	// otherBuild is a folder with a build that has another World compiled in, where the line compiles it in.
	otherBuild string

	prepare func() error
}

var (
	stable = newLine(line{name: "stable", dir: "app", spec: 3})
	beta35 = newLine(line{name: "beta35", dir: "beta35", spec: 5, otherBuild: "./other-world"})
	beta55 = newLine(line{name: "beta55", dir: "beta55", spec: 7})

	lines = []*line{stable, beta35, beta55}
)

// later says that the line has all that came with another.
func (l *line) later(than *line) bool { return l.spec >= than.spec }

// named makes a name that no other line uses: all share one server.
func (l *line) named(name string) string { return name + "-" + l.name }

// newLine installs and builds its app, once, unless that has been done since the files last changed.
func newLine(l line) *line {
	l.prepare = sync.OnceValue(func() error {
		unlock, err := l.lock()
		if err != nil {
			return err
		}
		defer unlock()
		installed := filepath.Join("node_modules", ".package-lock.json")
		built := filepath.Join(".well-known", "workflow", "v1", "manifest.json")
		if err := l.remake(installed, []string{"package.json", "package-lock.json"}, "ci"); err != nil {
			return err
		}
		// The World is among the sources because it may be compiled in.
		sources := []string{"package.json", "package-lock.json", "../app/workflows", "../app/server.mjs", "../beta",
			"../../clients/world"}
		return l.remake(built, sources, "run", "build")
	})
	return &l
}

// lock keeps package tools out of the folder, which makes it ready, too, when both are tested at once.
func (l *line) lock() (unlock func(), err error) {
	dir, err := os.Open(l.dir)
	if err != nil {
		return nil, fmt.Errorf("lock folder: %w", err)
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("lock %s: %w", l.dir, err)
	}
	return func() { _ = dir.Close() }, nil
}

// remake lets npm make a file of the app again if it is missing, or older than what it is made from.
func (l *line) remake(file string, sources []string, npm ...string) error {
	made, err := os.Stat(filepath.Join(l.dir, file))
	if err == nil {
		newest, err := l.newestOf(sources)
		if err != nil {
			return err
		}
		if !newest.After(made.ModTime()) {
			return nil
		}
	}
	cmd := exec.Command("npm", npm...)
	cmd.Dir, cmd.Env = l.dir, cleanEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("e2e/%s is not ready, and npm %v there says: %w\n%s", l.dir, npm, err, out)
	}
	return nil
}

// newestOf is when any of the app's files or folders changed last.
func (l *line) newestOf(paths []string) (newest time.Time, err error) {
	for _, path := range paths {
		err := filepath.WalkDir(filepath.Join(l.dir, path), func(_ string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err == nil && info.ModTime().After(newest) {
				newest = info.ModTime()
			}
			return err
		})
		if err != nil {
			return newest, fmt.Errorf("look at the app: %w", err)
		}
	}
	return newest, nil
}
