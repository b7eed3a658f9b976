package harness

import (
	"os/exec"
	"syscall"
)

// DieWithParent makes the kernel kill the process if this process is killed and cannot clean up.
func DieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
