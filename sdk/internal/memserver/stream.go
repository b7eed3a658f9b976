package memserver

import (
	"encoding/json"
	"errors"
)

// ErrStreamClosed means that a stream takes no more chunks.
var ErrStreamClosed = errors.New("the stream is closed")

// Stream is a stream of a run.
type Stream struct {
	Chunks []json.RawMessage
	Closed bool

	writers map[string]*writer
}

// writer is how far a step is, or the code of a workflow, that writes to a stream.
type writer struct {
	attempt any
	next    int
}

// StreamWrite is a request that writes to a stream.
type StreamWrite struct {
	Stream  string
	From    int
	Chunks  []json.RawMessage
	Step    string
	Attempt int
	Close   bool
}

// WriteStream writes what the attempt of the request's step, or the run's code, has not written yet. It fails with
// [ErrCallOver] if nobody waits for the step any more, and with [ErrStreamClosed].
func (s *Server) WriteStream(r *Run, w StreamWrite, attempt any) error {
	if r.Status != "running" {
		return ErrCallOver
	}
	if r.streams == nil {
		r.streams = map[string]*Stream{}
	}
	st := r.streams[w.Stream]
	if st == nil {
		st = &Stream{writers: map[string]*writer{}}
		r.streams[w.Stream] = st
	}
	by := st.writers[w.Step]
	if by == nil || by.attempt != attempt {
		by = &writer{attempt: attempt}
		st.writers[w.Step] = by
	}
	known := min(max(by.next-w.From, 0), len(w.Chunks))
	if st.Closed && known < len(w.Chunks) {
		return ErrStreamClosed
	}
	st.Chunks = append(st.Chunks, w.Chunks[known:]...)
	st.Closed = st.Closed || w.Close
	by.next = max(by.next, w.From+len(w.Chunks))
	return nil
}

// Stream returns what is written to a stream.
func (r *Run) Stream(name string) Stream {
	if s := r.streams[name]; s != nil {
		return *s
	}
	return Stream{}
}
