//go:build !gc || !(amd64 || arm64)

package engine

// goroutine returns a number of the calling goroutine that no other one has.
func goroutine() uintptr { return uintptr(goroutineID()) }
