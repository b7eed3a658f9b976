package localpg

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errLocked reports that another process holds the lock.
var errLocked = errors.New("locked by another process")

// tryLock opens the file, creating it if needed, and takes its lock without waiting. The lock is held until every copy
// of the open file is closed, in this process and in children that inherited it.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // a name inside our own folder
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, err
	}
	return f, nil
}

// lockFolder opens the folder and waits for its lock.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.Open(dir) //nolint:gosec // our own folder
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EINTR) {
			_ = f.Close()
			return nil, err
		}
	}
}

// alive reports whether a process with this ID exists, of any user.
func alive(pid int) bool {
	err := unix.Kill(pid, 0)
	return err == nil || errors.Is(err, unix.EPERM)
}
