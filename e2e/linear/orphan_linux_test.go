package linear

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the process should we be killed and clean up nothing.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
