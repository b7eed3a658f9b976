package contract

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/contract/approval"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/inbox"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// Defaults of runStep.
const (
	DefaultAttempts       = 5
	DefaultBackoff        = time.Second
	DefaultFactor         = 2
	DefaultMaxBackoff     = 5 * time.Minute
	DefaultAttemptTimeout = 5 * time.Minute

	// MaxAttemptTimeout limits the duration of one attempt.
	MaxAttemptTimeout = 12 * time.Hour
	// MinHeartbeatTimeout is the shortest time between heartbeats that a step may ask for.
	MinHeartbeatTimeout = 2 * time.Second
)

// head holds the field that all commands share.
type head struct {
	Type string `json:"type"`
}

// place is where in the function's code a command was sent, such as "order.go:41".
type place string

// maxPlace limits the length of a place, in characters.
const maxPlace = 256

func (p *place) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	if n := utf8.RuneCountInString(s); n > maxPlace {
		return fmt.Errorf("a place of %d characters; the limit is %d", n, maxPlace)
	}
	*p = place(s)
	return nil
}

// runStep executes a step by calling a function, on the run's deployment or another.
type runStep struct {
	head

	ID             string          `json:"id"`
	Name           string          `json:"name"`
	Input          json.RawMessage `json:"input"`
	Deployment     string          `json:"deployment"`
	Timeout        *duration       `json:"timeout"`
	AttemptTimeout *duration       `json:"attemptTimeout"`
	// HeartbeatTimeout is after which silence of the function an attempt has failed.
	HeartbeatTimeout *duration     `json:"heartbeatTimeout"`
	Retry            retry         `json:"retry"`
	FirstAttempt     *firstAttempt `json:"firstAttempt"`
	// HTTP is the request that the step is; nil for the call of a function.
	HTTP *httpOptions `json:"http"`
	// Async lets the function accept the step, and have its result sent later.
	Async bool `json:"async"`
	// Limits are those of which each attempt needs a slot, and Priority is by how much it goes before others.
	Limits   []entities.LimitUse `json:"limits"`
	Priority string              `json:"priority"`
	At       place               `json:"at"`
	// Undo is the place in the code that undoes the step, or a name of it; empty for none.
	Undo place `json:"undo"`
}

// check checks that the fields fit together.
func (c *runStep) check() error {
	switch {
	case c.HTTP != nil && (c.Input != nil || c.Deployment != "" || c.FirstAttempt != nil || c.Async):
		return entities.Invalid("a step with http has no input, deployment, firstAttempt or async: the request is its input")
	case c.HeartbeatTimeout != nil && (c.HTTP != nil || c.Async):
		return entities.Invalid("heartbeatTimeout is for steps whose function answers with the result: not for http or async")
	case c.Async && c.Timeout == nil:
		return entities.Invalid("an async step needs a timeout: until when its result may be sent")
	default:
		return nil
	}
}

// retry configures the attempts of a step.
type retry struct {
	MaxAttempts *int      `json:"maxAttempts"`
	Backoff     *duration `json:"backoff"`
	Factor      *float64  `json:"factor"`
	MaxBackoff  *duration `json:"maxBackoff"`
}

func (c *runStep) requests(planner Planner) ([]eventlog.Request, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	spec, err := c.Retry.spec()
	if err != nil {
		return nil, err
	}
	spec.DeploymentID = cmp.Or(c.Deployment, planner.Run.DeploymentID)
	if err := entities.ValidateID("deployment", spec.DeploymentID); err != nil {
		return nil, err
	}
	attempt := or(c.AttemptTimeout, DefaultAttemptTimeout)
	if attempt < time.Second || attempt > MaxAttemptTimeout {
		return nil, entities.Invalid("attemptTimeout %s is not between 1s and %s", attempt, MaxAttemptTimeout)
	}
	spec.AttemptTimeoutMS = attempt.Milliseconds()
	if c.HeartbeatTimeout != nil {
		beat := time.Duration(*c.HeartbeatTimeout)
		if beat < MinHeartbeatTimeout || beat > MaxAttemptTimeout {
			return nil, entities.Invalid("heartbeatTimeout %s is not between %s and %s",
				beat, MinHeartbeatTimeout, MaxAttemptTimeout)
		}
		spec.HeartbeatTimeoutMS = beat.Milliseconds()
	}
	if c.Timeout != nil {
		spec.Deadline = planner.after(*c.Timeout)
	}
	spec.Async = c.Async
	if c.HTTP != nil {
		if c.Input, spec.HTTP, err = c.HTTP.step(); err != nil {
			return nil, err
		}
	}
	if err := c.limit(&spec); err != nil {
		return nil, err
	}
	r := eventlog.Request{
		Type: entities.EventStepCreated, CorrelationID: c.ID, Payload: c.Input,
		Data: entities.EventData{StepName: cmp.Or(c.Name, c.ID), Step: &spec, At: string(c.At), Undo: string(c.Undo)},
	}
	if c.FirstAttempt != nil {
		if r.First, err = c.FirstAttempt.attempt(planner.Now, spec); err != nil {
			return nil, err
		}
	}
	return []eventlog.Request{r}, nil
}

