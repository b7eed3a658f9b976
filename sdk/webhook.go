package stepwell

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

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

// WebhookOption configures a webhook.
type WebhookOption func(*openHook)

// Verify accepts only signed requests. The secret is the name of one of the project's secrets.
func Verify(scheme Scheme, secret string) WebhookOption {
	return func(c *openHook) { c.Webhook.Verify, c.Webhook.Secret = scheme, secret }
}

// RespondWithin makes senders wait for [Request.Respond], but not longer than d, which is at most a minute. Then they get
// status 202.
func RespondWithin(d time.Duration) WebhookOption {
	return func(c *openHook) { c.Webhook.Respond = d.String() }
}

// WebhookToken sets the token in the URL of the webhook. By default it is random and cannot be guessed.
func WebhookToken(token string) WebhookOption { return func(c *openHook) { c.Token = token } }

// Webhook receives requests of outside services while it is open.
type Webhook struct{ hook *Hook[Request] }

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
func OpenWebhook(w *W, name string, options ...WebhookOption) *Webhook {
	c := openHook{ID: w.co.Scope.ID(name), Webhook: &webhookSpec{}}
	for _, set := range options {
		set(&c)
	}
	return &Webhook{openedHook[Request](w, name, c)}
}

// Token returns the token in the URL of the webhook.
func (h *Webhook) Token() string { return h.hook.Token() }

// URL returns the URL that senders call. If the server does not know its public address, it panics, which holds the run
// until the server is configured.
func (h *Webhook) URL(w *W) string {
	w.co.Check()
	if w.turn.hooksURL == "" {
		panic(fmt.Sprintf("webhook %s has no URL, since the server does not know its public address: configure the server",
			h.hook.op.ID))
	}
	return w.turn.hooksURL + url.PathEscape(h.hook.op.Token)
}

// Next waits for the next request. If another run has the token, the error is a [*TokenTakenError].
func (h *Webhook) Next(w *W) (*Request, error) {
	if err := w.await(h.ready); err != nil {
		return nil, err
	}
	return h.take(w)
}

// NextWithin is [Webhook.Next], but waits no longer than d. Then the error is [ErrTimeout].
func (h *Webhook) NextWithin(w *W, d time.Duration) (*Request, error) { return takeWithin(w, h, d) }

// Close closes the webhook. Later requests are refused.
func (h *Webhook) Close(w *W) { h.hook.Close(w) }

func (h *Webhook) ready() bool        { return h.hook.ready() }
func (h *Webhook) abandon(string)     {}
func (h *Webhook) wasCancelled() bool { return false }

func (h *Webhook) take(*W) (*Request, error) {
	r, e, err := h.hook.takeEvent()
	if err != nil {
		return nil, err
	}
	r.hook, r.Verified = h.hook.op.ID, Scheme(e.Data.Verified)
	return &r, nil
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

// DecodeJSON decodes the body of a request.
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
func (r *Request) Respond(w *W, status int, body any) error {
	w.co.Check()
	c := respond{Type: "respond", Hook: r.hook, Request: r.ID, Status: status}
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode the response to request %s: %w", r.ID, err)
		}
		c.Body = data
	}
	w.ask(&engine.Operation{Kind: engine.KindRespond, ID: w.co.Scope.ID("respond:" + r.ID), Command: c})
	return nil
}
