// Package e2e proves that Stepwell keeps its promises to those who use it: real server processes, real
// Postgres, and an app on the real npm packages, driven and watched from outside over HTTP. The app exists once
// for each line of the Workflow SDK that is served (folders app, beta35 and beta55), and all cases are for all
// lines that can do what they take.
//
// It imports nothing of the module but migrations/testdb, e2e/harness and e2e/record, so what it knows of the wire
// it has from the protocol, as a client would. There is nothing in it but tests: TestStepwell lists what runs on one
// healthy server, the other tests are about what happens to servers.
//
// # Recorded traffic
//
// TestRecord writes down what each line's clients say to the server, a file for each case, and what they were
// answered. TestReplay of handlers/wire asks the same without Node, in seconds, and wants the same answers. The
// files are handlers/wire/testdata/traffic; e2e/record has their form. To record anew, and replay it:
//
//	make corpus
//
// That is due when a line of the SDK has another version, when there is another line or case, and when clients
// may ask for something else because they are answered otherwise. Every ID and time in the files is then another. Where
// only answers change, and on purpose, go test ./handlers/wire -run TestReplay -update puts the new ones into the
// files, and git diff shows what changes for clients and nothing else.
package e2e