// limit sets the limits that the step names.
func (c *runStep) limit(spec *entities.StepSpec) error {
	var priority time.Duration
	if c.Priority != "" {
		var err error
		if priority, err = time.ParseDuration(c.Priority); err != nil {
			return entities.Invalid(`priority: %q is not a duration like "10m" or "-10m"`, c.Priority)
		}
	}
	if len(c.Limits) > 0 && c.FirstAttempt != nil {
		return entities.Invalid("a step with limits has no firstAttempt: each attempt needs its slots, also the first one")
	}
	spec.Limits, spec.PriorityMS = c.Limits, priority.Milliseconds()
	return limit.ValidateUses(c.Limits, priority)
}

func (r retry) spec() (entities.StepSpec, error) {
	spec := entities.StepSpec{
		MaxAttempts: DefaultAttempts, Factor: DefaultFactor,
		BackoffMS:    or(r.Backoff, DefaultBackoff).Milliseconds(),
		MaxBackoffMS: or(r.MaxBackoff, DefaultMaxBackoff).Milliseconds(),
	}
	if r.MaxAttempts != nil {
		spec.MaxAttempts = *r.MaxAttempts
	}
	if r.Factor != nil {
		spec.Factor = *r.Factor
	}
	if spec.MaxAttempts < 1 || spec.Factor < 1 || spec.Factor > 100 {
		return spec, entities.Invalid("retry: maxAttempts must be at least 1, and factor between 1 and 100")
	}
	return spec, nil
}

// wait suspends the run for a duration or until a time.
type wait struct {
	head

	ID    string     `json:"id"`
	For   *duration  `json:"for"`
	Until *time.Time `json:"until"`
	At    place      `json:"at"`
}

func (c *wait) requests(planner Planner) ([]eventlog.Request, error) {
	if (c.For == nil) == (c.Until == nil) {
		return nil, entities.Invalid(`want either "for" or "until"`)
	}
	until := c.Until
	if c.For != nil {
		until = planner.after(*c.For)
	}
	if until.After(planner.Now.Add(maxDuration)) {
		return nil, entities.Invalid("until %s is more than ten years ahead", until.Format(time.RFC3339))
	}
	return []eventlog.Request{{
		Type: entities.EventWaitCreated, CorrelationID: c.ID,
		Data: entities.EventData{ResumeAt: until, At: string(c.At)},
	}}, nil
}

// openHook creates a hook, through which the run receives payloads from outside.
type openHook struct {
	head

	ID       string          `json:"id"`
	Token    string          `json:"token"`
	Metadata json.RawMessage `json:"metadata"`
	Webhook  *webhookOptions `json:"webhook"`
	Signal   *signal         `json:"signal"`
	// Approval makes the hook one for votes.
	Approval *approval.Settings `json:"approval"`
	At       place              `json:"at"`
}

// webhookOptions lets HTTP requests with the token of the hook resume it, optionally only if they are signed.
type webhookOptions struct {
	// Verify is the signature scheme, and Secret the name of the project's secret for it.
	Verify string `json:"verify"`
	Secret string `json:"secret"`
	// Respond is how long requests wait for the workflow's response; nil answers them immediately.
	Respond *duration `json:"respond"`
}

// signal lets signals with a name resume the hook.
type signal struct {
	Name      string    `json:"name"`
	Condition string    `json:"condition"`
	LookBack  *duration `json:"lookBack"`
}

