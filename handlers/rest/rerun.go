package rest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue/continuation"
)

// rerun is a request to start a run like another one.
type rerun struct {
	Deployment     string `json:"deployment"`
	IdempotencyKey string `json:"idempotencyKey"`
}

// rerunRun starts a run of the same workflow, with the same input and attributes, as another run was started.
func (s *Server) rerunRun(c echo.Context) error {
	var body rerun
	if err := readOptionalBody(c, &body); err != nil {
		return err
	}
	of, err := s.theRun(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	r, err := s.again(ctx, of, body)
	if err != nil {
		return err
	}
	deployment := body.Deployment
	if deployment == "" {
		deployment = of.DeploymentID
	}
	run, created, err := s.start(ctx, of.Project, r, deployment)
	if err != nil {
		return err
	}
	return s.answerStarted(c, run, created)
}

// again is the event that starts a run like another one, but for its deployment.
func (s *Server) again(ctx context.Context, of entities.Run, body rerun) (eventlog.Request, error) {
	at := eventlog.Position{RunID: of.ID, Seq: 1}
	events, err := s.Log.EventsAt(ctx, []eventlog.Position{at}, eventlog.WithPayloads)
	if err != nil {
		return eventlog.Request{}, err
	}
	first, ok := events[at]
	if !ok { // it has left meanwhile
		return eventlog.Request{}, entities.ErrRunNotFound
	}
	now := s.Log.Now()
	r := eventlog.Request{
		RunID: entities.NewRunID(now), Type: entities.EventRunCreated, SpecVersion: of.SpecVersion,
		Payload: first.Payload, Extra: first.Extra,
		Data: entities.EventData{
			Driver: of.Driver, WorkflowName: of.WorkflowName, Attributes: first.Data.Attributes,
			AllowReserved: first.Data.AllowReserved, UniqueKey: of.UniqueKey, IdempotencyKey: body.IdempotencyKey,
			RequestDigest: rerunDigest(of.ID, body.Deployment),
		},
	}
	if of.Deadline != nil {
		begin := of.CreatedAt
		if first.Data.StartAt != nil && first.Data.StartAt.After(begin) {
			begin = *first.Data.StartAt
		}
		deadline := now.Add(of.Deadline.Sub(begin))
		r.Data.Deadline = &deadline
	}
	return r, nil
}

func rerunDigest(of entities.RunID, deployment string) string {
	sum := sha256.Sum256([]byte("rerun " + string(of) + " " + deployment))
	return hex.EncodeToString(sum[:])
}

// firstMessage is what has the client of a new run continue it. The server needs none for its own.
func firstMessage(r eventlog.Request, project entities.Project) ([]entities.Message, error) {
	if r.Data.Driver != entities.DriverClient {
		return nil, nil
	}
	m, err := continuation.Of(entities.Run{
		ID: r.RunID, Project: project, DeploymentID: r.Data.DeploymentID, WorkflowName: r.Data.WorkflowName,
		SpecVersion: r.SpecVersion,
	})
	return []entities.Message{m}, err
}
