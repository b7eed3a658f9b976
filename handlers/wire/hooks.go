package wire

import (
	"context"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

const hookPage = 100

// listHooks is endpoint 9: the hooks of a run, or of all runs.
func (s *Server) listHooks(c echo.Context) error {
	runID, err := query(c, "runId")
	if err != nil {
		return err
	}
	p, with, err := listParams(c, hookPage, "asc")
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	hooks, next, err := store.ListHooks(ctx, s.Reader, auth.Project(c), entities.RunID(runID), s.Log.Now(), p)
	if err != nil {
		return err
	}
	return hookResource.answerPage(c, s, hooks, next, with)
}

// getHook is endpoint 10: a hook by ID.
func (s *Server) getHook(c echo.Context) error {
	id, err := param(c, "hookId")
	if err != nil {
		return err
	}
	h, err := store.HookByID(c.Request().Context(), s.Reader, auth.Project(c), entities.HookID(id), s.Log.Now())
	if err != nil {
		return err
	}
	return hookResource.answer(c, s, h, read.WithPayloads) // a webhook's metadata says how to respond (§7)
}

// resumable is a hook together with the data of its run that a client needs to resume it (§7), which saves a request.
type resumable struct {
	hook

	Context      resumeContext      `cbor:"resumeContext"`
	Capabilities resumeCapabilities `cbor:"resumeCapabilities"`
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
func (s *Server) getHookByToken(c echo.Context) error {
	token, err := query(c, "token")
	if err != nil {
		return err
	}
	ctx, project := c.Request().Context(), auth.Project(c)
	h, err := store.HookByToken(ctx, s.Reader, project, token, s.Log.Now())
	if err != nil {
		return err
	}
	list, err := hookResource.load(ctx, s, []entities.Hook{h}, read.WithPayloads)
	if err != nil {
		return err
	}
	of, err := s.resumeContext(ctx, project, h.RunID)
	if err != nil {
		return err
	}
	return answer(c, resumable{list[0], of, resumeCapabilities{DedupVersion: 1}})
}

func (s *Server) resumeContext(
	ctx context.Context, project entities.Project, runID entities.RunID,
) (resumeContext, error) {
	run, err := store.RunByID(ctx, s.Reader, project, runID)
	if err != nil {
		return resumeContext{}, err
	}
	list, err := runResource.load(ctx, s, []entities.Run{run}, read.WithoutPayloads)
	if err != nil {
		return resumeContext{}, err
	}
	of := resumeContext{
		DeploymentID: run.DeploymentID, WorkflowName: run.WorkflowName, SpecVersion: codec.Int(run.SpecVersion),
		PublicKey: list[0].PublicKey,
	}
	execution := optional[codec.Map](list[0].ExecutionContext)
	of.CoreVersion = optional[string](execution["workflowCoreVersion"])
	of.TraceCarrier = optional[map[string]string](execution["traceCarrier"])
	of.InputVersion = optional[codec.Int](execution["hookResumeInputVersion"])
	return of, nil
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
