package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// errEnded reports a write to a FrameWriter after its sentinel.
var errEnded = errors.New("frame after the sentinel")

// FrameWriter writes frames without buffering. The caller flushes the writer.
type FrameWriter struct {
	w     io.Writer
	head  []byte // reused for the bytes before the body
	ended bool
}

// NewFrameWriter returns a FrameWriter that writes to w.
func NewFrameWriter(w io.Writer) *FrameWriter { return &FrameWriter{w: w} }

// WriteFrame writes one frame. Meta must come from Marshal; an empty body means no payload. After an error the stream
// is broken and must be abandoned.
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

// WriteEnd writes the sentinel of a list. Without it, clients treat the list as broken. An empty next is omitted;
// whether the last page has one depends on the client (protocol §2.4).
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
