// Package record is what recordings of the official clients' traffic are made of: their files, their values in a
// form that can be read, and how two values differ. The tool that records is in package e2e, the test that replays
// in handlers/wire. It imports nothing of the module, and only tests may import it: what it knows of the wire it
// has from the protocol, so that it cannot agree with the server in an error.
//
// A file is a row of JSON objects, one for each exchange, each over several lines: what was asked, the exact bytes
// and what they say, and what was answered.
package record
