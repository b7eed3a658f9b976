package wire

import (
	"context"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

// Default page sizes (§2.4).
const (
	runPage  = 20
	stepPage = 20
)

// listRuns is endpoint 5: the runs of the project.
func (s *Server) listRuns(r *request) error {
	page, with := r.page(runPage, newestFirst), r.payloads()
	filter := store.RunFilter{
		WorkflowName: r.query("workflowName"), AnyStatus: r.runStatuses(), Attributes: r.attributes(),
	}
	return runResource.answerPage(s, r, with, func() ([]entities.Run, string, error) {
		return store.ListRuns(r.ctx(), s.Reader, r.project(), filter, page)
	})
}

// getRun is endpoint 6: one run.
func (s *Server) getRun(r *request) error {
	id, with := r.runID(), r.payloads()
	return runResource.answer(s, r, with, func() (entities.Run, error) {
		return store.RunByID(r.ctx(), s.Reader, r.project(), id)
	})
}

// maxWait limits how long one request waits for the end of a run.
const maxWait = 55 * time.Second

// awaitRun is endpoint 6b: it waits until the run has ended or the client's timeout is over, and returns the run
// (§3.14).
func (s *Server) awaitRun(r *request) error {
	id, with := r.runID(), r.payloads()
	wait, err := wholeUnits("waitMs", r.QueryParam("waitMs"), time.Millisecond, "milliseconds")
	r.fail(err)
	return runResource.answer(s, r, with, func() (entities.Run, error) {
		waiting, cancel := context.WithTimeout(r.ctx(), min(wait, maxWait))
		defer cancel()
		defer context.AfterFunc(s.Draining, cancel)()
		return s.Log.WaitForEnd(r.ctx(), waiting, r.project(), id)
	})
}

// outsider is the writer of attributes that are set from outside a run. The protocol has only workflows and steps as
// writers (§3.9). A replay treats a change by the workflow that the workflow's code did not make as divergence, and
// fails the run. It ignores changes by steps, even unknown ones.
var outsider = map[string]any{"type": "step", "stepId": "outside", "attempt": 0}

// setAttributes is endpoint 20: it changes attributes from outside the run's code.
func (s *Server) setAttributes(r *request) error {
	var body struct {
		Changes       []change `cbor:"changes"`
		AllowReserved bool     `cbor:"allowReservedAttributes"`
	}
	id := r.runID()
	r.body(&body)
	if r.err != nil {
		return r.err
	}
	extra, err := codec.Marshal(map[string]any{"writer": outsider})
	if err != nil {
		return err
	}
	run, err := store.RunByID(r.ctx(), s.Reader, r.project(), id)
	if err != nil {
		return err
	}
	appended, err := s.Log.Append(r.ctx(), r.project(), eventlog.Request{
		RunID: id, Type: entities.EventAttrSet, SpecVersion: run.SpecVersion, Extra: extra,
		Data: entities.EventData{Changes: attributeChanges(body.Changes), AllowReserved: body.AllowReserved},
	})
	if err != nil {
		return err
	}
	return r.send(struct {
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
func (s *Server) listSteps(r *request) error {
	runID, page, with := r.runID(), r.page(stepPage, newestFirst), r.payloads()
	return stepResource.answerPage(s, r, with, func() ([]entities.Step, string, error) {
		return store.ListSteps(r.ctx(), s.Reader, r.project(), runID, page)
	})
}

// getStep is endpoint 8: one step. The run ID is optional.
func (s *Server) getStep(r *request) error {
	runID, id, with := r.runID(), entities.StepID(r.param("stepId")), r.payloads()
	return stepResource.answer(s, r, with, func() (entities.Step, error) {
		return store.StepByID(r.ctx(), s.Reader, r.project(), runID, id)
	})
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
