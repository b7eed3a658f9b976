package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

const (
	// heartbeat is how often a reader who gets no events hears that the connection lives.
	heartbeat = 15 * time.Second
	// readerStall is how long a reader may take nothing of what is sent.
	readerStall = 30 * time.Second
)

// lastEventID is what a reader had last, who comes back.
func lastEventID(c echo.Context) string { return c.Request().Header.Get("Last-Event-ID") }

// followRun answers with the log of a run as it is written, until the run has ended.
func (s *Server) followRun(c echo.Context) error {
	id, err := runParam(c)
	if err != nil {
		return err
	}
	q, with, err := eventQuery(c)
	if err != nil {
		return err
	}
	if q.After, err = positionParam(c.QueryParam("after"), "after"); err != nil {
		return err
	}
	if last := lastEventID(c); last != "" {
		if q.After, err = positionParam(last, "Last-Event-ID"); err != nil {
			return err
		}
	}
	f, err := s.Log.FollowRun(c.Request().Context(), auth.Project(c), id, q, with)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.follow(c, f, with, func(e read.Entry) string { return strconv.FormatInt(e.Seq, 10) })
}

// followEvents answers with all events of the project as they are written.
func (s *Server) followEvents(c echo.Context) error {
	q, with, err := projectQuery(c)
	if err != nil {
		return err
	}
	given, after := "after", c.QueryParam("after")
	if last := lastEventID(c); last != "" {
		given, after = "Last-Event-ID", last
	}
	var from *read.FeedCursor
	switch after {
	case "":
	case "0": // before the first
		from = &read.FeedCursor{}
	default:
		place, err := read.ParseFeedCursor(after)
		if err != nil {
			return badParam(given, "%q is not the ID of an event of this stream", after)
		}
		from = &place
	}
	f, err := s.Log.FollowProject(c.Request().Context(), auth.Project(c), q, from, with)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.follow(c, f, with, func(e read.Entry) string { return read.FeedCursorOf(e).String() })
}

// follow sends what the follower reads. Once the answer has begun, the only way to say that something is wrong is
// to break the connection; readers come back with the ID they had last.
func (s *Server) follow(
	c echo.Context, f *read.Follower, with read.Payloads, id func(read.Entry) string,
) error {
	ctx, cancel := context.WithCancel(c.Request().Context())
	defer cancel()
	defer context.AfterFunc(s.Draining, cancel)()
	w := newEventWriter(ctx, c.Response())
	defer w.close()
	err := w.begin(f.Cursor())
	for err == nil && !f.Ended() {
		err = w.next(ctx, f, shown(c, with), id)
	}
	if err == nil {
		err = w.send("event: end\ndata: {}\n\n")
	}
	if err != nil {
		s.Logger.DebugContext(ctx, "answer cut off", "path", c.Path(), "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// eventWriter writes server-sent events to a reader who must take them.
type eventWriter struct {
	*echo.Response

	// slow breaks off a write that stalls.
	slow   *time.Timer
	unhook func() bool
}

func newEventWriter(ctx context.Context, r *echo.Response) *eventWriter {
	conn := http.NewResponseController(r.Writer)
	// A deadline long past breaks off the write under way.
	breakOff := func() { _ = conn.SetWriteDeadline(time.Unix(1, 0)) }
	w := &eventWriter{Response: r, slow: time.AfterFunc(readerStall, breakOff)}
	w.slow.Stop()
	w.unhook = context.AfterFunc(ctx, breakOff)
	return w
}

func (w *eventWriter) close() {
	w.unhook()
	w.slow.Stop()
}

// begin tells the reader where it is, so that it misses nothing if the connection breaks before the first event.
func (w *eventWriter) begin(cursor string) error {
	w.Header().Set(echo.HeaderContentType, mimeEvents)
	w.Header().Set(echo.HeaderCacheControl, "no-store")
	w.WriteHeader(http.StatusOK)
	return w.idle(cursor)
}

// idle tells that nothing has happened up to the cursor: an ID without data is no event.
func (w *eventWriter) idle(cursor string) error {
	return w.send(fmt.Sprintf(": nothing new\nid: %s\n\n", cursor))
}

func (w *eventWriter) send(text string) error {
	w.slow.Reset(readerStall)
	defer w.slow.Stop()
	if _, err := w.Write([]byte(text)); err != nil {
		return err
	}
	w.Flush()
	return nil
}

// next sends the events that come next, or a heartbeat.
func (w *eventWriter) next(
	ctx context.Context, f *read.Follower, show func(read.Entry) view.Event, id func(read.Entry) string,
) error {
	patience, cancel := context.WithTimeout(ctx, heartbeat)
	defer cancel()
	entries, err := f.Next(ctx, patience)
	if err != nil {
		return err
	}
	for _, e := range entries {
		data, err := json.Marshal(show(e))
		if err != nil {
			return err
		}
		if err := w.send("id: " + id(e) + "\ndata: " + string(data) + "\n\n"); err != nil {
			return err
		}
	}
	if len(entries) == 0 && !f.Ended() {
		return w.idle(f.Cursor())
	}
	return nil
}
