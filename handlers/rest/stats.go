package rest

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/stats"
	"github.com/stepwell-dev/stepwell/queue/overview"
)

// defaultWindow is the length of a window of statistics whose start is not given.
const defaultWindow = time.Hour

// percentilesJSON are percentiles in milliseconds.
type percentilesJSON struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

func newPercentilesJSON(p *stats.Percentiles) *percentilesJSON {
	if p == nil {
		return nil
	}
	ms := func(d time.Duration) float64 {
		return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
	}
	return &percentilesJSON{ms(p.P50), ms(p.P95), ms(p.P99)}
}

type pointJSON struct {
	At        timestamp        `json:"at"`
	Created   int64            `json:"created"`
	Started   int64            `json:"started"`
	Completed int64            `json:"completed"`
	Failed    int64            `json:"failed"`
	Cancelled int64            `json:"cancelled"`
	TookMs    *percentilesJSON `json:"tookMs,omitempty"`
	DelayMs   *percentilesJSON `json:"delayMs,omitempty"`
}

func newPointJSON(p stats.Point) pointJSON {
	return pointJSON{
		timestamp(p.At), p.Created, p.Started, p.Completed, p.Failed, p.Cancelled,
		newPercentilesJSON(p.Took), newPercentilesJSON(p.Delay),
	}
}

type seriesJSON struct {
	Name   string      `json:"name"`
	Points []pointJSON `json:"points"`
	Total  pointJSON   `json:"total"`
}

func newSeriesJSON(s stats.Series) seriesJSON {
	return seriesJSON{s.Name, encodeAll(s.Points, newPointJSON), newPointJSON(s.Total)}
}

type stepStatsJSON struct {
	Workflow  string           `json:"workflow"`
	Name      string           `json:"name"`
	Completed int64            `json:"completed"`
	Failed    int64            `json:"failed"`
	Cancelled int64            `json:"cancelled"`
	Retried   int64            `json:"retried"`
	TookMs    *percentilesJSON `json:"tookMs,omitempty"`
}

func newStepStatsJSON(s stats.Step) stepStatsJSON {
	return stepStatsJSON{
		s.Workflow, s.Name, s.Completed, s.Failed, s.Cancelled, s.Retried, newPercentilesJSON(s.Took),
	}
}

type failuresJSON struct {
	Workflow string `json:"workflow"`
	Code     string `json:"code"`
	Count    int64  `json:"count"`
}

func newFailuresJSON(f stats.Failures) failuresJSON { return failuresJSON{f.Workflow, f.Code, f.Count} }

// statsOfRuns answers with what happened to runs, in intervals.
func (s *Server) statsOfRuns(r *request) error {
	step := r.duration("step", time.Minute, maxSpan)
	by := stats.Group(r.QueryParam("by"))
	return answerStats(s, r, newSeriesJSON, func(q stats.Query) ([]stats.Series, error) {
		return s.Stats.Runs(r.ctx(), q, step, by)
	})
}

// statsOfSteps answers with what happened to steps, by their name.
func (s *Server) statsOfSteps(r *request) error {
	return answerStats(s, r, newStepStatsJSON, func(q stats.Query) ([]stats.Step, error) {
		return s.Stats.Steps(r.ctx(), q)
	})
}

// statsOfFailures answers with the runs that failed, by the code of their error.
func (s *Server) statsOfFailures(r *request) error {
	return answerStats(s, r, newFailuresJSON, func(q stats.Query) ([]stats.Failures, error) {
		return s.Stats.Failures(r.ctx(), q)
	})
}

type statsJSON[T any] struct {
	CompleteTo timestamp `json:"completeTo"`
	Data       []T       `json:"data"`
}

// answerStats answers with the result of the query that the request describes. It reads how far events are counted
// first, so that it does not promise events that the result lacks.
func answerStats[S, T any](s *Server, r *request, encode func(S) T, do func(stats.Query) ([]S, error)) error {
	now := s.Log.Now()
	q := stats.Query{Project: r.project(), From: r.time("from"), To: r.time("to"), Workflow: r.QueryParam("workflow")}
	if q.To.IsZero() {
		q.To = now
	}
	if q.From.IsZero() {
		q.From = q.To.Add(-defaultWindow)
	}
	return answer(r, func() (v statsJSON[T], err error) {
		complete, err := s.Stats.CompleteTo(r.ctx(), q.Project)
		if err != nil {
			return v, err
		}
		list, err := do(q)
		return statsJSON[T]{timestamp(complete), encodeAll(list, encode)}, err
	})
}

// trendParts is in how many parts the trend of failures is counted.
const trendParts = 24

