// Package linear checks linearizability: whether the answers to concurrent clients match some sequential execution of
// the same requests on the model (e2e/model). Meanwhile servers are killed, Postgres crashes, and connections are cut,
// delayed and duplicated. A request with unknown outcome may take effect at any time after it was sent, or never.
//
// The package contains only tests. Their duration is configurable; they are most effective without -race:
//
//	go test ./e2e/linear -for 10m -v -timeout 0
//
// A failure is reported as a small set of requests that have no valid order, with the longest valid prefix. It is not
// reproducible, because the interleaving of requests is not controlled. -seed repeats only the generated requests.
package linear
