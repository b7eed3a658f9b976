//go:build !linux

package localpg

import "syscall"

// orphanSignal does nothing: only Linux signals orphans, elsewhere the guardian alone does.
func orphanSignal(*syscall.SysProcAttr, bool) {}
