//go:build !race

package linear

// buildFlags are the flags for building the server: none without the race detector.
var buildFlags []string
