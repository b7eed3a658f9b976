// Package harness contains the shared parts of the black-box tests: it builds the server and the apps, and runs them as
// processes that end with the test at the latest.
//
// It is for tests and the bench.
package harness
