package localpg

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// rootDir is root's folder for the database. The account that runs the server cannot enter root's home.
const rootDir = "/var/lib/stepwell"

// DefaultDir returns the default folder of a lasting database: in the user's data folder, or for root in
// /var/lib/stepwell.
func DefaultDir() (string, error) {
	if os.Geteuid() == 0 {
		return filepath.Join(rootDir, "postgres"), nil
	}
	if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "stepwell", "postgres"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find data folder: %w", err)
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "stepwell", "postgres"), nil
	}
	return filepath.Join(home, ".local", "share", "stepwell", "postgres"), nil
}

// folder is a locked folder with the data of one server.
type folder struct {
	dir       string
	account   account
	temporary bool     // close removes the folder
	password  string   // of the superuser
	owner     *os.File // owner.lock, held by this process
	server    *os.File // server.lock, inherited by the server; nil once this process has released its copy
}

// data is Postgres's data folder.
func (f *folder) data() string { return filepath.Join(f.dir, "data") }

// openFolder creates dir if needed and locks it. An empty dir means a new temporary folder.
func openFolder(ctx context.Context, dir string) (*folder, error) {
	if dir == "" {
		return openTemporary(ctx)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find data folder: %w", err)
	}
	f := &folder{dir: dir}
	if f.account, err = accountFor(f.data()); err != nil {
		return nil, err
	}
	if parent := f.account.blockedParent(dir); parent != "" {
		return nil, fmt.Errorf("user %s, who runs Postgres for root, may not enter %s and so cannot reach data folder %s: "+
			"choose a folder elsewhere, for example %s", f.account.name, parent, dir, rootDir)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // parents, not dir
		return nil, fmt.Errorf("create data folder: %w", err)
	}
	if err := f.claim(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// claim creates the folder if needed, takes both locks, and makes the account its owner.
func (f *folder) claim(ctx context.Context) error {
	if err := os.Mkdir(f.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create data folder: %w", err)
	}
	if err := f.rejectForeignFiles(); err != nil {
		return err
	}
	if err := f.lock(ctx); err != nil {
		f.unlock()
		return err
	}
	if err := f.account.chown(f.dir); err != nil {
		f.unlock()
		return fmt.Errorf("give data folder to %s: %w", f.account.name, err)
	}
	return nil
}

// rejectForeignFiles returns an error if the folder has other files than ours, before we change anything in it.
func (f *folder) rejectForeignFiles() error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return fmt.Errorf("read data folder: %w", err)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "owner.lock")); err != nil && len(entries) > 0 {
		return fmt.Errorf("folder %s holds other files: choose an empty or a new folder for the database", f.dir)
	}
	return nil
}

// lock takes the owner's lock, or fails at once. It then waits for the server of a dead owner to end.
func (f *folder) lock(ctx context.Context) (err error) {
	if f.owner, err = tryLock(filepath.Join(f.dir, "owner.lock")); errors.Is(err, errLocked) {
		return f.errInUse()
	} else if err != nil {
		return fmt.Errorf("lock data folder: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	err = poll(ctx, func(context.Context) (bool, error) {
		var err error
		if f.server, err = tryLock(filepath.Join(f.dir, "server.lock")); errors.Is(err, errLocked) {
			return false, nil
		}
		return true, err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return f.errInUse()
	}
	if err != nil {
		return fmt.Errorf("lock data folder: %w", err)
	}
	return f.rejectUnlockedServer()
}

// errInUse is the error if a running server uses the folder.
func (f *folder) errInUse() error {
	return fmt.Errorf("data folder %s is in use by a running server: stop that one or choose another folder", f.dir)
}

// unlock releases the locks that this process holds.
func (f *folder) unlock() {
	for _, l := range []*os.File{f.server, f.owner} {
		if l != nil {
			_ = l.Close() // closing releases the lock
		}
	}
	f.server, f.owner = nil, nil
}

// close removes a temporary folder, then unlocks it.
func (f *folder) close() error {
	defer f.unlock()
	if !f.temporary {
		return nil
	}
	return removeTemporary(f.dir)
}

// loadPassword reads the folder's password, or creates one in a new folder.
func (f *folder) loadPassword() error {
	path := filepath.Join(f.dir, "password")
	kept, err := os.ReadFile(path) //nolint:gosec // our own folder
	if err == nil {
		f.password = strings.TrimSpace(string(kept))
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read database password: %w", err)
	}
	f.password = rand.Text()
	return f.writeSecret(path, f.password)
}

// writeVerifier writes what initdb is to store of the password into a file, and returns its path.
func (f *folder) writeVerifier() (path string, err error) {
	text, err := verifier(f.password)
	if err != nil {
		return "", err
	}
	path = filepath.Join(f.dir, "verifier")
	return path, f.writeSecret(path, text)
}

// writeSecret writes a line into a file that only the account can read.
func (f *folder) writeSecret(path, line string) error {
	if err := os.WriteFile(path, []byte(line+"\n"), 0o600); err != nil {
		return fmt.Errorf("write database password: %w", err)
	}
	if err := f.account.chown(path); err != nil {
		return fmt.Errorf("write database password: %w", err)
	}
	return nil
}

// releaseServerLock closes our copy of the server's lock. From now on the lock is free once the server has ended.
func (f *folder) releaseServerLock() {
	_ = f.server.Close() // the server holds its own copy
	f.server = nil
}

// major returns the major version that wrote the data, or 0 if there is no data.
func (f *folder) major() (int, error) {
	text, err := os.ReadFile(filepath.Join(f.data(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read data version: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read data version: %w", err)
	}
	return major, nil
}

// poll calls ready until it returns true or an error, or the context ends.
func poll(ctx context.Context, ready func(context.Context) (bool, error)) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := ready(ctx); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
