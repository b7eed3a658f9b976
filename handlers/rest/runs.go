package rest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/why"
)

const (
	// The orders of the list of runs.
	orderByCreation = "created"
	orderByEnd      = "ended"

	// attributePrefix starts the query parameters that filter by attributes: attribute.KEY=value.
	attributePrefix = "attribute."

	// How long a request waits for the end of a run by default, and at most.
	defaultWait = 30 * time.Second
	maxWait     = time.Minute
)

// addBlocked adds why runs of the project are blocked. Only runs that the server drives and that have not ended can be.
// Clients that may not see payloads do not get the message.
func (s *Server) addBlocked(
	ctx context.Context, project entities.Project, with read.Payloads, runs []api.Run,
) error {
	var open []entities.RunID
	for _, r := range runs {
		if r.Driver == driverNames[entities.DriverServer] && !entities.RunStatus(r.Status).Ended() {
			open = append(open, entities.RunID(r.ID))
		}
	}
	blocked, err := s.Queue.Blocked(ctx, project, open)
	if err != nil {
		return err
	}
	for i, r := range runs {
		if h, ok := blocked[entities.RunID(r.ID)]; ok {
			if with == read.WithoutPayloads {
				h.Message = ""
			}
			runs[i].Blocked = &api.Blocked{
				Code: h.Code, Message: h.Message, Since: timestamp(h.Since), Attempts: int64(h.Attempts),
			}
		}
	}
	return nil
}

// driverNames are the API's names of the drivers.
var driverNames = map[entities.Driver]string{
	entities.DriverClient: "client",
	entities.DriverServer: "server",
}

// newRunJSON encodes what the run's row holds. The rest is in its log.
func newRunJSON(r entities.Run) api.Run {
	v := api.Run{
		ContinuedFrom: string(r.ContinuedFrom), ContinuedAs: string(r.ContinuedAs),
		ID: string(r.ID), Workflow: r.WorkflowName, Deployment: r.DeploymentID, Driver: driverNames[r.Driver],
		Status: api.RunStatus(r.Status), Attributes: r.Attributes, Key: r.UniqueKey, ParentID: string(r.ParentID),
		RootID: string(r.RootID), Depth: int64(r.Depth), CreatedAt: timestamp(r.CreatedAt),
		StartedAt: optionalTime(r.StartedAt), CompletedAt: optionalTime(r.CompletedAt),
		Deadline: optionalTime(r.Deadline), ForcedAt: optionalTime(r.ForcedAt), LastSeq: r.LastSeq,
	}
	if v.Attributes == nil {
		v.Attributes = map[string]string{}
	}
	if r.ForkOf != "" {
		v.ForkOf = &api.ForkOf{RunID: string(r.ForkOf), Events: r.ForkSeq}
	}
	if r.Status == entities.RunFailed {
		v.Error = newFailureJSON(r.ErrorCode, nil)
	}
	return v
}

// runSummaries encodes runs of the project for a list. It reads the log only for pending runs, whose first event has
// their start time.
func (s *Server) runSummaries(
	ctx context.Context, project entities.Project, with read.Payloads, runs []entities.Run,
) ([]api.Run, error) {
	var at []read.Position
	for _, r := range runs {
		if r.Driver == entities.DriverServer && r.Status == entities.RunPending {
			at = append(at, read.Position{RunID: r.ID, Seq: 1})
		}
	}
	events, err := s.Log.EventsAt(ctx, at, read.WithoutPayloads)
	if err != nil {
		return nil, err
	}
	summaries := make([]api.Run, len(runs))
	for i, r := range runs {
		summaries[i] = newRunJSON(r)
		if first, ok := events[read.Position{RunID: r.ID, Seq: 1}]; ok {
			summaries[i].StartAt = optionalTime(first.Data.StartAt)
		}
	}
	return summaries, s.addBlocked(ctx, project, with, summaries)
}

// runDetail encodes a single run with its input and outcome. Without payloads, it has no input or output, and of an
// error only the code.
func (s *Server) runDetail(r *request, run entities.Run, with read.Payloads) (api.Run, error) {
	at := []read.Position{{RunID: run.ID, Seq: 1}}
	if run.EndSeq > 0 {
		at = append(at, read.Position{RunID: run.ID, Seq: run.EndSeq})
	}
	events, err := s.eventsAt(r.ctx(), run, at, with)
	if err != nil {
		return api.Run{}, err
	}
	return decodeFor(r, func() api.Run { return newRunDetail(run, events, with) })
}

