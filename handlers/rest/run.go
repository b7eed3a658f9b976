package rest

import (
	"context"
	"encoding/json"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// run is the JSON form of a run. Input and output come only with a single run.
type run struct {
	ID           entities.RunID     `json:"id"`
	Workflow     string             `json:"workflow"`
	Deployment   string             `json:"deployment"`
	Driver       string             `json:"driver"`
	Status       entities.RunStatus `json:"status"`
	Attributes   map[string]string  `json:"attributes"`
	Key          string             `json:"key,omitempty"`
	ParentID     entities.RunID     `json:"parentId,omitempty"`
	CreatedAt    timestamp          `json:"createdAt"`
	StartAt      *timestamp         `json:"startAt,omitempty"`
	StartedAt    *timestamp         `json:"startedAt,omitempty"`
	CompletedAt  *timestamp         `json:"completedAt,omitempty"`
	Deadline     *timestamp         `json:"deadline,omitempty"`
	LastSeq      int64              `json:"lastSeq"`
	Error        *failure           `json:"error,omitempty"`
	CancelReason string             `json:"cancelReason,omitempty"`

	Input          json.RawMessage `json:"input,omitempty"`
	InputEncoding  string          `json:"inputEncoding,omitempty"`
	Output         json.RawMessage `json:"output,omitempty"`
	OutputEncoding string          `json:"outputEncoding,omitempty"`
}

// driverNames are what the API calls the drivers.
var driverNames = map[entities.Driver]string{
	entities.DriverClient: "client",
	entities.DriverServer: "server",
}

// newRun is the form of a run without what is only in its log.
func newRun(r entities.Run) run {
	v := run{
		ID: r.ID, Workflow: r.WorkflowName, Deployment: r.DeploymentID, Driver: driverNames[r.Driver], Status: r.Status,
		Attributes: r.Attributes, Key: r.UniqueKey, ParentID: r.ParentID, CreatedAt: timestamp(r.CreatedAt),
		StartedAt: optionalTime(r.StartedAt), CompletedAt: optionalTime(r.CompletedAt),
		Deadline: optionalTime(r.Deadline), LastSeq: r.LastSeq,
	}
	if v.Attributes == nil {
		v.Attributes = map[string]string{}
	}
	if r.Status == entities.RunFailed {
		v.Error = newFailure(r.ErrorCode, nil)
	}
	return v
}

// briefly makes the form of runs for a list. Only of those that have not begun is the log asked, for when they will.
func (s *Server) briefly(ctx context.Context, runs []entities.Run) ([]run, error) {
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
	list := make([]run, len(runs))
	for i, r := range runs {
		list[i] = newRun(r)
		if first, ok := events[read.Position{RunID: r.ID, Seq: 1}]; ok {
			list[i].StartAt = optionalTime(first.Data.StartAt)
		}
	}
	return list, nil
}

// wholly makes the form of a single run, with its input and its end; without payloads the latter is only what the
// server itself says of it.
func (s *Server) wholly(ctx context.Context, r entities.Run, with read.Payloads) (run, error) {
	at := []read.Position{{RunID: r.ID, Seq: 1}}
	if r.EndSeq > 0 {
		at = append(at, read.Position{RunID: r.ID, Seq: r.EndSeq})
	}
	events, err := s.Log.EventsAt(ctx, at, with)
	if err != nil {
		return run{}, err
	}
	v := newRun(r)
	if first, ok := events[at[0]]; ok {
		if with == read.WithPayloads {
			v.Input, v.InputEncoding = decode(first)
		}
		if r.Status == entities.RunPending {
			v.StartAt = optionalTime(first.Data.StartAt)
		}
	}
	if r.EndSeq == 0 {
		return v, nil
	}
	if end, ok := events[at[1]]; ok {
		v.end(r, end, with)
	}
	return v, nil
}

// end adds what the event that ended the run says.
func (v *run) end(r entities.Run, e entities.Event, with read.Payloads) {
	switch {
	case r.Status == entities.RunCancelled:
		v.CancelReason = e.Data.Reason
	case with == read.WithoutPayloads:
	case r.Status == entities.RunCompleted:
		v.Output, v.OutputEncoding = decode(e)
	default:
		v.Error = newFailure(r.ErrorCode, &e)
	}
}
