package wire

import (
	"context"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// Default page sizes (§2.4).
const (
	runPage  = 20
	stepPage = 20
)

// listRuns is endpoint 5: the runs of the project.
func (s *Server) listRuns(c echo.Context) error {
	p, with, err := listParams(c, runPage, "desc")
	if err != nil {
		return err
	}
	name, err := query(c, "workflowName")
	if err != nil {
		return err
	}
	status, err := query(c, "status")
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	filter := store.RunFilter{WorkflowName: name, Status: entities.RunStatus(status)}
	runs, next, err := store.ListRuns(ctx, s.Reader, auth.Project(c), filter, p)
	if err != nil {
		return err
	}
	return runResource.answerPage(c, s, runs, next, with)
}

// getRun is endpoint 6: one run.
func (s *Server) getRun(c echo.Context) error {
	id, err := runParam(c)
	if err != nil {
		return err
	}
	with, err := payloads(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	r, err := store.RunByID(ctx, s.Reader, auth.Project(c), id)
	if err != nil {
		return err
	}
	return runResource.answer(c, s, r, with)
}

// maxWait limits how long one request waits for the end of a run.
const maxWait = 55 * time.Second

// awaitRun is endpoint 6b: it waits until the run has ended or the client's timeout is over, and returns the run
// (§3.14).
func (s *Server) awaitRun(c echo.Context) error {
	id, err := runParam(c)
	if err != nil {
		return err
	}
	with, err := payloads(c)
	if err != nil {
		return err
	}
	wait, err := milliseconds(c, "waitMs")
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	waiting, cancel := context.WithTimeout(ctx, min(wait, maxWait))
	defer cancel()
	defer context.AfterFunc(s.Draining, cancel)()
	r, err := s.Log.WaitForEnd(ctx, waiting, auth.Project(c), id)
	if err != nil {
		return err
	}
	return runResource.answer(c, s, r, with)
}

// outsider is the writer of attributes that are set from outside a run. The protocol has only workflows and steps as
// writers (§3.9). A replay treats a change by the workflow that the workflow's code did not make as divergence, and
// fails the run. It ignores changes by steps, even unknown ones.
var outsider = map[string]any{"type": "step", "stepId": "outside", "attempt": 0}

// setAttributes is endpoint 20: it changes attributes from outside the run's code.
func (s *Server) setAttributes(c echo.Context) error {
	id, err := runParam(c)
	if err != nil {
		return err
	}
	var body struct {
		Changes       []change `cbor:"changes"`
		AllowReserved bool     `cbor:"allowReservedAttributes"`
	}
	if err := readBody(c.Request(), &body); err != nil {
		return err
	}
	extra, err := codec.Marshal(map[string]any{"writer": outsider})
	if err != nil {
		return err
	}
	ctx, project := c.Request().Context(), auth.Project(c)
	run, err := store.RunByID(ctx, s.Reader, project, id)
	if err != nil {
		return err
	}
	appended, err := s.Log.Append(ctx, project, eventlog.Request{
		RunID: id, Type: entities.EventAttrSet, SpecVersion: run.SpecVersion, Extra: extra,
		Data: entities.EventData{Changes: attributeChanges(body.Changes), AllowReserved: body.AllowReserved},
	})
	if err != nil {
		return err
	}
	return answer(c, struct {
		Attributes map[string]string `cbor:"attributes"`
	}{appended.Run.Attributes})
}

// runResource is how runs are sent.
var runResource = resource[entities.Run, run]{
	events: runEvents,
	wire: func(r entities.Run, events eventsAt) (run, error) {
		return newRun(r, events.at(r.ID, 1), events.at(r.ID, r.EndSeq))
	},
	cursor: store.RunCursor,
}

// runEvents returns the positions of the first event of a run, with its execution context and input, and of the last,
// with its output or error. The last is needed only with payloads.
func runEvents(r entities.Run, with read.Payloads) []read.Position {
	at := []read.Position{{RunID: r.ID, Seq: 1}}
	if with == read.WithPayloads && r.EndSeq > 0 {
		at = append(at, read.Position{RunID: r.ID, Seq: r.EndSeq})
	}
	return at
}

// listSteps is endpoint 7: the steps of a run.
func (s *Server) listSteps(c echo.Context) error {
	runID, err := runParam(c)
	if err != nil {
		return err
	}
	p, with, err := listParams(c, stepPage, "desc")
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	steps, next, err := store.ListSteps(ctx, s.Reader, auth.Project(c), runID, p)
	if err != nil {
		return err
	}
	return stepResource.answerPage(c, s, steps, next, with)
}

// getStep is endpoint 8: one step. The run ID is optional.
func (s *Server) getStep(c echo.Context) error {
	runID, err := runParam(c)
	if err != nil {
		return err
	}
	id, err := param(c, "stepId")
	if err != nil {
		return err
	}
	with, err := payloads(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	st, err := store.StepByID(ctx, s.Reader, auth.Project(c), runID, entities.StepID(id))
	if err != nil {
		return err
	}
	return stepResource.answer(c, s, st, with)
}

// stepResource is how steps are sent.
var stepResource = resource[entities.Step, step]{
	events: stepEvents,
	wire: func(st entities.Step, events eventsAt) (step, error) {
		return newStep(st, events.at(st.RunID, st.CreatedSeq), events.at(st.RunID, st.ResultSeq))
	},
	cursor: store.StepCursor,
}

// stepEvents returns the positions of the events with the input and the result of a step.
func stepEvents(st entities.Step, with read.Payloads) []read.Position {
	if with == read.WithoutPayloads {
		return nil
	}
	at := []read.Position{{RunID: st.RunID, Seq: st.CreatedSeq}}
	if st.ResultSeq > 0 {
		at = append(at, read.Position{RunID: st.RunID, Seq: st.ResultSeq})
	}
	return at
}
