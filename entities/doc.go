// Package entities defines what exists in Stepwell: runs, steps, hooks, waits and events, with their IDs, statuses,
// validation, errors and transition tables.
//
// It imports nothing else of the module, and has no I/O: all of it is data and pure functions. Its subpackages are
//
//   - pg, the toolkit for Postgres: transactions, pages, conditional statements, group commit, notifications;
//   - store, the SQL of the entities' tables;
//   - admin, what operators administer: projects, API keys, secrets, signing keys, retention, audit;
//   - webhook, the signature schemes of webhooks and the stream of their responses;
//   - strictjson, which decodes JSON that clients send.
//
// Begin with the transition tables in transitions.go. They state for every event and every status whether the event is
// legal and which status follows. Package eventlog decides by them, and derives the rows of all entities from the
// events it appends.
package entities
