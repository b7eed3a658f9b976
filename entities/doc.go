// Package entities defines what exists in Stepwell: runs, steps, hooks, waits and events, with their IDs, statuses,
// validation, errors and transition tables.
//
// It has no I/O, and imports only package await: all of it is data and pure functions. So are these subpackages:
//
//   - await, when a run is invoked whose function has said what it waits for;
//   - message, the messages of the queue and the kinds of work;
//   - inbox and kv, the inboxes and the store of a run;
//   - webhook, the signature schemes of webhooks and the stream of their responses;
//   - token, the tokens that the server signs;
//   - strictjson and codec, the JSON that clients send and the CBOR of the Workflow SDK;
//   - share, which divides a limited resource between projects.
//
// These know the database:
//
//   - pg, the toolkit for Postgres: transactions, pages, conditional statements, group commit, notifications;
//   - store, the SQL of the entities' tables;
//   - schedule and trigger, what starts runs by itself, with the rows of both;
//   - admin, what operators administer: projects, API keys, secrets, signing keys, retention, audit;
//   - access, which authenticates by API keys and by the sessions of browsers.
//
// Begin with the transition tables in transitions.go. They state for every event and every status whether the event is
// legal and which status follows. Package eventlog decides by them, and derives the rows of all entities from the
// events it appends.
package entities
