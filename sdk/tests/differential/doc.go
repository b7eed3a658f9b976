// Package differential holds the server in memory, which the SDK's test kit uses, against the real one.
package differential
