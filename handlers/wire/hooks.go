package wire

import (
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

const hookPage = 100

// listHooks is endpoint 9: the hooks of a run, or of all runs.
func (s *Server) listHooks(r *request) error {
	runID, page, with := entities.RunID(r.query("runId")), r.page(hookPage, oldestFirst), r.payloads()
	return hookResource.answerPage(s, r, with, func() ([]entities.Hook, string, error) {
		return store.ListHooks(r.ctx(), s.Reader, r.project(), runID, s.Log.Now(), page)
	})
}

// getHook is endpoint 10: a hook by ID. It has its metadata, because a webhook's says how to respond (§7).
func (s *Server) getHook(r *request) error {
	id := entities.HookID(r.param("hookId"))
	return hookResource.answer(s, r, read.WithPayloads, func() (entities.Hook, error) {
		return store.HookByID(r.ctx(), s.Reader, r.project(), id, s.Log.Now())
	})
}

// resumable is a hook together with the data of its run that a client needs to resume it (§7), which saves a request.
type resumable struct {
	hook

	Context      resumeContext      `cbor:"resumeContext"`
	Capabilities resumeCapabilities `cbor:"resumeCapabilities"`
	// Run is the whole run, for the own client's apps on the stable line, which read it next (§11.4).
	Run *run `cbor:"run,omitzero"`
}

type resumeContext struct {
	DeploymentID string    `cbor:"deploymentId"`
	WorkflowName string    `cbor:"workflowName"`
	SpecVersion  codec.Int `cbor:"runSpecVersion"`
	PublicKey    string    `cbor:"encryptionPublicKey,omitzero"`

	CoreVersion  string            `cbor:"workflowCoreVersion,omitzero"`
	TraceCarrier map[string]string `cbor:"traceCarrier,omitzero"`
	InputVersion codec.Int         `cbor:"hookResumeInputVersion,omitzero"`
}

// resumeCapabilities announces that resuming is idempotent, so clients may retry it (§3.8).
type resumeCapabilities struct {
	DedupVersion codec.Int `cbor:"hookResumeDedupVersion"`
}

// getHookByToken is endpoint 11: a hook by token, to resume it.
func (s *Server) getHookByToken(r *request) error {
	token, withRun := r.query("token"), r.query("withRun") == "true"
	return answer(r, func() (v resumable, err error) {
		h, err := store.HookByToken(r.ctx(), s.Reader, r.project(), token, s.Log.Now())
		if err != nil {
			return v, err
		}
		list, err := hookResource.load(r.ctx(), s, []entities.Hook{h}, read.WithPayloads)
		if err != nil {
			return v, err
		}
		with := read.WithoutPayloads
		if withRun {
			with = read.WithPayloads
		}
		of, err := s.runOf(r, h, with)
		if err != nil {
			return v, err
		}
		v = resumable{hook: list[0], Context: newResumeContext(of), Capabilities: resumeCapabilities{DedupVersion: 1}}
		if withRun {
			v.Run = &of
		}
		return v, nil
	})
}

// runOf returns the run of a hook.
func (s *Server) runOf(r *request, h entities.Hook, with read.Payloads) (run, error) {
	row, err := store.RunByID(r.ctx(), s.Reader, r.project(), h.RunID)
	if err != nil {
		return run{}, err
	}
	list, err := runResource.load(r.ctx(), s, []entities.Run{row}, with)
	if err != nil {
		return run{}, err
	}
	return list[0], nil
}

func newResumeContext(r run) resumeContext {
	execution := optional[codec.Map](r.ExecutionContext)
	return resumeContext{
		DeploymentID: r.DeploymentID, WorkflowName: r.WorkflowName, SpecVersion: r.SpecVersion, PublicKey: r.PublicKey,
		CoreVersion:  optional[string](execution["workflowCoreVersion"]),
		TraceCarrier: optional[map[string]string](execution["traceCarrier"]),
		InputVersion: optional[codec.Int](execution["hookResumeInputVersion"]),
	}
}

// hookResource is how hooks are sent.
var hookResource = resource[entities.Hook, hook]{
	events: hookEvents,
	wire: func(h entities.Hook, events eventsAt) (hook, error) {
		return newHook(h, events.at(h.RunID, h.CreatedSeq)), nil
	},
	cursor: store.HookCursor,
}

// hookEvents is the position of the event that created a hook, which holds its metadata.
func hookEvents(h entities.Hook, with read.Payloads) []read.Position {
	if with == read.WithoutPayloads {
		return nil
	}
	return []read.Position{{RunID: h.RunID, Seq: h.CreatedSeq}}
}
