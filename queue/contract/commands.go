package contract

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// What a step is given when it does not say.
const (
	DefaultAttempts       = 5
	DefaultBackoff        = time.Second
	DefaultFactor         = 2
	DefaultMaxBackoff     = 5 * time.Minute
	DefaultAttemptTimeout = 5 * time.Minute

	// MaxAttemptTimeout is how long one attempt may take.
	MaxAttemptTimeout = 12 * time.Hour
)

// head is what all commands have.
type head struct {
	Type string `json:"type"`
}

// runStep has a step executed by a function, which need not be the run's own.
type runStep struct {
	head

	ID             string          `json:"id"`
	Name           string          `json:"name"`
	Input          json.RawMessage `json:"input"`
	Deployment     string          `json:"deployment"`
	Timeout        *duration       `json:"timeout"`
	AttemptTimeout *duration       `json:"attemptTimeout"`
	Retry          retry           `json:"retry"`
}

// retry says how often and when a step is tried again.
type retry struct {
	MaxAttempts *int      `json:"maxAttempts"`
	Backoff     *duration `json:"backoff"`
	Factor      *float64  `json:"factor"`
	MaxBackoff  *duration `json:"maxBackoff"`
}

func (c *runStep) requests(s Scene) ([]eventlog.Request, error) {
	spec, err := c.Retry.spec()
	if err != nil {
		return nil, err
	}
	spec.DeploymentID = cmp.Or(c.Deployment, s.Run.DeploymentID)
	if err := entities.ValidateID("deployment", spec.DeploymentID); err != nil {
		return nil, err
	}
	attempt := or(c.AttemptTimeout, DefaultAttemptTimeout)
	if attempt < time.Second || attempt > MaxAttemptTimeout {
		return nil, entities.Invalid("attemptTimeout %s is not between 1s and %s", attempt, MaxAttemptTimeout)
	}
	spec.AttemptTimeoutMS = attempt.Milliseconds()
	if c.Timeout != nil {
		spec.Deadline = s.after(*c.Timeout)
	}
	return []eventlog.Request{{
		Type: entities.EventStepCreated, CorrelationID: c.ID, Payload: c.Input,
		Data: entities.EventData{StepName: cmp.Or(c.Name, c.ID), Step: &spec},
	}}, nil
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
		return spec, entities.Invalid("retry: maxAttempts is at least 1, and factor from 1 to 100")
	}
	return spec, nil
}

// recordStep is a step that the function has executed by itself.
type recordStep struct {
	head

	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Input  json.RawMessage `json:"input"`
	Output json.RawMessage `json:"output"`
	Error  *Failure        `json:"error"`
}

func (c *recordStep) requests(Scene) ([]eventlog.Request, error) {
	if c.Output != nil && c.Error != nil {
		return nil, entities.Invalid("it has an output and an error; a step ends with one of them")
	}
	name := cmp.Or(c.Name, c.ID)
	created := eventlog.Request{
		Type: entities.EventStepCreated, CorrelationID: c.ID, Payload: c.Input,
		Data: entities.EventData{StepName: name},
	}
	ended := eventlog.Request{
		Type: entities.EventStepCompleted, CorrelationID: c.ID, Payload: orNull(c.Output),
		Data: entities.EventData{StepName: name},
	}
	if c.Error != nil {
		ended.Type, ended.Payload, ended.Data.ErrorCode = entities.EventStepFailed, c.Error.Text(), c.Error.Code
	}
	return []eventlog.Request{created, ended}, nil
}

// wait lets the run sleep, for a time or until one.
type wait struct {
	head

	ID    string     `json:"id"`
	For   *duration  `json:"for"`
	Until *time.Time `json:"until"`
}

func (c *wait) requests(s Scene) ([]eventlog.Request, error) {
	if (c.For == nil) == (c.Until == nil) {
		return nil, entities.Invalid(`want either "for" or "until"`)
	}
	until := c.Until
	if c.For != nil {
		until = s.after(*c.For)
	}
	if until.After(s.Now.Add(maxDuration)) {
		return nil, entities.Invalid("until %s is more than ten years ahead", until.Format(time.RFC3339))
	}
	return []eventlog.Request{{
		Type: entities.EventWaitCreated, CorrelationID: c.ID, Data: entities.EventData{ResumeAt: until},
	}}, nil
}

// openHook opens a place where the run receives payloads from outside.
type openHook struct {
	head

	ID       string          `json:"id"`
	Token    string          `json:"token"`
	Metadata json.RawMessage `json:"metadata"`
	Webhook  *webhookOptions `json:"webhook"`
	Signal   *signal         `json:"signal"`
}

// webhookOptions lets a hook be resumed by whoever knows its token, and can sign by its secret if it demands that.
type webhookOptions struct {
	// Verify is one of the schemes of package entities, and Secret the name of the project's secret for it.
	Verify string `json:"verify"`
	Secret string `json:"secret"`
	// Respond is how long requests wait for the workflow's response; missing, they are answered at once.
	Respond *duration `json:"respond"`
}

// signal lets a hook be resumed by signals of a name.
type signal struct {
	Name      string    `json:"name"`
	Condition string    `json:"condition"`
	LookBack  *duration `json:"lookBack"`
}

