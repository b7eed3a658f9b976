package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
)

const (
	// DefaultMeta is the greatest length of a frame's meta unless Limits says otherwise.
	DefaultMeta = 1 << 20

	// DefaultBody is the greatest length of a frame's body unless Limits says otherwise. Payloads of many MB are
	// legal (protocol §10, 33).
	DefaultBody = 128 << 20
)

// Limits bounds what a frame may announce. Zero fields stand for the defaults.
type Limits struct {
	// Meta is the greatest length of the meta in bytes.
	Meta int

	// Body is the greatest length of the body in bytes.
	Body int
}

// withDefaults returns l with its zero fields filled in.
func (l Limits) withDefaults() Limits {
	if l.Meta == 0 {
		l.Meta = DefaultMeta
	}
	if l.Body == 0 {
		l.Body = DefaultBody
	}
	return l
}

// Frame is one unit of the event protocol: u32be length | meta | u32be length | body (protocol §2.2).
type Frame struct {
	// Meta is the CBOR of the event's meta, not yet looked at: Unmarshal(f.Meta, &v).
	Meta []byte

	// Body is the bytes of the event's payload field; empty means that there is none.
	Body []byte
}

// ReadFrame reads the one frame that r holds. A frame cut short or followed by anything matches ErrMalformed, one
// beyond the limits ErrTooLarge; errors of r itself are wrapped. Memory is taken as bytes come, not as announced.
func ReadFrame(r io.Reader, limits Limits) (Frame, error) {
	f, err := nextFrame(r, limits.withDefaults())
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

// Frames reads the frames that r holds back to back, however many. The first error, as of [ReadFrame], ends it.
func Frames(r io.Reader, limits Limits) iter.Seq2[Frame, error] {
	limits = limits.withDefaults()
	return func(yield func(Frame, error) bool) {
		for {
			f, err := nextFrame(r, limits)
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// End is what the sentinel after a list of frames says.
type End struct {
	// Next is the cursor after the last frame, or empty.
	Next string

	// HasMore says whether frames follow that cursor.
	HasMore bool
}

// endMeta is the meta of the sentinel (protocol §2.2).
type endMeta struct {
	End     Int    `cbor:"_end"`
	Next    string `cbor:"next,omitzero"`
	HasMore bool   `cbor:"hasMore"`
}

// ReadList reads frames and the sentinel that must end them, as a client does.
func ReadList(r io.Reader, limits Limits) ([]Frame, End, error) {
	var list []Frame
	var end endMeta
	for f, err := range Frames(r, limits) {
		if err == nil && end.End != 0 {
			err = malformed("frame after the sentinel")
		}
		if err == nil {
			err = Unmarshal(f.Meta, &end)
		}
		if err != nil {
			return nil, End{}, err
		}
		if end.End == 0 {
			list = append(list, f)
		}
	}
	if end.End == 0 {
		return nil, End{}, malformed("list of frames without a sentinel")
	}
	return list, End{Next: end.Next, HasMore: end.HasMore}, nil
}

// nextFrame reads one frame, or returns io.EOF if r ends before it.
func nextFrame(r io.Reader, limits Limits) (Frame, error) {
	n, err := readLength(r, "frame meta length")
	if err != nil {
		return Frame{}, err
	}
	if n > int64(limits.Meta) {
		return Frame{}, tooLarge("frame meta of %d bytes, limit %d", n, limits.Meta)
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
	if n > int64(limits.Body) {
		return Frame{}, tooLarge("frame body of %d bytes, limit %d", n, limits.Body)
	}
	body, err := readFull(r, int(n), "frame body")
	if err != nil {
		return Frame{}, err
	}
	return Frame{Meta: meta, Body: body}, nil
}

const (
	lengthSize = 4
	firstRead  = 64 << 10 // what is allocated on the word of a peer
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

// readFull reads n bytes. The buffer doubles while bytes keep coming, so announcing much costs the sender as much.
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

// cutShort says that r ended within what, or passes on that reading failed.
func cutShort(err error, what string, got, want int) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return malformed("%s cut short: %d of %d bytes", what, got, want)
	}
	return fmt.Errorf("read %s: %w", what, err)
}
