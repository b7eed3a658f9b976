//go:build race

package harness

// asBuilt: with tests that look for data races, the server looks for its own too.
var asBuilt = []string{"-race"}
