package harness

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

// Folder is one of npm packages, which is made ready once, unless that has been done since its files changed.
type Folder struct {
	Path string
	// Sources are what its program is built from, seen from it; none if nothing is built.
	Sources []string

	once sync.Once
	err  error
}

// AppFolder is the folder of an app of the e2e tests. The World is among its sources because it may be compiled in.
func AppFolder(path string) *Folder {
	return &Folder{Path: path, Sources: []string{"package.json", "package-lock.json", "../app/workflows",
		"../app/server.mjs", "../beta", "../../clients/world"}}
}

// Ready makes the folder ready, in which no other process may be at the same time.
func (f *Folder) Ready() error {
	f.once.Do(func() { f.err = f.install() })
	return f.err
}

func (f *Folder) install() error {
	unlock, err := f.lock()
	if err != nil {
		return err
	}
	defer unlock()
	installed := filepath.Join("node_modules", ".package-lock.json")
	if err := f.remake(installed, []string{"package.json", "package-lock.json"}, "ci"); err != nil {
		return err
	}
	if f.Sources == nil {
		return nil
	}
	built := filepath.Join(".well-known", "workflow", "v1", "manifest.json")
	return f.remake(built, f.Sources, "run", "build")
}

// lock keeps the tests of other packages out of the folder. It ends with us at the latest.
func (f *Folder) lock() (unlock func(), err error) {
	dir, err := os.Open(f.Path)
	if err != nil {
		return nil, fmt.Errorf("lock folder: %w", err)
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Path, err)
	}
	return func() { _ = dir.Close() }, nil
}

// remake lets npm make a file of the folder again if it is missing, or older than what it is made from.
func (f *Folder) remake(file string, sources []string, npm ...string) error {
	made, err := os.Stat(filepath.Join(f.Path, file))
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
	cmd.Dir, cmd.Env = f.Path, CleanEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s is not ready, and npm %v there says: %w\n%s", f.Path, npm, err, out)
	}
	now := time.Now()
	return os.Chtimes(filepath.Join(f.Path, file), now, now) // npm may leave it as it was
}

// newest is when any of the files, or of those in the folders, changed last.
func (f *Folder) newest(paths []string) (newest time.Time, err error) {
	for _, path := range paths {
		err := filepath.WalkDir(filepath.Join(f.Path, path), func(_ string, entry fs.DirEntry, err error) error {
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
			return newest, fmt.Errorf("look at %s: %w", f.Path, err)
		}
	}
	return newest, nil
}
