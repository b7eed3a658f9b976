package rest

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/flow/docschema"
	"github.com/stepwell-dev/stepwell/flow/goal"
	"github.com/stepwell-dev/stepwell/flow/progress"
	"github.com/stepwell-dev/stepwell/flow/registry"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// newFlowJSON encodes what lists have of a version of a flow.
func newFlowJSON(v registry.Version) api.Flow {
	return api.Flow{
		Name: v.Name, Version: v.Version, Deployment: v.DeploymentID, CreatedAt: timestamp(v.CreatedAt),
		RetiredAt: optionalTime(v.RetiredAt),
	}
}

func newAliasJSON(a registry.Alias) api.FlowAlias {
	return api.FlowAlias{Alias: a.Alias, Version: a.Version, Deployment: a.ID, UpdatedAt: timestamp(a.UpdatedAt)}
}

func newFaultJSON(f flow.Fault) api.Fault {
	return api.Fault{
		Line: int64(f.Line), Column: int64(f.Column), Path: f.Path, Code: f.Code, Message: f.Message,
	}
}

func (r *request) flowName() string { return r.pathID("name", "flow name") }

// FlowSchema answers with the JSON Schema of flow documents. It needs no key, so that editors can read it.
func FlowSchema(c echo.Context) error {
	return c.Blob(http.StatusOK, "application/schema+json", docschema.JSON)
}

// flowVersion returns the flow in the path and the version in the query, which is 0 for the newest one.
func (r *request) flowVersion() (name string, number int64) {
	return r.flowName(), r.number("version", r.QueryParam("version"), "version")
}

// listFlows lists the newest version of each flow.
func (s *Server) listFlows(r *request) error {
	return answerAll(r, newFlowJSON, s.Flows.List)
}

// getFlow answers with one version of a flow, by default the newest, and names the others.
func (s *Server) getFlow(r *request) error {
	name, number := r.flowVersion()
	return answer(r, func() (v api.Flow, err error) {
		versions, err := s.Flows.Versions(r.ctx(), r.project(), name)
		if err != nil {
			return v, err
		}
		version, err := s.Flows.Version(r.ctx(), r.project(), name, number)
		if err != nil {
			return v, err
		}
		aliases, err := s.Flows.Aliases(r.ctx(), r.project(), name)
		if err != nil {
			return v, err
		}
		v = newFlowJSON(version)
		v.Document, v.Versions = r.document(version.Document), encodeAll(versions, newFlowJSON)
		v.Aliases = encodeAll(aliases, newAliasJSON)
		return v, nil
	})
}

// document returns a document for the answer; empty if the client may not see payloads, since the literals in a
// document are payloads.
func (r *request) document(text string) string {
	if r.payloads() == read.WithoutPayloads {
		return ""
	}
	return text
}

// graphJSON is the JSON form of the graph of a version.
type graphJSON struct {
	Name       string           `json:"name"`
	Deployment string           `json:"deployment"`
	Steps      []graphStepJSON  `json:"steps"`
	Edges      []flow.GraphEdge `json:"edges"`
}

// graphStepJSON is a step of a graph. Only the graph of a run says how far it is.
type graphStepJSON struct {
	flow.GraphStep
	*flow.StepStage
}

// newGraphJSON encodes the graph of a program. The stages are those of a run; nil for none.
func newGraphJSON(p *flow.Program, deployment string, stages []flow.StepStage) graphJSON {
	g := p.Graph()
	v := graphJSON{Name: p.Name, Deployment: deployment, Edges: g.Edges}
	for i, step := range g.Steps {
		drawn := graphStepJSON{GraphStep: step}
		if stages != nil {
			drawn.StepStage = &stages[i]
		}
		v.Steps = append(v.Steps, drawn)
	}
	return v
}

// getFlowGraph answers with the graph of a version, by default of the newest.
func (s *Server) getFlowGraph(r *request) error {
	name, number := r.flowVersion()
	return answer(r, func() (v graphJSON, err error) {
		version, err := s.Flows.Version(r.ctx(), r.project(), name, number)
		if err != nil {
			return v, err
		}
		p, err := s.Flows.Program(r.ctx(), r.project(), version.DeploymentID)
		if err != nil {
			return v, err
		}
		return newGraphJSON(p, version.DeploymentID, nil), nil
	})
}

