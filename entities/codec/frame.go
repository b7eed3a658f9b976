package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
)

const (
	// maxMeta is the most bytes of a frame's metadata.
	maxMeta = 1 << 20
	// maxBody is the most bytes of a frame's body, and of all chunks of one stream write. Payloads of many MB are legal
	// (protocol §10, 33).
	maxBody = 128 << 20
)

// Frame is one unit of the event protocol: u32be length | meta | u32be length | body (protocol §2.2).
type Frame struct {
	// Meta is the CBOR of the event's metadata, not yet validated: Unmarshal(f.Meta, &v).
	Meta []byte

	// Body is the event's payload; empty means that the event has none.
	Body []byte
}

// ReadFrame reads the only frame in r. A truncated frame and trailing data match ErrMalformed. Metadata beyond 1 MiB
// and a body beyond 128 MiB match ErrTooLarge; errors of r itself are wrapped. Memory is allocated as data arrives, not
// as announced.
func ReadFrame(r io.Reader) (Frame, error) {
	f, err := nextFrame(r)
	if errors.Is(err, io.EOF) {
		return Frame{}, malformed("no frame")
	}
	if err != nil {
		return Frame{}, err
	}
	switch _, err := io.ReadFull(r, make([]byte, 1)); {
	case err == nil:
		return Frame{}, malformed("bytes after the end of the frame")
	case errors.Is(err, io.EOF):
		return f, nil
	default:
		return Frame{}, fmt.Errorf("read end of frame: %w", err)
	}
}

// Frames reads any number of consecutive frames. The first error, as of [ReadFrame], ends the sequence.
func Frames(r io.Reader) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		for {
			f, err := nextFrame(r)
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// endMeta is the metadata of the sentinel (protocol §2.2).
type endMeta struct {
	End     Int    `cbor:"_end"`
	Next    string `cbor:"next,omitzero"`
	HasMore bool   `cbor:"hasMore"`

	Snapshot *Snapshot `cbor:"snapshot,omitzero"`
}

// Snapshot has the counters of a run with a fence, read before the list: how many events its log has, and how many of
// them its orchestrators wrote.
type Snapshot struct {
	Seq       Int `cbor:"seq"`
	SeqInBand Int `cbor:"seqInBand"`
}

// nextFrame reads one frame, or returns io.EOF if r ends before it.
func nextFrame(r io.Reader) (Frame, error) {
	n, err := readLength(r, "frame meta length")
	if err != nil {
		return Frame{}, err
	}
	if n > maxMeta {
		return Frame{}, tooLarge("frame meta of %d bytes, limit %d", n, maxMeta)
	}
	meta, err := readFull(r, int(n), "frame meta")
	if err != nil {
		return Frame{}, err
	}
	n, err = readLength(r, "frame body length")
	if errors.Is(err, io.EOF) {
		err = cutShort(err, "frame body length", 0, lengthSize)
	}
	if err != nil {
		return Frame{}, err
	}
	if n > maxBody {
		return Frame{}, tooLarge("frame body of %d bytes, limit %d", n, maxBody)
	}
	body, err := readFull(r, int(n), "frame body")
	if err != nil {
		return Frame{}, err
	}
	return Frame{Meta: meta, Body: body}, nil
}

const (
	lengthSize = 4
	firstRead  = 64 << 10 // limits the allocation before any data has arrived
)

// readLength reads a u32be, or returns io.EOF if r ends before it.
func readLength(r io.Reader, what string) (int64, error) {
	var b [lengthSize]byte
	n, err := io.ReadFull(r, b[:])
	if n == 0 && errors.Is(err, io.EOF) {
		return 0, io.EOF
	}
	if err != nil {
		return 0, cutShort(err, what, n, lengthSize)
	}
	return int64(binary.BigEndian.Uint32(b[:])), nil
}

// readFull reads n bytes. The buffer doubles as data arrives, so that a sender cannot make the server allocate memory
// by announcing a large length.
func readFull(r io.Reader, n int, what string) ([]byte, error) {
	buf := make([]byte, min(n, firstRead))
	got := 0
	for {
		m, err := io.ReadFull(r, buf[got:])
		got += m
		if err != nil {
			return nil, cutShort(err, what, got, n)
		}
		if got == n {
			return buf, nil
		}
		bigger := make([]byte, min(n, 2*len(buf)))
		copy(bigger, buf)
		buf = bigger
	}
}

// cutShort returns that the data was truncated, or wraps a read error.
func cutShort(err error, what string, got, want int) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return malformed("%s cut short: %d of %d bytes", what, got, want)
	}
	return fmt.Errorf("read %s: %w", what, err)
}
