package localpg

import "syscall"

// setOrphanSignal makes the kernel stop the server when the thread that started it dies: immediately if its data is
// temporary, else by a fast shutdown.
func setOrphanSignal(attr *syscall.SysProcAttr, temporary bool) {
	attr.Pdeathsig = syscall.SIGINT
	if temporary {
		attr.Pdeathsig = syscall.SIGQUIT
	}
}
