package wire

import (
	"context"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

const hookPage = 100

// listHooks is endpoint 9.
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
	hooks, next, err := entities.ListHooks(ctx, s.Reader, auth.Project(c), entities.RunID(runID), s.Log.Now(), p)
	if err != nil {
		return err
	}
	return hookResource.answerPage(c, s, hooks, next, with)
}

// getHook is endpoint 10.
func (s *Server) getHook(c echo.Context) error {
	id, err := param(c, "hookId")
	if err != nil {
		return err
	}
	h, err := entities.HookByID(c.Request().Context(), s.Reader, auth.Project(c), entities.HookID(id), s.Log.Now())
	if err != nil {
		return err
	}
	return hookResource.answer(c, s, h, eventlog.WithPayloads) // a webhook's metadata says how to respond (§7)
}

// resumable is a hook as whoever is about to resume it wants it (§7): with what of its run the client would
// have to ask for otherwise.
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

// resumeCapabilities says that a resumption may be sent more than once: it is recorded once (§3.8).
type resumeCapabilities struct {
	DedupVersion codec.Int `cbor:"hookResumeDedupVersion"`
}

// getHookByToken is endpoint 11.
func (s *Server) getHookByToken(c echo.Context) error {
	token, err := query(c, "token")
	if err != nil {
		return err
	}
	ctx, project := c.Request().Context(), auth.Project(c)
	h, err := entities.HookByToken(ctx, s.Reader, project, token, s.Log.Now())
	if err != nil {
		return err
	}
	list, err := hookResource.load(ctx, s, []entities.Hook{h}, eventlog.WithPayloads)
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
	run, err := entities.RunByID(ctx, s.Reader, project, runID)
	if err != nil {
		return resumeContext{}, err
	}
	list, err := runResource.load(ctx, s, []entities.Run{run}, eventlog.WithoutPayloads)
	if err != nil {
		return resumeContext{}, err
	}
	of := resumeContext{
		DeploymentID: run.DeploymentID, WorkflowName: run.WorkflowName, SpecVersion: codec.Int(run.SpecVersion),
		PublicKey: list[0].PublicKey,
	}
	// Each may be of another shape than clients read; then it says nothing.
	var execution codec.Map
	_ = codec.Unmarshal(list[0].ExecutionContext, &execution)
	_ = codec.Unmarshal(execution["workflowCoreVersion"], &of.CoreVersion)
	_ = codec.Unmarshal(execution["traceCarrier"], &of.TraceCarrier)
	_ = codec.Unmarshal(execution["hookResumeInputVersion"], &of.InputVersion)
	return of, nil
}

// hookResource is how hooks are sent.
var hookResource = resource[entities.Hook, hook]{
	events: hookEvents,
	wire: func(h entities.Hook, events eventsAt) (hook, error) {
		return newHook(h, events.at(h.RunID, h.CreatedSeq)), nil
	},
	cursor: entities.HookCursor,
}

// hookEvents is where the metadata of a hook is: in the event that created it.
func hookEvents(h entities.Hook, with eventlog.Payloads) []eventlog.Position {
	if with == eventlog.WithoutPayloads {
		return nil
	}
	return []eventlog.Position{{RunID: h.RunID, Seq: h.CreatedSeq}}
}
