package stepwell

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/api"
)

// startBody is the request that starts a run.
type startBody struct {
	Workflow       string            `json:"workflow"`
	Input          json.RawMessage   `json:"input"`
	Deployment     string            `json:"deployment,omitempty"`
	IdempotencyKey string            `json:"idempotencyKey"`
	Key            string            `json:"key,omitempty"`
	OnConflict     string            `json:"onConflict,omitempty"`
	Attributes     map[string]string `json:"attributes,omitempty"`
	Delay          string            `json:"delay,omitempty"`
	Timeout        string            `json:"timeout,omitempty"`
	TimeoutGrace   string            `json:"timeoutGrace,omitempty"`
	Inbox          []string          `json:"inbox,omitempty"`
	Send           []startMessage    `json:"send,omitempty"`

	err error
}

// startMessage is a message that is sent with the start.
type startMessage struct {
	Inbox   string          `json:"inbox"`
	ID      string          `json:"id"`
	Payload json.RawMessage `json:"payload"`
}

// StartOption configures the start of a run.
type StartOption func(*startBody)

// Once sets an idempotency key: all starts with this key return the same run, as long as the run is kept. The same key
// with other contents is refused with the code idempotency_mismatch. By default a key is made for each call of Start.
func Once(key string) StartOption { return func(b *startBody) { b.IdempotencyKey = key } }

// RunKey gives the run a key. No two runs of a workflow that have not ended have the same key: the start is refused
// with the code key_taken, unless it says [Join].
func RunKey(key string) StartOption { return func(b *startBody) { b.Key = key } }

// Join makes Start return the run that has the [RunKey] already, if there is one.
func Join() StartOption { return func(b *startBody) { b.OnConflict = "join" } }

// Delay starts the run later, by up to ten years.
func Delay(d time.Duration) StartOption { return func(b *startBody) { b.Delay = d.String() } }

// RunTimeout fails the run with the code timeout if it has not ended after d, counted from its start.
func RunTimeout(d time.Duration) StartOption { return func(b *startBody) { b.Timeout = d.String() } }

// TimeoutGrace is how long a run may go on when its time is over: it is asked to cancel, so that it can compensate, and
// fails when the grace is over. By default it fails at once.
func TimeoutGrace(d time.Duration) StartOption {
	return func(b *startBody) { b.TimeoutGrace = d.String() }
}

// Attr gives the run an attribute, by which [Client.Runs] finds it. A run has up to 64.
func Attr(key, value string) StartOption {
	return func(b *startBody) {
		if b.Attributes == nil {
			b.Attributes = map[string]string{}
		}
		b.Attributes[key] = value
	}
}

// StartOn starts the run on a deployment. By default it is the newest one that has the workflow.
func StartOn(deployment string) StartOption { return func(b *startBody) { b.Deployment = deployment } }

// withMessage sends a message to an inbox of the run, in the transaction that starts it. With [Join], it reaches the
// run that has the key.
func withMessage(inbox string, payload any, options ...SendOption) StartOption {
	return func(b *startBody) {
		o, err := sendOptions(options)
		data, encodeErr := json.Marshal(payload)
		switch {
		case err == nil && encodeErr != nil:
			err = fmt.Errorf("encode a message for inbox %s: %w", inbox, encodeErr)
		case err == nil && o.keepFor > 0:
			err = errKeepFor
		}
		if err != nil {
			b.err = err
			return
		}
		b.Send = append(b.Send, startMessage{inbox, o.id, data})
	}
}

// Start starts a run of the workflow and returns its handle. It is safe to repeat: an answer that is lost does not
// start a second run.
func (d *Workflow[I, O]) Start(ctx context.Context, c *Client, in I, options ...StartOption) (*Run[O], error) {
	input, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode the input of workflow %s: %w", d.name, err)
	}
	b := startBody{Workflow: d.name, Input: input, IdempotencyKey: requestID(), Inbox: d.Inboxes()}
	for _, set := range options {
		set(&b)
	}
	if b.err != nil {
		return nil, b.err
	}
	var started RunDetails
	if err := c.post(ctx, api.Path("runs"), b, &started); err != nil {
		return nil, err
	}
	return d.Handle(c, started.ID), nil
}

// Handle returns the handle of a run by its ID, without looking whether there is one.
func (d *Workflow[I, O]) Handle(c *Client, id string) *Run[O] { return &Run[O]{c, id} }
