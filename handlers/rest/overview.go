package rest

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/overview"
)

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
func (s *Server) gauges(c echo.Context) error {
	r := s.request(c)
	return answer(r, http.StatusOK, newGaugesJSON, func() (overview.Gauges, error) {
		return s.Overview.Gauges(r.ctx(), r.project())
	})
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
func (s *Server) attention(c echo.Context) error {
	r := s.request(c)
	return answer(r, http.StatusOK, func(v attentionJSON) attentionJSON { return v }, func() (attentionJSON, error) {
		items, at, err := s.Overview.Attention(r.ctx(), r.project())
		v := attentionJSON{timestamp(at), make([]attentionItemJSON, len(items))}
		for i, item := range items {
			v.Data[i] = newAttentionItemJSON(item)
		}
		return v, err
	})
}
