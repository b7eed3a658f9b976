// Package codec encodes and decodes the formats of the Workflow SDK's protocol: CBOR as its clients write and read it,
// the frames of the event protocol, and the body of a multi-chunk stream write.
//
// It imports nothing of this module and contains no HTTP. All CBOR for clients must pass through it, because their
// decoder (the npm package cbor-x) misreads some legal CBOR, or throws on it. [Marshal] never emits such CBOR, whatever
// Go types a wire struct uses, and [Unmarshal] rejects it, so that accepted data can be stored and returned unchanged
// (see [Raw]). Answers with thousands of events are encoded by [Object], which writes what Marshal would write.
//
// Rules for wire structs:
//
//   - Decoded fields use [Int], [Bytes], [Time], [Raw] and [Map], besides string, bool, float64, and slices, maps and
//     structs of those. Unmarshal rejects a struct with other integer, byte or time fields on first use.
//   - Optional fields have ",omitzero", because clients distinguish absent and null. A pointer without it
//     is encoded as null. Nil slices and maps are encoded as empty, never as null.
//   - Dates are always [Time]; Marshal rejects time.Time.
//
// Every error caused by the sender of the data is an [*Error] and matches [ErrMalformed] or [ErrTooLarge].
package codec
