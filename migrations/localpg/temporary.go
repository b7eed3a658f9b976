package localpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// openTemporary creates and locks a new folder in the base folder of temporary clusters, after removing those whose
// owner and server are dead. The base folder's lock keeps a sweep from removing a folder that another process has
// created and not yet locked.
func openTemporary(ctx context.Context) (*folder, error) {
	acct, err := accountFor("")
	if err != nil {
		return nil, err
	}
	base, err := temporaryBase(acct)
	if err != nil {
		return nil, err
	}
	lock, err := lockFolder(base)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", base, err)
	}
	defer func() { _ = lock.Close() }()
	if err := sweep(base); err != nil {
		return nil, fmt.Errorf("sweep %s: %w", base, err)
	}
	dir, err := os.MkdirTemp(base, "")
	if err != nil {
		return nil, fmt.Errorf("create data folder: %w", err)
	}
	f := &folder{dir: dir, account: acct, temporary: true}
	if err := f.claim(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return f, nil
}

// temporaryBase returns this user's base folder of temporary clusters, and creates it if needed. The server's account
// can reach it. It must be owned by the current user, because others may write to the folder above it.
func temporaryBase(acct account) (string, error) {
	base := filepath.Join(temporaryParent(), "stepwell-postgres-"+strconv.Itoa(os.Geteuid()))
	if acct.blockedParent(base) != "" {
		base = filepath.Join("/tmp", filepath.Base(base))
	}
	if err := os.Mkdir(base, 0o711); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // the account enters it
		return "", fmt.Errorf("create %s: %w", base, err)
	}
	info, err := os.Lstat(base)
	if err != nil {
		return "", fmt.Errorf("create %s: %w", base, err)
	}
	if !info.IsDir() || int(ownerOf(info).Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s belongs to another user: remove it", base)
	}
	return base, nil
}

// temporaryParent returns TMPDIR if set, else /dev/shm if it has at least 2 GiB (containers have 64 MB, too small for a
// cluster), else the usual temporary folder. In memory, cloning a database takes 5 ms; ext4 takes 100 ms to create the
// same files after others have been deleted.
func temporaryParent() string {
	const memory, minSize = "/dev/shm", 2 << 30
	var fs unix.Statfs_t
	if os.Getenv("TMPDIR") == "" && unix.Statfs(memory, &fs) == nil &&
		uint64(fs.Blocks)*uint64(fs.Bsize) >= minSize { //nolint:unconvert // their types differ between systems
		return memory
	}
	return os.TempDir()
}

// removeTemporary removes a folder. It holds the base folder's lock, because a sweep would create new lock files in a
// half-removed folder.
func removeTemporary(dir string) error {
	lock, err := lockFolder(filepath.Dir(dir))
	if err != nil {
		return fmt.Errorf("lock %s: %w", filepath.Dir(dir), err)
	}
	defer func() { _ = lock.Close() }()
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove data folder: %w", err)
	}
	return nil
}

// sweep removes the folders in base that no process uses.
func sweep(base string) error {
	entries, err := os.ReadDir(base)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := sweepOne(filepath.Join(base, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// sweepOne removes the folder if both its locks are free.
func sweepOne(dir string) error {
	for _, name := range []string{"owner.lock", "server.lock"} {
		lock, err := tryLock(filepath.Join(dir, name))
		if errors.Is(err, errLocked) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer func() { _ = lock.Close() }()
	}
	return os.RemoveAll(dir)
}
