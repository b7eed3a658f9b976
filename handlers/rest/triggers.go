package rest

import (
	"errors"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

// shownEvents is how many recent events the answer about a trigger has.
const shownEvents = 5

// inStart says that the field of an error is in the start.
func inStart(err error) error {
	if bad, ok := errors.AsType[*validationError](err); ok {
		return &validationError{bad.kind, "start." + bad.name, bad.message}
	}
	return err
}

// triggerOptions returns what a start says about how it is done.
func triggerOptions(b api.TriggerStart) (o trigger.Options, err error) {
	o.IdempotencyKey = b.IdempotencyKey
	if o.Delay, err = durationField("start.delay", b.Delay, maxSpan); err != nil {
		return o, err
	}
	if o.Limits, o.Priority, err = limitsOf(b.Limits, b.Priority); err != nil {
		return o, inStart(err)
	}
	if b.Debounce == nil && b.Batch == nil {
		return o, nil
	}
	rule, err := ruleOf(b.Debounce, b.Batch)
	o.Collect = &rule
	return o, inStart(err)
}

// triggerSpec returns what a request says about a trigger, with the defaults.
func triggerSpec(b api.TriggerSpec) (s trigger.Spec, err error) {
	s = trigger.Spec{
		Workflow: b.Start.Workflow, Deployment: b.Start.Deployment, Input: b.Start.Input, Attributes: b.Start.Attributes,
		UniqueKey: b.Start.Key, Joins: b.Start.OnConflict == onConflictJoin,
	}
	if s.Deployment == latest {
		s.Deployment = ""
	}
	if err := checkIDField("start.deployment", s.Deployment); err != nil {
		return s, err
	}
	if !s.Joins && b.Start.OnConflict != "" && b.Start.OnConflict != onConflictReject {
		return s, badField("start.onConflict", "%q is neither %s nor %s",
			b.Start.OnConflict, onConflictReject, onConflictJoin)
	}
	if s.Options, err = triggerOptions(b.Start); err != nil {
		return s, err
	}
	if s.Timeout, err = durationField("start.timeout", b.Start.Timeout, maxSpan); err != nil {
		return s, err
	}
	return s, addOn(&s, b.On)
}

// addOn adds what the trigger waits for.
func addOn(s *trigger.Spec, o api.TriggerOn) (err error) {
	n := 0
	if o.Signal != nil {
		n++
		s.Kind, s.Source, s.Condition = trigger.KindSignal, o.Signal.Name, o.Signal.Condition
	}
	if o.Webhook != nil {
		n++
		s.Kind, s.Verify, s.Secret = trigger.KindWebhook, o.Webhook.Verify, o.Webhook.Secret
		s.Condition = o.Webhook.Condition
		if s.Options.Respond, err = durationField("on.webhook.respond", o.Webhook.Respond, webhook.MaxRespond); err != nil {
			return err
		}
	}
	if o.RunEnded != nil {
		n++
		s.Kind, s.Source, s.Condition = trigger.KindRunEnded, o.RunEnded.Workflow, o.RunEnded.Condition
		s.Statuses = encodeAll(o.RunEnded.Statuses, func(text string) entities.RunStatus { return entities.RunStatus(text) })
		if len(s.Statuses) == 0 {
			s.Statuses = []entities.RunStatus{entities.RunCompleted, entities.RunFailed, entities.RunCancelled}
		}
	}
	if n != 1 {
		return badField("on", "it has %d of signal, webhook and runEnded: give exactly one", n)
	}
	return nil
}

// triggerJSON encodes a trigger. Clients that may not see payloads see neither the input, nor the condition, which may
// quote payloads, nor the path of the webhook, to which they could send requests.
func (r *request) triggerJSON(t trigger.Trigger) api.Trigger {
	v := api.Trigger{
		Name: t.Name, PausedAt: optionalTime(t.PausedAt), PauseNote: t.PauseNote,
		CreatedAt: timestamp(t.CreatedAt), UpdatedAt: timestamp(t.UpdatedAt),
	}
	v.Start = api.TriggerStart{
		Workflow: t.Workflow, Deployment: t.Deployment, Attributes: t.Attributes, Key: t.UniqueKey,
		Timeout: duration(t.Timeout), IdempotencyKey: t.Options.IdempotencyKey, Delay: duration(t.Options.Delay),
		Limits: t.Options.Limits, Priority: duration(t.Options.Priority),
	}
	if t.Options.Collect != nil {
		v.Start.Debounce, v.Start.Batch = ruleBodies(*t.Options.Collect)
	}
	if t.Joins {
		v.Start.OnConflict = onConflictJoin
	}
	condition := ""
	if r.payloads() == read.WithPayloads {
		v.Start.Input, condition = t.Input, t.Condition
		if t.Kind == trigger.KindWebhook {
			v.Path = webhookPath(t.Project, t.Source)
		}
	}
	switch t.Kind {
	case trigger.KindSignal:
		v.On.Signal = &api.OnSignal{Name: t.Source, Condition: condition}
	case trigger.KindWebhook:
		v.On.Webhook = &api.OnWebhook{
			Verify: t.Verify, Secret: t.Secret, Respond: duration(t.Options.Respond), Condition: condition,
		}
	case trigger.KindRunEnded:
		v.On.RunEnded = &api.OnRunEnded{Workflow: t.Source, Statuses: textsOf(t.Statuses), Condition: condition}
	}
	return v
}

// webhookPath returns the path of a webhook. Its token has only characters that a path can have.
func webhookPath(project entities.Project, token string) string {
	if project == entities.DefaultProject {
		return "/hooks/" + token
	}
	return "/hooks/" + string(project) + "/" + token
}

// triggerEventJSON encodes what became of an event. Clients that may not see payloads do not see why it started
// nothing, which may quote the condition, the start or the event.
func (r *request) triggerEventJSON(e trigger.Event) api.TriggerEvent {
	v := api.TriggerEvent{
		Event: e.Event, Decision: string(e.Decision), RunID: string(e.RunID), Reason: e.Reason,
		DecidedAt: timestamp(e.DecidedAt),
	}
	if r.payloads() != read.WithPayloads {
		v.Reason = ""
	}
	return v
}

func (r *request) triggerName() string {
	name := r.pathText("name", "trigger name")
	r.fail(inParam("name", trigger.ValidateName(name)))
	return name
}

func (s *Server) listTriggers(r *request) error {
	page := r.page(oldestFirst)
	return answerPage(r, r.triggerJSON, func() ([]trigger.Trigger, string, error) {
		return trigger.List(r.ctx(), s.Reader, r.project(), page)
	})
}

// getTrigger answers with a trigger and what became of the last events.
func (s *Server) getTrigger(r *request) error {
	name := r.triggerName()
	return answer(r, func() (v api.Trigger, err error) {
		t, err := trigger.ByName(r.ctx(), s.Reader, r.project(), name)
		if err != nil {
			return v, err
		}
		last, _, err := trigger.History(r.ctx(), s.Reader, t.ID, pg.Page{Limit: shownEvents, Descending: true})
		v = r.triggerJSON(t)
		v.Last = encodeAll(last, r.triggerEventJSON)
		return v, err
	})
}

func (s *Server) putTrigger(r *request) error {
	var body api.TriggerSpec
	name := r.triggerName()
	r.body(&body)
	spec, err := triggerSpec(body)
	r.fail(err)
	return answerAs(r, r.triggerJSON, func() (trigger.Trigger, error) {
		t, created, err := s.Triggers.Put(r.ctx(), r.project(), name, spec)
		r.setCreated(created)
		return t, err
	})
}

func (s *Server) removeTrigger(r *request) error {
	return deleteOne(r, r.triggerName(), s.Triggers.Delete)
}

func (s *Server) pauseTrigger(r *request) error {
	var body api.PauseTriggerBody
	name := r.triggerName()
	r.optionalBody(&body)
	return answerAs(r, r.triggerJSON, func() (trigger.Trigger, error) {
		return s.Triggers.Pause(r.ctx(), r.project(), name, body.Note)
	})
}

func (s *Server) resumeTrigger(r *request) error {
	return answerOne(r, r.triggerName(), r.triggerJSON, s.Triggers.Resume)
}

func (s *Server) listTriggerEvents(r *request) error {
	name, page := r.triggerName(), r.page(newestFirst)
	return answerPage(r, r.triggerEventJSON, func() ([]trigger.Event, string, error) {
		t, err := trigger.ByName(r.ctx(), s.Reader, r.project(), name)
		if err != nil {
			return nil, "", err
		}
		return trigger.History(r.ctx(), s.Reader, t.ID, page)
	})
}
