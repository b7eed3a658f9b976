//go:build race

package harness

// buildFlags enable the race detector in the server too.
var buildFlags = []string{"-race"}