type failureGroupJSON struct {
	Workflow        string         `json:"workflow"`
	Step            string         `json:"step,omitempty"`
	Code            string         `json:"code"`
	Shape           string         `json:"shape,omitempty"`
	Message         string         `json:"message,omitempty"`
	Count           int            `json:"count"`
	FirstAt         timestamp      `json:"firstAt"`
	LastAt          timestamp      `json:"lastAt"`
	CreatedFrom     timestamp      `json:"createdFrom"`
	FirstDeployment string         `json:"firstDeployment"`
	RunID           entities.RunID `json:"runId"`
	Trend           []int          `json:"trend"`
}

func newFailureGroupJSON(g stats.FailureGroup) failureGroupJSON {
	return failureGroupJSON{
		g.Workflow, g.Step, g.Code, g.Shape, g.Message, g.Count, timestamp(g.First), timestamp(g.Last),
		timestamp(g.CreatedFrom), g.FirstDeployment, g.RunID, g.Trend,
	}
}

// failureListJSON has groups of runs that failed since a time.
type failureListJSON struct {
	Since timestamp          `json:"since"`
	More  bool               `json:"more"`
	Data  []failureGroupJSON `json:"data"`
}

// maxFailuresWindow limits how far back failures are grouped.
const maxFailuresWindow = 90 * 24 * time.Hour

// listFailures answers with the last failed runs in groups. Clients that may not see payloads get groups without
// messages.
func (s *Server) listFailures(r *request) error {
	window := r.duration("window", 24*time.Hour, maxFailuresWindow)
	if window == 0 {
		r.fail(badParam("window", "it is empty"))
	}
	maxPayload := 0
	if r.payloads() == read.WithPayloads {
		maxPayload = stats.MaxFailedPayload
	}
	return answer(r, func() (failureListJSON, error) {
		to := s.Log.Now()
		from := to.Add(-window)
		runs, more, err := s.Stats.Failed(r.ctx(), r.project(), from, maxPayload)
		if err != nil {
			return failureListJSON{}, err
		}
		if more {
			from = slices.MinFunc(runs, func(a, b stats.Failed) int { return a.FailedAt.Compare(b.FailedAt) }).FailedAt
		}
		groups, err := decodeFor(r, func() []stats.FailureGroup {
			return stats.GroupFailed(runs, messageOf, from, to.Add(1), trendParts)
		})
		return failureListJSON{timestamp(from), more, encodeAll(groups, newFailureGroupJSON)}, err
	})
}

// messageOf returns the message of a run's error.
func messageOf(f stats.Failed) string {
	e := entities.Event{Type: entities.EventRunFailed, Payload: f.Payload, Extra: f.Extra}
	return newFailureJSON(f.Code, &e).Message
}

type workflowJSON struct {
	Name       string    `json:"name"`
	Deployment string    `json:"deployment"`
	LastRunAt  timestamp `json:"lastRunAt"`
	Open       int       `json:"open"`
	MoreOpen   bool      `json:"moreOpen,omitempty"`
}

// listWorkflows lists the workflows that have runs, by name.
func (s *Server) listWorkflows(r *request) error {
	page := r.page(oldestFirst)
	return answerPage(r, func(w stats.Workflow) workflowJSON {
		return workflowJSON{
			w.Name, w.Deployment, timestamp(w.LastRunAt), min(w.Open, stats.MaxOpen), w.Open > stats.MaxOpen,
		}
	}, func() ([]stats.Workflow, string, error) {
		rows, err := s.Stats.Workflows(r.ctx(), r.project(), page.Cursor, page.Limit+1)
		if err != nil || len(rows) <= page.Limit {
			return rows, "", err
		}
		return rows[:page.Limit], rows[page.Limit-1].Name, nil
	})
}

// gaugesJSON are the gauges of a project.
type gaugesJSON struct {
	At       timestamp        `json:"at"`
	Runs     openRunsJSON     `json:"runs"`
	Messages queuedCountsJSON `json:"messages"`
	Capped   bool             `json:"capped"`
}

// openRunsJSON counts the runs that have not ended.
type openRunsJSON struct {
	Pending int64 `json:"pending"`
	Running int64 `json:"running"`
}

// queuedCountsJSON counts the messages of the queue.
type queuedCountsJSON struct {
	Due       int64      `json:"due"`
	Leased    int64      `json:"leased"`
	Delayed   int64      `json:"delayed"`
	Retrying  int64      `json:"retrying"`
	Parked    int64      `json:"parked"`
	OldestDue *timestamp `json:"oldestDue,omitempty"`
}

func newGaugesJSON(g overview.Gauges) gaugesJSON {
	return gaugesJSON{
		timestamp(g.At), openRunsJSON{g.Pending, g.Running},
		queuedCountsJSON{g.Due, g.Leased, g.Delayed, g.Retrying, g.Parked, optionalTime(g.OldestDue)}, g.Capped,
	}
}