// getRunGraph answers with the graph of a run's version, and how far its steps are.
func (s *Server) getRunGraph(r *request) error {
	run := r.run()
	return answer(r, func() (v graphJSON, err error) {
		p, err := s.Flows.Program(r.ctx(), run.Project, run.DeploymentID)
		if err != nil {
			return v, err
		}
		stages, err := progress.Read(r.ctx(), s.Log.Log, run, p)
		if err != nil {
			return v, err
		}
		return newGraphJSON(p, run.DeploymentID, stages), nil
	})
}

// putAlias has an alias point to a version of a flow.
func (s *Server) putAlias(r *request) error {
	var body api.PutAliasBody
	name, alias := r.flowName(), r.pathText("alias", "alias")
	r.body(&body)
	return answerAs(r, newAliasJSON, func() (registry.Alias, error) {
		return s.Flows.PutAlias(r.ctx(), r.project(), name, alias, body.Version)
	})
}

func (s *Server) removeAlias(r *request) error {
	name, alias := r.flowName(), r.pathText("alias", "alias")
	return answerNothing(r, func() error { return s.Flows.RemoveAlias(r.ctx(), r.project(), name, alias) })
}

// retireFlow ends the new runs of a version.
func (s *Server) retireFlow(r *request) error {
	name := r.flowName()
	number := r.number("version", r.pathText("version", "version"), "version")
	return answerAs(r, newFlowJSON, func() (registry.Version, error) {
		return s.Flows.Retire(r.ctx(), r.project(), name, number)
	})
}

// postFlow stores a document as the newest version of its flow.
func (s *Server) postFlow(r *request) error {
	var body api.PostFlowBody
	r.body(&body)
	put := s.Flows.Put
	if body.DryRun {
		put = s.Flows.Check
	}
	return answer(r, func() (shown api.Flow, err error) {
		stored, err := put(r.ctx(), r.project(), []byte(body.Document))
		if err != nil {
			return shown, err
		}
		r.setCreated(stored.Created)
		unserved, err := s.unserved(r, stored)
		shown = newFlowJSON(stored.Version)
		shown.Warnings = encodeAll(append(stored.Warnings, unserved...).Sorted(), newFaultJSON)
		return shown, err
	})
}

// unserved returns a warning for each step of a flow that starts what nobody serves now.
func (s *Server) unserved(r *request, f registry.Stored) (warnings flow.Faults, err error) {
	for _, start := range f.Starts {
		if start.Workflow == f.Name && start.Deployment == "" {
			continue // a dry run has not stored it
		}
		_, err := s.Queue.StartDeployment(r.ctx(), r.project(), start.Workflow, start.Deployment)
		isRefusal := slices.ContainsFunc([]error{
			message.ErrDeploymentNotFound, message.ErrDeploymentRetired, message.ErrStepsOnly, message.ErrIsCatalog,
			entities.ErrInvalid,
		}, func(refusal error) bool { return errors.Is(err, refusal) })
		if err != nil && !isRefusal {
			return nil, err
		}
		if isRefusal {
			warnings.Add(start.At, flow.CodeUnknown, "no run of %q could begin now: %v", start.Workflow, err)
		}
	}
	return warnings, nil
}

// newCatalogJSON encodes what lists have of a version of a catalog.
func newCatalogJSON(c registry.Catalog) api.Catalog {
	return api.Catalog{Name: c.Name, Version: c.Version, CreatedAt: timestamp(c.CreatedAt)}
}

func (r *request) catalogName() string { return r.pathID("name", "catalog name") }

// listCatalogs lists the newest version of each catalog.
func (s *Server) listCatalogs(r *request) error {
	return answerAll(r, newCatalogJSON, s.Flows.Catalogs)
}

