package localpg

import (
	"syscall"
	"testing"
)

func TestKernelStopsServerWithoutGuardian(t *testing.T) {
	t.Parallel()
	cmd, o := startOwner(t, newDir(t))
	if err := syscall.Kill(o.Guardian, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	kill(t, cmd)
	eventually(t, "the server has ended", func() bool { return portFree(o.Port) })
}
