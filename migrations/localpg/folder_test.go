package localpg

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// writePostmasterPID writes a postmaster.pid into the folder of a stopped server.
func writePostmasterPID(t *testing.T, dir string, pid, port int) {
	t.Helper()
	text := fmt.Sprintf("%d\n%s\n1763000000\n%d\n\n127.0.0.1\n  1234567    65536\nready   \n", pid, dir, port)
	path := filepath.Join(dir, "data", "postmaster.pid")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	acct, err := accountFor(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	if err := acct.chown(path); err != nil {
		t.Fatal(err)
	}
}

// stoppedServer returns the folder of a server that has run and was stopped.
func stoppedServer(t *testing.T) string {
	t.Helper()
	s := mustStart(t, Options{Dir: newDir(t)})
	mustStop(t, s)
	return s.folder.dir
}

// otherPID returns the ID of a running process of the server's user that is not Postgres.
func otherPID(t *testing.T, dir string) int {
	t.Helper()
	acct, err := accountFor(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	cmd.Dir, cmd.SysProcAttr = "/", acct.procAttr()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

func TestStalePostmasterPIDIsRemoved(t *testing.T) {
	t.Parallel()
	dir := stoppedServer(t)
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	writePostmasterPID(t, dir, otherPID(t, dir), port) // the ID was reused
	mustStop(t, mustStart(t, Options{Dir: dir}))

	writePostmasterPID(t, dir, 1<<22+1, port) // no such process
	mustStop(t, mustStart(t, Options{Dir: dir}))
}

func TestFolderOfServerStartedByHandIsInUse(t *testing.T) {
	t.Parallel()
	dir := stoppedServer(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	writePostmasterPID(t, dir, otherPID(t, dir), l.Addr().(*net.TCPAddr).Port)
	_, err = Start(t.Context(), Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "data folder "+dir+" is in use") {
		t.Errorf("got error %v, want one about a folder in use", err)
	}
}

func TestOtherMajorVersionIsRefused(t *testing.T) {
	t.Parallel()
	dir := stoppedServer(t)
	if err := os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Options{Dir: dir})
	want := "data folder " + dir + " was written by Postgres 9, and only that version can open it (found: Postgres "
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %s", err, want)
	}
}

func TestForeignFolderIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "holds other files") {
		t.Errorf("got error %v, want one about other files", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v (%v), want only the thesis", entries, err)
	}
}

func TestRootRunsServerAsOtherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root drops privileges")
	}
	s := mustStart(t, Options{})
	info, err := os.Stat(filepath.Join(s.folder.data(), "postmaster.pid")) // written by the server itself
	if err != nil {
		t.Fatal(err)
	}
	if got := ownerOf(info).Uid; got == 0 || got != s.folder.account.uid {
		t.Errorf("the server runs as user %d, want %d", got, s.folder.account.uid)
	}
}

func TestRootCannotUseFolderClosedToServer(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root drops privileges")
	}
	closed := filepath.Dir(newDir(t))
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Options{Dir: filepath.Join(closed, "below", "db")})
	if err == nil || !strings.Contains(err.Error(), "may not enter "+closed+" ") {
		t.Errorf("got error %v, want one that names %s", err, closed)
	}
	if entries, err := os.ReadDir(closed); err != nil || len(entries) != 0 {
		t.Errorf("the closed folder holds %v (%v), want nothing", entries, err)
	}
}

func TestSweepRemovesOnlyUnusedFolders(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for _, name := range []string{"dead", "owned", "served", "unlocked"} {
		if err := os.Mkdir(filepath.Join(base, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"owned/owner.lock", "served/server.lock"} {
		lock, err := tryLock(filepath.Join(base, path))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lock.Close() }()
	}
	if err := os.WriteFile(filepath.Join(base, "dead", "owner.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sweep(base); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(base)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if got := strings.Join(left, " "); got != "owned served" {
		t.Errorf("%q are left, want the folders in use: owned served", got)
	}
}

func TestLockExcludes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := tryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tryLock(path); !errors.Is(err, errLocked) {
		t.Errorf("got %v, want errLocked", err)
	}
	_ = first.Close()
	// A program that another test starts at this moment has the lock, too, until it is executed.
	syscall.ForkLock.RLock()
	again, err := tryLock(path)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	_ = again.Close()
}

func TestDefaultDir(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", "/data")
	got, err := DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	want := "/data/stepwell/postgres"
	if os.Geteuid() == 0 {
		want = "/var/lib/stepwell/postgres"
	}
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTailKeepsLastLines(t *testing.T) {
	t.Parallel()
	log := newTail(Options{}.logger())
	for i := range 100 {
		if _, err := log.Write([]byte(strconv.Itoa(i) + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = log.Write([]byte("unfinis"))
	_, _ = log.Write([]byte("hed"))
	lines := strings.Split(log.String(), "\n")
	if lines[0] != "80" || lines[len(lines)-1] != "unfinished" {
		t.Errorf("got %q … %q, want 80 … unfinished", lines[0], lines[len(lines)-1])
	}
}
