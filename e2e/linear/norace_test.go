//go:build !race

package linear

// buildFlags: without -race, the server is built as usual.
var buildFlags []string
