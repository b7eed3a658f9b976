// Package inproc sends HTTP requests to a handler of the same process. Nothing is encoded, and there is no connection:
// the handler has the request's body and context, and the client its answer as it is written.
package inproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// buffered is how many bytes of an answer wait until the handler ends, unless it flushes them. A longer answer is
// passed on while it is written.
const buffered = 64 << 10

// Transport is an [http.RoundTripper] that has a handler answer all requests, whatever their scheme and host are.
type Transport struct{ Handler http.Handler }

// RoundTrip implements [http.RoundTripper]. The handler sees the end of the request's context as that of a connection:
// as [context.Canceled], without the cause. If it panics, the error is [io.ErrUnexpectedEOF], as if the connection was
// closed.
func (t Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(req.Context()))
	detach := context.AfterFunc(req.Context(), cancel)
	w := &writer{request: req, header: http.Header{}, cancel: cancel, begun: make(chan outcome, 1)}
	r := req.Clone(ctx)
	if r.Body == nil {
		r.Body = http.NoBody
	}
	r.RequestURI, r.RemoteAddr = req.URL.RequestURI(), "127.0.0.1:0"
	if r.Host == "" {
		r.Host = req.URL.Host
	}
	execute(func() {
		defer detach()
		defer cancel()
		defer func() { _ = r.Body.Close() }() // as transports do
		defer func() { w.end(recover()) }()
		t.Handler.ServeHTTP(w, r)
	})
	select {
	case got := <-w.begun:
		return got.response, got.err
	case <-req.Context().Done():
		w.abandon(req.Context().Err())
		return nil, req.Context().Err()
	}
}

// idle is how long a goroutine that has carried out a request waits for another one.
const idle = 100 * time.Millisecond

// requests go to goroutines that have carried out one before.
var requests = make(chan func())

// execute calls f, which does not panic, by another goroutine: as connections do, it has its goroutines carry out one
// request after the other, because a new one would grow its stack anew.
func execute(f func()) {
	select {
	case requests <- f:
	default:
		go serve(f)
	}
}

// serve calls f, and what comes until nothing has come for a while.
func serve(f func()) {
	waits := time.NewTimer(idle)
	defer waits.Stop()
	for f != nil {
		f()
		waits.Reset(idle)
		select {
		case f = <-requests:
		case <-waits.C:
			f = nil
		}
	}
}

// outcome is what a request led to.
type outcome struct {
	response *http.Response
	err      error
}

// writer is the [http.ResponseWriter] of a request.
type writer struct {
	request *http.Request
	header  http.Header
	cancel  context.CancelFunc
	begun   chan outcome // gets one outcome

	mu     sync.Mutex
	status int // 0 until the header is written
	sent   http.Header
	buffer bytes.Buffer
	pipe   *io.PipeWriter // nil while the answer is buffered
	lost   error          // why nobody reads the answer
}

// Header implements [http.ResponseWriter].
func (w *writer) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *writer) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(status)
}

func (w *writer) writeHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status, w.sent = status, w.header.Clone()
	}
}

// Write implements [io.Writer].
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.writeHeader(http.StatusOK)
	if w.lost != nil {
		defer w.mu.Unlock()
		return 0, w.lost
	}
	if w.pipe == nil && w.buffer.Len()+len(p) <= buffered {
		defer w.mu.Unlock()
		return w.buffer.Write(p)
	}
	if err := w.pass(); err != nil {
		return 0, err
	}
	return w.pipe.Write(p)
}

// FlushError is for [http.ResponseController].
func (w *writer) FlushError() error {
	w.mu.Lock()
	w.writeHeader(http.StatusOK)
	return w.pass()
}

// Flush implements [http.Flusher].
func (w *writer) Flush() { _ = w.FlushError() }

// SetReadDeadline is for [http.ResponseController]. Bodies are in memory, so reading them does not wait.
func (*writer) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is for [http.ResponseController]: a time in the past ends writes that wait for the reader.
func (w *writer) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() && at.Year() < 2000 {
		w.abandon(os.ErrDeadlineExceeded)
	}
	return nil
}

// pass begins to pass the answer on, and passes on what was buffered. The caller holds the mutex, which it releases.
func (w *writer) pass() error {
	begin := w.pipe == nil && w.lost == nil
	if begin {
		var r *io.PipeReader
		r, w.pipe = io.Pipe()
		w.begun <- outcome{response: w.response(&body{PipeReader: r, writer: w}, -1)}
	}
	pipe, rest, lost := w.pipe, bytes.Clone(w.buffer.Bytes()), w.lost
	w.buffer.Reset()
	w.mu.Unlock()
	if lost != nil || len(rest) == 0 {
		return lost
	}
	_, err := pipe.Write(rest)
	return err
}

func (w *writer) response(b io.ReadCloser, length int64) *http.Response {
	return &http.Response{
		StatusCode: w.status, Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: b, ContentLength: length, Request: w.request,
	}
}

// end is called when the handler has ended, with what it panicked with.
func (w *writer) end(panicked any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var err error
	if panicked != nil {
		err = fmt.Errorf("%w: the handler panicked: %v", io.ErrUnexpectedEOF, panicked)
	}
	switch {
	case w.pipe != nil:
		if err == nil {
			err = w.request.Context().Err() // the handler may have stopped because of it
		}
		_ = w.pipe.CloseWithError(err) // nil is the end
	case w.lost != nil:
	case err != nil:
		w.begun <- outcome{err: err}
	default:
		w.writeHeader(http.StatusOK)
		w.begun <- outcome{response: w.response(io.NopCloser(&w.buffer), int64(w.buffer.Len()))}
	}
}

// abandon makes writes fail: nobody reads the answer.
func (w *writer) abandon(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = why
	if w.pipe != nil {
		_ = w.pipe.CloseWithError(why)
	}
}

// body is that of an answer which is passed on. Closing it tells the handler that nobody reads.
type body struct {
	*io.PipeReader

	writer *writer
}

// Read implements [io.Reader]. It fails when the request's context ends.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.PipeReader.Read(p)
	if ended := b.writer.request.Context().Err(); err != nil && !errors.Is(err, io.EOF) && ended != nil {
		err = ended
	}
	return n, err
}

// Close implements [io.Closer].
func (b *body) Close() error {
	b.writer.cancel()
	return b.CloseWithError(io.ErrClosedPipe)
}
