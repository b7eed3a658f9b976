package rest

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// step is the JSON form of a step. Input and output come only with a single step.
type step struct {
	ID          entities.StepID     `json:"id"`
	RunID       entities.RunID      `json:"runId"`
	Name        string              `json:"name"`
	Status      entities.StepStatus `json:"status"`
	Attempt     int                 `json:"attempt"`
	CreatedAt   timestamp           `json:"createdAt"`
	StartedAt   *timestamp          `json:"startedAt,omitempty"`
	CompletedAt *timestamp          `json:"completedAt,omitempty"`
	RetryAfter  *timestamp          `json:"retryAfter,omitempty"`

	Deployment     string          `json:"deployment,omitempty"`
	ChildID        entities.RunID  `json:"childId,omitempty"`
	Input          json.RawMessage `json:"input,omitempty"`
	InputEncoding  string          `json:"inputEncoding,omitempty"`
	Output         json.RawMessage `json:"output,omitempty"`
	OutputEncoding string          `json:"outputEncoding,omitempty"`
	Error          *failure        `json:"error,omitempty"`
}

func newStep(s entities.Step) step {
	return step{
		ID: s.ID, RunID: s.RunID, Name: s.Name, Status: s.Status, Attempt: s.Attempt, CreatedAt: timestamp(s.CreatedAt),
		StartedAt: optionalTime(s.StartedAt), CompletedAt: optionalTime(s.CompletedAt),
		RetryAfter: optionalTime(s.RetryAfter),
	}
}

func (s *Server) listSteps(c echo.Context) error {
	p, err := page(c, oldestFirst)
	if err != nil {
		return err
	}
	r, err := s.theRun(c)
	if err != nil {
		return err
	}
	steps, next, err := store.ListSteps(c.Request().Context(), s.Reader, r.Project, r.ID, p)
	if err != nil {
		return err
	}
	return answerList(c, steps, next, newStep)
}

func (s *Server) getStep(c echo.Context) error {
	r, err := s.theRun(c)
	if err != nil {
		return err
	}
	id, err := pathParam(c, "stepId", "step ID")
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	found, err := store.StepByID(ctx, s.Reader, auth.Project(c), r.ID, entities.StepID(id))
	if err != nil {
		return err
	}
	created := read.Position{RunID: r.ID, Seq: found.CreatedSeq}
	result := read.Position{RunID: r.ID, Seq: found.ResultSeq}
	with := payloadsFor(c)
	events, err := s.Log.EventsAt(ctx, []read.Position{created, result}, with)
	if err != nil {
		return err
	}
	v := newStep(found)
	if e, ok := events[created]; ok {
		v.begin(e, with)
	}
	if e, ok := events[result]; ok {
		v.end(e, with)
	}
	return c.JSON(http.StatusOK, v)
}

// begin adds what the event that made the step says.
func (v *step) begin(e entities.Event, with read.Payloads) {
	if with == read.WithPayloads {
		v.Input, v.InputEncoding = decode(e)
	}
	if spec := e.Data.Step; spec != nil {
		v.Deployment, v.ChildID = spec.DeploymentID, spec.ChildID
	}
}

// end adds what the event of its last attempt says.
func (v *step) end(e entities.Event, with read.Payloads) {
	switch {
	case e.Type != entities.EventStepCompleted && with == read.WithoutPayloads:
		v.Error = newFailure(e.Data.ErrorCode, nil)
	case with == read.WithoutPayloads:
	case e.Type == entities.EventStepCompleted:
		v.Output, v.OutputEncoding = decode(e)
	default:
		v.Error = newFailure(e.Data.ErrorCode, &e)
	}
}
