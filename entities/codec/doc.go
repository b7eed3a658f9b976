// Package codec turns bytes of the Workflow SDK's wire protocol into Go values and back: CBOR as its clients
// write and read it, the frames of the event protocol, and the body of a multi-chunk stream write.
//
// It imports nothing of this module, holds no state and knows no HTTP. It is the only place that may call a CBOR
// library, because the clients' decoder (the npm package cbor-x) misreads or throws on CBOR that is perfectly legal.
// [Marshal] therefore never emits it, whatever Go types a wire struct uses, and [Unmarshal] never accepts it, so what
// was once accepted can be stored and sent again byte for byte (see [Raw]).
//
// Rules for wire structs:
//
//   - Fields that are decoded use [Int], [Bytes], [Time], [Raw] and [Map], besides string, bool, float64, slices,
//     maps and structs of those. Unmarshal refuses a struct with other integer, byte or time fields on first use.
//   - Optional fields carry ",omitzero": absent and null are different things to the clients. A pointer without it
//     writes null. Nil slices and maps are written empty, never as null.
//   - Dates are always [Time]; Marshal refuses time.Time.
//
// Every error that the sender of the bytes caused is an [*Error] and matches [ErrMalformed] or [ErrTooLarge].
package codec
