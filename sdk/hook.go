package stepwell

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// HookKind is the definition of hooks with payloads of type T.
type HookKind[T any] struct{ name string }

// NewHook returns the definition of hooks.
func NewHook[T any](name string) *HookKind[T] { return &HookKind[T]{name} }

// Name returns the name of the hooks.
func (k *HookKind[T]) Name() string { return k.name }

// Hook receives payloads from outside while it is open.
type Hook[T any] struct{ op *engine.Operation }

// HookOption configures a hook.
type HookOption func(*openHook)

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

// Token sets the token under which the hook can be resumed. By default it is random and cannot be guessed. Whoever knows
// it can resume the hook.
func Token(token string) HookOption { return func(c *openHook) { c.Token = token } }

// Metadata sets what lists of hooks show, such as a question. It must encode as JSON.
func Metadata(v any) HookOption {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode the metadata of a hook: %v", err))
	}
	return func(c *openHook) { c.Metadata = data }
}

// TokenTakenError says that another run has the token of a hook.
type TokenTakenError struct{ Token, RunID string }

// Error implements error.
func (e *TokenTakenError) Error() string {
	return fmt.Sprintf("run %s has the token %q", e.RunID, e.Token)
}

// Open opens a hook. Its token is known at once: see [Hook.Token].
func (k *HookKind[T]) Open(w *W, options ...HookOption) *Hook[T] {
	c := openHook{ID: w.co.Scope.ID(k.name)}
	for _, set := range options {
		set(&c)
	}
	return openedHook[T](w, k.name, c)
}

// openedHook opens a hook. A token that is missing is made and recorded, so that it stays the same.
func openedHook[T any](w *W, name string, c openHook) *Hook[T] {
	c.Type = "openHook"
	if c.Token == "" && c.Signal == nil && w.scope.err == nil {
		c.Token = Value(w, name+"-token", rand.Text)
	}
	c.At = w.turn.at()
	op := &engine.Operation{Kind: engine.KindHook, ID: c.ID, Command: c, Token: c.Token}
	if w.scope.err == nil {
		w.ask(op)
	}
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
func (h *Hook[T]) Receive(w *W) (T, error) {
	if err := w.await(h.ready); err != nil {
		return *new(T), err
	}
	return h.take(w)
}

// ReceiveWithin is [Hook.Receive], but waits no longer than d. Then the error is [ErrTimeout], and the hook stays open.
func (h *Hook[T]) ReceiveWithin(w *W, d time.Duration) (T, error) { return takeWithin(w, h, d) }

// All yields payloads as they come. It ends with the loop, or after an error that will not go away.
func (h *Hook[T]) All(w *W) iter.Seq2[T, error] {
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

func (h *Hook[T]) take(*W) (T, error) {
	v, _, err := h.takeEvent()
	return v, err
}

func (h *Hook[T]) takeEvent() (v T, e engine.Event, err error) {
	e = h.op.Received[h.op.Taken]
	if e.Type == "hook_conflict" { // stays the last one
		return v, e, &TokenTakenError{h.op.Token, e.Data.ConflictingRunID}
	}
	h.op.Taken++
	if v, err = decode[T](e.Payload); err != nil {
		err = Fail(codeUndecodable, fmt.Sprintf("decode payload %d of hook %s: %v", h.op.Taken, h.op.ID, err))
	}
	return v, e, err
}

// Close closes the hook. Later payloads are refused.
func (h *Hook[T]) Close(w *W) {
	w.co.Check()
	w.turn.cancel(h.op, "", "")
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

// Ask asks a question and waits for the answer. An answer that does not come in time is one that is expired, and no
// error.
func (k *ApprovalKind) Ask(w *W, q Question) (Answer, error) {
	metadata := map[string]any{"question": q.Text}
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
