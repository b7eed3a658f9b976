package stepwell

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"reflect"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
	"github.com/stepwell-dev/stepwell/sdk/internal/schema"
)

// HookKind is the definition of hooks with payloads of type T.
type HookKind[T any] struct{ name string }

// NewHook returns the definition of hooks.
func NewHook[T any](name string) *HookKind[T] { return &HookKind[T]{name} }

// Name returns the name of the hooks.
func (k *HookKind[T]) Name() string { return k.name }

// Hook receives payloads from outside while it is open.
type Hook[T any] struct{ op *engine.Operation }

// openHook is the command that opens a hook.
type openHook struct {
	Type     string          `json:"type"`
	ID       string          `json:"id"`
	Token    string          `json:"token,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Webhook  *webhookSpec    `json:"webhook,omitempty"`
	Signal   *signalSpec     `json:"signal,omitempty"`
	At       string          `json:"at,omitempty"`
}

// Metadata sets what lists of hooks show, such as a question. It must encode as JSON.
func Metadata(v any) HookOption {
	data, err := encode(v)
	if err != nil {
		panic(fmt.Sprintf("encode the metadata of a hook: %v", err))
	}
	return hookOption(func(c *openHook) { c.Metadata = data })
}

// TokenTakenError says that another run has the token of a hook.
type TokenTakenError struct{ Token, RunID string }

// Error implements error.
func (e *TokenTakenError) Error() string {
	return fmt.Sprintf("run %s has the token %q", e.RunID, e.Token)
}

// Open opens a hook. Its token is known at once: see [Hook.Token].
func (k *HookKind[T]) Open(w *Context, options ...HookOption) *Hook[T] {
	c := openHook{ID: w.co.Scope.ID(k.name)}
	for _, set := range options {
		set.configureHook(&c)
	}
	return openedHook[T](w, k.name, c)
}

// openedHook opens a hook. A token that is missing is made and recorded, so that it stays the same.
func openedHook[T any](w *Context, name string, c openHook) *Hook[T] {
	c.Type = "openHook"
	if c.Token == "" && c.Signal == nil && w.scope.err == nil {
		c.Token = Value(w, name+"-token", rand.Text)
	}
	c.At = engine.Caller()
	op := &engine.Operation{Kind: engine.KindHook, ID: c.ID, Place: c.At, Command: c, Token: c.Token}
	w.askUnlessCancelled(op)
	return &Hook[T]{op}
}

// Token returns the token under which the hook can be resumed. It is empty for a hook of signals.
func (h *Hook[T]) Token() string { return h.op.Token }

func (h *Hook[T]) ready() bool { return len(h.op.Received) > h.op.Taken }

// abandon leaves the hook open.
func (h *Hook[T]) abandon(string)     {}
func (h *Hook[T]) wasCancelled() bool { return false }

// Receive waits for the next payload. The n-th call gets the n-th payload. If the hook's token is taken, the error is a
// [*TokenTakenError]. If the payload does not decode, the error has the code undecodable, and the payload is consumed.
func (h *Hook[T]) Receive(w *Context) (T, error) {
	w.co.Check()
	w.co.RestOn(h.op, func() bool { return h.ready() || w.scope.err != nil })
	if !h.ready() {
		return *new(T), w.scope.err
	}
	return h.take(w)
}

// ReceiveWithin is [Hook.Receive], but waits no longer than d. Then the error is [ErrTimeout], and the hook stays open.
func (h *Hook[T]) ReceiveWithin(w *Context, d time.Duration) (T, error) { return takeWithin(w, h, d) }

// All yields payloads as they come. It ends with the loop, or after an error that will not go away.
func (h *Hook[T]) All(w *Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			v, err := h.Receive(w)
			if !yield(v, err) || err != nil && (w.scope.err != nil || h.taken()) {
				return
			}
		}
	}
}

// taken reports whether another run has the hook's token.
func (h *Hook[T]) taken() bool { return h.ready() && h.op.Received[h.op.Taken].Type == "hook_conflict" }

// message is a payload that is read with its event.
type message interface {
	read(hook string, e *engine.Event) error
}

func (h *Hook[T]) take(*Context) (v T, err error) {
	e := h.op.Received[h.op.Taken]
	if e.Type == "hook_conflict" { // stays the last one
		return v, &TokenTakenError{h.op.Token, e.Data.ConflictingRunID}
	}
	h.op.Taken++
	if m, ok := any(&v).(message); ok {
		err = m.read(h.op.ID, e)
	} else {
		v, err = decode[T](e.Payload)
	}
	if err != nil {
		return v, Fail(codeUndecodable, fmt.Sprintf("decode payload %d of hook %s: %v", h.op.Taken, h.op.ID, err))
	}
	if r, ok := any(v).(*Request); ok && r != nil {
		r.hook, r.Verified = h.op.ID, Scheme(e.Data.Verified)
	}
	return v, nil
}

// Close closes the hook. Later payloads are refused.
func (h *Hook[T]) Close(w *Context) {
	w.co.Check()
	w.exec.cancel(h.op, "")
}

// ApprovalKind is the definition of questions to people.
type ApprovalKind struct{ hook *HookKind[Answer] }

// NewApproval returns the definition of approvals.
func NewApproval(name string) *ApprovalKind { return &ApprovalKind{NewHook[Answer](name)} }

// Name returns the name of the approvals.
func (k *ApprovalKind) Name() string { return k.hook.name }

// Question is what a workflow asks a person.
type Question struct {
	// Text is the question. Lists of hooks show it.
	Text string
	// Token is the token under which the question can be answered; a random one by default.
	Token string
	// Expires is how long the workflow waits; 0 is for ever.
	Expires time.Duration
}

// Answer is the answer of a person.
type Answer struct {
	Approved bool   `json:"approved"`
	By       string `json:"by,omitempty"`
	Comment  string `json:"comment,omitempty"`
	// Expired is set if nobody has answered in time.
	Expired bool `json:"-"`
}

// answerSchema is what forms for answers are made of.
var answerSchema, _ = schema.Of(reflect.TypeFor[Answer]()) // nothing of it is lost

// Ask asks a question and waits for the answer. An answer that does not come in time is one that is expired, and no
// error.
func (k *ApprovalKind) Ask(w *Context, q Question) (Answer, error) {
	metadata := map[string]any{"question": q.Text, "schema": answerSchema}
	if q.Expires > 0 {
		metadata["expiresAt"] = w.Now().Add(q.Expires).UTC()
	}
	h := k.hook.Open(w, Token(q.Token), Metadata(metadata))
	defer func() {
		if !w.co.Ending() {
			h.Close(w)
		}
	}()
	if q.Expires <= 0 {
		return h.Receive(w)
	}
	a, err := h.ReceiveWithin(w, q.Expires)
	if err == ErrTimeout { //nolint:errorlint // it is returned as it is
		return Answer{Expired: true}, nil
	}
	return a, err
}

// Scheme is a way in which senders sign their requests.
type Scheme string

// The schemes that the server can verify.
const (
	GitHub           Scheme = "github"
	Stripe           Scheme = "stripe"
	Slack            Scheme = "slack"
	StandardWebhooks Scheme = "standard"
	// GenericHMAC is a header X-Signature-256 with the hexadecimal HMAC-SHA-256 of the body.
	GenericHMAC Scheme = "generic"
)

// webhookSpec is the part of openHook that is about webhooks.
type webhookSpec struct {
	Verify  Scheme `json:"verify,omitempty"`
	Secret  string `json:"secret,omitempty"`
	Respond string `json:"respond,omitempty"`
}

// Verify accepts only signed requests. The secret is the name of one of the project's secrets.
func Verify(scheme Scheme, secret string) WebhookOption {
	return webhookOption(func(c *openHook) { c.Webhook.Verify, c.Webhook.Secret = scheme, secret })
}

// RespondWithin makes senders wait for [Request.Respond], but not longer than d, which is at most a minute. Then they
// get status 202.
func RespondWithin(d time.Duration) WebhookOption {
	return webhookOption(func(c *openHook) { c.Webhook.Respond = d.String() })
}

// Webhook is a hook that receives requests of outside services.
type Webhook struct{ *Hook[*Request] }

// Request is a request that a webhook has received.
type Request struct {
	// ID is the server's ID of the request. A request that is sent again with the same delivery ID is not received again.
	ID         string
	Method     string
	Header     http.Header
	Query      url.Values
	ReceivedAt time.Time
	Body       []byte
	// Verified is the scheme by which its signature was verified; empty if it was not.
	Verified Scheme

	hook string
}

// OpenWebhook opens a webhook.
func OpenWebhook(w *Context, name string, options ...WebhookOption) *Webhook {
	c := openHook{ID: w.co.Scope.ID(name), Webhook: &webhookSpec{}}
	for _, set := range options {
		set.configureWebhook(&c)
	}
	return &Webhook{openedHook[*Request](w, name, c)}
}

// URL returns the URL that senders call. If the server does not know its public address, it panics, which blocks the
// run until the server is configured.
func (h *Webhook) URL(w *Context) string {
	w.co.Check()
	if w.exec.hooksURL == "" {
		panic(fmt.Sprintf("webhook %s has no URL, since the server does not know its public address: configure the server",
			h.op.ID))
	}
	return w.exec.hooksURL + url.PathEscape(h.op.Token)
}

// UnmarshalJSON decodes the payload of a webhook's event.
func (r *Request) UnmarshalJSON(data []byte) error {
	var p struct {
		Request, Method string
		Query           url.Values
		Headers         map[string][]string
		ReceivedAt      time.Time
		Body            json.RawMessage
		Text            *string
		BodyBase64      []byte
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	*r = Request{
		ID: p.Request, Method: p.Method, Query: p.Query, ReceivedAt: p.ReceivedAt, Header: http.Header{}, Body: p.BodyBase64,
	}
	for name, values := range p.Headers {
		for _, v := range values {
			r.Header.Add(name, v)
		}
	}
	switch {
	case p.Body != nil:
		r.Body = p.Body
	case p.Text != nil:
		r.Body = []byte(*p.Text)
	}
	return nil
}

// DecodeJSON decodes the body of a request. If it does not decode, the error is permanent and has the code undecodable.
func DecodeJSON[T any](r *Request) (T, error) {
	v, err := decode[T](r.Body)
	if err != nil {
		err = Fail(codeUndecodable, fmt.Sprintf("decode the body of request %s: %v", r.ID, err))
	}
	return v, err
}

// respond is the command that responds to a request.
type respond struct {
	Type    string          `json:"type"`
	Hook    string          `json:"hook"`
	Request string          `json:"request"`
	Status  int             `json:"status"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// Respond responds to a request of a webhook with [RespondWithin]. The body is encoded as JSON; nil is none. It is
// written with what the workflow asks for at the same time. The first response to a request counts.
func (r *Request) Respond(w *Context, status int, body any) error {
	w.co.Check()
	c := respond{Type: "respond", Hook: r.hook, Request: r.ID, Status: status}
	if body != nil {
		data, err := encode(body)
		if err != nil {
			return fmt.Errorf("encode the response to request %s: %w", r.ID, err)
		}
		c.Body = data
	}
	w.ask(&engine.Operation{Kind: engine.KindRespond, ID: w.co.Scope.ID("respond:" + r.ID), Command: c})
	return nil
}
