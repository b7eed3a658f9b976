// Package flow runs declarative workflows: documents that say which steps a run has, what each step needs, and what
// follows from failures. docs/flows.md describes them for their authors.
//
// A flow is a function behind the function contract. [Program.Answer] reads a call, with the run's log, and returns the
// commands that follow. It is pure: it knows no clock, no chance and no database, so the same log always has the same
// answer, whether the program is asked by the server or as a remote HTTP function.
//
//	document ── Parse ──▶ Program ── Answer(call) ──▶ commands
//	            faults                  fold the log, then decide until nothing follows
package flow
