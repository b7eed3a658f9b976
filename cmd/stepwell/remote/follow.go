package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// serverEvent is one of server-sent events.
type serverEvent struct{ kind, data string }

// errEnded says that the server has sent all there will ever be.
var errEnded = errors.New("ended")

// sinkError is one of whoever takes the events, with whom there is no point in trying again.
type sinkError struct{ error }

func (e sinkError) Unwrap() error { return e.error }

// follow calls take with each event until the server says that there will be no more. It comes back after the
// connection broke, where it was; not if there never was one.
func (s *Session) follow(ctx context.Context, path string, query url.Values, take func(data string) error) error {
	r := eventReader{s: s, path: path, take: take}
	if len(query) > 0 {
		r.path += "?" + query.Encode()
	}
	again := s.newRetry()
	for {
		err := r.read(ctx, again)
		if errors.Is(err, errEnded) {
			return nil
		}
		if sink := (sinkError{}); errors.As(err, &sink) {
			return sink.error
		}
		if err := again.wait(ctx, err); err != nil {
			return err
		}
	}
}

// eventReader reads events over one connection after the other.
type eventReader struct {
	s    *Session
	path string
	take func(data string) error
	last string // the ID of the last event, or the place that a comment said
}

// read connects and reads until something goes wrong, or the end.
func (r *eventReader) read(ctx context.Context, again *retry) error {
	header := http.Header{"Accept": {"text/event-stream"}}
	if r.last != "" {
		header.Set("Last-Event-ID", r.last)
	}
	resp, err := r.s.client.send(ctx, http.MethodGet, r.path, header, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return sinkError{fmt.Errorf("what %s answers are no events: is it a Stepwell server?", r.s.client.base.Redacted())}
	}
	lines := bufio.NewReader(resp.Body)
	for {
		e, id, err := readEvent(lines)
		again.contact()
		if err != nil {
			return r.s.client.unreachable(ctx, err)
		}
		again.noticed = false
		if e.kind == "end" {
			return errEnded
		}
		if e.data != "" {
			if err := r.take(e.data); err != nil {
				return sinkError{err}
			}
		}
		if id != "" {
			r.last = id
		}
	}
}

// readEvent reads up to an empty line. What the connection broke off in the middle of is no event.
func readEvent(lines *bufio.Reader) (e serverEvent, id string, err error) {
	var data []string
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // the end comes as an event
		}
		if err != nil {
			return serverEvent{}, "", err
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			e.data = strings.Join(data, "\n")
			return e, id, nil
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			id = value
		case "event":
			e.kind = value
		case "data":
			data = append(data, value)
		default: // a comment, or what later servers may send
		}
	}
}

// retry says whether to try again what takes long and has worked before.
type retry struct {
	s       *Session
	last    time.Time // when the server was last there; zero, which is long ago, if never
	noticed bool
}

func (s *Session) newRetry() *retry { return &retry{s: s} }

// contact notes that the server was there until now.
func (r *retry) contact() { r.last = r.s.Now() }

// wait returns after a pause if there is a point in trying again after the error, and else the error.
func (r *retry) wait(ctx context.Context, err error) error {
	if err := interrupted(ctx, err); errors.Is(err, ErrInterrupted) {
		return err
	}
	if ExitCode(err) != ExitUnreachable || r.s.Now().Sub(r.last) > r.s.patience {
		return err
	}
	if !r.noticed {
		r.s.note("the connection broke; trying again")
		r.noticed = true
	}
	return r.s.sleep(ctx)
}

// sleep waits for a pause, or fails with [ErrInterrupted].
func (s *Session) sleep(ctx context.Context) error {
	select {
	case <-time.After(s.pause):
		return nil
	case <-ctx.Done():
		return ErrInterrupted
	}
}
