package rest

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// maxCorrelationID limits the length of the correlation ID in a query.
const maxCorrelationID = 1024

// eventPosition is what errors call the position of an event.
const eventPosition = "the position of an event"

// listRunEvents answers with a page of a run's log.
func (s *Server) listRunEvents(r *request) error {
	id, page := r.runID(), r.page(oldestFirst)
	q, with := r.eventQuery()
	q.After = r.after()
	return r.answerEvents(with, runPosition, func() (read.Listing, error) {
		return s.Log.RunEvents(r.ctx(), r.project(), id, q, page, with)
	})
}

// listEvents answers with a page of all events of the project.
func (s *Server) listEvents(r *request) error {
	page := r.page(oldestFirst)
	q, with := r.projectEventQuery()
	return r.answerEvents(with, feedPosition, func() (read.Listing, error) {
		return s.Log.ProjectEvents(r.ctx(), r.project(), q, page, with)
	})
}

// runPosition and feedPosition return the cursor of a list, or the ID in a stream, that was read up to the entry.
func runPosition(e read.Entry) string  { return strconv.FormatInt(e.Seq, 10) }
func feedPosition(e read.Entry) string { return read.FeedCursorOf(e).String() }

// answerEvents answers with one page of a query, unless reading the request failed. The page ends early if its payloads
// are much work to decode; the work ends when the client leaves.
func (r *request) answerEvents(
	with read.Payloads, cursor func(read.Entry) string, query func() (read.Listing, error),
) error {
	return answer(r, func() (eventPage, error) {
		listing, err := query()
		return eventPage{r, r.eventForm(with), listing, cursor}, err
	})
}

// eventPage is a page of events, which may be thousands: they are decoded while they are encoded.
type eventPage struct {
	r       *request
	form    string
	listing read.Listing
	cursor  func(read.Entry) string
}

// appendJSON implements [appender].
func (p eventPage) appendJSON(dst []byte) (_ []byte, err error) {
	entries, next := p.listing.Entries, p.listing.Cursor
	dst, n, err := p.r.appendEvents(append(dst, `{"data":`...), p.form, entries)
	if err != nil {
		return dst, err
	}
	if n < len(entries) {
		next = p.cursor(entries[n-1])
	}
	if next != "" {
		dst = strconv.AppendQuote(append(dst, `,"cursor":`...), next)
	}
	return append(dst, "}\n"...), nil
}

// appendEvents appends the entries of a list as JSON, or its first ones if they are much work to decode, and returns
// how many. It lets others decode after each part.
func (r *request) appendEvents(dst []byte, form string, entries []read.Entry) (_ []byte, n int, err error) {
	var list view.List
	dst = append(dst, '[')
	if form != formShown {
		for ; n < len(entries); n++ {
			if dst, err = list.Append(dst, new(plainEvent(form, &entries[n].Row))); err != nil {
				return dst, n, err
			}
		}
		return append(dst, ']'), n, r.ctx().Err()
	}
	for part := -1; part != 0 && n < len(entries); n += part {
		failed, err := decodeFor(r, func() (failed error) {
			dst, part, failed = list.AppendPart(dst, entries[n:])
			return failed
		})
		if err != nil || failed != nil {
			return dst, n, cmp.Or(err, failed)
		}
	}
	return append(dst, ']'), n, nil
}

// The forms of an event, which differ in what the client may see or wants to.
const (
	formRedacted = "redacted"
	formPlain    = "plain"
	formShown    = "shown" // with its payload
)

// eventForm returns the form of the events that the request asks for.
func (r *request) eventForm(with read.Payloads) string {
	switch {
	case r.payloads() == read.WithoutPayloads:
		return formRedacted
	case with == read.WithoutPayloads:
		return formPlain
	default:
		return formShown
	}
}

// encodeEvent encodes an entry of a stream. It fails with the error of the request's context once the client has left.
func (r *request) encodeEvent(form string, e *read.Entry) (view.Event, error) {
	if form != formShown {
		return plainEvent(form, &e.Row), r.ctx().Err()
	}
	return decodeFor(r, func() view.Event {
		v, _ := view.Listed(e)
		return v
	})
}

// plainEvent encodes an event without its payload.
func plainEvent(form string, e *read.Row) view.Event {
	if form == formRedacted {
		return redactEvent(e)
	}
	return view.Plain(e)
}

// redactEvent encodes an event for clients that may not see payloads. Besides the payload, it drops the fields that
// [hookJSON] hides, and digests, by which short payloads could be guessed.
func redactEvent(e *read.Row) view.Event {
	v, data := view.Plain(e), *e.Data
	data.Token, data.Condition = "", ""
	data.RequestDigest, data.ResumeDigest = "", ""
	v.Data = &data
	return v
}