// eventsAt returns events of a run. Those of a small run that has just ended in this process are at hand: many clients
// wait for the end of what they have started.
func (s *Server) eventsAt(
	ctx context.Context, run entities.Run, at []read.Position, with read.Payloads,
) (map[read.Position]entities.Event, error) {
	if run.EndSeq > 0 && with == read.WithPayloads {
		cached, ok := s.Log.Cached(ctx, run.Project, run.ID, run.LastSeq)
		if ok && cached.Run.LastSeq == run.LastSeq {
			events := map[read.Position]entities.Event{}
			for _, p := range at {
				events[p] = cached.Log[p.Seq-1]
			}
			return events, nil
		}
	}
	return s.Log.EventsAt(ctx, at, with)
}

// newRunDetail encodes a run with those of its first and last event that were found.
func newRunDetail(r entities.Run, events map[read.Position]entities.Event, with read.Payloads) api.Run {
	v := newRunJSON(r)
	if e, ok := events[read.Position{RunID: r.ID, Seq: 1}]; ok {
		if with == read.WithPayloads {
			v.Input, v.InputEncoding = payloadJSON(e)
		}
		if fork := e.Data.Fork; fork != nil {
			v.ForkOf.Steps, v.ForkOf.Children = int64(fork.Steps), int64(fork.Children)
		}
		if r.Status == entities.RunPending {
			v.StartAt = optionalTime(e.Data.StartAt)
		}
	}
	if e, ok := events[read.Position{RunID: r.ID, Seq: r.EndSeq}]; ok && r.EndSeq > 0 {
		addOutcome(&v, r, e, with)
	}
	return v
}

// addOutcome adds the content of the event that ended the run.
func addOutcome(v *api.Run, r entities.Run, e entities.Event, with read.Payloads) {
	switch {
	case r.Status == entities.RunCancelled:
		v.CancelReason = e.Data.Reason
	case with == read.WithoutPayloads:
	case r.Status == entities.RunCompleted:
		v.Output, v.OutputEncoding = payloadJSON(e)
	default:
		v.Error = newFailureJSON(r.ErrorCode, &e)
	}
}

func (s *Server) listRuns(r *request) error {
	by, f := r.orderBy(orderByCreation, orderByEnd, orderByNeed), r.runFilter()
	if need := r.need(f); need != "" || by == orderByNeed {
		return s.answerNeeding(r, f, need)
	}
	return s.answerRuns(r, f)
}

// countRuns counts the runs that a list would have, up to a limit.
func (s *Server) countRuns(r *request) error {
	f := r.runFilter()
	need := r.need(f)
	return answerAs(r, newRunCountJSON, func() (store.RunCount, error) {
		if need != "" {
			return why.CountNeeding(r.ctx(), s.Queue.Pool(), r.project(), need, f)
		}
		return store.CountRuns(r.ctx(), s.Reader, r.project(), f)
	})
}

// countRunParts answers with how much a run has of each kind.
func (s *Server) countRunParts(r *request) error {
	run := r.run()
	return answerAs(r, newRunCountsJSON, func() (read.PartCounts, error) { return s.Log.CountParts(r.ctx(), run) })
}

func newRunCountsJSON(c read.PartCounts) api.RunCounts {
	upTo := func(n int) api.Count {
		return api.Count{Count: int64(min(n, read.MaxParts)), More: n > read.MaxParts}
	}
	return api.RunCounts{
		Steps: upTo(c.Steps), Hooks: upTo(c.Hooks), Waits: upTo(c.Waits), Children: upTo(c.Children),
		Streams: upTo(c.Streams), Values: upTo(c.Values), Messages: upTo(c.Messages),
	}
}

// listChildren lists the runs that a run started.
func (s *Server) listChildren(r *request) error {
	return s.answerRuns(r, store.RunFilter{ParentID: r.run().ID})
}

func (s *Server) answerRuns(r *request, f store.RunFilter) error {
	page, reasons := r.page(newestFirst), r.includesReason()
	return answer(r, func() (v api.Page[api.Run], err error) {
		runs, next, err := store.ListRuns(r.ctx(), s.Reader, r.project(), f, page)
		if err != nil {
			return v, err
		}
		v.Cursor = next
		if v.Data, err = s.runSummaries(r.ctx(), r.project(), r.payloads(), runs); err != nil || !reasons {
			return v, err
		}
		return v, s.addReasons(r, v.Data)
	})
}

// includesReason reports whether the runs of a list are to have the reason why they are not done.
func (r *request) includesReason() bool {
	include := r.QueryParam("include")
	if include != "" && include != "reason" {
		r.fail(badParam("include", "%q is not known; only reason is", include))
	}
	return include != ""
}

// addReasons adds to those of the project's runs that have not ended why they are not done.
func (s *Server) addReasons(r *request, runs []api.Run) error {
	explained, err := s.explainOpen(r.ctx(), r.project(), runs)
	for i := range runs {
		setReason(&runs[i], explained, r.payloads())
	}
	return err
}

