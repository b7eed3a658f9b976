package tools

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// folder is one of npm packages, which is made ready once, unless that has been done since its files changed.
type folder struct {
	path string
	// sources are what its program is built from, seen from it; none if nothing is built.
	sources []string

	once sync.Once
	err  error
}

// suite is the folder of the conformance suite. It also brings a Node that is new enough for everything here.
var suite = &folder{path: "conformance"}

// ready makes the folder ready, in which no other process may be at the same time.
func (f *folder) ready(t *testing.T) {
	t.Helper()
	f.once.Do(func() { f.err = f.install() })
	if f.err != nil {
		t.Fatal(f.err)
	}
}

func (f *folder) install() error {
	unlock, err := lock(f.path)
	if err != nil {
		return err
	}
	defer unlock()
	installed := filepath.Join("node_modules", ".package-lock.json")
	if err := f.remake(installed, []string{"package.json", "package-lock.json"}, "ci"); err != nil {
		return err
	}
	if f.sources == nil {
		return nil
	}
	built := filepath.Join(".well-known", "workflow", "v1", "manifest.json")
	return f.remake(built, f.sources, "run", "build")
}

// lock keeps others who ask for it out of a folder. It ends with us at the latest.
func lock(path string) (unlock func(), err error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lock folder: %w", err)
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = dir.Close() }, nil
}

// remake lets npm make a file of the folder again if it is missing, or older than what it is made from.
func (f *folder) remake(file string, sources []string, npm ...string) error {
	made, err := os.Stat(filepath.Join(f.path, file))
	if err == nil {
		newest, err := f.newest(sources)
		if err != nil {
			return err
		}
		if !newest.After(made.ModTime()) {
			return nil
		}
	}
	cmd := exec.Command("npm", npm...)
	cmd.Dir, cmd.Env = f.path, cleanEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s is not ready, and npm %v there says: %w\n%s", f.path, npm, err, out)
	}
	now := time.Now()
	return os.Chtimes(filepath.Join(f.path, file), now, now) // npm may leave it as it was
}

// newest is when any of the files, or of those in the folders, changed last.
func (f *folder) newest(paths []string) (newest time.Time, err error) {
	for _, path := range paths {
		err := filepath.WalkDir(filepath.Join(f.path, path), func(_ string, entry fs.DirEntry, err error) error {
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
			return newest, fmt.Errorf("look at %s: %w", f.path, err)
		}
	}
	return newest, nil
}

// node is a Node that is new enough for everything here.
type node struct {
	program string
	path    string // a PATH on which it comes first
}

// newNode is the suite's own Node, or else that of the machine.
func newNode(t *testing.T) node {
	t.Helper()
	suite.ready(t)
	bin, err := filepath.Abs(filepath.Join(suite.path, "node_modules", ".bin"))
	if err != nil {
		t.Fatal(err)
	}
	own := node{filepath.Join(bin, "node"), bin + string(filepath.ListSeparator) + os.Getenv("PATH")}
	if _, err := os.Stat(own.program); err == nil {
		return own
	}
	if err := checkNode(); err != nil {
		t.Fatal(err)
	}
	return node{"node", os.Getenv("PATH")}
}

// env is the environment of what runs on it.
func (n node) env(more ...string) []string {
	// The tools are short, and spend most of their time on being compiled.
	cache := "NODE_COMPILE_CACHE=" + filepath.Join(workDir, "node")
	return cleanEnv(append([]string{"PATH=" + n.path, cache, "WORKFLOW_NO_UPDATE_CHECK=1"}, more...)...)
}

var nodeVersion = regexp.MustCompile(`^v(\d+)\.(\d+)\.`)

// checkNode looks at the machine's own Node. The dashboards and the suite need 22.5.
var checkNode = sync.OnceValue(func() error {
	out, err := exec.Command("node", "--version").Output()
	if err != nil {
		return fmt.Errorf("node --version: %w", err)
	}
	found := nodeVersion.FindSubmatch(out)
	if found == nil {
		return fmt.Errorf("node --version says %q", out)
	}
	major, _ := strconv.Atoi(string(found[1])) // they are digits
	minor, _ := strconv.Atoi(string(found[2]))
	if major < 22 || major == 22 && minor < 5 {
		return fmt.Errorf("the SDK's dashboards need Node 22.5 or newer; install it (here is %s)", out)
	}
	return nil
})
