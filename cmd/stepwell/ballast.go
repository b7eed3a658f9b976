package main

// ballastSize is how much later the garbage collector begins than it would.
const ballastSize = 32 << 20

// newBallast makes memory that is never touched, so that it takes none of the machine's. The garbage collector counts
// it, and begins when the heap has doubled: at 64 MiB instead of the few that a server holds, at which it began again
// and again. A greater GOGC would do as much, but would also multiply what large bodies take; this adds 32 MiB at most.
// Whoever has decided on GOGC or GOMEMLIMIT gets none.
func newBallast(lookup func(string) (string, bool)) []byte {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, ok := lookup(name); ok {
			return nil
		}
	}
	return make([]byte, ballastSize)
}
