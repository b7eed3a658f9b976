//go:build !linux

package e2e

import "os/exec"

// dieWithParent would keep processes from outliving us; here only the app notices by itself.
func dieWithParent(*exec.Cmd) {}
