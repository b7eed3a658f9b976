// Package harness is what the black-box tests of the folders around it share: building and running the server and
// the apps as processes of their own, which end with the test at the latest.
//
// It is for tests only, and imports nothing of ours.
package harness