// eventQuery returns the filter parameters of a list of events, and whether its events have payloads.
func (r *request) eventQuery() (q read.EventQuery, with read.Payloads) {
	for _, t := range r.QueryParams()["type"] {
		if !slices.Contains(entities.EventTypes, entities.EventType(t)) {
			r.fail(badParam("type", "%q is not an event type", t))
		}
		q.Types = append(q.Types, entities.EventType(t))
	}
	if q.CorrelationID = r.QueryParam("correlationId"); len(q.CorrelationID) > maxCorrelationID {
		r.fail(badParam("correlationId", "it has more than %d bytes", maxCorrelationID))
	}
	q.Created.From, q.Created.To = r.time("from"), r.time("to")
	return q, r.wantsPayloads()
}

// wantsPayloads returns whether the answer has payloads: if the request asks for them, and its client may see them.
func (r *request) wantsPayloads() read.Payloads {
	if !r.flag("payloads", true) {
		return read.WithoutPayloads
	}
	return r.payloads()
}

// projectEventQuery is [request.eventQuery] for the events of all runs, or of the run that the query names.
func (r *request) projectEventQuery() (read.EventQuery, read.Payloads) {
	q, with := r.eventQuery()
	if id := r.QueryParam("runId"); id != "" {
		r.fail(entities.ValidateID("run ID", id))
		q.RunID = entities.RunID(id)
	}
	return q, with
}

// event returns the event that the path identifies by run and position.
func (s *Server) event(r *request) (entities.Event, error) {
	id, text := r.runID(), r.pathText("seq", "position")
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seq < 1 || strings.HasPrefix(text, "+") {
		r.fail(badParam("seq", "%q is not %s", text, eventPosition))
	}
	if r.err != nil {
		return entities.Event{}, r.err
	}
	return s.Log.Event(r.ctx(), r.project(), id, seq)
}

func (s *Server) getEvent(r *request) error {
	encode := view.Of
	if r.payloads() == read.WithoutPayloads {
		encode = func(e *entities.Event) view.Event { return redactEvent(new(read.RowOf(e))) }
	}
	return answer(r, func() (shown view.Event, err error) {
		e, err := s.event(r)
		if err != nil {
			return shown, err
		}
		return decodeFor(r, func() view.Event { return encode(&e) })
	})
}

// getPayload answers with the stored bytes of an event's payload. They are empty if it has none.
func (s *Server) getPayload(r *request) error {
	e, err := s.event(r)
	if err != nil {
		return err
	}
	r.Response().Header().Set(echo.HeaderXContentTypeOptions, "nosniff")
	return r.Blob(http.StatusOK, echo.MIMEOctetStream, e.Payload)
}

// abandoned is the status of a part whose run ended first.
const abandoned = "abandoned"

// timelineJSON encodes a part of a run.
func (r *request) timelineJSON(run entities.Run, p read.TimelinePart) api.TimelinePart {
	v := api.TimelinePart{
		Kind: p.Type.Kind(), ID: p.ID, Name: p.Data.StepName, Seq: p.Seq, CreatedAt: timestamp(p.CreatedAt),
		ResumeAt: optionalTime(p.Data.ResumeAt), At: p.Data.At, Undo: p.Data.Undo, Cut: p.Cut,
	}
	if v.Kind == entities.KindHook {
		v.Name = r.hookName(p)
	}
	if p.Data.Step != nil {
		v.ChildID = string(p.Data.Step.ChildID)
	}
	v.Status = map[string]string{
		entities.KindStep: string(entities.StepPending), entities.KindHook: hookActive,
		entities.KindWait: string(entities.WaitWaiting),
	}[v.Kind]
	if p.Type == entities.EventHookConflict {
		v.Status, v.EndedAt = hookConflict, timestamp(p.CreatedAt)
	}
	for _, e := range p.Later {
		addEvent(&v, e)
	}
	if run.Status.Ended() && v.EndedAt.IsZero() {
		v.Status, v.EndedAt = abandoned, optionalTime(run.CompletedAt)
	}
	return v
}

// hookName returns what people call a hook whose ID says nothing: its token, which is secret to the clients of
// [request.redactHook], and which nobody chose if it is that of a webhook.
func (r *request) hookName(p read.TimelinePart) string {
	switch {
	case !entities.IsSDKID(p.ID):
		return ""
	case p.Data.IsWebhook != nil && *p.Data.IsWebhook:
		return "webhook"
	case r.payloads() == read.WithoutPayloads:
		return ""
	default:
		return p.Data.Token
	}
}

// addEvent applies an event of the part.
func addEvent(v *api.TimelinePart, e read.TimelineEvent) {
	at := timestamp(e.At)
	end := func(status, outcome string) {
		if e.StartedAt != nil && len(v.Attempts) == 0 { // made by the function itself, and recorded with its result
			v.Attempts = append(v.Attempts, api.Attempt{Seq: e.Seq, StartedAt: at})
		}
		if n := len(v.Attempts); n > 0 && v.Attempts[n-1].EndedAt.IsZero() {
			a := &v.Attempts[n-1]
			a.EndedAt, a.EndSeq, a.Outcome, a.Code, a.RetryAfter = at, e.Seq, outcome, e.Code, optionalTime(e.RetryAfter)
			setRecorded(a, e)
		}
		v.Status = status
	}
	switch e.Type {
	case entities.EventStepStarted:
		end(string(entities.StepRunning), "lost")
		v.Attempts = append(v.Attempts, api.Attempt{Seq: e.Seq, StartedAt: at})
	case entities.EventStepRetrying:
		end(string(entities.StepPending), "retrying")
	case entities.EventStepCompleted:
		end(string(entities.StepCompleted), "completed")
		v.EndedAt = at
	case entities.EventStepFailed:
		end(string(entities.StepFailed), "failed")
		v.EndedAt = at
	case entities.EventHookReceived:
		v.Received = append(v.Received, api.ReceivedPayload{Seq: e.Seq, At: at})
	case entities.EventHookDisposed:
		v.Status, v.EndedAt = hookDisposed, at
	case entities.EventWaitCompleted:
		v.Status, v.EndedAt = string(entities.WaitCompleted), at
	case entities.EventWaitCancelled:
		v.Status, v.EndedAt = string(entities.WaitCancelled), at
	default: // creates the part again, which the tables refuse
	}
}

