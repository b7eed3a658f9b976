package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

const (
	// mimeEvents is the media type of server-sent events.
	mimeEvents = "text/event-stream"
	// endEvent is the last server-sent event of a complete stream.
	endEvent = "event: end\ndata: {}\n\n"

	// heartbeatInterval is how often an idle connection gets a comment.
	heartbeatInterval = 15 * time.Second
)

// followRun streams a run's log as it is written, until the run has ended.
func (s *Server) followRun(c echo.Context) error {
	r := s.request(c)
	id := r.runID()
	q, with := r.eventQuery()
	q.After = r.number("after", c.QueryParam("after"), eventPosition)
	if last := r.lastEventID(); last != "" {
		q.After = r.number("Last-Event-ID", last, eventPosition)
	}
	if r.err != nil {
		return r.err
	}
	f, err := s.Log.FollowRun(r.ctx(), r.project(), id, q, with)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.follow(r, f, with, runPosition)
}

// followEvents streams all events of the project as they are written.
func (s *Server) followEvents(c echo.Context) error {
	r := s.request(c)
	q, with := r.projectEventQuery()
	from := r.startPlace()
	if r.err != nil {
		return r.err
	}
	f, err := s.Log.FollowProject(r.ctx(), r.project(), q, from, with)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.follow(r, f, with, feedPosition)
}

// startPlace returns the place in the project's events after which the stream starts; nil for its current end.
func (r *request) startPlace() *read.FeedCursor {
	name, text := "after", r.QueryParam("after")
	if last := r.lastEventID(); last != "" {
		name, text = "Last-Event-ID", last
	}
	switch text {
	case "":
		return nil
	case "0": // before the first event
		return &read.FeedCursor{}
	}
	place, err := read.ParseFeedCursor(text)
	if err != nil {
		r.fail(badParam(name, "%q is not the ID of an event of this stream", text))
	}
	return &place
}

// follow streams the follower's events.
func (s *Server) follow(
	r *request, f *read.Follower, with read.Payloads, id func(read.Entry) string,
) error {
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	defer context.AfterFunc(s.Draining, cancel)()
	w := eventWriter{incoming.NewLiveWriter(ctx, r)}
	defer w.Close()
	form := r.eventForm(with)
	encode := func(e read.Entry) ([]byte, error) {
		event, err := r.encodeEvent(form, new(view.List), e)
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(event)
		return fmt.Appendf(nil, "id: %s\ndata: %s\n\n", id(e), data), err
	}
	err := w.begin(f.Cursor())
	for err == nil && !f.Ended() {
		err = w.next(ctx, f, form, encode)
	}
	if err == nil {
		err = w.Send([]byte(endEvent))
	}
	if err != nil {
		s.abort(r, err)
	}
	return nil
}

// abort breaks the connection. Once a response has begun, this is the only way to tell the client that it is
// incomplete. The client reconnects with the last event ID it received.
func (s *Server) abort(r *request, err error) {
	s.Logger.DebugContext(r.ctx(), "response aborted", "path", r.Path(), "error", err)
	panic(http.ErrAbortHandler)
}

// eventWriter writes server-sent events.
type eventWriter struct{ *incoming.LiveWriter }

// begin sends the headers and the current position. A client that loses the connection before the first event resumes
// from there.
func (w eventWriter) begin(cursor string) error {
	beginStream(w.Response, mimeEvents)
	return w.idle(cursor)
}

func beginStream(w *echo.Response, mediaType string) {
	w.Header().Set(echo.HeaderContentType, mediaType)
	w.Header().Set(echo.HeaderCacheControl, "no-store")
	w.WriteHeader(http.StatusOK)
}

// idle reports that there are no events up to the cursor. An ID without data is not an event.
func (w eventWriter) idle(cursor string) error {
	return w.Send(fmt.Appendf(nil, ": nothing new\nid: %s\n\n", cursor))
}

// next sends the next events, or a heartbeat.
func (w eventWriter) next(
	ctx context.Context, f *read.Follower, form string, encode func(read.Entry) ([]byte, error),
) error {
	waiting, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	entries, err := f.Next(ctx, waiting)
	if err != nil {
		return err
	}
	for _, e := range entries {
		text, err := e.Encoded(form, encode)
		if err != nil {
			return err
		}
		if err := w.Send(text); err != nil {
			return err
		}
	}
	if len(entries) == 0 && !f.Ended() {
		return w.idle(f.Cursor())
	}
	return nil
}
