//go:build race

package e2e

// buildFlags: with tests that look for data races, the server looks for its own too.
var buildFlags = []string{"-race"}
