package archive

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
)

// Suffix is what names of files end in.
const Suffix = ".jsonl.zst"

// Write writes the records that export emits as a file's content.
func Write(w io.Writer, export func(emit func(upkeep.Record) error) error) error {
	// One goroutine, so that equal records are equal bytes, and memory is bounded.
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	lines := json.NewEncoder(z)
	lines.SetEscapeHTML(false)
	err = export(func(r upkeep.Record) error {
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

// Export writes a run as a file's content, and says how much that was.
func Export(ctx context.Context, maintainer *upkeep.Maintainer, id entities.RunID, w io.Writer) (upkeep.RunSize, error) {
	var size upkeep.RunSize
	err := Write(w, func(emit func(upkeep.Record) error) (err error) {
		size, err = maintainer.Export(ctx, id, emit)
		return err
	})
	return size, err
}

// Reader reads a file's records.
type Reader struct {
	source *source
	z      *zstd.Decoder
	lines  *json.Decoder
}

// source remembers that the file could not be read, which is not to say that it is damaged.
type source struct {
	io.Reader
	failure error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.failure = err
	}
	return n, err
}

// NewReader begins to read a file's content. Close the reader in the end; it leaves r open.
func NewReader(r io.Reader) (*Reader, error) {
	from := &source{Reader: r}
	z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	lines := json.NewDecoder(bufio.NewReader(z))
	lines.DisallowUnknownFields()
	return &Reader{source: from, z: z, lines: lines}, nil
}

// Next returns the next record, and [io.EOF] after the last. It fails with [entities.ErrInvalid] on what
// [Write] cannot have written.
func (r *Reader) Next() (upkeep.Record, error) {
	var record upkeep.Record
	err := r.lines.Decode(&record)
	switch {
	case errors.Is(err, io.EOF):
		return record, io.EOF
	case r.source.failure != nil:
		return record, fmt.Errorf("read file: %w", r.source.failure)
	case err != nil:
		return record, entities.Invalid("the file is damaged, or not of an exported run: %v", err)
	default:
		return record, nil
	}
}

// Close frees what the reader holds.
func (r *Reader) Close() { r.z.Close() }
