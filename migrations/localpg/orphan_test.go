package localpg

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"
)

// startOwner starts this test binary as the owner of a server.
func startOwner(t *testing.T, dir string) (*exec.Cmd, owned) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), ownerEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	var o owned
	if err := json.NewDecoder(out).Decode(&o); err != nil {
		t.Fatalf("read what the owner says: %v", err)
	}
	return cmd, o
}

// kill ends the owner as the kernel does when memory runs out.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed
}

func TestTemporaryServerDiesWithItsOwner(t *testing.T) {
	t.Parallel()
	cmd, o := startOwner(t, ownerTemporary)
	kill(t, cmd)
	eventually(t, "the server is gone", func() bool { return portFree(o.Port) })
	eventually(t, "its folder is gone", func() bool {
		_, err := os.Stat(o.Dir)
		return os.IsNotExist(err)
	})
}

func TestLastingServerDiesWithItsOwner(t *testing.T) {
	t.Parallel()
	cmd, o := startOwner(t, newDir(t))
	mustExec(t, o.DSN, "CREATE TABLE kept AS SELECT 42 AS n")
	idle, err := pgx.Connect(t.Context(), o.DSN) // a connection does not keep it alive
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idle.Close(t.Context()) }()
	kill(t, cmd)

	s := mustStart(t, Options{Dir: o.Dir}) // at once: Start waits for the old server's end
	if !portFree(o.Port) {
		t.Error("the old server still listens")
	}
	if got := query[int](t, s.DSN("postgres"), "SELECT n FROM kept"); got != 42 {
		t.Errorf("after the owner's death got %d, want 42", got)
	}
}

func TestGuardianAloneStopsTheServer(t *testing.T) {
	t.Parallel()
	s := mustStart(t, Options{})
	if err := s.process.guardian.input.Close(); err != nil { // all it sees of an owner's death
		t.Fatal(err)
	}
	<-s.Done()
	eventually(t, "its folder is gone", func() bool {
		_, err := os.Stat(s.folder.dir)
		return os.IsNotExist(err)
	})
}