// gauges answers with what is open and queued now.
func (s *Server) gauges(r *request) error {
	return answerAs(r, newGaugesJSON, func() (overview.Gauges, error) { return s.Overview.Gauges(r.ctx(), r.project()) })
}

// attentionJSON is what wants a person.
type attentionJSON struct {
	At   timestamp           `json:"at"`
	Data []attentionItemJSON `json:"data"`
}

type attentionItemJSON struct {
	Kind       overview.Kind  `json:"kind"`
	Count      int64          `json:"count"`
	Since      *timestamp     `json:"since,omitempty"`
	Until      *timestamp     `json:"until,omitempty"`
	Deployment string         `json:"deployment,omitempty"`
	Workflow   string         `json:"workflow,omitempty"`
	RunID      entities.RunID `json:"runId,omitempty"`
	Usual      *int64         `json:"usual,omitempty"`
	Operation  string         `json:"operation"`
}

// attentionOperations are the operations of openapi.yaml that show more of a kind.
var attentionOperations = map[overview.Kind]string{
	overview.Parked: "listMessages", overview.Held: "explainRun", overview.Stranded: "explainRun",
	overview.Unreachable: "listMessages", overview.Missing: "putDeployment", overview.Failing: "getFailureStats",
	overview.Late: "getGauges", overview.KeyExpiring: "listKeys", overview.TwoSigningKeys: "listSigningKeys",
}

func newAttentionItemJSON(i overview.Item) attentionItemJSON {
	v := attentionItemJSON{
		i.Kind, i.Count, optionalTime(i.Since), optionalTime(i.Until), i.Deployment, i.Workflow, i.Run, nil,
		attentionOperations[i.Kind],
	}
	if i.Kind == overview.Failing {
		v.Usual = &i.Usual
	}
	return v
}

// attention answers with what wants a person.
func (s *Server) attention(r *request) error {
	return answer(r, func() (attentionJSON, error) {
		items, at, err := s.Overview.Attention(r.ctx(), r.project())
		return attentionJSON{timestamp(at), encodeAll(items, newAttentionItemJSON)}, err
	})
}

// viewJSON is the JSON form of a saved view.
type viewJSON struct {
	Name      string    `json:"name"`
	Filter    string    `json:"filter"`
	Columns   []string  `json:"columns"`
	OrderBy   string    `json:"orderBy"`
	CreatedAt timestamp `json:"createdAt"`
	UpdatedAt timestamp `json:"updatedAt"`
}

func newViewJSON(v admin.View) viewJSON {
	return viewJSON{v.Name, v.Filter, v.Columns, v.OrderBy, timestamp(v.CreatedAt), timestamp(v.UpdatedAt)}
}

func (r *request) viewName() string {
	name := r.pathText("name", "view name")
	r.fail(inParam("name", entities.ValidateName("view name", name)))
	return name
}

func (s *Server) listViews(r *request) error {
	return answerAll(r, newViewJSON, s.Views.List)
}

func (s *Server) getView(r *request) error {
	return answerOne(r, r.viewName(), newViewJSON, s.Views.View)
}

// putView creates or replaces a view.
func (s *Server) putView(r *request) error {
	var body struct {
		Filter  string   `json:"filter"`
		Columns []string `json:"columns"`
		OrderBy string   `json:"orderBy"`
	}
	body.OrderBy = orderByCreation
	name := r.viewName()
	r.body(&body)
	return answerAs(r, newViewJSON, func() (admin.View, error) {
		v := admin.View{Name: name, Filter: body.Filter, Columns: body.Columns, OrderBy: body.OrderBy}
		return s.Views.Put(r.ctx(), r.project(), v)
	})
}

func (s *Server) removeView(r *request) error {
	return deleteOne(r, r.viewName(), s.Views.Delete)
}

// maxHits limits what a search finds of each kind.
const maxHits = 5

// hitJSON is something that a search found. The text is what matched: a workflow, or the value of an attribute.
type hitJSON struct {
	Kind      string             `json:"kind"`
	Text      string             `json:"text"`
	RunID     entities.RunID     `json:"runId,omitempty"`
	Workflow  string             `json:"workflow,omitempty"`
	Status    entities.RunStatus `json:"status,omitempty"`
	Attribute string             `json:"attribute,omitempty"`
	HookID    entities.HookID    `json:"hookId,omitempty"`
	MessageID string             `json:"messageId,omitempty"`
}

func runHit(kind, text string, r entities.Run) hitJSON {
	return hitJSON{Kind: kind, Text: text, RunID: r.ID, Workflow: r.WorkflowName, Status: r.Status}
}

