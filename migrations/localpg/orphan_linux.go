package localpg

import "syscall"

// orphanSignal has the kernel stop the server when the thread that started it dies: at once if its data is
// not wanted any more, else in good order.
func orphanSignal(attr *syscall.SysProcAttr, temporary bool) {
	attr.Pdeathsig = syscall.SIGINT
	if temporary {
		attr.Pdeathsig = syscall.SIGQUIT
	}
}
