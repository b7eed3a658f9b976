package archive

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// Suffix is what names of files end in.
const Suffix = ".jsonl.zst"

// Write writes the records that export emits as a file's content.
func Write(w io.Writer, export func(emit func(eventlog.Record) error) error) error {
	// One goroutine, so that equal records are equal bytes, and memory is bounded.
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	lines := json.NewEncoder(z)
	lines.SetEscapeHTML(false)
	err = export(func(r eventlog.Record) error {
		if err := lines.Encode(r); err != nil {
			return fmt.Errorf("write record: %w", err)
		}
		return nil
	})
	if closeErr := z.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("compress: %w", closeErr)
	}
	return err
}

// Reader reads a file's records.
type Reader struct {
	z     *zstd.Decoder
	lines *json.Decoder
}

// NewReader begins to read a file's content. Close the reader in the end; it leaves r open.
func NewReader(r io.Reader) (*Reader, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	lines := json.NewDecoder(bufio.NewReader(z))
	lines.DisallowUnknownFields()
	return &Reader{z: z, lines: lines}, nil
}

// Next returns the next record, and [io.EOF] after the last. It fails with [entities.ErrInvalid] on what
// [Write] cannot have written.
func (r *Reader) Next() (eventlog.Record, error) {
	var record eventlog.Record
	err := r.lines.Decode(&record)
	switch {
	case errors.Is(err, io.EOF):
		return record, io.EOF
	case err != nil:
		return record, entities.Invalid("the file is damaged, or not of an exported run: %v", err)
	default:
		return record, nil
	}
}

// Close frees what the reader holds.
func (r *Reader) Close() { r.z.Close() }
