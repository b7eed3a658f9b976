//go:build !linux

package main

import "os/exec"

// dieWithParent does nothing where the kernel does not offer it. What is measured needs Linux anyway (cpu.go).
func dieWithParent(*exec.Cmd) {}
