// Package model is what Stepwell promises, as a program small enough to read in one sitting: a [World] of runs,
// messages and streams, and for each request the answer and the next world. It is written from the protocol's
// rules alone (docs/protocol.md, sections 3 to 5) and imports nothing of ours, so that it can be wrong only where
// the server is right, and the other way round. There is no concurrency in it, no database and no clock.
//
// The tests of this package run random requests against it and the server, and compare; those of e2e/linear ask
// whether what concurrent clients saw can be what the model says one after the other.
//
// A failure shrinks to a short script, and is repeated with the seed that it names. The more checks, the more is
// tried, some ten a second:
//
//	go test ./e2e/model -rapid.checks 10000 -timeout 0
//	go test ./e2e/model -rapid.seed 12345
package model
