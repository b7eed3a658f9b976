// Package tests holds the SDK against the real server, which it builds from the repository and runs as a process.
package tests
