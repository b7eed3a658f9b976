package runfile

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

// Suffix is the extension of files.
const Suffix = ".jsonl.zst"

// Write writes the records that export emits in the format of a file.
func Write(w io.Writer, export func(emit func(upkeep.Record) error) error) error {
	// One goroutine makes the output deterministic and bounds the memory.
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

// Export writes a run in the format of a file and returns its size.
func Export(
	ctx context.Context, maintainer *upkeep.Maintainer, id entities.RunID, w io.Writer,
) (upkeep.RunSize, error) {
	var size upkeep.RunSize
	err := Write(w, func(emit func(upkeep.Record) error) (err error) {
		size, err = maintainer.Export(ctx, id, emit)
		return err
	})
	return size, err
}

// Reader reads the records of a file.
type Reader struct {
	source *source
	z      *zstd.Decoder
	lines  *json.Decoder
}

// source records read errors, to distinguish them from a damaged file.
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

// NewReader returns a Reader of the file in r. The caller must close it; it does not close r.
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

// Next returns the next record, or [io.EOF] after the last. It fails with [entities.ErrInvalid] if [Write] cannot have
// written the file.
func (r *Reader) Next() (upkeep.Record, error) {
	var record upkeep.Record
	err := r.lines.Decode(&record)
	switch {
	case errors.Is(err, io.EOF):
		return record, io.EOF
	case r.source.failure != nil:
		return record, fmt.Errorf("read file: %w", r.source.failure)
	case err != nil:
		return record, entities.Invalid("the file is damaged, or is not an exported run: %v", err)
	default:
		return record, nil
	}
}

// Close frees the resources of the reader.
func (r *Reader) Close() { r.z.Close() }