// setRecorded sets the times of an attempt that the function made itself, unless its clock is ahead of the server's.
func setRecorded(a *api.Attempt, e read.TimelineEvent) {
	if e.StartedAt == nil || e.EndedAt == nil || e.EndedAt.After(e.At) || e.StartedAt.After(*e.EndedAt) {
		return
	}
	a.StartedAt, a.EndedAt = timestamp(*e.StartedAt), optionalTime(e.EndedAt)
}

// getTimeline lists what a run did and when: its steps with their attempts, its hooks and its waits.
func (s *Server) getTimeline(r *request) error {
	q := read.TimelineQuery{Page: r.page(oldestFirst), Name: r.QueryParam("name")}
	for _, status := range r.QueryParams()["status"] {
		if !slices.Contains(stepStatuses, entities.StepStatus(status)) {
			r.fail(badParam("status", "%q is none of %v", status, stepStatuses))
		}
		q.Statuses = append(q.Statuses, entities.StepStatus(status))
	}
	run := r.run()
	var decided map[entities.HookID]api.Outcome
	encode := func(p read.TimelinePart) api.TimelinePart {
		v := r.timelineJSON(run, p)
		if v.Kind == entities.KindHook {
			v.Outcome = decided[entities.HookID(p.ID)]
		}
		return v
	}
	return answerPage(r, encode, func() (parts []read.TimelinePart, next string, err error) {
		if parts, next, err = s.Log.Timeline(r.ctx(), run, q); err == nil {
			decided, err = s.timelineOutcomes(r, run.ID, parts)
		}
		return parts, next, err
	})
}

var stepStatuses = []entities.StepStatus{
	entities.StepPending, entities.StepRunning, entities.StepCompleted, entities.StepFailed,
}

func newStepGroupJSON(g read.StepGroup) api.TimelineName {
	count := func(s entities.StepStatus) int64 { return int64(g.Statuses[s]) }
	v := api.TimelineName{
		Name: g.Name, Count: int64(g.Count), Pending: count(entities.StepPending), Running: count(entities.StepRunning),
		Completed: count(entities.StepCompleted), Failed: count(entities.StepFailed), Retried: int64(g.Retried),
		Slowest: string(g.Slowest), FirstAt: timestamp(g.FirstAt), LastAt: timestamp(g.LastAt), Density: g.Density,
	}
	if g.Slowest != "" {
		v.P50Ms, v.MaxMs = new(g.Median.Milliseconds()), new(g.Longest.Milliseconds())
	}
	return v
}

// getTimelineNames sums up the steps of a run by their names.
func (s *Server) getTimelineNames(r *request) error {
	run := r.run()
	return answerAs(r, func(g read.StepGroups) api.TimelineNames {
		return api.TimelineNames{
			Data: encodeAll(g.Groups, newStepGroupJSON), Cursor: g.Cursor, Steps: int64(g.Steps), Names: int64(g.Names),
		}
	}, func() (read.StepGroups, error) { return s.Log.StepGroups(r.ctx(), run, r.QueryParam("cursor")) })
}

// payloadJSON returns an event's payload as JSON, if the server can decode it, and its encoding.
func payloadJSON(e entities.Event) (json.RawMessage, api.Encoding) {
	v := view.Of(&e)
	return v.Payload, api.Encoding(v.Encoding)
}

// newFailureJSON combines the stored error code with the error in the payload of the failing event, which may be nil.
// The payload is a text or an object; other payloads are ignored. The stored code takes precedence.
func newFailureJSON(code string, e *entities.Event) *api.Failure {
	f := &api.Failure{Code: code}
	if e == nil {
		return f
	}
	value, _ := payloadJSON(*e)
	var object struct {
		Code    any
		Message string
		Details json.RawMessage
		Stack   json.RawMessage
	}
	if json.Unmarshal(value, &f.Message) == nil || json.Unmarshal(value, &object) != nil {
		return f
	}
	f.Message, f.Details = object.Message, object.Details
	if f.Details == nil && object.Stack != nil {
		f.Details = []byte(`{"stack":` + string(object.Stack) + `}`) // as the Go SDK has it
	}
	if text, ok := object.Code.(string); ok && code == "" {
		f.Code = text
	}
	return f
}
