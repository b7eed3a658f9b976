package stepwell

import (
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

// Hook receives payloads from outside while it is open.
type Hook[T any] struct {
	op       *engine.Operation
	received int
}

// HookOption configures a hook.
type HookOption func(*openHook)

// openHook is the command that opens a hook.
type openHook struct {
	Type     string          `json:"type"`
	ID       string          `json:"id"`
	Token    string          `json:"token,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Token sets the token under which the hook can be resumed. By default the server makes one that cannot be guessed.
func Token(token string) HookOption { return func(c *openHook) { c.Token = token } }

// TokenTakenError says that another run has the token of a hook.
type TokenTakenError struct{ Token, RunID string }

// Error implements error.
func (e *TokenTakenError) Error() string {
	return fmt.Sprintf("run %s has the token %q", e.RunID, e.Token)
}

// Open opens a hook.
func (k *HookKind[T]) Open(w *W, options ...HookOption) *Hook[T] {
	c := openHook{Type: "openHook", ID: w.co.Scope.ID(k.name)}
	for _, set := range options {
		set(&c)
	}
	return &Hook[T]{op: w.ask(&engine.Operation{Kind: engine.KindHook, ID: c.ID, Command: c})}
}

// next is the future of the payload after those received.
func (h *Hook[T]) ready() bool { return len(h.op.Received) > h.received }

// Receive waits for the next payload. The n-th call gets the n-th payload. If the hook's token is taken, the error is a
// [*TokenTakenError].
func (h *Hook[T]) Receive(w *W) (T, error) {
	w.co.Await(h.ready)
	return h.take()
}

// ReceiveWithin is [Hook.Receive], but waits no longer than d. Then the error is [ErrTimeout], and the hook stays open.
func (h *Hook[T]) ReceiveWithin(w *W, d time.Duration) (T, error) {
	if First(w, h, w.Timer(d)) == Awaitable(h) {
		return h.take()
	}
	return *new(T), ErrTimeout
}

// All yields payloads as they come. It ends only with the loop.
func (h *Hook[T]) All(w *W) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for yield(h.Receive(w)) {
		}
	}
}

func (h *Hook[T]) take() (T, error) {
	e := h.op.Received[h.received]
	if e.Type == "hook_conflict" { // stays the last one
		return *new(T), &TokenTakenError{e.Data.Token, e.Data.ConflictingRunID}
	}
	h.received++
	v, err := decode[T](e.Payload)
	if err != nil {
		err = Fail("undecodable", fmt.Sprintf("decode a payload of hook %s: %v", h.op.ID, err))
	}
	return v, err
}

// Close closes the hook. Later payloads are refused.
func (h *Hook[T]) Close(w *W) {
	w.ask(&engine.Operation{Kind: engine.KindCloseHook, ID: h.op.ID, Command: map[string]string{
		"type": "closeHook", "id": h.op.ID,
	}})
}
