package rest

import (
	"errors"
	"regexp"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// viewJSON is the JSON form of a saved view.
type viewJSON struct {
	Name      string    `json:"name"`
	Filter    string    `json:"filter"`
	Columns   []string  `json:"columns"`
	OrderBy   string    `json:"orderBy"`
	CreatedAt timestamp `json:"createdAt"`
	UpdatedAt timestamp `json:"updatedAt"`
}

func newViewJSON(v admin.View) viewJSON {
	return viewJSON{v.Name, v.Filter, v.Columns, v.OrderBy, timestamp(v.CreatedAt), timestamp(v.UpdatedAt)}
}

func (r *request) viewName() string {
	name := r.pathText("name", "view name")
	r.fail(inParam("name", entities.ValidateName("view name", name)))
	return name
}

func (s *Server) listViews(r *request) error {
	return answerAll(r, newViewJSON, s.Views.List)
}

func (s *Server) getView(r *request) error {
	return answerOne(r, r.viewName(), newViewJSON, s.Views.View)
}

// putView creates or replaces a view.
func (s *Server) putView(r *request) error {
	var body struct {
		Filter  string   `json:"filter"`
		Columns []string `json:"columns"`
		OrderBy string   `json:"orderBy"`
	}
	body.OrderBy = orderByCreation
	name := r.viewName()
	r.body(&body)
	return answerAs(r, newViewJSON, func() (admin.View, error) {
		v := admin.View{Name: name, Filter: body.Filter, Columns: body.Columns, OrderBy: body.OrderBy}
		return s.Views.Put(r.ctx(), r.project(), v)
	})
}

func (s *Server) removeView(r *request) error {
	return deleteOne(r, r.viewName(), s.Views.Delete)
}

// maxHits limits what a search finds of each kind.
const maxHits = 5

// hitJSON is something that a search found. The text is what matched: a workflow, or the value of an attribute.
type hitJSON struct {
	Kind      string             `json:"kind"`
	Text      string             `json:"text"`
	RunID     entities.RunID     `json:"runId,omitempty"`
	Workflow  string             `json:"workflow,omitempty"`
	Status    entities.RunStatus `json:"status,omitempty"`
	Attribute string             `json:"attribute,omitempty"`
	HookID    entities.HookID    `json:"hookId,omitempty"`
	MessageID string             `json:"messageId,omitempty"`
}

func runHit(kind, text string, r entities.Run) hitJSON {
	return hitJSON{Kind: kind, Text: text, RunID: r.ID, Workflow: r.WorkflowName, Status: r.Status}
}

// search answers with what a text may mean. Each probe reads at most a few rows.
func (s *Server) search(r *request) error {
	q := strings.TrimSpace(r.QueryParam("q"))
	r.fail(inParam("q", entities.ValidateName("q", q)))
	return answer(r, func() (list[hitJSON], error) {
		hits := []hitJSON{}
		for _, probe := range []func(*request, string) ([]hitJSON, error){
			s.findRun, s.findKey, s.findAttribute, s.findHook, s.findMessage, s.findWorkflow,
		} {
			found, err := probe(r, q)
			if err != nil {
				return list[hitJSON]{}, err
			}
			hits = append(hits, found...)
		}
		return list[hitJSON]{Data: hits}, nil
	})
}

// idEnd is the end of an ID, as the dashboard shows it.
var idEnd = regexp.MustCompile(`^[0-9A-HJKMNP-TV-Z]{8}$`)

// findRun finds a run by its ID or by the last eight letters of it.
func (s *Server) findRun(r *request, q string) ([]hitJSON, error) {
	if end := strings.ToUpper(strings.TrimPrefix(q, "…")); idEnd.MatchString(end) {
		runs, err := store.RunsByIDEnd(r.ctx(), s.Reader, r.project(), end, maxHits)
		return encodeAll(runs, func(run entities.Run) hitJSON { return runHit("run", string(run.ID), run) }), err
	}
	if entities.ValidateID("run ID", q) != nil {
		return nil, nil
	}
	run, err := store.RunByID(r.ctx(), s.Reader, r.project(), entities.RunID(q))
	if errors.Is(err, entities.ErrRunNotFound) {
		return nil, nil
	}
	return []hitJSON{runHit("run", q, run)}, err
}

// findKey finds the newest runs with a key.
func (s *Server) findKey(r *request, q string) ([]hitJSON, error) {
	page := pg.Page{Limit: maxHits, Descending: true}
	runs, _, err := store.ListRuns(r.ctx(), s.Reader, r.project(), store.RunFilter{UniqueKey: q}, page)
	return encodeAll(runs, func(run entities.Run) hitJSON { return runHit("key", q, run) }), err
}

// findAttribute finds the attributes for which a run has the value: of all, or of one if the text is NAME=VALUE.
func (s *Server) findAttribute(r *request, q string) ([]hitJSON, error) {
	name, value, ok := strings.Cut(q, "=")
	if ok && entities.ValidateAttributes(map[string]string{name: value}, true) == nil {
		f := store.RunFilter{Attributes: map[string]string{name: value}}
		runs, _, err := store.ListRuns(r.ctx(), s.Reader, r.project(), f, pg.Page{Limit: 1, Descending: true})
		if err != nil || len(runs) == 0 {
			return nil, err
		}
		return []hitJSON{{Kind: "attribute", Attribute: name, Text: value}}, nil
	}
	names, err := store.AttributesWithValue(r.ctx(), s.Reader, r.project(), q, maxHits)
	return encodeAll(names, func(name string) hitJSON {
		return hitJSON{Kind: "attribute", Attribute: name, Text: q}
	}), err
}

// findHook finds an open hook by its token. Whoever has the token can resume the hook, so clients that may not see
// payloads do not learn which text is one.
func (s *Server) findHook(r *request, q string) ([]hitJSON, error) {
	if r.payloads() == read.WithoutPayloads {
		return nil, nil
	}
	h, err := store.HookByToken(r.ctx(), s.Reader, r.project(), q, s.Log.Now())
	if errors.Is(err, entities.ErrHookNotFound) {
		return nil, nil
	}
	return []hitJSON{{Kind: "hook", Text: string(h.ID), RunID: h.RunID, HookID: h.ID}}, err
}

// findMessage finds a message by its ID.
func (s *Server) findMessage(r *request, q string) ([]hitJSON, error) {
	if entities.ValidateID("message ID", q) != nil {
		return nil, nil
	}
	m, err := s.Queue.Message(r.ctx(), r.project(), q)
	if errors.Is(err, message.ErrMessageNotFound) {
		return nil, nil
	}
	return []hitJSON{{Kind: "message", Text: q, RunID: m.RunID, MessageID: m.ID}}, err
}

// findWorkflow finds the workflows of runs whose names begin with the text.
func (s *Server) findWorkflow(r *request, q string) ([]hitJSON, error) {
	names, err := store.WorkflowsByPrefix(r.ctx(), s.Reader, r.project(), q, maxHits)
	return encodeAll(names, func(name string) hitJSON {
		return hitJSON{Kind: "workflow", Text: name, Workflow: name}
	}), err
}
