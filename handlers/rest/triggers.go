package rest

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

// shownEvents is how many recent events the answer about a trigger has.
const shownEvents = 5

// triggerBody is what a request says about a trigger, and what an answer repeats.
type triggerBody struct {
	On    triggerOn    `json:"on"`
	Start triggerStart `json:"start"`
}

// triggerOn says what a trigger waits for: exactly one of these.
type triggerOn struct {
	Signal   *onSignal   `json:"signal,omitempty"`
	Webhook  *onWebhook  `json:"webhook,omitempty"`
	RunEnded *onRunEnded `json:"runEnded,omitempty"`
}

type onSignal struct {
	Name      string `json:"name"`
	Condition string `json:"condition,omitempty"`
}

type onWebhook struct {
	Verify    string `json:"verify,omitempty"`
	Secret    string `json:"secret,omitempty"`
	Respond   string `json:"respond,omitempty"`
	Condition string `json:"condition,omitempty"`
}

type onRunEnded struct {
	Workflow  string               `json:"workflow"`
	Statuses  []entities.RunStatus `json:"statuses"`
	Condition string               `json:"condition,omitempty"`
}

// triggerStart says what a trigger starts.
type triggerStart struct {
	Workflow   string            `json:"workflow"`
	Deployment string            `json:"deployment,omitempty"`
	Input      json.RawMessage   `json:"input,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Key        string            `json:"key,omitempty"`
	OnConflict string            `json:"onConflict,omitempty"`
	Timeout    string            `json:"timeout,omitempty"`

	IdempotencyKey string              `json:"idempotencyKey,omitempty"`
	Delay          string              `json:"delay,omitempty"`
	Limits         []entities.LimitUse `json:"limits,omitempty"`
	Priority       string              `json:"priority,omitempty"`
	Debounce       *debounceBody       `json:"debounce,omitempty"`
	Batch          *batchBody          `json:"batch,omitempty"`
}

// inStart says that the field of an error is in the start.
func inStart(err error) error {
	if bad, ok := errors.AsType[*validationError](err); ok {
		return &validationError{bad.kind, "start." + bad.name, bad.message}
	}
	return err
}

// options returns what the start says about how it is done.
func (b triggerStart) options() (o trigger.Options, err error) {
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

// spec returns what the body says, with the defaults.
func (b triggerBody) spec() (s trigger.Spec, err error) {
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
	if s.Options, err = b.Start.options(); err != nil {
		return s, err
	}
	if b.Start.Timeout != "" {
		if s.Timeout, err = durationField("start.timeout", b.Start.Timeout, maxSpan); err != nil {
			return s, err
		}
	}
	return s, b.On.addTo(&s)
}

// addTo adds what the trigger waits for.
func (o triggerOn) addTo(s *trigger.Spec) (err error) {
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
		if s.Statuses = o.RunEnded.Statuses; len(s.Statuses) == 0 {
			s.Statuses = []entities.RunStatus{entities.RunCompleted, entities.RunFailed, entities.RunCancelled}
		}
	}
	if n != 1 {
		return badField("on", "it has %d of signal, webhook and runEnded: give exactly one", n)
	}
	return nil
}

// triggerJSON is the JSON form of a trigger. Clients that may not see payloads see neither the input, nor the
// condition, which may quote payloads, nor the path of the webhook, to which they could send requests.
type triggerJSON struct {
	Name string `json:"name"`
	triggerBody

	Path      string             `json:"path,omitempty"`
	PausedAt  api.Time           `json:"pausedAt,omitzero"`
	PauseNote string             `json:"pauseNote,omitempty"`
	Last      []triggerEventJSON `json:"last,omitempty"`
	CreatedAt api.Time           `json:"createdAt"`
	UpdatedAt api.Time           `json:"updatedAt"`
}

func (r *request) triggerJSON(t trigger.Trigger) triggerJSON {
	v := triggerJSON{
		Name: t.Name, PausedAt: optionalTime(t.PausedAt), PauseNote: t.PauseNote,
		CreatedAt: timestamp(t.CreatedAt), UpdatedAt: timestamp(t.UpdatedAt),
	}
	v.Start = triggerStart{
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
		v.On.Signal = &onSignal{t.Source, condition}
	case trigger.KindWebhook:
		v.On.Webhook = &onWebhook{t.Verify, t.Secret, duration(t.Options.Respond), condition}
	case trigger.KindRunEnded:
		v.On.RunEnded = &onRunEnded{t.Source, t.Statuses, condition}
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

// triggerEventJSON is the JSON form of what became of an event. Clients that may not see payloads do not see why it
// started nothing, which may quote the condition, the start or the event.
type triggerEventJSON struct {
	Event     string           `json:"event"`
	Decision  trigger.Decision `json:"decision"`
	RunID     entities.RunID   `json:"runId,omitempty"`
	Reason    string           `json:"reason,omitempty"`
	DecidedAt api.Time         `json:"decidedAt"`
}

func (r *request) triggerEventJSON(e trigger.Event) triggerEventJSON {
	v := triggerEventJSON{e.Event, e.Decision, e.RunID, e.Reason, timestamp(e.DecidedAt)}
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
	return answer(r, func() (v triggerJSON, err error) {
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
	var body triggerBody
	name := r.triggerName()
	if r.body(&body); r.err != nil {
		return r.err
	}
	spec, err := body.spec()
	if err != nil {
		return err
	}
	t, created, err := s.Triggers.Put(r.ctx(), r.project(), name, spec)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return r.JSON(status, r.triggerJSON(t))
}

func (s *Server) removeTrigger(r *request) error {
	return deleteOne(r, r.triggerName(), s.Triggers.Delete)
}

func (s *Server) pauseTrigger(r *request) error {
	var body struct {
		Note string `json:"note"`
	}
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