func (c *openHook) requests(planner Planner) ([]eventlog.Request, error) {
	if strings.HasPrefix(c.ID, AttributesID) {
		return nil, entities.Invalid("id %q begins with %s, which is reserved for setAttributes", c.ID, AttributesID)
	}
	if c.Approval != nil {
		return c.approval()
	}
	isWebhook := c.Webhook != nil
	data := entities.EventData{Token: cmp.Or(c.Token, newToken()), IsWebhook: &isWebhook, At: string(c.At)}
	if isWebhook {
		spec, err := c.Webhook.spec()
		if err != nil {
			return nil, err
		}
		data.Webhook = &spec
	}
	if c.Signal != nil {
		if isWebhook && data.Webhook.Verify != "" {
			return nil, entities.Invalid("a hook with webhook.verify cannot wait for signals, which are not signed: open two")
		}
		if err := entities.ValidateName("signal.name", c.Signal.Name); err != nil {
			return nil, err
		}
		if c.Signal.Condition != "" {
			if err := planner.Condition(c.Signal.Condition); err != nil {
				return nil, err
			}
		}
		data.Signal, data.Condition = c.Signal.Name, c.Signal.Condition
		data.LookBackMS = or(c.Signal.LookBack, 0).Milliseconds()
	}
	return []eventlog.Request{{
		Type: entities.EventHookCreated, CorrelationID: c.ID, Payload: c.Metadata, Data: data,
	}}, nil
}

// approval returns the request for the hook of an approval.
func (c *openHook) approval() ([]eventlog.Request, error) {
	if c.Token != "" || c.Metadata != nil || c.Webhook != nil || c.Signal != nil {
		return nil, entities.Invalid("an approval has no token, metadata, webhook or signal")
	}
	if err := c.Approval.Validate(); err != nil {
		return nil, fmt.Errorf("approval: %w", err)
	}
	metadata, err := json.Marshal(approval.Metadata{Approval: c.Approval})
	return []eventlog.Request{{
		Type: entities.EventHookCreated, CorrelationID: c.ID, Payload: metadata, FreshToken: true,
		Data: entities.EventData{
			Token: approval.NewToken(), At: string(c.At), Webhook: &entities.WebhookSpec{Verify: webhook.Vote},
		},
	}}, err
}

// spec returns the validated settings.
func (w webhookOptions) spec() (entities.WebhookSpec, error) {
	spec := entities.WebhookSpec{Verify: w.Verify, Secret: w.Secret, RespondMS: or(w.Respond, 0).Milliseconds()}
	return spec, webhook.Validate(spec)
}

// newToken returns an unguessable token.
func newToken() string { return "hook_" + rand.Text() }

// endPart closes a hook, or cancels a wait that is not over.
type endPart struct {
	head

	ID    string `json:"id"`
	event entities.EventType
}

func (c *endPart) requests(Planner) ([]eventlog.Request, error) {
	return []eventlog.Request{{Type: c.event, CorrelationID: c.ID}}, nil
}

// AttributesID is the prefix of the correlation IDs of setAttributes, so that they never equal those of hooks.
const AttributesID = "attr_"

// setAttributes sets attributes of the run, and removes those whose value is null. With an ID it is idempotent.
type setAttributes struct {
	head

	ID         string             `json:"id"`
	Attributes map[string]*string `json:"attributes"`
	At         place              `json:"at"`
}

func (c *setAttributes) requests(Planner) ([]eventlog.Request, error) {
	r := eventlog.Request{Type: entities.EventAttrSet, Data: entities.EventData{At: string(c.At)}}
	if c.ID != "" {
		r.CorrelationID = AttributesID + c.ID
	}
	for key, value := range c.Attributes {
		r.Data.Changes = append(r.Data.Changes, entities.AttributeChange{Key: key, Value: value})
	}
	slices.SortFunc(r.Data.Changes, func(a, b entities.AttributeChange) int { return cmp.Compare(a.Key, b.Key) })
	return []eventlog.Request{r}, nil
}

// startChild starts a child run. Its result becomes the result of a step of this run.
type startChild struct {
	head

	ID          string            `json:"id"`
	Workflow    string            `json:"workflow"`
	Input       json.RawMessage   `json:"input"`
	Deployment  string            `json:"deployment"`
	Attributes  map[string]string `json:"attributes"`
	Key         string            `json:"key"`
	Timeout     *duration         `json:"timeout"`
	OnParentEnd string            `json:"onParentEnd"`
	At          place             `json:"at"`
	// TimeoutGrace is how long the child may take to end by itself after its timeout.
	TimeoutGrace *duration `json:"timeoutGrace"`
}

// The values of onParentEnd: what happens to a child that is still running when its parent ends.
const (
	onEndCancel = "cancel"
	onEndLeave  = "leave"
)

