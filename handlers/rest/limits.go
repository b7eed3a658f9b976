package rest

import (
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// limitSpec returns what a request says about a limit.
func limitSpec(b api.LimitSpec) (s limit.Spec, err error) {
	s = limit.Spec{
		PerKey: int(b.PerKey), Total: int(b.Total), Fair: b.Fair, OnFull: limit.OnFull(b.OnFull), Paused: b.Paused,
	}
	if b.Rate == nil {
		return s, nil
	}
	if b.Rate.Limit < 1 {
		return s, badField("rate.limit", "%d is less than 1", b.Rate.Limit)
	}
	s.Rate, s.Burst = int(b.Rate.Limit), int(b.Rate.Burst)
	s.Per, err = durationField("rate.per", b.Rate.Per, maxSpan)
	return s, err
}

// newLimitJSON encodes a limit. Only reads add the counts.
func newLimitJSON(l limit.Limit) api.Limit {
	v := api.Limit{
		Name: l.Name, PerKey: int64(l.PerKey), Total: int64(l.Total), Fair: l.Fair, OnFull: string(l.OnFull),
		Paused: l.Paused, CreatedAt: timestamp(l.CreatedAt), UpdatedAt: timestamp(l.UpdatedAt),
	}
	if l.Rate > 0 {
		v.Rate = &api.Rate{
			Limit: int64(l.Rate), Per: duration(l.Per), Burst: int64(l.Burst), Sustained: int64(l.Sustained()),
		}
	}
	return v
}

// newLimitKeyJSON encodes what holds or awaits the slots of one key.
func newLimitKeyJSON(u limit.KeyUsage) api.LimitKey {
	return api.LimitKey{
		Key: u.Key, Held: int64(u.Held), Waiting: int64(u.Waiting), WaitingSince: optionalTime(u.OldestWait),
	}
}

// newPermitJSON returns a permit: since when the slot is held, or awaited.
func newPermitJSON(p limit.Permit) api.Permit {
	v := api.Permit{
		RunID: string(p.RunID), StepID: p.Subject, MessageID: p.MessageID, Tenant: p.Tenant, Cost: int64(p.Cost),
		Since: timestamp(p.CreatedAt), NotBefore: optionalTime(p.NotBefore),
	}
	if p.GrantedAt != nil {
		v.Since, v.NotBefore = timestamp(*p.GrantedAt), api.Time{}
	}
	return v
}

func (r *request) limitName() string { return r.pathID("name", "limit name") }

// listLimits lists the limits with what is held and what waits.
func (s *Server) listLimits(r *request) error {
	page := r.page(oldestFirst)
	return answer(r, func() (v api.Page[api.Limit], err error) {
		limits, cursor, err := s.Limits.List(r.ctx(), r.project(), page)
		if err != nil {
			return v, err
		}
		v = api.Page[api.Limit]{Data: encodeAll(limits, newLimitJSON), Cursor: cursor}
		return v, s.addCounts(r, v.Data)
	})
}

func (s *Server) getLimit(r *request) error {
	name := r.limitName()
	return answer(r, func() (api.Limit, error) {
		l, err := s.Limits.Limit(r.ctx(), r.project(), name)
		if err != nil {
			return api.Limit{}, err
		}
		one := []api.Limit{newLimitJSON(l)}
		return one[0], s.addCounts(r, one)
	})
}

// addCounts sets how many slots of the limits are taken, and how many wait for one.
func (s *Server) addCounts(r *request, limits []api.Limit) error {
	names := make([]string, len(limits))
	for i, l := range limits {
		names[i] = l.Name
	}
	counts, err := s.Limits.Counts(r.ctx(), r.project(), names)
	for i := range limits {
		c := counts[limits[i].Name]
		limits[i].Held, limits[i].Waiting = new(int64(c.Held)), new(int64(c.Waiting))
	}
	return err
}

// putLimit creates or replaces a limit.
func (s *Server) putLimit(r *request) error {
	var body api.LimitSpec
	name := r.limitName()
	r.body(&body)
	spec, err := limitSpec(body)
	r.fail(err)
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
	return answer(r, func() (v api.Slots, err error) {
		if _, err = s.Limits.Limit(r.ctx(), r.project(), name); err != nil {
			return v, err
		}
		held, err := s.Limits.Holders(r.ctx(), r.project(), name, key, most)
		if err != nil {
			return v, err
		}
		waiting, err := s.Limits.Waiting(r.ctx(), r.project(), name, key, most)
		return api.Slots{Held: encodeAll(held, newPermitJSON), Waiting: encodeAll(waiting, newPermitJSON)}, err
	})
}

func newPolicyJSON(p limit.Policy) api.Policy {
	return api.Policy{
		Workflow: p.Workflow, Limits: encodeAll(p.Limits, newPolicyUseJSON), Steps: encodeLists(p.Steps, newPolicyUseJSON),
		Priority: duration(p.Priority), CreatedAt: timestamp(p.CreatedAt), UpdatedAt: timestamp(p.UpdatedAt),
	}
}

func newPolicyUseJSON(u limit.PolicyUse) api.PolicyUse {
	return api.PolicyUse{Name: u.Name, Key: u.Key, Tenant: u.Tenant, Cost: int64(u.Cost)}
}

func policyUse(u api.PolicyUse) limit.PolicyUse {
	return limit.PolicyUse{Name: u.Name, Key: u.Key, Tenant: u.Tenant, Cost: int(u.Cost)}
}

// encodeLists returns the encoded lists of a map, or nil if there are none.
func encodeLists[R, T any](lists map[string][]R, encode func(R) T) map[string][]T {
	if len(lists) == 0 {
		return nil
	}
	encoded := make(map[string][]T, len(lists))
	for key, rows := range lists {
		encoded[key] = encodeAll(rows, encode)
	}
	return encoded
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
	return r.pathAs("workflow", "workflow", entities.ValidateWorkflowName)
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
	var body api.PolicySpec
	workflow := r.policyWorkflow()
	r.body(&body)
	priority, err := priorityField(body.Priority)
	r.fail(err)
	return answerAs(r, newPolicyJSON, func() (limit.Policy, error) {
		return s.Limits.PutPolicy(r.ctx(), limit.Policy{
			Project: r.project(), Workflow: workflow, Limits: encodeAll(body.Limits, policyUse),
			Steps: encodeLists(body.Steps, policyUse), Priority: priority,
		})
	})
}

func (s *Server) removePolicy(r *request) error {
	return deleteOne(r, r.policyWorkflow(), s.Limits.DeletePolicy)
}
