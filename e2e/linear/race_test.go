//go:build race

package linear

// buildFlags enable the race detector in the server too.
var buildFlags = []string{"-race"}
