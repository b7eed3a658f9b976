package rest

import (
	"context"
	"encoding/json"
	"net/url"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/strictjson"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/health"
)

// deploymentJSON is the JSON form of a deployment. Only the operator sees the addresses in errors.
type deploymentJSON struct {
	ID               string          `json:"id"`
	URL              string          `json:"url"`
	Workflows        []string        `json:"workflows,omitempty"`
	StepsOnly        bool            `json:"stepsOnly,omitempty"`
	Build            string          `json:"build,omitempty"`
	Schemas          json.RawMessage `json:"schemas,omitempty"`
	MaxConcurrent    *int            `json:"maxConcurrent,omitempty"`
	OpenRuns         int64           `json:"openRuns"`
	WaitingMessages  int64           `json:"waitingMessages"`
	AnsweredAt       api.Time        `json:"answeredAt,omitzero"`
	UnreachableSince api.Time        `json:"unreachableSince,omitzero"`
	FailedAt         api.Time        `json:"failedAt,omitzero"`
	LastError        string          `json:"lastError,omitempty"`
	Health           *healthJSON     `json:"health,omitempty"`
	CreatedAt        api.Time        `json:"createdAt"`
	UpdatedAt        api.Time        `json:"updatedAt"`
}

func (r *request) deploymentJSON(d queue.Deployment) deploymentJSON {
	v := deploymentJSON{
		d.ID, d.URL, d.Workflows, *d.StepsOnly, d.Build, d.Schemas, d.MaxConcurrent, d.OpenRuns, d.Waiting,
		optionalTime(d.AnsweredAt), optionalTime(d.UnreachableSince), optionalTime(d.FailedAt), d.Failure, newHealthJSON(d),
		timestamp(d.CreatedAt), timestamp(d.UpdatedAt),
	}
	if !auth.IdentityOf(r).Operator() {
		v.LastError = egress.Redact(v.LastError)
	}
	return v
}

// healthJSON is the JSON form of the health of a deployment: how it is probed, and what the probes have found out.
type healthJSON struct {
	health.Settings

	Status         string   `json:"status"`
	ProbedAt       api.Time `json:"probedAt,omitzero"`
	Failures       int      `json:"failures,omitempty"`
	LastError      string   `json:"lastError,omitempty"`
	UnhealthySince api.Time `json:"unhealthySince,omitzero"`
	HeldUntil      api.Time `json:"heldUntil,omitzero"`
}

func newHealthJSON(d queue.Deployment) *healthJSON {
	if d.Health == nil {
		return nil
	}
	v := &healthJSON{
		*d.Health, "healthy", optionalTime(d.ProbedAt), d.Failures, d.Error, optionalTime(d.UnhealthySince),
		optionalTime(d.HeldUntil),
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
