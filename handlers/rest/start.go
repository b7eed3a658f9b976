package rest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

const (
	// latest stands for the deployment that new runs of the workflow go to.
	latest = "latest"

	onConflictReject = "reject"
	onConflictJoin   = "join"

	// maxSpan is how far ahead a run may begin, and how long it may take.
	maxSpan = 10 * 365 * 24 * time.Hour
)

// start is a request to start a run.
type start struct {
	Workflow       string            `json:"workflow"`
	Input          json.RawMessage   `json:"input,omitempty"`
	Deployment     string            `json:"deployment"`
	IdempotencyKey string            `json:"idempotencyKey"`
	Key            string            `json:"key"`
	OnConflict     string            `json:"onConflict"`
	Attributes     map[string]string `json:"attributes"`
	Delay          string            `json:"delay"`
	StartAt        instant           `json:"startAt"`
	Timeout        string            `json:"timeout"`
	Parent         entities.RunID    `json:"parent"`
}

// digest is the same for requests that ask for the same.
func (b start) digest() (string, error) {
	plain, err := json.Marshal(b)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(plain)
	return hex.EncodeToString(sum[:]), nil
}

// request is the event that starts the run, but for its deployment.
func (b start) request(now time.Time) (eventlog.Request, error) {
	r := eventlog.Request{
		RunID: entities.NewRunID(now), Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven, Payload: b.Input,
		Data: entities.EventData{
			Driver: entities.DriverServer, WorkflowName: b.Workflow, Attributes: b.Attributes, UniqueKey: b.Key,
			IdempotencyKey: b.IdempotencyKey, ParentID: b.Parent,
		},
	}
	var err error
	if r.Data.RequestDigest, err = b.digest(); err != nil {
		return r, err
	}
	if b.Parent != "" {
		if err := entities.ValidateID("parent", string(b.Parent)); err != nil {
			return r, inField("parent", err)
		}
	}
	if err := b.names(); err != nil {
		return r, err
	}
	switch b.OnConflict {
	case "", onConflictReject:
	case onConflictJoin:
		if b.Key == "" {
			return r, badField("onConflict", "without a key there is nothing to conflict with")
		}
	default:
		return r, badField("onConflict", "%q is neither %s nor %s", b.OnConflict, onConflictReject, onConflictJoin)
	}
	if r.Data.StartAt, err = b.startAt(now); err != nil {
		return r, err
	}
	r.Data.Deadline, err = b.deadline(now, r.Data.StartAt)
	return r, err
}

// names checks what the log would refuse, but says which field it is.
func (b start) names() error {
	if err := entities.ValidateAttributes(b.Attributes, false); err != nil {
		return inField("attributes", err)
	}
	for field, value := range map[string]string{"key": b.Key, "idempotencyKey": b.IdempotencyKey} {
		if value == "" {
			continue
		}
		if err := entities.ValidateName(field, value); err != nil {
			return inField(field, err)
		}
	}
	return nil
}

// startAt is when the run is to begin; nil for at once.
func (b start) startAt(now time.Time) (*time.Time, error) {
	if at := time.Time(b.StartAt); !at.IsZero() {
		if b.Delay != "" {
			return nil, badField("delay", "there is a startAt as well: give one of them")
		}
		if at.After(now.Add(maxSpan)) {
			return nil, badField("startAt", "%s is more than %s ahead", at.Format(time.RFC3339), maxSpan)
		}
		return &at, nil
	}
	if b.Delay == "" {
		return nil, nil
	}
	delay, err := parseDuration(b.Delay, maxSpan)
	if err != nil {
		return nil, badField("delay", "%v", err)
	}
	at := now.Add(delay)
	return &at, nil
}

// deadline is when the run fails if it has not ended; nil for never. Its time begins when the run is to.
func (b start) deadline(now time.Time, startAt *time.Time) (*time.Time, error) {
	if b.Timeout == "" {
		return nil, nil
	}
	timeout, err := parseDuration(b.Timeout, maxSpan)
	if err == nil && timeout < time.Millisecond {
		err = fmt.Errorf("%q is no time at all", b.Timeout)
	}
	if err != nil {
		return nil, badField("timeout", "%v", err)
	}
	if startAt != nil && startAt.After(now) {
		now = *startAt
	}
	at := now.Add(timeout)
	return &at, nil
}

// startRun starts a run that the server continues.
func (s *Server) startRun(c echo.Context) error {
	var body start
	if err := readBody(c, &body); err != nil {
		return err
	}
	r, err := body.request(s.Log.Now())
	if err != nil {
		return err
	}
	ctx, project := c.Request().Context(), auth.Project(c)
	run, created, err := s.start(ctx, project, r, body.Deployment)
	if taken := (*entities.KeyTakenError)(nil); body.OnConflict == onConflictJoin && errors.As(err, &taken) {
		run, err = store.RunByID(ctx, s.Reader, project, taken.RunID)
	}
	if err != nil {
		return err
	}
	return s.answerStarted(c, run, created)
}

// answerStarted answers with a run that was started now, or before.
func (s *Server) answerStarted(c echo.Context, r entities.Run, created bool) error {
	if !created {
		return s.answerRun(c, http.StatusOK, r)
	}
	c.Response().Header().Set(echo.HeaderLocation, "/v1/runs/"+string(r.ID))
	return s.answerRun(c, http.StatusCreated, r)
}

// start starts a run on a deployment, unless it was started before: then the deployment may be gone.
func (s *Server) start(
	ctx context.Context, project entities.Project, r eventlog.Request, deployment string,
) (entities.Run, bool, error) {
	if run, ok, err := s.Log.StartedBefore(ctx, project, r); ok || err != nil {
		return run, false, err
	}
	var err error
	if r.Data.DeploymentID, err = s.deploymentFor(ctx, project, r.Data.WorkflowName, deployment); err != nil {
		return entities.Run{}, false, err
	}
	if r.Messages, err = firstMessage(r, project); err != nil {
		return entities.Run{}, false, err
	}
	return s.Log.Start(ctx, project, r)
}

// deploymentFor is the ID of the deployment that a request names.
func (s *Server) deploymentFor(
	ctx context.Context, project entities.Project, workflow, name string,
) (string, error) {
	if err := entities.ValidateWorkflowName("workflow", workflow); err != nil {
		return "", inField("workflow", err)
	}
	if name == "" || name == latest {
		d, err := s.Queue.NewestDeployment(ctx, project, workflow)
		return d.ID, err
	}
	if err := entities.ValidateID("deployment", name); err != nil {
		return "", inField("deployment", err)
	}
	d, err := s.Queue.Deployment(ctx, project, name)
	return d.ID, err
}