func (c *startChild) requests(planner Planner) ([]eventlog.Request, error) {
	if c.OnParentEnd != "" && c.OnParentEnd != onEndCancel && c.OnParentEnd != onEndLeave {
		return nil, entities.Invalid("onParentEnd %q is neither %s nor %s", c.OnParentEnd, onEndCancel, onEndLeave)
	}
	deployment, err := planner.deploymentOf(c.Workflow, c.Deployment, planner.Run.DeploymentID)
	if refused := (StartRefused{}); errors.As(err, &refused) {
		return refused.requests(c.ID, c.Workflow, c.Input, c.At), nil
	}
	if err != nil {
		return nil, err
	}
	child := eventlog.NewRun(planner.Now, c.Input, entities.EventData{
		DeploymentID: deployment, WorkflowName: c.Workflow, Attributes: c.Attributes, UniqueKey: c.Key,
		ParentID: planner.Run.ID, ParentStep: entities.StepID(c.ID), Detached: c.OnParentEnd == onEndLeave,
	})
	if c.TimeoutGrace != nil && c.Timeout == nil {
		return nil, entities.Invalid("timeoutGrace needs a timeout")
	}
	if c.Timeout != nil {
		child.Data.Deadline, child.Data.TimeoutGraceMS = planner.after(*c.Timeout), or(c.TimeoutGrace, 0).Milliseconds()
	}
	return []eventlog.Request{{
		Type: entities.EventStepCreated, CorrelationID: c.ID, Payload: c.Input, Child: &child,
		Data: entities.EventData{
			StepName: c.Workflow, Step: &entities.StepSpec{ChildID: child.RunID}, At: string(c.At),
		},
	}}, nil
}

// deploymentOf returns the deployment that a command names for a workflow, or the default. A retired default is fine if
// it is the deployment of the run itself: that goes on.
func (planner Planner) deploymentOf(workflow, named, other string) (string, error) {
	switch id := cmp.Or(named, other); {
	case id == Latest:
		return planner.Deployment(workflow, "")
	case named != "":
		return planner.Deployment(workflow, id)
	default:
		return id, nil
	}
}

// Latest selects the newest deployment of a workflow.
const Latest = "latest"

// complete ends the run successfully.
type complete struct {
	head

	Output json.RawMessage `json:"output"`
}

func (c *complete) requests(Planner) ([]eventlog.Request, error) {
	return []eventlog.Request{{Type: entities.EventRunCompleted, Payload: orNull(c.Output)}}, nil
}

// fail ends the run with an error.
type fail struct {
	head

	Error *Failure `json:"error"`
}

func (c *fail) requests(Planner) ([]eventlog.Request, error) {
	if c.Error == nil || c.Error.Message == "" {
		return nil, entities.Invalid(`want {"error": {"message": "…"}}`)
	}
	return []eventlog.Request{{
		Type: entities.EventRunFailed, Payload: c.Error.Text(), Data: entities.EventData{ErrorCode: c.Error.Code},
	}}, nil
}

// continueAs ends the run, and begins another one that goes on with its work.
type continueAs struct {
	head

	Input      json.RawMessage `json:"input"`
	Deployment string          `json:"deployment"`
	// Read has the position of the last message that the run has read, by the name of the inbox.
	Read map[string]int64 `json:"read"`
}

func (c *continueAs) requests(planner Planner) ([]eventlog.Request, error) {
	deployment, err := planner.deploymentOf(planner.Run.WorkflowName, c.Deployment, planner.Run.DeploymentID)
	if refused := (StartRefused{}); errors.As(err, &refused) {
		return nil, entities.Invalid("deployment %q: %v", c.Deployment, err)
	}
	if err != nil {
		return nil, err
	}
	next := eventlog.NewRun(planner.Now, c.Input, entities.EventData{
		DeploymentID: deployment, WorkflowName: planner.Run.WorkflowName,
	})
	read := make(map[entities.HookID]int64, len(c.Read))
	for name, seq := range c.Read {
		read[inbox.HookID(name)] = seq
	}
	// The payload is the error if the run's timeout has asked it to cancel.
	return []eventlog.Request{{
		Type: entities.EventRunCompleted, Payload: lateRun, Continue: &eventlog.Continuation{Next: next, Read: read},
	}}, nil
}

func (planner Planner) after(d duration) *time.Time {
	t := planner.Now.Add(time.Duration(d))
	return &t
}

func or(d *duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return time.Duration(*d)
}

func orNull(text json.RawMessage) []byte {
	if text == nil {
		return []byte("null")
	}
	return text
}
