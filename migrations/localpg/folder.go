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

// rootDir is where root keeps the database: its home is closed to the user who runs the server.
const rootDir = "/var/lib/stepwell"

// DefaultDir is the folder for a user's lasting database: below the user's data folder, and for root
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

// folder is a locked folder with all that belongs to one server.
type folder struct {
	dir       string
	account   account
	temporary bool     // to be removed when closed
	secret    string   // the superuser's password
	owner     *os.File // owner.lock, held by this process
	server    *os.File // server.lock, inherited by the server; nil once it was handed over
}

// data is Postgres's own folder.
func (f *folder) data() string { return filepath.Join(f.dir, "data") }

// openFolder makes dir ready for a server and locks it; an empty dir means a new temporary one.
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
	if parent := f.account.closedParent(dir); parent != "" {
		return nil, &UnreachableError{Dir: dir, Parent: parent, User: f.account.name}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // parents, not dir
		return nil, fmt.Errorf("create data folder: %w", err)
	}
	if err := f.claim(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// claim creates the folder if needed, gives it to the account, and takes both locks.
func (f *folder) claim(ctx context.Context) error {
	if err := os.Mkdir(f.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create data folder: %w", err)
	}
	if err := f.refuseForeign(); err != nil {
		return err
	}
	if err := f.lock(ctx); err != nil {
		f.unlock()
		return err
	}
	if err := f.account.own(f.dir); err != nil {
		f.unlock()
		return fmt.Errorf("give data folder to %s: %w", f.account.name, err)
	}
	return nil
}

// refuseForeign fails for a folder with files of somebody else, before anything in it is touched.
func (f *folder) refuseForeign() error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return fmt.Errorf("read data folder: %w", err)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "owner.lock")); err != nil && len(entries) > 0 {
		return &ForeignFolderError{Dir: f.dir}
	}
	return nil
}

// lock takes the owner's lock at once or fails, then waits for the server of a dead owner to be gone.
func (f *folder) lock(ctx context.Context) (err error) {
	if f.owner, err = tryLock(filepath.Join(f.dir, "owner.lock")); errors.Is(err, errLocked) {
		return &InUseError{Dir: f.dir}
	} else if err != nil {
		return fmt.Errorf("lock data folder: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	err = poll(ctx, func(context.Context) (bool, error) {
		f.server, err = tryLock(filepath.Join(f.dir, "server.lock"))
		return err == nil, retryable(err)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return &InUseError{Dir: f.dir}
	}
	if err != nil {
		return fmt.Errorf("lock data folder: %w", err)
	}
	return f.refuseStranger()
}

// retryable is nil for the one lock error that time cures.
func retryable(err error) error {
	if errors.Is(err, errLocked) {
		return nil
	}
	return err
}

// unlock gives up the locks this process still holds.
func (f *folder) unlock() {
	for _, l := range []*os.File{f.server, f.owner} {
		if l != nil {
			_ = l.Close() // closing releases the lock and cannot fail otherwise
		}
	}
	f.server, f.owner = nil, nil
}

// close unlocks the folder, and removes a temporary one first.
func (f *folder) close() error {
	defer f.unlock()
	if !f.temporary {
		return nil
	}
	return removeTemporary(f.dir)
}

// loadSecret reads the folder's password, and makes one in a new folder.
func (f *folder) loadSecret() error {
	path := filepath.Join(f.dir, "password")
	kept, err := os.ReadFile(path) //nolint:gosec // our own folder
	if err == nil {
		f.secret = strings.TrimSpace(string(kept))
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read database password: %w", err)
	}
	f.secret = rand.Text()
	if err := os.WriteFile(path, []byte(f.secret+"\n"), 0o600); err != nil {
		return fmt.Errorf("write database password: %w", err)
	}
	if err := f.account.own(path); err != nil {
		return fmt.Errorf("write database password: %w", err)
	}
	return nil
}

// handOver gives up our copy of the server's lock: from now on it is free when the server is gone.
func (f *folder) handOver() {
	_ = f.server.Close() // the server has its own copy
	f.server = nil
}

// major is the Postgres version that wrote the data, 0 when there is none yet.
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

// poll calls ready until it says true or fails, or the context ends.
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
