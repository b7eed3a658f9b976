//go:build !linux

package tests

import "os/exec"

// dieWithParent does nothing: only Linux can do it.
func dieWithParent(*exec.Cmd) {}