// explainOpen explains those of the project's runs that have not ended.
func (s *Server) explainOpen(
	ctx context.Context, project entities.Project, runs []api.Run,
) (map[entities.RunID]why.Explanation, error) {
	var open []entities.RunID
	for _, run := range runs {
		if !entities.RunStatus(run.Status).Ended() {
			open = append(open, entities.RunID(run.ID))
		}
	}
	return why.OfMany(ctx, s.Queue.Pool(), project, open)
}

// setReason sets why the run is not done, as clients see it that may see payloads or not.
func setReason(run *api.Run, explained map[entities.RunID]why.Explanation, with read.Payloads) {
	e := explained[entities.RunID(run.ID)]
	if len(e.Reasons) == 0 { // it may have ended meanwhile
		return
	}
	first := redactReason(e.Reasons[0], with)
	run.Reason = api.RunReason{
		Verdict: api.Verdict(e.Verdict), Kind: api.ReasonKind(first.Kind), Summary: first.Summary(),
		Since: optionalTime(first.Since), At: optionalTime(first.At), Until: optionalTime(first.Until),
	}
}

// runFilter returns the filter parameters of the list of runs.
func (r *request) runFilter() store.RunFilter {
	f := store.RunFilter{
		WorkflowName: r.QueryParam("workflow"), DeploymentID: r.QueryParam("deployment"), AnyStatus: r.statuses(),
		UniqueKey: r.QueryParam("key"), ParentID: entities.RunID(r.QueryParam("parentId")),
		ForkOf: entities.RunID(r.QueryParam("forkOf")),
		ByEnd:  r.QueryParam("orderBy") == orderByEnd, ErrorCode: r.QueryParam("errorCode"),
	}
	for name, values := range r.QueryParams() {
		if key, ok := strings.CutPrefix(name, attributePrefix); ok {
			if f.Attributes == nil {
				f.Attributes = map[string]string{}
			}
			f.Attributes[key] = values[0]
		}
	}
	r.fail(inParam("attribute", entities.ValidateAttributes(f.Attributes, true)))
	f.Created = window(r.time("createdAfter"), r.time("createdBefore"))
	f.Ended = window(r.time("endedAfter"), r.time("endedBefore"))
	return f
}

// orderBy returns the order of a list, which must be one of those; empty if the request names none.
func (r *request) orderBy(orders ...string) string {
	by := r.QueryParam("orderBy")
	if by != "" && !slices.Contains(orders, by) {
		r.fail(badParam("orderBy", "%q is none of the orders %s", by, strings.Join(orders, ", ")))
	}
	return by
}

// statuses returns the statuses of the list of runs. The parameter may be repeated.
func (r *request) statuses() []entities.RunStatus {
	var statuses []entities.RunStatus
	for _, text := range r.QueryParams()["status"] {
		status := entities.RunStatus(text)
		if !status.Known() {
			r.fail(badParam("status", "%q is not a run status", status))
		}
		statuses = append(statuses, status)
	}
	return statuses
}

// window converts the half-open interval [after, before) to the closed interval of whole milliseconds that run lists
// use. A zero time leaves its side open.
func window(after, before time.Time) store.Window {
	if !after.IsZero() {
		after = after.Add(time.Millisecond - 1).Truncate(time.Millisecond)
	}
	if !before.IsZero() {
		before = before.Add(-1).Truncate(time.Millisecond)
	}
	return store.Window{From: after, To: before}
}

// getRun answers with a run, or with the collection of one that has not started.
func (s *Server) getRun(r *request) error {
	return r.answerPending(s.answerRunWith(r, r.run(), r.wantsPayloads()))
}

// answerRun answers with a single run, unless reading the request failed.
func (s *Server) answerRun(r *request, run entities.Run) error {
	return s.answerRunWith(r, run, r.payloads())
}

func (s *Server) answerRunWith(r *request, run entities.Run, with read.Payloads) error {
	return answer(r, func() (api.Run, error) {
		detail, err := s.runDetail(r, run, with)
		if err != nil {
			return detail, err
		}
		one := []api.Run{detail}
		err = s.addBlocked(r.ctx(), r.project(), r.payloads(), one)
		return one[0], err
	})
}

// waiting returns a context that ends after a time, and when the server is about to stop.
func (s *Server) waiting(r *request, timeout time.Duration) (waiting context.Context, stop func()) {
	waiting, cancel := context.WithTimeout(r.ctx(), timeout)
	detach := context.AfterFunc(s.Draining, cancel)
	return waiting, func() {
		detach()
		cancel()
	}
}

