// Package wire implements the HTTP protocol of the Workflow SDK, which the unmodified official npm clients use to talk
// to their backend. Section numbers (§) and endpoint numbers in comments refer to docs/protocol.md.
//
// There are two generations of clients: the stable line and the next line. They share the endpoints but differ in how
// they read lists and start runs; comments say where.
package wire
