package rest

import (
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// rateJSON is the JSON form of a rate. Sustained is only in answers.
type rateJSON struct {
	Limit     int    `json:"limit"`
	Per       string `json:"per"`
	Burst     int    `json:"burst,omitempty"`
	Sustained int    `json:"sustained,omitempty"`
}

// limitBody is what a request says about a limit, and what an answer repeats.
type limitBody struct {
	PerKey int          `json:"perKey,omitempty"`
	Total  int          `json:"total,omitempty"`
	Rate   *rateJSON    `json:"rate,omitempty"`
	Fair   bool         `json:"fair"`
	OnFull limit.OnFull `json:"onFull"`
	Paused bool         `json:"paused"`
}

func (b limitBody) spec() (s limit.Spec, err error) {
	s = limit.Spec{PerKey: b.PerKey, Total: b.Total, Fair: b.Fair, OnFull: b.OnFull, Paused: b.Paused}
	if b.Rate == nil {
		return s, nil
	}
	if b.Rate.Limit < 1 {
		return s, badField("rate.limit", "%d is less than 1", b.Rate.Limit)
	}
	s.Rate, s.Burst = b.Rate.Limit, b.Rate.Burst
	s.Per, err = durationField("rate.per", b.Rate.Per, maxSpan)
	return s, err
}

// limitJSON is the JSON form of a limit. Only reads have the counts.
type limitJSON struct {
	Name string `json:"name"`
	limitBody

	Held      *int     `json:"held,omitempty"`
	Waiting   *int     `json:"waiting,omitempty"`
	CreatedAt api.Time `json:"createdAt"`
	UpdatedAt api.Time `json:"updatedAt"`
}

func newLimitJSON(l limit.Limit) limitJSON {
	v := limitJSON{
		Name:      l.Name,
		limitBody: limitBody{PerKey: l.PerKey, Total: l.Total, Fair: l.Fair, OnFull: l.OnFull, Paused: l.Paused},
		CreatedAt: timestamp(l.CreatedAt), UpdatedAt: timestamp(l.UpdatedAt),
	}
	if l.Rate > 0 {
		v.Rate = &rateJSON{l.Rate, duration(l.Per), l.Burst, l.Sustained()}
	}
	return v
}

// limitKeyJSON is the JSON form of what holds or awaits the slots of one key.
type limitKeyJSON struct {
	Key          string   `json:"key"`
	Held         int      `json:"held"`
	Waiting      int      `json:"waiting"`
	WaitingSince api.Time `json:"waitingSince,omitzero"`
}

func newLimitKeyJSON(u limit.KeyUsage) limitKeyJSON {
	return limitKeyJSON{u.Key, u.Held, u.Waiting, optionalTime(u.OldestWait)}
}

// permitJSON is the JSON form of what holds or awaits a slot.
type permitJSON struct {
	RunID     entities.RunID `json:"runId"`
	StepID    string         `json:"stepId,omitempty"`
	MessageID string         `json:"messageId,omitempty"`
	Tenant    string         `json:"tenant,omitempty"`
	Cost      int            `json:"cost"`
	Since     api.Time       `json:"since"`
	NotBefore api.Time       `json:"notBefore,omitzero"`
}

// newPermitJSON returns a permit: since when the slot is held, or awaited.
func newPermitJSON(p limit.Permit) permitJSON {
	v := permitJSON{
		RunID: p.RunID, StepID: p.Subject, MessageID: p.MessageID, Tenant: p.Tenant, Cost: p.Cost,
		Since: timestamp(p.CreatedAt), NotBefore: optionalTime(p.NotBefore),
	}
	if p.GrantedAt != nil {
		v.Since, v.NotBefore = timestamp(*p.GrantedAt), api.Time{}
	}
	return v
}

// slotsJSON is who holds the slots of a key, the one that has done so longest first, and who waits, in order.
type slotsJSON struct {
	Held    []permitJSON `json:"held"`
	Waiting []permitJSON `json:"waiting"`
}

func (r *request) limitName() string {
	name := r.pathText("name", "limit name")
	r.fail(inParam("name", entities.ValidateID("limit name", name)))
	return name
}

// listLimits lists the limits with what is held and what waits.
func (s *Server) listLimits(r *request) error {
	page := r.page(oldestFirst)
	return answer(r, func() (v api.Page[limitJSON], err error) {
		limits, cursor, err := s.Limits.List(r.ctx(), r.project(), page)
		if err != nil {
			return v, err
		}
		v = api.Page[limitJSON]{Data: encodeAll(limits, newLimitJSON), Cursor: cursor}
		return v, s.addCounts(r, v.Data)
	})
}

func (s *Server) getLimit(r *request) error {
	name := r.limitName()
	return answer(r, func() (limitJSON, error) {
		l, err := s.Limits.Limit(r.ctx(), r.project(), name)
		if err != nil {
			return limitJSON{}, err
		}
		one := []limitJSON{newLimitJSON(l)}
		return one[0], s.addCounts(r, one)
	})
}

// addCounts sets how many slots of the limits are taken, and how many wait for one.
func (s *Server) addCounts(r *request, limits []limitJSON) error {
	names := make([]string, len(limits))
	for i, l := range limits {
		names[i] = l.Name
	}
	counts, err := s.Limits.Counts(r.ctx(), r.project(), names)
	for i := range limits {
		c := counts[limits[i].Name]
		limits[i].Held, limits[i].Waiting = &c.Held, &c.Waiting
	}
	return err
}

// putLimit creates or replaces a limit.
func (s *Server) putLimit(r *request) error {
	var body limitBody
	name := r.limitName()
	if r.body(&body); r.err != nil {
		return r.err
	}
	spec, err := body.spec()
	if err != nil {
		return err
	}
	return answerAs(r, newLimitJSON, func() (limit.Limit, error) {
		l, err := s.Limits.Put(r.ctx(), r.project(), name, spec)
		if err == nil {
			s.Queue.LimitsChanged()
		}
		return l, err
	})
}

func (s *Server) removeLimit(r *request) error {
	name, force := r.limitName(), r.flag("force", false)
	return answerNothing(r, func() error {
		err := s.Limits.Delete(r.ctx(), r.project(), name, force)
		if err == nil {
			s.Queue.LimitsChanged()
		}
		return err
	})
}

// listLimitKeys lists the keys of a limit that something holds or awaits.
func (s *Server) listLimitKeys(r *request) error {
	name, page := r.limitName(), r.page(oldestFirst)
	return answerPage(r, newLimitKeyJSON, func() ([]limit.KeyUsage, string, error) {
		if _, err := s.Limits.Limit(r.ctx(), r.project(), name); err != nil {
			return nil, "", err
		}
		return s.Limits.Usage(r.ctx(), r.project(), name, page)
	})
}

// getSlots answers with who holds the slots of one key, and who waits.
func (s *Server) getSlots(r *request) error {
	name, key := r.limitName(), r.QueryParam("key")
	most := r.page(oldestFirst).Limit
	return answer(r, func() (v slotsJSON, err error) {
		if _, err = s.Limits.Limit(r.ctx(), r.project(), name); err != nil {
			return v, err
		}
		held, err := s.Limits.Holders(r.ctx(), r.project(), name, key, most)
		if err != nil {
			return v, err
		}
		waiting, err := s.Limits.Waiting(r.ctx(), r.project(), name, key, most)
		return slotsJSON{encodeAll(held, newPermitJSON), encodeAll(waiting, newPermitJSON)}, err
	})
}

// policyBody is what a request says about a policy, and what an answer repeats.
type policyBody struct {
	Limits []limit.PolicyUse `json:"limits"`
	// Steps has the limits of the workflow's steps, by their names.
	Steps    map[string][]limit.PolicyUse `json:"steps,omitempty"`
	Priority string                       `json:"priority,omitempty"`
}

// policyJSON is the JSON form of a policy.
type policyJSON struct {
	Workflow string `json:"workflow"`
	policyBody

	CreatedAt api.Time `json:"createdAt"`
	UpdatedAt api.Time `json:"updatedAt"`
}

func newPolicyJSON(p limit.Policy) policyJSON {
	return policyJSON{
		p.Workflow, policyBody{p.Limits, p.Steps, duration(p.Priority)}, timestamp(p.CreatedAt), timestamp(p.UpdatedAt),
	}
}

// priorityField returns a priority in a body, which may be negative; 0 if it is missing.
func priorityField(text string) (time.Duration, error) {
	positive, isNegative := strings.CutPrefix(text, "-")
	d, err := durationField("priority", positive, time.Hour)
	if isNegative {
		d = -d
	}
	return d, err
}

func (r *request) policyWorkflow() string {
	name := r.pathText("workflow", "workflow")
	r.fail(inParam("workflow", entities.ValidateWorkflowName("workflow", name)))
	return name
}

func (s *Server) listPolicies(r *request) error {
	page := r.page(oldestFirst)
	return answerPage(r, newPolicyJSON, func() ([]limit.Policy, string, error) {
		return s.Limits.Policies(r.ctx(), r.project(), page)
	})
}

func (s *Server) getPolicy(r *request) error {
	return answerOne(r, r.policyWorkflow(), newPolicyJSON, s.Limits.Policy)
}

// putPolicy creates or replaces the policy of a workflow.
func (s *Server) putPolicy(r *request) error {
	var body policyBody
	workflow := r.policyWorkflow()
	if r.body(&body); r.err != nil {
		return r.err
	}
	priority, err := priorityField(body.Priority)
	if err != nil {
		return err
	}
	return answerAs(r, newPolicyJSON, func() (limit.Policy, error) {
		return s.Limits.PutPolicy(r.ctx(), limit.Policy{
			Project: r.project(), Workflow: workflow, Limits: body.Limits, Steps: body.Steps, Priority: priority,
		})
	})
}

func (s *Server) removePolicy(r *request) error {
	return deleteOne(r, r.policyWorkflow(), s.Limits.DeletePolicy)
}
