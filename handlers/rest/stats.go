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

// newPercentilesJSON encodes percentiles in milliseconds.
func newPercentilesJSON(p *stats.Percentiles) *api.Percentiles {
	if p == nil {
		return nil
	}
	ms := func(d time.Duration) float64 {
		return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
	}
	return &api.Percentiles{P50: ms(p.P50), P95: ms(p.P95), P99: ms(p.P99)}
}

func newPointJSON(p stats.Point) api.RunPoint {
	return api.RunPoint{
		At: timestamp(p.At), Created: p.Created, Started: p.Started, Completed: p.Completed, Failed: p.Failed,
		Cancelled: p.Cancelled, TookMs: newPercentilesJSON(p.Took), DelayMs: newPercentilesJSON(p.Delay),
	}
}

func newSeriesJSON(s stats.Series) api.RunSeries {
	return api.RunSeries{Name: s.Name, Points: encodeAll(s.Points, newPointJSON), Total: newPointJSON(s.Total)}
}

func newStepStatsJSON(s stats.Step) api.StepStats {
	return api.StepStats{
		Workflow: s.Workflow, Name: s.Name, Completed: s.Completed, Failed: s.Failed, Cancelled: s.Cancelled,
		Retried: s.Retried, TookMs: newPercentilesJSON(s.Took),
	}
}

func newFailuresJSON(f stats.Failures) api.FailureStats {
	return api.FailureStats{Workflow: f.Workflow, Code: f.Code, Count: f.Count}
}

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

func newFailureGroupJSON(g stats.FailureGroup) api.FailureGroup {
	return api.FailureGroup{
		Workflow: g.Workflow, Step: g.Step, Code: g.Code, Shape: g.Shape, Message: g.Message, Count: int64(g.Count),
		FirstAt: timestamp(g.First), LastAt: timestamp(g.Last), CreatedFrom: timestamp(g.CreatedFrom),
		FirstDeployment: g.FirstDeployment, RunID: string(g.RunID), Trend: g.Trend,
	}
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
	return answer(r, func() (v api.FailureGroups, err error) {
		to := s.Log.Now()
		from := to.Add(-window)
		runs, more, err := s.Stats.Failed(r.ctx(), r.project(), from, maxPayload)
		if err != nil {
			return v, err
		}
		if more {
			from = slices.MinFunc(runs, func(a, b stats.Failed) int { return a.FailedAt.Compare(b.FailedAt) }).FailedAt
		}
		groups, err := decodeFor(r, func() []stats.FailureGroup {
			return stats.GroupFailed(runs, messageOf, from, to.Add(1), trendParts)
		})
		return api.FailureGroups{
			Since: timestamp(from), More: more, Data: encodeAll(groups, newFailureGroupJSON),
		}, err
	})
}

// messageOf returns the message of a run's error.
func messageOf(f stats.Failed) string {
	e := entities.Event{Type: entities.EventRunFailed, Payload: f.Payload, Extra: f.Extra}
	return newFailureJSON(f.Code, &e).Message
}

// listWorkflows lists the workflows that have runs, by name.
func (s *Server) listWorkflows(r *request) error {
	page := r.page(oldestFirst)
	return answerPage(r, func(w stats.Workflow) api.WorkflowSummary {
		return api.WorkflowSummary{
			Name: w.Name, Deployment: w.Deployment, LastRunAt: timestamp(w.LastRunAt),
			Open: int64(min(w.Open, stats.MaxOpen)), MoreOpen: w.Open > stats.MaxOpen,
		}
	}, func() ([]stats.Workflow, string, error) {
		rows, err := s.Stats.Workflows(r.ctx(), r.project(), page.Cursor, page.Limit+1)
		if err != nil || len(rows) <= page.Limit {
			return rows, "", err
		}
		return rows[:page.Limit], rows[page.Limit-1].Name, nil
	})
}

func newGaugesJSON(g overview.Gauges) api.Gauges {
	return api.Gauges{
		At: timestamp(g.At), Runs: api.OpenRuns{Pending: g.Pending, Running: g.Running}, Capped: g.Capped,
		Messages: api.QueuedMessages{
			Due: g.Due, Leased: g.Leased, Delayed: g.Delayed, Retrying: g.Retrying, Parked: g.Parked,
			OldestDue: optionalTime(g.OldestDue),
		},
	}
}

// gauges answers with what is open and queued now.
func (s *Server) gauges(r *request) error {
	return answerAs(r, newGaugesJSON, func() (overview.Gauges, error) { return s.Overview.Gauges(r.ctx(), r.project()) })
}

// attentionOperations are the operations of openapi.yaml that show more of a kind.
var attentionOperations = map[overview.Kind]string{
	overview.Paused: "putProject", overview.PartsPaused: "listPauses", overview.Parked: "listMessages",
	overview.Blocked: "explainRun", overview.Stranded: "explainRun",
	overview.Unreachable: "listMessages", overview.Missing: "putDeployment", overview.Failing: "getFailureStats",
	overview.Late: "getGauges", overview.KeyExpiring: "listKeys", overview.TwoSigningKeys: "listSigningKeys",
}

func newAttentionItemJSON(i overview.Item) api.AttentionItem {
	v := api.AttentionItem{
		Kind: api.AttentionKind(i.Kind), Count: i.Count, Since: optionalTime(i.Since), Until: optionalTime(i.Until),
		Deployment: i.Deployment, Workflow: i.Workflow, RunID: string(i.Run), Operation: attentionOperations[i.Kind],
	}
	if i.Kind == overview.Failing {
		v.Usual = &i.Usual
	}
	return v
}

// attention answers with what needs attention.
func (s *Server) attention(r *request) error {
	return answer(r, func() (api.Attention, error) {
		items, at, err := s.Overview.Attention(r.ctx(), r.project())
		return api.Attention{At: timestamp(at), Data: encodeAll(items, newAttentionItemJSON)}, err
	})
}
