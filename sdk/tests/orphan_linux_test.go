package tests

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the process if the tests are killed and cannot clean up.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