func (c *openHook) requests(s Scene) ([]eventlog.Request, error) {
	if strings.HasPrefix(c.ID, attributesID) {
		return nil, entities.Invalid("id %q begins with %s, which is for those of setAttributes", c.ID, attributesID)
	}
	is := c.Webhook != nil
	data := entities.EventData{Token: cmp.Or(c.Token, newToken()), IsWebhook: &is}
	if is {
		spec, err := c.Webhook.spec()
		if err != nil {
			return nil, err
		}
		data.Webhook = &spec
	}
	if c.Signal != nil {
		if err := entities.ValidateName("signal.name", c.Signal.Name); err != nil {
			return nil, err
		}
		if c.Signal.Condition != "" {
			if err := s.Condition(c.Signal.Condition); err != nil {
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

// spec checks what is said about webhooks.
func (w webhookOptions) spec() (entities.WebhookSpec, error) {
	spec := entities.WebhookSpec{Verify: w.Verify, Secret: w.Secret, RespondMS: or(w.Respond, 0).Milliseconds()}
	return spec, webhook.Validate(spec)
}

// newToken is one that nobody guesses.
func newToken() string { return "hook_" + rand.Text() }

// closeHook closes a hook.
type closeHook struct {
	head

	ID string `json:"id"`
}

func (c *closeHook) requests(Scene) ([]eventlog.Request, error) {
	return []eventlog.Request{{Type: entities.EventHookDisposed, CorrelationID: c.ID}}, nil
}

// attributesID begins the correlation IDs of setAttributes in the log, which no hook's does.
const attributesID = "attr_"

// setAttributes sets attributes of the run, and removes those whose value is null. With an ID it is done once.
type setAttributes struct {
	head

	ID         string             `json:"id"`
	Attributes map[string]*string `json:"attributes"`
}

func (c *setAttributes) requests(Scene) ([]eventlog.Request, error) {
	r := eventlog.Request{Type: entities.EventAttrSet}
	if c.ID != "" {
		r.CorrelationID = attributesID + c.ID
	}
	for key, value := range c.Attributes {
		r.Data.Changes = append(r.Data.Changes, entities.AttributeChange{Key: key, Value: value})
	}
	slices.SortFunc(r.Data.Changes, func(a, b entities.AttributeChange) int { return cmp.Compare(a.Key, b.Key) })
	return []eventlog.Request{r}, nil
}

// startChild starts another run, whose result is that of a step of this one.
type startChild struct {
	head

	ID          string            `json:"id"`
	Workflow    string            `json:"workflow"`
	Input       json.RawMessage   `json:"input"`
	Deployment  string            `json:"deployment"`
	Attributes  map[string]string `json:"attributes"`
	Timeout     *duration         `json:"timeout"`
	OnParentEnd string            `json:"onParentEnd"`
}

// The choices of what happens to a child when its parent ends first.
const (
	onEndCancel = "cancel"
	onEndLeave  = "leave"
)

func (c *startChild) requests(s Scene) ([]eventlog.Request, error) {
	if c.OnParentEnd != "" && c.OnParentEnd != onEndCancel && c.OnParentEnd != onEndLeave {
		return nil, entities.Invalid("onParentEnd %q is neither %s nor %s", c.OnParentEnd, onEndCancel, onEndLeave)
	}
	deployment := cmp.Or(c.Deployment, s.Run.DeploymentID)
	if deployment == Latest {
		var err error
		if deployment, err = s.Deployment(c.Workflow); err != nil {
			return nil, err
		}
	}
	child := eventlog.Request{
		RunID: entities.NewRunID(s.Now), Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven, Payload: c.Input,
		Data: entities.EventData{
			DeploymentID: deployment, WorkflowName: c.Workflow, Driver: entities.DriverServer, Attributes: c.Attributes,
			ParentID: s.Run.ID, ParentStep: entities.StepID(c.ID), Detached: c.OnParentEnd == onEndLeave,
		},
	}
	if c.Timeout != nil {
		child.Data.Deadline = s.after(*c.Timeout)
	}
	return []eventlog.Request{{
		Type: entities.EventStepCreated, CorrelationID: c.ID, Payload: c.Input, Child: &child,
		Data: entities.EventData{StepName: c.Workflow, Step: &entities.StepSpec{ChildID: child.RunID}},
	}}, nil
}

// Latest names the newest deployment of a workflow.
const Latest = "latest"

// complete ends the run with its result.
type complete struct {
	head

	Output json.RawMessage `json:"output"`
}

func (c *complete) requests(Scene) ([]eventlog.Request, error) {
	return []eventlog.Request{{Type: entities.EventRunCompleted, Payload: orNull(c.Output)}}, nil
}

// fail ends the run with an error.
type fail struct {
	head

	Error *Failure `json:"error"`
}

func (c *fail) requests(Scene) ([]eventlog.Request, error) {
	if c.Error == nil || c.Error.Message == "" {
		return nil, entities.Invalid(`want {"error": {"message": "…"}}`)
	}
	return []eventlog.Request{{
		Type: entities.EventRunFailed, Payload: c.Error.Text(), Data: entities.EventData{ErrorCode: c.Error.Code},
	}}, nil
}

func (s Scene) after(d duration) *time.Time {
	t := s.Now.Add(time.Duration(d))
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
