package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
)

// errEnded reports a write to a FrameWriter after its sentinel.
var errEnded = errors.New("frame after the sentinel")

// bufferedFrames is how many bytes of frames are written at once. Each write of an answer has a cost, and most frames
// have a few hundred bytes.
const bufferedFrames = 32 << 10

// frameBuffers has the buffers of writers that have ended.
var frameBuffers = sync.Pool{New: func() any { return new(make([]byte, 0, 2*bufferedFrames)) }}

// FrameWriter writes frames in pieces of about 32 kB. The caller flushes it after the last frame.
type FrameWriter struct {
	w     io.Writer
	buf   []byte
	ended bool
}

// NewFrameWriter returns a FrameWriter that writes to w.
func NewFrameWriter(w io.Writer) *FrameWriter {
	return &FrameWriter{w: w, buf: (*frameBuffers.Get().(*[]byte))[:0]} //nolint:forcetypeassert // it has nothing else
}

// WriteFrame writes one frame. Meta must come from [Marshal] or an [Object]; an empty body means no payload. After an
// error the stream is broken and must be abandoned.
func (w *FrameWriter) WriteFrame(meta, body []byte) error {
	if w.ended {
		return errEnded
	}
	if len(meta) > math.MaxUint32 || len(body) > math.MaxUint32 {
		return fmt.Errorf("write frame: meta of %d and body of %d bytes, limit 2^32-1", len(meta), len(body))
	}
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(meta)))
	w.buf = append(w.buf, meta...)
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(body)))
	if len(body) >= bufferedFrames {
		if err := w.Flush(); err != nil {
			return err
		}
		if _, err := w.w.Write(body); err != nil {
			return fmt.Errorf("write frame body: %w", err)
		}
		return nil
	}
	if w.buf = append(w.buf, body...); len(w.buf) >= bufferedFrames {
		return w.Flush()
	}
	return nil
}

// Flush writes what is still in the buffer.
func (w *FrameWriter) Flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.w.Write(w.buf)
	w.buf = w.buf[:0]
	if err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// WriteEnd writes the sentinel of a list. Without it, clients treat the list as broken. An empty next is omitted;
// whether the last page has one depends on the client (protocol §2.4), and the snapshot on the run. It flushes the
// writer.
func (w *FrameWriter) WriteEnd(next string, hasMore bool, snapshot *Snapshot) error {
	meta, err := Marshal(endMeta{End: 1, Next: next, HasMore: hasMore, Snapshot: snapshot})
	if err != nil {
		return err
	}
	if err := w.WriteFrame(meta, nil); err != nil {
		return err
	}
	w.ended = true
	err = w.Flush()
	buf := w.buf
	w.buf = nil
	if cap(buf) == 2*bufferedFrames { // it has not grown
		frameBuffers.Put(&buf)
	}
	return err
}
