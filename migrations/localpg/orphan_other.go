//go:build !linux

package localpg

import "syscall"

// setOrphanSignal does nothing: only Linux signals orphans. Elsewhere only the guardian stops them.
func setOrphanSignal(*syscall.SysProcAttr, bool) {}