func (s *Server) getAttributes(r *request) error {
	run := r.run()
	return answer(r, func() (api.RunAttributes, error) {
		return api.RunAttributes{Attributes: newRunJSON(run).Attributes}, nil
	})
}

// setAttributes sets some attributes and removes those whose value is null.
func (s *Server) setAttributes(r *request) error {
	var body api.SetAttributesBody
	r.body(&body)
	if len(body.Attributes) == 0 {
		r.fail(badField("attributes", "name at least one attribute to change"))
	}
	run := r.run()
	if r.err != nil {
		return r.err
	}
	var changes []entities.AttributeChange
	for _, key := range slices.Sorted(maps.Keys(body.Attributes)) {
		changes = append(changes, entities.AttributeChange{Key: key, Value: body.Attributes[key]})
	}
	appended, err := s.Log.Append(r.ctx(), run.Project, eventlog.Request{
		RunID: run.ID, Type: entities.EventAttrSet, SpecVersion: run.SpecVersion, Data: entities.EventData{Changes: changes},
	})
	if errors.Is(err, entities.ErrConflict) { // the attributes of ended runs cannot change
		if now, failed := store.RunByID(r.ctx(), s.Reader, run.Project, run.ID); failed == nil && now.Status.Ended() {
			return runEnded(now, entities.EventAttrSet)
		}
	}
	if err != nil {
		return err
	}
	return r.JSON(http.StatusOK, api.RunAttributes{Attributes: appended.Run.Attributes})
}

// commandRun executes commands that a function sends before it answers its invocation. With the parameter "after", it
// answers with the events that follow that position.
func (s *Server) commandRun(r *request) error {
	call := r.call()
	body := r.rawBody()
	if len(body) > contract.MaxAnswer {
		r.fail(entities.Invalid("the commands are %d bytes; the limit is %d", len(body), contract.MaxAnswer))
	}
	if !r.QueryParams().Has("after") {
		return answerNothing(r, func() error {
			_, err := s.Runs.Command(r.ctx(), call, body)
			return err
		})
	}
	after := r.after()
	if r.err != nil {
		return r.err
	}
	results, err := s.Runs.Exchange(r.ctx(), call, after, body)
	if err != nil {
		return err
	}
	return s.answerExchange(r, call.RunID, after, results)
}

// call returns the call that sends the request.
func (r *request) call() token.Call {
	return token.Call{Project: r.project(), RunID: r.runID(), Invocation: r.invocation()}
}

// invocation returns the invocation that sends the request: that of the token, or of the header.
func (r *request) invocation() string {
	header := r.Request().Header.Get(contract.HeaderInvocation)
	call := auth.IdentityOf(r).Call
	switch {
	case call != nil && header != "" && header != call.Invocation:
		r.fail(entities.Invalid("the header %s names another invocation than the token is for", contract.HeaderInvocation))
	case call != nil:
		return call.Invocation
	case header == "":
		r.fail(entities.Invalid("the header %s is missing: send the name of the invocation", contract.HeaderInvocation))
	}
	return header
}

// exchange is the answer to commands of a function that follows the log.
type exchange struct {
	// Seq is the position of the last of Events, or the position that the request named if there is none.
	Seq    int64           `json:"seq"`
	Events json.RawMessage `json:"events"`
	// More is set if the log goes on after Seq.
	More bool `json:"more,omitempty"`
}

// answerExchange answers with the events after the position, of which the results of the commands are a part.
func (s *Server) answerExchange(r *request, id entities.RunID, after int64, results []eventlog.Result) error {
	listing, err := s.eventsAfter(r, id, after, results)
	if err != nil {
		return err
	}
	events, n, err := r.appendEvents(nil, formShown, listing.Entries)
	if err != nil {
		return err
	}
	if n > 0 {
		after = listing.Entries[n-1].Seq
	}
	return r.JSON(http.StatusOK, exchange{after, events, listing.More || n < len(listing.Entries)})
}

// eventsAfter returns the first page of the run's events after the position. If the log is cached, it is in the results
// of the commands, and needs no read.
func (s *Server) eventsAfter(
	r *request, id entities.RunID, after int64, results []eventlog.Result,
) (listing read.Listing, err error) {
	page := pg.Page{Limit: contract.InlineEvents}
	if n := len(results); n > 0 && results[n-1].Log != nil {
		log := results[n-1].Log
		log = log[min(after, int64(len(log))):]
		for i := range log {
			listing.Entries = append(listing.Entries, read.Entry{Row: read.RowOf(&log[i]), Size: int64(len(log[i].Payload))})
		}
		return listing, nil
	}
	return s.Log.RunEvents(r.ctx(), r.project(), id, read.EventQuery{After: after}, page, read.WithPayloads)
}
