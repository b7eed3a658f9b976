// Package payload decodes the payloads of events as JSON for readers of the log, and encodes JSON as the Workflow
// SDK's clients do. The decoded form is only for reading; the stored bytes never change.
//
// # Encodings
//
// JSON text is returned unchanged. A payload of the Workflow SDK starts with four letters: "devl" is text of npm's
// devalue, "zstd" and "gzip" are compressed payloads, "encr" and "encp" encrypted ones. A payload whose first byte is
// that of a CBOR text, array, map or tag is CBOR if it is well-formed to the end. Everything else is opaque, as are
// values nested more than 1,000 deep and text that is not UTF-8.
//
// # Devalue as JSON
//
//   - undefined: omitted from objects, null elsewhere; holes of arrays: null
//   - NaN, Infinity, -Infinity: their names as strings; -0 unchanged
//   - Date: its ISO text, or null if it is invalid; Temporal types likewise
//   - BigInt: its digits as a string
//   - RegExp, URL, URLSearchParams: their text
//   - Set: an array; Map and Headers: an object if all keys are distinct strings, otherwise an array of pairs
//   - boxed values and objects without a prototype: like plain ones
//   - errors, of all classes: {"name", "message", "stack", ...}
//   - ArrayBuffer, typed arrays: {"$type": "Uint8Array", "base64": "…"}; views of a part of a buffer
//     {"$type", "value": the buffer, "offset", "length"}
//   - all other named types (Request, ReadableStream, StepFunction, Instance, ...): {"$type": name} with the fields,
//     or with a single "value"
//   - a cycle: {"$ref": "#/path/to/the/value"}, a JSON pointer; a value that occurs twice is written twice
//
// The SDK replaces some of devalue's types by its own with the same name, which hold one reference. A devalue Set with
// an array as its only element looks the same and is decoded as the SDK's type, as the SDK does too.
//
// # CBOR as JSON
//
// Keys are sorted; a key that is not text becomes its JSON text. Dates, big integers, bytes, NaN and the infinities
// have the same form as in devalue; other tags are dropped.
package payload
