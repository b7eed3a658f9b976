package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the process if the bench is killed and cannot clean up.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
