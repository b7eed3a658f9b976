package stepwell

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	// sendEvery is how far apart requests that write to streams are.
	sendEvery = 100 * time.Millisecond
	// mostUnsent is how many bytes of chunks wait for the server before writers do.
	mostUnsent = 1 << 20
	// mostTogether and largestTogether are how many chunks, and bytes of them, a request has at most.
	mostTogether    = 1000
	largestTogether = 512 << 10
)

// streamWrite is a request that writes to a stream.
type streamWrite struct {
	Stream  string            `json:"stream"`
	From    int64             `json:"from"`
	Chunks  []json.RawMessage `json:"chunks,omitempty"`
	Step    string            `json:"step,omitempty"`
	Attempt int               `json:"attempt,omitempty"`
	Close   bool              `json:"close,omitempty"`

	bytes int
}

// sender sends what one writer writes to streams during a call: an attempt of a step, or the code of a workflow.
type sender struct {
	ctx  context.Context //nolint:containedctx // that of the call
	host *callHost       // nil if there is none that takes chunks
	// fail is told why chunks cannot be sent.
	fail func(error)
	// step and attempt are who writes, if that is a step that is executed inline.
	step    string
	attempt int
	// every is how far apart requests are; 0: chunks are sent at once, before write returns.
	every time.Duration

	mu      sync.Mutex
	changed sync.Cond
	// flush is closed when nothing more comes, and the rest is to be sent. It and next are nil until something is written:
	// most writers write nothing.
	flush   chan struct{}
	next    map[string]int64 // indexes of the next chunks of a step
	waiting []*streamWrite
	unsent  int // bytes
	running bool
	ended   bool // nothing more comes
	err     error
}

// newSender returns what sends the chunks of a writer.
func (a *App) newSender(ctx context.Context, host *callHost, offered bool, fail func(error)) *sender {
	s := &sender{ctx: ctx, host: host, fail: fail, every: a.serving.sendEvery}
	if s.changed.L = &s.mu; !offered {
		s.host = nil
	}
	return s
}

// stream writes a chunk of a step, or closes the stream if it is nil.
func (s *sender) stream(name string, chunk json.RawMessage) {
	s.mu.Lock()
	from := s.next[name]
	if s.next == nil {
		s.next = map[string]int64{}
	}
	if chunk != nil {
		s.next[name]++
	}
	s.mu.Unlock()
	s.write(name, from, chunk)
}

// write sends a chunk, or closes the stream if it is nil. It waits while too much is on its way.
func (s *sender) write(name string, from int64, chunk json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.unsent > mostUnsent && s.err == nil {
		s.changed.Wait()
	}
	if s.err != nil {
		return
	}
	if s.host == nil {
		s.failed(Fail(codeUnsupported, "no server takes what is written to streams: set STEPWELL_URL, or upgrade the server"))
		return
	}
	s.add(name, from, chunk)
	if s.flush == nil {
		s.flush = make(chan struct{})
	}
	switch {
	case s.every == 0:
		s.run()
	case !s.running:
		s.running = true
		go func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.run()
		}()
	}
}

// add adds a chunk to the last request that waits, or to a new one.
func (s *sender) add(name string, from int64, chunk json.RawMessage) {
	s.unsent += len(chunk)
	var w *streamWrite
	if n := len(s.waiting); n > 0 {
		w = s.waiting[n-1]
	}
	if w == nil || w.Stream != name || w.Close || w.From+int64(len(w.Chunks)) != from || len(w.Chunks) == mostTogether ||
		w.bytes+len(chunk) > largestTogether {
		w = &streamWrite{Stream: name, From: from, Step: s.step, Attempt: s.attempt}
		s.waiting = append(s.waiting, w)
	}
	if w.bytes += len(chunk); chunk == nil {
		w.Close = true
	} else {
		w.Chunks = append(w.Chunks, chunk)
	}
}

// run sends what waits, with pauses. The caller has the lock.
func (s *sender) run() {
	for len(s.waiting) > 0 && s.err == nil {
		w := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.mu.Unlock()
		err := s.host.do(s.ctx, apiRequest{method: http.MethodPost, path: s.host.run + "/call/stream", body: w}, nil)
		s.mu.Lock()
		s.unsent -= w.bytes
		if err != nil {
			s.failed(err)
		}
		s.changed.Broadcast()
		if s.every > 0 {
			s.pause()
		}
	}
	s.running = false
	s.changed.Broadcast()
}

// pause waits until the next request may be sent. The caller has the lock.
func (s *sender) pause() {
	s.mu.Unlock()
	defer s.mu.Lock()
	timer := time.NewTimer(s.every)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.flush:
	}
}

// failed ends the writer. The caller has the lock.
func (s *sender) failed(err error) {
	if e, ok := errors.AsType[*APIError](err); ok && isRefused(err) {
		err = Fail(e.Code, e.Message)
	}
	if s.err == nil {
		s.err, s.waiting = err, nil
		s.fail(err)
	}
}

// errWritten ends a writer whose chunks have all been sent.
var errWritten = errors.New("all chunks were sent")

// end sends the rest, and returns why something could not be sent. What is written afterwards is not sent.
func (s *sender) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flush != nil && !s.ended {
		close(s.flush)
	}
	s.ended = true
	for (s.running || len(s.waiting) > 0) && s.err == nil {
		s.changed.Wait()
	}
	if s.err != nil {
		return s.err
	}
	s.err = errWritten
	s.fail(errWritten)
	return nil
}
