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

// Folder is a folder with npm packages. Packages and build output are made at most once, and only if their sources
// changed.
type Folder struct {
	Path string
	// Sources are the files and folders that the build depends on, relative to Path; empty if nothing is built.
	Sources []string

	once sync.Once
	err  error
}

// AppFolder returns the folder of an e2e app. Its sources include the World, which may be compiled in.
func AppFolder(path string) *Folder {
	return &Folder{Path: path, Sources: []string{"package.json", "package-lock.json", "../app/workflows",
		"../app/server.mjs", "../beta", "../../clients/world"}}
}

// Ready installs and builds the folder. A file lock protects it from concurrent processes.
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
	if err := f.rebuild(installed, []string{"package.json", "package-lock.json"}, "ci"); err != nil {
		return err
	}
	if f.Sources == nil {
		return nil
	}
	built := filepath.Join(".well-known", "workflow", "v1", "manifest.json")
	return f.rebuild(built, f.Sources, "run", "build")
}

// lock keeps tests of other packages out of the folder. The kernel releases it if this process dies.
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

// rebuild runs npm if the file is missing or older than its sources.
func (f *Folder) rebuild(file string, sources []string, npm ...string) error {
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
		return fmt.Errorf("npm %v in %s: %w\n%s", npm, f.Path, err, out)
	}
	now := time.Now()
	return os.Chtimes(filepath.Join(f.Path, file), now, now) // npm may not touch an unchanged file
}

// newest returns the latest modification time of the files, and of the files in the folders.
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
