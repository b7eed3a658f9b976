package localpg

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"
)

// startOwner runs this test binary as the owner of a server.
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
		t.Fatalf("read the owner's output: %v", err)
	}
	return cmd, o
}

// kill kills the owner, as the kernel does when memory runs out.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // always an error, as it was killed
}

func TestTemporaryServerDiesWithOwner(t *testing.T) {
	t.Parallel()
	cmd, o := startOwner(t, ownerTemporary)
	kill(t, cmd)
	eventually(t, "the server has ended", func() bool { return portFree(o.Port) })
	eventually(t, "its folder is removed", func() bool {
		_, err := os.Stat(o.Dir)
		return os.IsNotExist(err)
	})
}

func TestLastingServerDiesWithOwner(t *testing.T) {
	t.Parallel()
	cmd, o := startOwner(t, newDir(t))
	mustExec(t, o.DSN, "CREATE TABLE kept AS SELECT 42 AS n")
	idle, err := pgx.Connect(t.Context(), o.DSN) // an open connection must not keep it alive
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idle.Close(t.Context()) }()
	kill(t, cmd)

	s := mustStart(t, Options{Dir: o.Dir}) // Start waits for the end of the old server
	if !portFree(o.Port) {
		t.Error("the old server still listens")
	}
	if got := query[int](t, s.DSN(), "SELECT n FROM kept"); got != 42 {
		t.Errorf("after the owner's death got %d, want 42", got)
	}
}

func TestGuardianStopsServer(t *testing.T) {
	t.Parallel()
	s := mustStart(t, Options{})
	if err := s.process.guardian.input.Close(); err != nil { // as the owner's death does
		t.Fatal(err)
	}
	<-s.Done()
	eventually(t, "its folder is removed", func() bool {
		_, err := os.Stat(s.folder.dir)
		return os.IsNotExist(err)
	})
}
