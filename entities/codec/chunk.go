package codec

import (
	"errors"
	"io"
)

// maxChunks is the most chunks in one stream write (protocol §4).
const maxChunks = 1000

// ReadChunks reads the body of a stream write with X-Stream-Multi, (u32be length | bytes)*. It returns all chunks, or
// only an error, so that a write is all or nothing: an ErrTooLarge for more than 1,000 chunks or 128 MiB. An empty body
// has no chunks.
func ReadChunks(r io.Reader) ([][]byte, error) {
	var all [][]byte
	for left := maxBody; ; {
		n, err := readLength(r, "chunk length")
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		case len(all) == maxChunks:
			return nil, tooLarge("more than %d chunks in one write", maxChunks)
		case n > int64(left):
			return nil, tooLarge("chunks of more than %d bytes in one write", maxBody)
		}
		chunk, err := readFull(r, int(n), "chunk")
		if err != nil {
			return nil, err
		}
		all, left = append(all, chunk), left-len(chunk)
	}
}
