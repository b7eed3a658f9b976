//go:build !race

package e2e

// buildFlags: without -race, the server is built as usual.
var buildFlags []string
