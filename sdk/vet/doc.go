// Package vet is an analyzer for workflows of the Stepwell Go SDK. It reports code that is not deterministic, or that
// otherwise does not survive a replay:
//
//	go install github.com/stepwell-dev/stepwell/sdk/vet/cmd/stepwellvet@latest
//	go vet -vettool=$(which stepwellvet) ./...
//
// The code of a workflow is each function with a *stepwell.Context parameter, and the functions that it calls in
// packages of the same module. Functions whose first parameter is a context.Context are steps, and do what they like.
//
//	SW001  time and contexts: time.Now, time.Sleep, context.Background
//	SW002  goroutines, channels and locks
//	SW003  the random order of maps
//	SW004  random numbers, the environment, files and networks
//	SW005  the Context of an outer function
//	SW006  a Context that leaves its function: in a step, a variable, a struct or a channel
//	SW007  deferred functions, which run whenever the workflow waits, and recover
//	SW008  variables of packages that are written
//	SW009  futures that nobody waits for, and errors that are dropped
//	SW010  steps in a loop over items, whose IDs depend on the order of the items
//	SW011  types that do not survive JSON
//	SW013  logs that are repeated by each replay
//
// A comment on the line, or on the one before it, allows what is reported, for a reason:
//
//	//stepwell:allow SW003 the order does not matter
//
// A function that is deterministic although it looks otherwise says so in its doc comment:
//
//	//stepwell:deterministic it is seeded
package vet
