package stepwell

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/api"
)

// SendOption configures what is sent to a run: a hook's payload, a message or a signal.
type SendOption func(*sending)

type sending struct {
	id      string
	keepFor time.Duration
}

// MessageID sets the ID of a payload, message or signal. What is sent again with the same ID counts once. By default an
// ID is made for each call, so that a lost answer does no harm.
func MessageID(id string) SendOption { return func(s *sending) { s.id = id } }

// KeepFor makes a signal also reach hooks that are opened up to d later, at most 30 days. By default it reaches only
// those that are open. It is only for signals.
func KeepFor(d time.Duration) SendOption { return func(s *sending) { s.keepFor = d } }

var errKeepFor = errors.New("KeepFor is only for signals: remove the option")

func sendOptions(options []SendOption) (sending, error) {
	s := sending{id: requestID()}
	for _, set := range options {
		set(&s)
	}
	if s.id == "" {
		return s, errors.New("the message's ID is empty: give one, or leave MessageID out")
	}
	return s, nil
}

// Resume sends a payload to the hook that has the token. If no open hook has it, the error is an [*APIError] with the
// code hook_not_found or run_ended.
func (k *HookKind[T]) Resume(ctx context.Context, c *Client, token string, payload T, options ...SendOption) error {
	return c.resume(ctx, token, payload, options)
}

// resume sends a payload to the hook that has the token.
func (c *Client) resume(ctx context.Context, token string, payload any, options []SendOption) error {
	o, err := sendOptions(options)
	if err != nil {
		return err
	}
	if o.keepFor > 0 {
		return errKeepFor
	}
	return c.post(ctx, api.Path("hooks", token, "resume"), map[string]any{"payload": payload, "resumeId": o.id}, nil)
}

// sendMessage sends a message to an inbox of a run.
func (c *Client) sendMessage(ctx context.Context, runID, inbox string, payload any, options []SendOption) error {
	o, err := sendOptions(options)
	if err != nil {
		return err
	}
	if o.keepFor > 0 {
		return errKeepFor
	}
	return c.post(ctx, api.Path("runs", runID, "inbox", inbox), map[string]any{"id": o.id, "payload": payload}, nil)
}

// sendSignal records a signal. It returns before hooks receive it.
func (c *Client) sendSignal(ctx context.Context, name string, data any, options []SendOption) error {
	o, err := sendOptions(options)
	if err != nil {
		return err
	}
	body := map[string]any{"data": data, "id": o.id}
	if o.keepFor > 0 {
		body["keepFor"] = o.keepFor.String()
	}
	return c.post(ctx, api.Path("signals", name), body, nil)
}

// storeValue reads a value of a run's store; false if it has none. The error of a run that does not exist is an
// [*APIError] with the code run_not_found.
func (c *Client) storeValue(ctx context.Context, runID, key string) (json.RawMessage, bool, error) {
	var v struct{ Value json.RawMessage }
	err := c.get(ctx, api.Path("runs", runID, "store", key), nil, &v)
	if e := (*APIError)(nil); errors.As(err, &e) && e.Code == "store_key_not_found" {
		return nil, false, nil
	}
	return v.Value, err == nil, err
}

// putDeployment registers a deployment.
func (c *Client) putDeployment(ctx context.Context, id string, body any) error {
	return c.do(ctx, api.Request{Method: http.MethodPut, Path: api.Path("deployments", id), Body: body}, nil)
}
