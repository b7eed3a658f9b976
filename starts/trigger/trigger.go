// Package trigger has triggers: what they wait for, what they start, and the rows of both.
package trigger

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/starts/collection"
)

// ID identifies a trigger for ever: one that is deleted and created again has another ID.
type ID string

// NewID returns a new ID.
func NewID() ID { return ID("trg_" + ulid.Make().String()) }

// NewToken returns a token for the URL of a webhook, which nobody can guess.
func NewToken() string { return "trg_" + rand.Text() }

// Kind says what a trigger waits for.
type Kind string

// The kinds of triggers.
const (
	// KindSignal waits for the signals of a name.
	KindSignal Kind = "signal"
	// KindWebhook waits for requests to a public URL of its own.
	KindWebhook Kind = "webhook"
	// KindRunEnded waits for the ends of a workflow's runs.
	KindRunEnded Kind = "runEnded"
)

// Limits.
const (
	// MaxTriggers is how many triggers a project may have.
	MaxTriggers = 1000
	// MaxSame is how many of them may wait for the same: the end of a run writes as many messages.
	MaxSame = 50
	// MaxDepth bounds loops: a run that was started because of as many ends of runs, one because of the other, is the
	// last one.
	MaxDepth = 8

	maxInput = 1 << 20
	maxSpan  = 10 * 365 * 24 * time.Hour
	maxNote  = 1024
	maxName  = 256 // it is an attribute of the runs
)

// The attributes with which a trigger starts its runs.
const (
	// AttributeName has the name of the trigger.
	AttributeName = "$trigger"
	// AttributeEvent has the ID of the event.
	AttributeEvent = "$triggerEvent"
	// AttributeDepth has the number of ends of runs that led to the run, one after the other.
	AttributeDepth = "$triggerDepth"
)

var (
	// ErrNotFound means that the project has no such trigger.
	ErrNotFound = errors.New("trigger not found")
	// ErrTooMany means that the project already has as many triggers as it may.
	ErrTooMany = fmt.Errorf("a project has at most %d triggers, and %d that wait for the same: remove one first",
		MaxTriggers, MaxSame)
	// ErrChanged means that the trigger was changed by somebody else at the same time.
	ErrChanged = fmt.Errorf("the trigger was changed at the same time: %w", entities.ErrConflict)
)

// Spec is what a project says about a trigger.
type Spec struct {
	Kind Kind
	// Source is the name of the signals, or the workflow whose runs end. The server chooses that of a webhook, its token.
	Source string
	// Condition must be true of the event; empty for none.
	Condition string
	// Statuses are those with which the runs end.
	Statuses []entities.RunStatus
	// Verify is the scheme by which requests to the webhook are signed, and Secret the name of the secret; both or
	// neither.
	Verify, Secret string
	// Workflow, Deployment, Input, Attributes, UniqueKey and Timeout are those of the run. An empty deployment is the
	// newest one of the workflow, an empty input is that of the event, and no timeout is 0.
	Workflow   string
	Deployment string
	Input      []byte
	Attributes map[string]string
	UniqueKey  string
	// Joins makes an event count as done if a live run has the key. Otherwise it is refused.
	Joins   bool
	Timeout time.Duration
	// Options are what the start says besides.
	Options Options
}

// Options are what a start says about how it is done.
type Options struct {
	// IdempotencyKey makes events with the same one start one run; the default is the event.
	IdempotencyKey string              `json:"idempotencyKey,omitempty"`
	Limits         []entities.LimitUse `json:"limits,omitempty"`
	Priority       time.Duration       `json:"priority,omitempty"`
	// Delay is how long after the event the run starts.
	Delay time.Duration `json:"delay,omitempty"`
	// Respond is how long the sender of a request waits for what the run responds; 0 answers it as soon as the run is
	// started.
	Respond time.Duration `json:"respond,omitempty"`
	// Collect makes one run of several events; nil for a run of each.
	Collect *collection.Rule `json:"collect,omitempty"`
}

