package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/live"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/why"
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
func (s *Server) followRun(r *request) error {
	id := r.runID()
	q, with := r.eventQuery()
	q.After = r.after()
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
func (s *Server) followEvents(r *request) error {
	q, with := r.projectEventQuery()
	from := r.startCursor()
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

// startCursor returns the cursor in the project's events after which the stream starts; nil for its current end.
func (r *request) startCursor() *read.FeedCursor {
	name, text := "after", r.QueryParam("after")
	if last := r.lastEventID(); last != "" {
		name, text = "Last-Event-ID", last
	}
	if text == "0" { // before the first event
		return &read.FeedCursor{}
	}
	return r.feedCursor(name, text)
}

// feedCursor parses a cursor in the project's events; nil if the text is empty. The name is that of its parameter or
// header.
func (r *request) feedCursor(name, text string) *read.FeedCursor {
	if text == "" {
		return nil
	}
	cursor, err := read.ParseFeedCursor(text)
	if err != nil {
		r.fail(badParam(name, "%q is not the ID of an event of this stream", text))
	}
	return &cursor
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
		event, err := r.encodeEvent(form, &e)
		if err != nil {
			return nil, err
		}
		return eventText(id(e), event)
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

// eventText returns a server-sent event with JSON.
func eventText(id string, v any) ([]byte, error) {
	data, err := encodeJSON(v)
	return fmt.Appendf(nil, "id: %s\ndata: %s\n", id, data), err
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

// livePause is the least time between two messages to a viewer. After a reset, when it reads its list anew, it is left
// alone for liveRest: while more happens than can be sent, a viewer costs as much as one that polls.
const (
	livePause = 500 * time.Millisecond
	liveRest  = 5 * time.Second
)

// liveBegin starts a live view: proxies that hold back the first bytes of an answer get enough of them.
var liveBegin = ": " + strings.Repeat(" ", 2048) + "\n\n"

// The data of events of a live view that is encoded already, or in part. That of reset and bye is empty.
type (
	liveRunsJSON struct {
		Runs []json.RawMessage `json:"runs"`
		Gone []api.GoneRun     `json:"gone"`
	}
	liveLogJSON struct {
		From   int64           `json:"from"`
		To     int64           `json:"to"`
		Events json.RawMessage `json:"events,omitempty"`
	}
)

// liveRun is a run as lists show it. All viewers share its JSON.
type liveRun struct {
	withPayloads, without func() (json.RawMessage, error)
}

func newLiveRun(v api.Run, explained map[entities.RunID]why.Explanation) liveRun {
	once := func(v api.Run) func() (json.RawMessage, error) {
		return sync.OnceValues(func() (json.RawMessage, error) { return encodeJSON(v) })
	}
	hidden := v
	setReason(&v, explained, read.WithPayloads)
	setReason(&hidden, explained, read.WithoutPayloads)
	l := liveRun{withPayloads: once(v)}
	l.without = l.withPayloads
	if v.Blocked != nil {
		hidden.Blocked = new(*v.Blocked)
		hidden.Blocked.Message = ""
	}
	if v.Blocked != nil || hidden.Reason.Summary != v.Reason.Summary {
		l.without = once(hidden)
	}
	return l
}

// maxReasons is of how many runs at once a live view says why they are not done. Viewers of more read them anew.
const maxReasons = 200

// liveRows reads runs as lists show them.
func (s *Server) liveRows(
	ctx context.Context, project entities.Project, ids []entities.RunID,
) ([]live.Row[liveRun], error) {
	runs, err := store.RunsByID(ctx, s.Reader, project, ids)
	if err != nil {
		return nil, err
	}
	shown, err := s.runSummaries(ctx, project, read.WithPayloads, runs)
	var explained map[entities.RunID]why.Explanation
	if err == nil && len(shown) <= maxReasons {
		explained, err = s.explainOpen(ctx, project, shown)
	}
	rows := make([]live.Row[liveRun], len(shown))
	for i := range shown {
		rows[i] = live.Row[liveRun]{Run: runs[i], Shown: newLiveRun(shown[i], explained)}
	}
	return rows, err
}

// followLive sends a viewer what changes in what it follows.
func (s *Server) followLive(r *request) error {
	wants := r.liveWants()
	if r.err != nil {
		return r.err
	}
	v, err := s.live.Join(r.ctx(), r.project(), wants)
	if err != nil {
		return err
	}
	defer v.Close()
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	w := liveWriter{eventWriter{incoming.NewLiveWriter(ctx, r)}, r}
	defer w.Close()
	if err := s.sendLive(ctx, w, v); err != nil {
		s.abort(r, err)
	}
	return nil
}

// liveWants returns what the request wants to follow.
func (r *request) liveWants() live.Wants {
	w := live.Wants{
		Owner: auth.OwnerOf(r), Run: entities.RunID(r.QueryParam("run")), Topics: r.flag("topics", false),
		After: r.after(),
	}
	if last := r.lastEventID(); last != "" {
		place, err := live.ParsePlace(last)
		if err != nil {
			r.fail(badParam("Last-Event-ID", "%q is not the ID of an event of this stream", last))
		}
		w.From = &place
	}
	if w.Run != "" {
		r.fail(inParam("run", entities.ValidateID("run ID", string(w.Run))))
	}
	r.orderBy(orderByCreation, orderByEnd)
	if filter := r.runFilter(); r.flag("runs", false) {
		w.Runs = &filter
	}
	if w.Run != "" || w.Runs != nil {
		r.fail(auth.IdentityOf(r).Check(auth.Metadata))
	}
	if w.Run == "" && w.Runs == nil && !w.Topics {
		r.fail(badParam("run", "say what to follow: run=ID, runs=true or topics=true"))
	}
	return w
}

// sendLive writes events until the client leaves or the server stops.
func (s *Server) sendLive(ctx context.Context, w liveWriter, v *live.Viewer[liveRun]) error {
	w.Header().Set("X-Accel-Buffering", "no")
	beginStream(w.Response, mimeEvents)
	if err := w.Send([]byte(liveBegin)); err != nil {
		return err
	}
	hello := api.LiveHello{Version: s.Version, Time: timestamp(s.Log.Now()), Resumed: v.Resumed()}
	if err := w.event("hello", v.Begin(), hello); err != nil {
		return err
	}
	for {
		waiting, cancel := context.WithTimeout(ctx, heartbeatInterval)
		stop := context.AfterFunc(s.Draining, cancel)
		n, ok, err := v.Next(ctx, waiting)
		stop()
		cancel()
		switch {
		case err != nil:
			return err
		case ok:
			err = w.update(n)
		default:
			err = w.idle(n.String())
		}
		if err != nil {
			return err
		}
		if s.Draining.Err() != nil {
			return w.event("bye", n.Place, struct{}{})
		}
		pause := livePause
		if n.Reset {
			pause = liveRest
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Draining.Done():
		case <-time.After(pause):
		}
	}
}

// liveWriter writes the events of a live view, as the request's client may see them.
type liveWriter struct {
	eventWriter

	r *request
}

// event sends an event of a type.
func (w liveWriter) event(kind string, at live.Place, data any) error {
	text, err := encodeJSON(data)
	if err != nil {
		return err
	}
	return w.Send(fmt.Appendf(nil, "event: %s\nid: %s\ndata: %s\n", kind, at, text))
}

// update sends what is new. The log comes before the state of its run.
func (w liveWriter) update(n live.Update[liveRun]) (err error) {
	send := func(kind string, data any, failed error) {
		if err = cmp.Or(err, failed); err == nil {
			err = w.event(kind, n.Place, data)
		}
	}
	if n.Reset {
		send("reset", struct{}{}, nil)
	}
	if len(n.Runs)+len(n.Gone) > 0 {
		runs, failed := w.runs(n)
		send("runs", runs, failed)
	}
	if n.Log != nil {
		log, failed := liveLogJSON{From: n.Log.From, To: n.Log.To}, error(nil)
		if len(n.Log.Events) > 0 {
			log.Events, _, failed = w.r.appendEvents(nil, w.r.eventForm(read.WithoutPayloads), n.Log.Events)
		}
		send("log", log, failed)
	}
	if n.Run != nil {
		run, failed := w.run(*n.Run)
		send("run", run, failed)
	}
	if len(n.Topics) > 0 {
		topics := encodeAll(n.Topics, func(t string) api.LiveTopic { return api.LiveTopic(t) })
		send("changed", api.LiveChanged{Topics: topics}, nil)
	}
	return err
}

// run returns the run without what the client may not see.
func (w liveWriter) run(row live.Row[liveRun]) (json.RawMessage, error) {
	if w.r.payloads() == read.WithoutPayloads {
		return row.Shown.without()
	}
	return row.Shown.withPayloads()
}

func (w liveWriter) runs(n live.Update[liveRun]) (liveRunsJSON, error) {
	v := liveRunsJSON{
		Runs: make([]json.RawMessage, len(n.Runs)),
		Gone: encodeAll(n.Gone, func(g live.Gone) api.GoneRun { return api.GoneRun{ID: string(g.ID), LastSeq: g.LastSeq} }),
	}
	for i, row := range n.Runs {
		var err error
		if v.Runs[i], err = w.run(row); err != nil {
			return v, err
		}
	}
	return v, nil
}