// search answers with what a text may mean. Each probe reads at most a few rows.
func (s *Server) search(r *request) error {
	q := strings.TrimSpace(r.QueryParam("q"))
	r.fail(inParam("q", entities.ValidateName("q", q)))
	return answer(r, func() (list[hitJSON], error) {
		hits := []hitJSON{}
		for _, probe := range []func(*request, string) ([]hitJSON, error){
			s.findRun, s.findKey, s.findAttribute, s.findHook, s.findMessage, s.findWorkflow,
		} {
			found, err := probe(r, q)
			if err != nil {
				return list[hitJSON]{}, err
			}
			hits = append(hits, found...)
		}
		return list[hitJSON]{Data: hits}, nil
	})
}

// idEnd is the end of an ID, as the dashboard shows it.
var idEnd = regexp.MustCompile(`^[0-9A-HJKMNP-TV-Z]{8}$`)

// findRun finds a run by its ID or by the last eight letters of it.
func (s *Server) findRun(r *request, q string) ([]hitJSON, error) {
	if end := strings.ToUpper(strings.TrimPrefix(q, "…")); idEnd.MatchString(end) {
		runs, err := store.RunsByIDEnd(r.ctx(), s.Reader, r.project(), end, maxHits)
		return encodeAll(runs, func(run entities.Run) hitJSON { return runHit("run", string(run.ID), run) }), err
	}
	if entities.ValidateID("run ID", q) != nil {
		return nil, nil
	}
	run, err := store.RunByID(r.ctx(), s.Reader, r.project(), entities.RunID(q))
	if errors.Is(err, entities.ErrRunNotFound) {
		return nil, nil
	}
	return []hitJSON{runHit("run", q, run)}, err
}

// findKey finds the newest runs with a key.
func (s *Server) findKey(r *request, q string) ([]hitJSON, error) {
	page := pg.Page{Limit: maxHits, Descending: true}
	runs, _, err := store.ListRuns(r.ctx(), s.Reader, r.project(), store.RunFilter{UniqueKey: q}, page)
	return encodeAll(runs, func(run entities.Run) hitJSON { return runHit("key", q, run) }), err
}

// findAttribute finds the attributes for which a run has the value: of all, or of one if the text is NAME=VALUE.
func (s *Server) findAttribute(r *request, q string) ([]hitJSON, error) {
	name, value, ok := strings.Cut(q, "=")
	if ok && entities.ValidateAttributes(map[string]string{name: value}, true) == nil {
		f := store.RunFilter{Attributes: map[string]string{name: value}}
		runs, _, err := store.ListRuns(r.ctx(), s.Reader, r.project(), f, pg.Page{Limit: 1, Descending: true})
		if err != nil || len(runs) == 0 {
			return nil, err
		}
		return []hitJSON{{Kind: "attribute", Attribute: name, Text: value}}, nil
	}
	names, err := store.AttributesWithValue(r.ctx(), s.Reader, r.project(), q, maxHits)
	return encodeAll(names, func(name string) hitJSON {
		return hitJSON{Kind: "attribute", Attribute: name, Text: q}
	}), err
}

// findHook finds an open hook by its token. Whoever has the token can resume the hook, so clients that may not see
// payloads do not learn which text is one.
func (s *Server) findHook(r *request, q string) ([]hitJSON, error) {
	if r.payloads() == read.WithoutPayloads {
		return nil, nil
	}
	h, err := store.HookByToken(r.ctx(), s.Reader, r.project(), q, s.Log.Now())
	if errors.Is(err, entities.ErrHookNotFound) {
		return nil, nil
	}
	return []hitJSON{{Kind: "hook", Text: string(h.ID), RunID: h.RunID, HookID: h.ID}}, err
}

// findMessage finds a message by its ID.
func (s *Server) findMessage(r *request, q string) ([]hitJSON, error) {
	if entities.ValidateID("message ID", q) != nil {
		return nil, nil
	}
	m, err := s.Queue.Message(r.ctx(), r.project(), q)
	if errors.Is(err, message.ErrMessageNotFound) {
		return nil, nil
	}
	return []hitJSON{{Kind: "message", Text: q, RunID: m.RunID, MessageID: m.ID}}, err
}

// findWorkflow finds the workflows of runs whose names begin with the text.
func (s *Server) findWorkflow(r *request, q string) ([]hitJSON, error) {
	names, err := store.WorkflowsByPrefix(r.ctx(), s.Reader, r.project(), q, maxHits)
	return encodeAll(names, func(name string) hitJSON {
		return hitJSON{Kind: "workflow", Text: name, Workflow: name}
	}), err
}
