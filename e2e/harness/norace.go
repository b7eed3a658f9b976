//go:build !race

package harness

// asBuilt: without -race, the server is built as usual.
var asBuilt []string