// getCatalog answers with one version of a catalog, by default the newest, and names the others.
func (s *Server) getCatalog(r *request) error {
	name, number := r.catalogName(), r.number("version", r.QueryParam("version"), "version")
	return answer(r, func() (v api.Catalog, err error) {
		versions, err := s.Flows.CatalogVersions(r.ctx(), r.project(), name, number)
		if err != nil {
			return v, err
		}
		i := slices.IndexFunc(versions, func(c registry.Catalog) bool { return number == 0 || c.Version == number })
		if i < 0 {
			return v, registry.ErrCatalogNotFound
		}
		v = newCatalogJSON(versions[i])
		v.Document, v.Versions = r.document(versions[i].Document), encodeAll(versions, newCatalogJSON)
		return v, nil
	})
}

// postCatalog stores a document as the newest version of its catalog.
func (s *Server) postCatalog(r *request) error {
	var body api.PostCatalogBody
	r.body(&body)
	return answerAs(r, newCatalogJSON, func() (registry.Catalog, error) {
		stored, created, err := s.Flows.PutCatalog(r.ctx(), r.project(), []byte(body.Document), body.DryRun)
		r.setCreated(created)
		return stored, err
	})
}

// previewJSON is the JSON form of a plan.
type previewJSON struct {
	goal.Preview

	Version int64 `json:"version"`
	// Document is the flow that executes the plan.
	Document string `json:"document,omitempty"`
}

// previewCatalog answers with the plan that a start would have.
func (s *Server) previewCatalog(r *request) error {
	var body api.PreviewCatalogBody
	name := r.catalogName()
	r.body(&body)
	return answer(r, func() (v previewJSON, err error) {
		ask := goal.Ask{Want: body.Want, Have: body.Have, HaveAll: body.HaveAll}
		p, err := s.Flows.Preview(r.ctx(), r.project(), name, body.Version, ask)
		if err != nil {
			return v, err
		}
		return previewJSON{p.Preview(), p.Version, r.document(string(p.Document))}, nil
	})
}

// catalogStart are the fields of a start that names goals of a catalog instead of a workflow.
type catalogStart struct {
	Catalog string                     `json:"catalog,omitempty"`
	Want    []string                   `json:"want,omitempty"`
	Have    map[string]json.RawMessage `json:"have,omitempty"`
	// HaveAll are lists of values.
	HaveAll map[string][]json.RawMessage `json:"haveAll,omitempty"`
}

// planned makes a start with goals one of a workflow: that with the catalog's name.
func (b *startRequest) planned() error {
	switch {
	case b.Catalog == "" && (b.Want != nil || b.Have != nil || b.HaveAll != nil):
		return badField("catalog", "want, have and haveAll are for the goals of a catalog: name it")
	case b.Catalog == "":
		return nil
	case b.Workflow != "" || b.Input != nil || b.Deployment != "":
		return badField("catalog", "a start with goals has want, have and haveAll instead of workflow, input and deployment")
	case b.isCollected():
		return badField("catalog", "a start with goals cannot be collected: leave out debounce and batch")
	}
	if b.Have == nil {
		b.Have = map[string]json.RawMessage{}
	}
	var err error
	b.Workflow = b.Catalog
	b.Input, err = json.Marshal(struct {
		Have    map[string]json.RawMessage   `json:"have"`
		HaveAll map[string][]json.RawMessage `json:"haveAll,omitempty"`
	}{b.Have, b.HaveAll})
	return err
}

// deploymentOf returns the deployment of a start: for goals, that of their plan, which is stored if it is new.
func (s *Server) deploymentOf(r *request, b startRequest, event eventlog.Request) (string, error) {
	if b.Catalog == "" {
		return b.Deployment, nil
	}
	if _, before, err := s.Log.StartedBefore(r.ctx(), r.project(), event); before || err != nil {
		return "", err
	}
	return s.Flows.Plan(r.ctx(), r.project(), b.Catalog, goal.Ask{
		Want: b.Want, Have: slices.Sorted(maps.Keys(b.Have)), HaveAll: slices.Sorted(maps.Keys(b.HaveAll)),
	}, b.Input)
}
