package stepwell

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// StreamKind is the definition of a stream: what a run says while it works, chunk by chunk, such as the tokens of a
// model. Each run has a stream of its own under the name, as soon as something is written to it. It can be read from
// its beginning, and followed until it is closed: by [StreamKind.Close], or at the end of the run.
//
// Streams are for those who watch a run. They are not in the log, and no code of a run depends on them: keep results in
// outputs or the store. A run has at most 16 streams with names of up to 128 bytes, a stream 100,000 chunks of up to
// 256 KiB of JSON, and 64 MiB in all. A step that writes more fails for good with the code stream_limit, and a workflow
// that does is blocked.
type StreamKind[T any] struct{ name string }

// NewStream returns the definition of the stream with this name.
func NewStream[T any](name string) *StreamKind[T] { return &StreamKind[T]{name} }

// Name returns the name of the stream.
func (k *StreamKind[T]) Name() string { return k.name }

// Streamer writes to the streams of a run. In workflows it is the [*Context], in steps it comes from [Streams].
//
// Chunks are sent in the background, at most ten times in a second, and those of one writer arrive in the order in
// which it has written them, each once. When the result of a step is recorded, all that it has written is there, and
// before a workflow waits, what that has written.
//
// Each attempt of a step writes its own chunks, after those of attempts that have failed: who minds puts
// StepInfo.Attempt of [Info] into them. A workflow's chunk is written once, however often its code is repeated.
type Streamer interface {
	// stream writes a chunk, or closes the stream if it is nil.
	stream(name string, chunk json.RawMessage)
}

// Write writes a chunk. It waits while more than a MiB is on its way. If it cannot be sent, a step's context ends, and
// the attempt has failed; a workflow's call has.
func (k *StreamKind[T]) Write(s Streamer, chunk T) {
	data, err := encode(chunk)
	if err == nil && len(data) > largestChunk {
		err = fmt.Errorf("it has %d bytes; the limit is %d", len(data), largestChunk)
	}
	if err != nil {
		panic(fmt.Sprintf("encode a chunk of stream %q: %v", k.name, err))
	}
	s.stream(k.name, data)
}

// Close closes the stream: who follows it sees its end at once, and not only when the run ends. A chunk that is written
// later is an error with the code stream_closed.
func (k *StreamKind[T]) Close(s Streamer) { s.stream(k.name, nil) }

// largestChunk is the size limit of a chunk, in bytes: what the server keeps, without the end of its line.
const largestChunk = 256<<10 - 1

type streamKey struct{}

// withStreams gives a step's context the streams of the run. The context ends when something cannot be written.
func (a *App) withStreams(ctx context.Context, host *callHost, features []string) (context.Context, *sender) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := a.newSender(ctx, host, slices.Contains(features, "stream"), cancel)
	return context.WithValue(ctx, streamKey{}, s), s
}

// Streams returns the streams of the run that the step belongs to. It panics if ctx is not the context of a step.
func Streams(ctx context.Context) Streamer {
	s, ok := ctx.Value(streamKey{}).(*sender)
	if !ok {
		panic("stepwell.Streams was called with a context that is not that of a step")
	}
	return s
}

// stream counts the chunks of the code, and sends those that it writes for the first time.
func (w *Context) stream(name string, chunk json.RawMessage) {
	w.co.Check()
	x := w.exec
	from := x.chunks[name]
	if chunk != nil {
		x.chunks[name]++
	}
	if x.engine.Live() {
		x.sender.write(name, from, chunk)
	}
}

// Follow yields the chunks of a run's stream, beginning with one index, as they are written, until the stream is
// closed. A negative index counts from the present end. It waits for a stream that nobody has written yet: until the
// run ends. It outlives restarts of the server. An error is the last element.
func (k *StreamKind[T]) Follow(ctx context.Context, c *Client, runID string, from int64) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		f := follower{c: c, path: apiPath("runs", runID, "streams", k.name, "tail"), from: from}
		err := f.follow(ctx, func(value json.RawMessage) (bool, error) {
			v, err := decode[T](value)
			if err != nil {
				return false, fmt.Errorf("decode a chunk of stream %s of run %s: %w", k.name, runID, err)
			}
			return yield(v, nil), nil
		})
		if err != nil {
			yield(*new(T), err)
		}
	}
}

// follower reads a stream over connections that follow each other.
type follower struct {
	c    *Client
	path string
	from int64
	last string // the index of the last chunk that has come; empty if none has
}

// errLeft means that the reader wants no more.
var errLeft = errors.New("the reader wants no more")

// follow calls yield with each chunk, until it returns false or an error, or the stream ends.
func (f *follower) follow(ctx context.Context, yield func(json.RawMessage) (bool, error)) error {
	for failures := 0; ; {
		was := f.last
		ended, err := f.read(ctx, yield)
		switch {
		case ended || errors.Is(err, errLeft):
			return nil
		case err != nil && !transient(err):
			return orEnded(ctx, err)
		case f.last != was:
			failures = 0
		}
		failures++
		if err := f.c.wait(ctx, failures, err); err != nil {
			return err
		}
	}
}

// read reads one connection. It ends with an error, or because the stream has.
func (f *follower) read(ctx context.Context, yield func(json.RawMessage) (bool, error)) (ended bool, err error) {
	r := apiRequest{
		method: http.MethodGet, path: f.path, header: http.Header{"Accept": {"text/event-stream"}},
		query: url.Values{"decoded": {"true"}, "wait": {"true"}, "from": {strconv.FormatInt(f.from, 10)}},
	}
	if f.last != "" {
		r.header.Set("Last-Event-ID", f.last)
	}
	resp, err := f.c.send(ctx, r, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	id, lines := "", bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return false, f.c.lost(err)
		}
		name, value, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(": "))
		switch string(name) {
		case "event":
			return string(value) == "end", nil
		case "id":
			id = string(value)
		case "data":
			if err := f.take(value, yield); err != nil {
				return false, err
			}
			f.last = id
		}
	}
}

// take passes a chunk on.
func (f *follower) take(data []byte, yield func(json.RawMessage) (bool, error)) error {
	data, err := opened(f.c.codec, data)
	if err != nil {
		return err
	}
	var chunk struct{ Value, Text json.RawMessage }
	if err := json.Unmarshal(data, &chunk); err != nil {
		return fmt.Errorf("decode what %s has sent: is it a Stepwell server? (%w)", f.c.base.Redacted(), err)
	}
	if chunk.Value == nil {
		chunk.Value = chunk.Text // the Workflow SDK or a webhook has written it
	}
	more, err := yield(chunk.Value)
	if err == nil && !more {
		return errLeft
	}
	return err
}
