package rest

import (
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/stats"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/why/overview"
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
	At        api.Time         `json:"at"`
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
	CompleteTo api.Time `json:"completeTo"`
	Data       []T      `json:"data"`
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
	FirstAt         api.Time       `json:"firstAt"`
	LastAt          api.Time       `json:"lastAt"`
	CreatedFrom     api.Time       `json:"createdFrom"`
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
	Since api.Time           `json:"since"`
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
	Name       string   `json:"name"`
	Deployment string   `json:"deployment"`
	LastRunAt  api.Time `json:"lastRunAt"`
	Open       int      `json:"open"`
	MoreOpen   bool     `json:"moreOpen,omitempty"`
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
	At       api.Time         `json:"at"`
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
	Due       int64    `json:"due"`
	Leased    int64    `json:"leased"`
	Delayed   int64    `json:"delayed"`
	Retrying  int64    `json:"retrying"`
	Parked    int64    `json:"parked"`
	OldestDue api.Time `json:"oldestDue,omitzero"`
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

// attentionJSON is what needs attention.
type attentionJSON struct {
	At   api.Time            `json:"at"`
	Data []attentionItemJSON `json:"data"`
}

type attentionItemJSON struct {
	Kind       overview.Kind  `json:"kind"`
	Count      int64          `json:"count"`
	Since      api.Time       `json:"since,omitzero"`
	Until      api.Time       `json:"until,omitzero"`
	Deployment string         `json:"deployment,omitempty"`
	Workflow   string         `json:"workflow,omitempty"`
	RunID      entities.RunID `json:"runId,omitempty"`
	Usual      *int64         `json:"usual,omitempty"`
	Operation  string         `json:"operation"`
}

// attentionOperations are the operations of openapi.yaml that show more of a kind.
var attentionOperations = map[overview.Kind]string{
	overview.Paused: "putProject", overview.Parked: "listMessages", overview.Held: "explainRun",
	overview.Stranded:    "explainRun",
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

// attention answers with what needs attention.
func (s *Server) attention(r *request) error {
	return answer(r, func() (attentionJSON, error) {
		items, at, err := s.Overview.Attention(r.ctx(), r.project())
		return attentionJSON{timestamp(at), encodeAll(items, newAttentionItemJSON)}, err
	})
}
