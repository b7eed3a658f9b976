// Package wire serves the Workflow SDK's wire protocol: what the unmodified official npm clients ask of
// their backend. Section numbers (§) in comments are those of docs/protocol.md.
//
// It imports packages entities, eventlog, queue, handlers/auth and entities/codec.
package wire
