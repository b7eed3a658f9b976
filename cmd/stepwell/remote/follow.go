package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// sseEvent is a server-sent event.
type sseEvent struct{ id, kind, data string }

// errStreamEnded means that the server sent its end event.
var errStreamEnded = errors.New("stream ended")

// follow calls handle with each event until the server ends the stream. When an established connection breaks, it
// reconnects and resumes after the last event.
func (s *Session) follow(
	ctx context.Context, path string, query url.Values, handle func(json.RawMessage) error,
) error {
	r := eventReader{s: s, path: withQuery(path, query), handle: handle}
	retry := retrier{s: s}
	for {
		err := r.read(ctx, &retry)
		if errors.Is(err, errStreamEnded) {
			return nil
		}
		if err := retry.wait(ctx, err); err != nil {
			return err
		}
	}
}

// eventReader reads a stream of events over successive connections.
type eventReader struct {
	s      *Session
	path   string
	handle func(json.RawMessage) error
	lastID string // of the last event, or of the last comment that had one
}

// read connects and reads until an error or the end of the stream.
func (r *eventReader) read(ctx context.Context, retry *retrier) error {
	header := http.Header{"Accept": {"text/event-stream"}}
	if r.lastID != "" {
		header.Set("Last-Event-ID", r.lastID)
	}
	resp, err := r.s.client.send(ctx, http.MethodGet, r.path, header, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return fmt.Errorf("%s does not serve events: is it a Stepwell server?", r.s.client.base.Redacted())
	}
	lines := bufio.NewReader(resp.Body)
	for {
		e, err := readEvent(lines)
		retry.connected()
		if err != nil {
			return r.s.client.unreachable(ctx, err)
		}
		retry.noted = false
		if e.kind == "end" {
			return errStreamEnded
		}
		if e.data != "" {
			if err := r.handle(json.RawMessage(e.data)); err != nil {
				return err
			}
		}
		if e.id != "" {
			r.lastID = e.id
		}
	}
}

// readEvent reads an event up to its empty line. An incomplete event is an error.
func readEvent(lines *bufio.Reader) (e sseEvent, err error) {
	var data []string
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // a regular end comes as an event
		}
		if err != nil {
			return sseEvent{}, err
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
		default: // a comment, or a field that newer servers send
		}
	}
}

// retrier decides whether to retry a long operation after an error. It retries only once the server has answered, and
// gives up when the server has been unreachable for [Session.retryFor].
type retrier struct {
	s     *Session
	last  time.Time // when the server last answered; zero if never
	noted bool
}

// connected records that the server has just answered.
func (r *retrier) connected() { r.last = r.s.Now() }

// wait sleeps before the next try, or returns the error if it is not worth retrying.
func (r *retrier) wait(ctx context.Context, err error) error {
	if err := orInterrupted(ctx, err); errors.Is(err, ErrInterrupted) {
		return err
	}
	if ExitCode(err) != ExitUnreachable || r.s.Now().Sub(r.last) > r.s.retryFor {
		return err
	}
	if !r.noted {
		r.s.note("connection lost; retrying")
		r.noted = true
	}
	return r.s.sleep(ctx)
}

// sleep waits for the retry interval, or returns [ErrInterrupted].
func (s *Session) sleep(ctx context.Context) error {
	select {
	case <-time.After(s.retryInterval):
		return nil
	case <-ctx.Done():
		return ErrInterrupted
	}
}
