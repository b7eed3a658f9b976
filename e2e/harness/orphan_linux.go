package harness

import (
	"os/exec"
	"syscall"
)

// DieWithParent has the kernel kill the process should we be killed and clean up nothing.
func DieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
