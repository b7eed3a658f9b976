package localpg

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user who runs Postgres: ourselves, or for root somebody else.
type account struct {
	name     string
	uid, gid uint32
	drop     bool // we are root, and the server is to run as this user
}

// accountFor says who runs the server whose data is in the given folder, if it exists yet.
func accountFor(data string) (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}, nil
	}
	if info, err := os.Stat(data); err == nil && ownerOf(info).Uid != 0 {
		owner := ownerOf(info)
		return account{name: "#" + strconv.Itoa(int(owner.Uid)), uid: owner.Uid, gid: owner.Gid, drop: true}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			return unprivileged(u)
		}
	}
	return account{}, fmt.Errorf("postgres refuses to run as root, and there is no user postgres or nobody to run it")
}

// unprivileged is the account of a user we become.
func unprivileged(u *user.User) (account, error) {
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("read uid of %s: %w", u.Username, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("read gid of %s: %w", u.Username, err)
	}
	return account{name: u.Username, uid: uint32(uid), gid: uint32(gid), drop: true}, nil
}

// own gives a file to the account.
func (a account) own(path string) error {
	if !a.drop {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// procAttr makes a child run as the account, apart from the terminal's signals: the owner decides when the
// server stops, not a Ctrl-C that was meant for the owner.
func (a account) procAttr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a.drop {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// closedParent returns the first folder above dir that the account cannot pass, or "".
func (a account) closedParent(dir string) string {
	if !a.drop {
		return ""
	}
	var closed string
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		if info, err := os.Stat(parent); err == nil && !a.mayPass(info) {
			closed = parent
		}
		if parent == filepath.Dir(parent) {
			return closed
		}
	}
}

// mayPass reports whether the folder's mode lets the account go through it.
func (a account) mayPass(info fs.FileInfo) bool {
	switch owner, mode := ownerOf(info), info.Mode().Perm(); {
	case owner.Uid == a.uid:
		return mode&0o100 != 0
	case owner.Gid == a.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

// ownerOf is the owning user and group of a file.
func ownerOf(info fs.FileInfo) *syscall.Stat_t {
	return info.Sys().(*syscall.Stat_t)
}
