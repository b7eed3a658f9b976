package rest

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/strictjson"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/health"
)

// deploymentJSON encodes a deployment. Only the operator sees the addresses in errors.
func (r *request) deploymentJSON(d queue.Deployment) api.Deployment {
	v := api.Deployment{
		ID: d.ID, URL: d.URL, Workflows: d.Workflows, StepsOnly: *d.StepsOnly, Build: d.Build, Schemas: d.Schemas,
		OpenRuns: d.OpenRuns, WaitingMessages: d.Waiting, AnsweredAt: optionalTime(d.AnsweredAt),
		UnreachableSince: optionalTime(d.UnreachableSince), FailedAt: optionalTime(d.FailedAt), LastError: d.Failure,
		Health: newHealthJSON(d), CreatedAt: timestamp(d.CreatedAt), UpdatedAt: timestamp(d.UpdatedAt),
	}
	if d.MaxConcurrent != nil {
		v.MaxConcurrent = int64(*d.MaxConcurrent)
	}
	if !auth.IdentityOf(r).Operator() {
		v.LastError = egress.Redact(v.LastError)
	}
	return v
}

// newHealthJSON encodes the health of a deployment: how it is probed, and what the probes have found out.
func newHealthJSON(d queue.Deployment) *api.Health {
	if d.Health == nil {
		return nil
	}
	text := func(d health.Duration) string { return time.Duration(d).String() }
	v := &api.Health{
		Path: d.Health.Path, Every: text(d.Health.Every), Timeout: text(d.Health.Timeout),
		FailAfter: int64(d.Health.FailAfter), RecoverAfter: int64(d.Health.RecoverAfter),
		TrialEvery: text(d.Health.TrialEvery),
		Status:     "healthy", ProbedAt: optionalTime(d.ProbedAt), Failures: int64(d.Failures), LastError: d.Error,
		UnhealthySince: optionalTime(d.UnhealthySince), TrialAt: optionalTime(d.TrialAt),
	}
	switch {
	case d.UnhealthySince != nil:
		v.Status = "unhealthy"
	case d.ProbedAt == nil:
		v.Status = "unknown"
	}
	return v
}

// healthSettings returns what a registration says about probes: nil for nothing, and settings without a path if it is
// null, for none.
func healthSettings(text json.RawMessage) (*health.Settings, error) {
	var settings health.Settings
	switch string(text) {
	case "":
		return nil, nil
	case "null":
		return &settings, nil
	}
	if err := strictjson.Decode(text, &settings); err != nil {
		return nil, inField("health", err)
	}
	if settings.Path == "" {
		return nil, badField("health.path", "it is missing")
	}
	return &settings, nil
}

func (s *Server) listDeployments(r *request) error {
	return answerAll(r, r.deploymentJSON, s.Queue.Deployments)
}

func (s *Server) getDeployment(r *request) error {
	return answerOne(r, r.deploymentID(), r.deploymentJSON, s.Queue.DeploymentDetails)
}

// deploymentID returns the ID in the path. It fails if the key is for other deployments.
func (r *request) deploymentID() string {
	id := r.pathID("id", "deployment ID")
	if r.err == nil {
		r.fail(auth.IdentityOf(r).CheckDeployment(id))
	}
	return id
}

// putDeployment registers a deployment or changes it.
func (s *Server) putDeployment(r *request) error {
	return s.answerRegistration(r, s.Queue.Register)
}

// patchDeployment changes a deployment that is registered.
func (s *Server) patchDeployment(r *request) error {
	return s.answerRegistration(r, s.Queue.ChangeDeployment)
}

// answerRegistration reads a registration and answers with the deployment that write has made of it.
func (s *Server) answerRegistration(
	r *request, write func(context.Context, entities.Project, queue.Deployment) (queue.Deployment, error),
) error {
	var body struct {
		URL       string          `json:"url"`
		Workflows []string        `json:"workflows"`
		Build     string          `json:"build"`
		Schemas   json.RawMessage `json:"schemas"`
		StepsOnly *bool           `json:"stepsOnly"`

		MaxConcurrent *int            `json:"maxConcurrent"`
		Health        json.RawMessage `json:"health"`
	}
	id := r.deploymentID()
	r.body(&body)
	r.fail(s.checkURL(body.URL))
	probes, err := healthSettings(body.Health)
	r.fail(err)
	return answerAs(r, r.deploymentJSON, func() (queue.Deployment, error) {
		return write(r.ctx(), r.project(), queue.Deployment{
			ID: id, URL: body.URL, Workflows: body.Workflows, Build: body.Build, Schemas: body.Schemas,
			StepsOnly: body.StepsOnly, MaxConcurrent: body.MaxConcurrent, Health: probes,
		})
	})
}

// checkURL rejects a URL whose host is an address that the server does not call. It does not resolve host names: they
// may resolve differently later, so they are checked on each call.
func (s *Server) checkURL(deployment string) error {
	u, err := url.Parse(deployment)
	if err != nil {
		return nil //nolint:nilerr // the queue validates the URL
	}
	if err := s.Allowed.CheckURL(u); err != nil {
		return badField("url", "%v", err)
	}
	return nil
}

func (s *Server) removeDeployment(r *request) error {
	return deleteOne(r, r.pathID("id", "deployment ID"), s.Queue.RemoveDeployment)
}