// Trigger is a trigger as it is stored.
type Trigger struct {
	Spec

	Project entities.Project
	Name    string
	ID      ID
	// PausedAt is set while the trigger is paused.
	PausedAt  *time.Time
	PauseNote string
	Revision  int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Decision is what became of an event.
type Decision string

// The decisions.
const (
	// Started, Joined and Collected are final: the event has its run, or is in the collection of one.
	Started   Decision = "started"
	Joined    Decision = "joined"
	Collected Decision = "collected"
	// Skipped means that the condition was not true.
	Skipped Decision = "skipped"
	// Refused means that the run cannot be started. Only a sender that repeats its request has it tried again.
	Refused Decision = "refused"
	// Retrying means that the start has failed, and is tried again.
	Retrying Decision = "retrying"
)

// Event is what became of an event.
type Event struct {
	// Event is the ID of the signal, of the request, or of the run that ended.
	Event    string
	Decision Decision
	// RunID is the run that was started or joined, that will be, or that has the key.
	RunID     entities.RunID
	Reason    string
	DecidedAt time.Time
	// Seq is the place in the trigger's history.
	Seq int64
}

func bad(field, format string, args ...any) error {
	return &entities.FieldError{Field: field, Err: entities.Invalid(format, args...)}
}

func inField(field string, err error) error {
	if err == nil {
		return nil
	}
	return &entities.FieldError{Field: field, Err: err}
}

// Validate checks the trigger, except for its condition and whether its deployment exists. It fails with an
// *[entities.FieldError].
func (s Spec) Validate() error {
	if err := s.validateSource(); err != nil {
		return err
	}
	attributes := Trigger{Spec: s}.RunAttributes("", MaxDepth)
	if err := cmp.Or(
		inField("start.workflow", entities.ValidateWorkflowName("workflow", s.Workflow)),
		inField("start.attributes", cmp.Or(
			entities.ValidateAttributes(s.Attributes, false), entities.ValidateAttributes(attributes, true))),
	); err != nil {
		return err
	}
	if err := s.validateOptions(); err != nil {
		return err
	}
	switch {
	case s.Joins && s.UniqueKey == "":
		return bad("start.onConflict", "without a key there can be no conflict")
	case len(s.Input) > maxInput:
		return bad("start.input", "it has %d bytes; the limit is %d", len(s.Input), maxInput)
	case len(s.Input) > 0 && !json.Valid(s.Input):
		return bad("start.input", "it is not JSON")
	case s.Timeout < 0 || s.Timeout > maxSpan:
		return bad("start.timeout", "%s is not between 0 and %s", s.Timeout, maxSpan)
	default:
		return nil
	}
}

// validateOptions checks the keys of the start, and how it is done.
func (s Spec) validateOptions() error {
	for field, key := range map[string]string{"start.key": s.UniqueKey, "start.idempotencyKey": s.Options.IdempotencyKey} {
		if key == "" {
			continue
		}
		if err := entities.ValidateName("key", key); err != nil {
			return inField(field, err)
		}
	}
	o := s.Options
	if o.Collect != nil && o.Collect.Key != "" {
		if err := entities.ValidateName("key", o.Collect.Key); err != nil {
			return inField("start."+string(o.Collect.Kind), err)
		}
	}
	if err := o.validateRespond(); err != nil {
		return err
	}
	switch {
	case o.Delay < 0 || o.Delay > maxSpan:
		return bad("start.delay", "%s is not between 0 and %s", o.Delay, maxSpan)
	case o.Collect != nil && o.Delay > 0:
		return bad("start.delay", "debounce or batch says when the run starts: leave delay out")
	case o.Collect != nil && s.Joins:
		return bad("start.onConflict", "a run that is debounced or a batch waits until its key is free: leave onConflict out")
	default:
		return inField("start.limits", limit.ValidateUses(o.Limits, o.Priority))
	}
}

func (o Options) validateRespond() error {
	switch {
	case o.Respond < 0 || o.Respond > webhook.MaxRespond:
		return bad("on.webhook.respond", "%s is not between 0 and %s", o.Respond, webhook.MaxRespond)
	case o.Respond > 0 && (o.Delay > 0 || o.Collect != nil):
		return bad("on.webhook.respond", "nobody can wait for a run that starts later: leave out respond, or delay, "+
			"debounce and batch")
	default:
		return nil
	}
}

// EachText replaces the texts of the start in which values of the event may be: keys, and the values of attributes.
// It fails with an *[entities.FieldError] that wraps the error of replace, or an [entities.ErrInvalid] if that leaves
// nothing of a key: events without one would share the empty key by accident.
func (s *Spec) EachText(replace func(text string) (string, error)) error {
	s.Attributes, s.Options.Limits = maps.Clone(s.Attributes), slices.Clone(s.Options.Limits)
	texts := map[string]*string{"start.key": &s.UniqueKey, "start.idempotencyKey": &s.Options.IdempotencyKey}
	for i := range s.Options.Limits {
		use := &s.Options.Limits[i]
		field := fmt.Sprintf("start.limits[%d].", i)
		texts[field+"key"], texts[field+"tenant"] = &use.Key, &use.Tenant
	}
	if s.Options.Collect != nil {
		s.Options.Collect = new(*s.Options.Collect)
		texts["start."+string(s.Options.Collect.Kind)+".key"] = &s.Options.Collect.Key
	}
	for _, field := range slices.Sorted(maps.Keys(texts)) {
		text, err := replace(*texts[field])
		if err == nil && text == "" && *texts[field] != "" {
			err = entities.Invalid("%s is empty for this event", *texts[field])
		}
		if err != nil {
			return inField(field, err)
		}
		*texts[field] = text
	}
	for _, name := range slices.Sorted(maps.Keys(s.Attributes)) {
		text, err := replace(s.Attributes[name])
		if err != nil {
			return inField("start.attributes", err)
		}
		s.Attributes[name] = text
	}
	return nil
}

// validateSource checks what the trigger waits for.
func (s Spec) validateSource() error {
	switch s.Kind {
	case KindSignal:
		return inField("on.signal.name", entities.ValidateName("signal name", s.Source))
	case KindWebhook:
		return inField("on.webhook", webhook.Validate(entities.WebhookSpec{Verify: s.Verify, Secret: s.Secret}))
	case KindRunEnded:
		for i, status := range s.Statuses {
			if !status.Ended() || slices.Contains(s.Statuses[:i], status) {
				return bad("on.runEnded.statuses", "%q is not one of completed, failed and cancelled, each once", status)
			}
		}
		if len(s.Statuses) == 0 {
			return bad("on.runEnded.statuses", "it is empty: give one of completed, failed and cancelled at least")
		}
		return inField("on.runEnded.workflow", entities.ValidateWorkflowName("workflow", s.Source))
	default:
		return bad("on", "give one of signal, webhook and runEnded")
	}
}

// ValidateName checks the name of a trigger. The error is an [entities.ErrInvalid].
func ValidateName(name string) error { return entities.ValidateText("trigger name", name, maxName) }

// ValidateNote checks why a trigger is paused.
func ValidateNote(note string) error {
	if note == "" {
		return nil
	}
	return entities.ValidateText("note", note, maxNote)
}

// RunAttributes returns the attributes of the run that an event starts, after so many ends of runs.
func (t Trigger) RunAttributes(event string, depth int) map[string]string {
	all := map[string]string{AttributeName: t.Name, AttributeEvent: event}
	if depth > 0 {
		all[AttributeDepth] = strconv.Itoa(depth)
	}
	for key, value := range t.Attributes {
		all[key] = value
	}
	return all
}

// Cause is what work says about the event of a trigger: its ID and, if a run has led to it, the place in the tree of a
// run that the event starts.
type Cause struct {
	ID    string
	Root  entities.RunID
	Depth int
}

// String returns the cause as a text without spaces.
func (c Cause) String() string {
	if c.Root == "" {
		return c.ID
	}
	return strings.Join([]string{c.ID, string(c.Root), strconv.Itoa(c.Depth)}, ":")
}

// ParseCause returns the cause of which [Cause.String] made the text.
func ParseCause(text string) Cause {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return Cause{ID: text}
	}
	depth, err := strconv.Atoi(parts[2])
	if err != nil {
		return Cause{ID: text}
	}
	return Cause{parts[0], entities.RunID(parts[1]), depth}
}

// Subject returns the subject of the work that starts the run of an event.
func Subject(id ID, event string) string { return string(id) + " " + event }

// ParseSubject returns what [Subject] was made of.
func ParseSubject(subject string) (id ID, event string) {
	trigger, event, _ := strings.Cut(subject, " ")
	return ID(trigger), event
}
