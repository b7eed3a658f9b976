//go:build race

package linear

// buildFlags: with tests that look for data races, the server looks for its own too.
var buildFlags = []string{"-race"}
