package main

const ballastSize = 32 << 20

// newBallast allocates memory that is never touched, so it occupies no physical memory but counts as heap. With it the
// garbage collector first runs at 64 MiB; without it, the few MiB that a server holds make it run all the time. A
// larger GOGC would have the same effect but multiply the memory for large bodies, too; the ballast adds at most 32
// MiB. There is no ballast if GOGC or GOMEMLIMIT is set.
func newBallast(lookup func(string) (string, bool)) []byte {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, ok := lookup(name); ok {
			return nil
		}
	}
	return make([]byte, ballastSize)
}
