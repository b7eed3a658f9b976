//go:build !linux

package linear

import "os/exec"

// dieWithParent would keep processes from outliving us; here only the app notices by itself.
func dieWithParent(*exec.Cmd) {}
