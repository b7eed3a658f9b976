package codec

import (
	"errors"
	"io"
)

const (
	// DefaultChunks is the default limit of chunks in one stream write (protocol §4).
	DefaultChunks = 1000

	// DefaultChunkBytes is the default limit of their total size.
	DefaultChunkBytes = DefaultBody
)

// ChunkLimits limits one multi-chunk stream write. Zero fields mean the defaults.
type ChunkLimits struct {
	// Count is the maximum number of chunks.
	Count int

	// Bytes is the maximum of their total size.
	Bytes int
}

// withDefaults returns l with its zero fields filled in.
func (l ChunkLimits) withDefaults() ChunkLimits {
	if l.Count == 0 {
		l.Count = DefaultChunks
	}
	if l.Bytes == 0 {
		l.Bytes = DefaultChunkBytes
	}
	return l
}

// ReadChunks reads the body of a stream write with X-Stream-Multi, (u32be length | bytes)*. It returns all chunks, or
// only an error, so that a write is all or nothing. An empty body has no chunks.
func ReadChunks(r io.Reader, limits ChunkLimits) ([][]byte, error) {
	limits = limits.withDefaults()
	left := limits.Bytes
	var all [][]byte
	for {
		chunk, err := nextChunk(r, len(all), left, limits)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, chunk)
		left -= len(chunk)
	}
}

// nextChunk reads chunk i, which may have at most left bytes. It returns io.EOF if r ends before it.
func nextChunk(r io.Reader, i, left int, limits ChunkLimits) ([]byte, error) {
	n, err := readLength(r, "chunk length")
	switch {
	case err != nil:
		return nil, err
	case i >= limits.Count:
		return nil, tooLarge("more than %d chunks in one write", limits.Count)
	case n > int64(left):
		return nil, tooLarge("chunks of more than %d bytes in one write", limits.Bytes)
	}
	return readFull(r, int(n), "chunk")
}
