// Package e2e contains black-box tests: real server processes, a real Postgres, and an app on the real npm packages,
// driven and observed over HTTP. The app exists once for each supported line of the Workflow SDK (folders app, beta35
// and beta55). Every case runs on all lines that have the features it needs; tests of what does not depend on the line
// run on the newest one, and in a long test on all.
//
// From this module it imports only migrations/testdb, e2e/harness and e2e/record, so that, like any client, it knows
// the wire only from the protocol. The package contains only tests: TestStepwell lists the cases for one healthy
// server; the other tests cover crashes, restarts and replicas.
//
// # Recorded traffic
//
// TestRecord records the requests of each line's clients and the server's answers, one file for each case. TestReplay
// in handlers/wire sends the same requests without Node, in seconds, and expects the same answers. The files are in
// handlers/wire/testdata/traffic; package e2e/record defines their format. To record and replay again, run
//
//	make corpus
//
// Record again after a change of an SDK version, a new line or case, or a change of answers that can change what
// clients request next. Every ID and time in the files then changes. If only answers change, and intentionally, run go
// test ./handlers/wire -run TestReplay -update instead: it updates only the answers, so that git diff shows exactly
// what changes for clients.
package e2e
