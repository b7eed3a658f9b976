// Package record defines recordings of the official clients' traffic: the file format, a readable form of the values,
// and the comparison of two values. Package e2e records; a test in handlers/wire replays. Package record imports
// nothing of the module, and only tests may import it. It implements the wire format from the protocol alone, so that
// it cannot share a bug with the server.
//
// A file is a sequence of JSON objects, one for each exchange: the request with its exact bytes and their decoded form,
// and the answer.
package record
