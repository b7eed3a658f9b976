// Package archive stores exported runs as files in a folder or in an S3-compatible bucket: one compressed,
// self-describing file per run.
//
// A file is JSON lines compressed with Zstandard. Each line is an [upkeep.Record]: the run, its events with their
// payloads in base64, its streams with their chunks, and at the end the totals, which detect truncation.
package archive
