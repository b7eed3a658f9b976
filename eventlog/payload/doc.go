// Package payload shows the payloads of events as JSON, for people and programs that read the log, and writes JSON
// as the Workflow SDK's clients do. What it shows is for reading: the bytes themselves are the truth, and stay as
// they are. It imports package entities.
//
// # What is known
//
// JSON text is shown as it is. A payload of the Workflow SDK begins with four letters: "devl" is text of npm's
// devalue, "zstd" and "gzip" are compressed payloads, "encr" and "encp" encrypted ones. CBOR is known by its first
// byte, where that is a text, a list, a map or a tag, if it is well-formed up to the last. All else is opaque, and
// so is what is deeper than 1,000 values or not UTF-8.
//
// # How devalue is shown
//
//   - undefined: left out of objects, null elsewhere; so are holes of lists
//   - NaN, Infinity, -Infinity: those words as text; -0 as it is
//   - Date: its ISO text, or null if it is invalid; Temporal types likewise
//   - BigInt: its digits as text
//   - RegExp, URL, URLSearchParams: their text
//   - Set: a list; Map and Headers: an object if all keys are different texts, else a list of pairs
//   - boxed values and objects without a prototype: as if they were plain
//   - errors, of all classes: {"name", "message", "stack", ...}
//   - ArrayBuffer, typed arrays: {"$type": "Uint8Array", "base64": "…"}; views of a part of a buffer
//     {"$type", "value": the buffer, "offset", "length"}
//   - all else that has a name (Request, ReadableStream, StepFunction, Instance, ...): {"$type": its name} and its
//     fields, or its one "value"
//   - a value inside itself: {"$ref": "#/where/it/begins"}, a JSON pointer; one that occurs twice is shown twice
//
// The SDK replaces some of devalue's types with its own of the same name, which hold one reference; a Set with a
// list as its only item looks like one of those, and is taken for it, as the SDK does.
//
// # How CBOR is shown
//
// Keys are sorted; those that are no text are shown as their JSON. Dates, great numbers, bytes, NaN and the
// infinities are shown as in devalue; other tags are left out.
package payload
