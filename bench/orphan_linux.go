package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the process should we be killed and clean up nothing.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
