package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// errEnded is the mistake of writing to a FrameWriter after its sentinel.
var errEnded = errors.New("frame after the sentinel")

// FrameWriter writes frames to a writer as they come, buffering nothing; flushing is the caller's.
type FrameWriter struct {
	w     io.Writer
	head  []byte // reused for what precedes the body
	ended bool
}

// NewFrameWriter returns a FrameWriter that writes to w.
func NewFrameWriter(w io.Writer) *FrameWriter { return &FrameWriter{w: w} }

// WriteFrame writes one frame. Meta comes from Marshal; an empty body is a frame without payload. After an error
// the stream is broken and must be abandoned.
func (w *FrameWriter) WriteFrame(meta, body []byte) error {
	if w.ended {
		return errEnded
	}
	if len(meta) > math.MaxUint32 || len(body) > math.MaxUint32 {
		return fmt.Errorf("write frame: meta of %d and body of %d bytes, limit 2^32-1", len(meta), len(body))
	}
	w.head = binary.BigEndian.AppendUint32(w.head[:0], uint32(len(meta)))
	w.head = append(w.head, meta...)
	w.head = binary.BigEndian.AppendUint32(w.head, uint32(len(body)))
	if _, err := w.w.Write(w.head); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	if len(body) == 0 {
		return nil
	}
	if _, err := w.w.Write(body); err != nil {
		return fmt.Errorf("write frame body: %w", err)
	}
	return nil
}

// WriteEnd writes the sentinel of a list, without which clients take the list as broken. An empty next is left
// out. Which client is to get next on the last page is for the caller to know (protocol §2.4).
func (w *FrameWriter) WriteEnd(next string, hasMore bool) error {
	meta, err := Marshal(endMeta{End: 1, Next: next, HasMore: hasMore})
	if err != nil {
		return err
	}
	if err := w.WriteFrame(meta, nil); err != nil {
		return err
	}
	w.ended = true
	return nil
}
