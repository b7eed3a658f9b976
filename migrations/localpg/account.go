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

// account is the user that Postgres runs as: the current one, or an unprivileged one if the current user is root.
type account struct {
	name     string
	uid, gid uint32
	drop     bool // this process is root and must drop privileges to the account
}

// accountFor returns the account for a server whose data folder is data, which need not exist.
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
			return userAccount(u)
		}
	}
	return account{}, fmt.Errorf("postgres refuses to run as root, and there is no user postgres or nobody to run it")
}

// userAccount returns the account of a user to drop privileges to.
func userAccount(u *user.User) (account, error) {
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

// chown makes the account the owner of a file.
func (a account) chown(path string) error {
	if !a.drop {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// procAttr makes a child run as the account, in a process group of its own: a Ctrl-C in the terminal stops the owner,
// and the owner then stops the server.
func (a account) procAttr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a.drop {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// blockedParent returns the topmost folder above dir that the account cannot enter, or "".
func (a account) blockedParent(dir string) string {
	if !a.drop {
		return ""
	}
	var blocked string
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		if info, err := os.Stat(parent); err == nil && !a.canEnter(info) {
			blocked = parent
		}
		if parent == filepath.Dir(parent) {
			return blocked
		}
	}
}

// canEnter reports whether the folder's mode lets the account enter it.
func (a account) canEnter(info fs.FileInfo) bool {
	switch owner, mode := ownerOf(info), info.Mode().Perm(); {
	case owner.Uid == a.uid:
		return mode&0o100 != 0
	case owner.Gid == a.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

// ownerOf returns the owning user and group of a file.
func ownerOf(info fs.FileInfo) *syscall.Stat_t {
	return info.Sys().(*syscall.Stat_t)
}
