//go:build gc && (amd64 || arm64)

package engine

// goroutine returns the address of what the runtime knows about the calling goroutine. No other goroutine has it until
// this one has ended. Every use of a workflow's handle asks for it, and stacks, which [goroutineID] reads, are slow.
func goroutine() uintptr
