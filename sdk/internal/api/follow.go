package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"
)

// silence is how long a stream of events may be silent before the connection counts as lost. The server writes
// something every 15 seconds.
const silence = 45 * time.Second

// Follow yields the data of a stream of server-sent events until the server ends the stream. When the connection is
// lost, it comes back and goes on after the last event. It yields one error at most, as the last element: that of the
// context, or of an answer that repeating does not change.
func (c *Client) Follow(ctx context.Context, r Request) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		f := follower{c: c, request: r, yield: yield}
		for failures := 0; ; {
			heard := f.lastID
			err := f.read(ctx)
			if err == nil {
				return // the end of the stream, or of the loop
			}
			if failures++; f.lastID != heard {
				failures = 1
			}
			if transient(err) {
				err = c.wait(ctx, failures, err)
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// follower reads a stream of events over several connections.
type follower struct {
	c       *Client
	request Request
	yield   func(json.RawMessage, error) bool
	lastID  string
}

// read connects, and yields events until the stream ends, which is no error.
func (f *follower) read(ctx context.Context) error {
	connection, cancel := context.WithCancel(ctx)
	defer cancel()
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	f.request.Header = http.Header{"Accept": {"text/event-stream"}}
	if f.lastID != "" {
		f.request.Header.Set("Last-Event-ID", f.lastID)
	}
	resp, err := f.c.send(connection, f.request, nil)
	if err != nil {
		return orEnded(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return fmt.Errorf("%s sends no events: is it a Stepwell server?", f.c.base.Redacted())
	}
	for lines := bufio.NewReader(resp.Body); ; {
		watchdog.Reset(silence)
		e, err := readEvent(lines)
		watchdog.Stop() // the time that the loop's body takes does not count
		if err != nil {
			return orEnded(ctx, f.c.lost(err))
		}
		if e.kind == "end" {
			return nil
		}
		if e.id != "" {
			f.lastID = e.id
		}
		if e.data != "" && !f.yield(json.RawMessage(e.data), nil) {
			return nil
		}
	}
}

// event is a server-sent event.
type event struct{ id, kind, data string }

// readEvent reads an event up to its empty line. A part of an event is an error, since a stream ends with an event.
func readEvent(lines *bufio.Reader) (e event, err error) {
	var data []string
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return event{}, err
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			e.data = strings.Join(data, "\n")
			return e, nil
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.kind = value
		case "data":
			data = append(data, value)
		default: // a comment, or a field of a newer server
		}
	}
}
