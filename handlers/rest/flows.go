package rest

import (
	"net/http"
	"slices"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/flow"
	"github.com/stepwell-dev/stepwell/queue/flow/registry"
)

// flowJSON is the JSON form of a version of a flow.
type flowJSON struct {
	Name       string    `json:"name"`
	Version    int64     `json:"version"`
	Deployment string    `json:"deployment"`
	CreatedAt  timestamp `json:"createdAt"`
	Document   string    `json:"document,omitempty"`
	// Warnings are what is probably not meant. Only the answer to a put has them.
	Warnings flow.Faults `json:"warnings,omitempty"`
	// Versions are all versions, the newest first. Only the answer about one flow has them.
	Versions []flowJSON `json:"versions,omitempty"`
}

func newFlowJSON(v registry.Version) flowJSON {
	return flowJSON{Name: v.Name, Version: v.Version, Deployment: v.DeploymentID, CreatedAt: timestamp(v.CreatedAt)}
}

func (r *request) flowName() string {
	name := r.pathText("name", "flow name")
	r.fail(inParam("name", entities.ValidateID("flow name", name)))
	return name
}

// listFlows lists the newest version of each flow.
func (s *Server) listFlows(r *request) error {
	return answerPage(r, newFlowJSON, func() ([]registry.Version, string, error) {
		list, err := s.Flows.List(r.ctx(), r.project())
		return list, "", err
	})
}

// getFlow answers with one version of a flow, by default the newest, and names the others.
func (s *Server) getFlow(r *request) error {
	name, number := r.flowName(), int64(0)
	if text := r.QueryParam("version"); text != "" {
		number = r.number("version", text, "version")
	}
	return answer(r, func() (v flowJSON, err error) {
		versions, err := s.Flows.Versions(r.ctx(), r.project(), name)
		if err != nil {
			return v, err
		}
		i := slices.IndexFunc(versions, func(v registry.Version) bool { return number == 0 || v.Version == number })
		if i < 0 {
			return v, registry.ErrNotFound
		}
		v = newFlowJSON(versions[i])
		v.Document, v.Versions = versions[i].Document, encodeAll(versions, newFlowJSON)
		return v, nil
	})
}

// postFlow stores a document as the newest version of its flow.
func (s *Server) postFlow(r *request) error {
	var body struct {
		Document string `json:"document"`
		DryRun   bool   `json:"dryRun"`
	}
	if r.body(&body); r.err != nil {
		return r.err
	}
	put := s.Flows.Put
	if body.DryRun {
		put = s.Flows.Check
	}
	stored, err := put(r.ctx(), r.project(), []byte(body.Document))
	if err != nil {
		return err
	}
	status := http.StatusOK
	if stored.Created {
		status = http.StatusCreated
	}
	shown := newFlowJSON(stored.Version)
	shown.Warnings = stored.Warnings
	return r.JSON(status, shown)
}
