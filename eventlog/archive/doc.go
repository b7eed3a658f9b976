// Package archive keeps exported runs as files: one compressed, self-describing file per run, in a folder or in an
// S3-compatible bucket.
//
// A file is Zstandard around JSON lines, each of which is an [upkeep.Record]: the run, its events with their
// payloads in base64, its streams with their chunks, and how much of all there is. What is cut off is noticed.
//
// It imports packages entities and eventlog/upkeep.
package archive
