// Package model is an executable specification of Stepwell: a [World] of runs, messages and streams, and for each
// request the answer and the next world. It implements the rules of the protocol (docs/protocol.md, sections 3 to 5
// and 12) independently of the server and imports none of its packages, so that the two do not share bugs. It has no
// concurrency, no database and no clock.
//
// The tests of this package send random requests to the model and to a server, and compare the results; and, at the
// end, why each run is not done with what the sweeper finds. The tests of e2e/linear check that the answers to
// concurrent clients match some sequential execution on the model.
//
// A failure shrinks to a short script and prints a seed that repeats it. About ten checks run per second; more checks
// find more:
//
//	go test ./e2e/model -rapid.checks 10000 -timeout 0
//	go test ./e2e/model -rapid.seed 12345
package model
