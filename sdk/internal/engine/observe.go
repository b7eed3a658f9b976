package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"strings"
)

// inbox is what the IDs of inboxes begin with. They are hooks that are opened with the run, so that code need not ask
// for them.
const inbox = "inbox:"

// attribute is what the IDs of attr_set begin with, before those of their commands.
const attribute = "attr_"

// note notes what an event says about commands that have been carried out.
func (h *history) note(e *Event) {
	for _, space := range settled[e.Type] {
		if k := (key{space, strings.TrimPrefix(e.ID, attribute)}); h.settled[k] == 0 {
			h.settled[k] = e.Seq
		}
	}
	if e.Type == "run_created" {
		h.from = e.Data.ContinuedFrom
	}
	if e.Type == "store_set" && h.from != "" && e.ID == h.from {
		return // the store that the run has taken over
	}
	if e.Type == "store_set" {
		h.stored[e.ID] = e
		h.writes = append(h.writes, key{KindStore.space(), e.ID})
	} else if id, own := strings.CutPrefix(e.ID, attribute); own && e.Type == "attr_set" {
		h.writes = append(h.writes, key{KindAttribute.space(), id})
	}
	if child := e.Data.Step.ChildID; child != "" {
		h.children[e.ID] = child
	}
}

// receiver returns the operation that an event is delivered to; nil if the code has not asked for it.
func (e *Engine) receiver(event *Event) *Operation {
	switch op := e.ops[key{results[event.Type], event.ID}]; {
	case op != nil:
		return op
	case strings.HasPrefix(event.ID, inbox):
		return e.Inbox(strings.TrimPrefix(event.ID, inbox))
	case results[event.Type] == noSpace:
		return &Operation{}
	default:
		return nil
	}
}

// observe tells of an event that was delivered, with what a step has written to the store.
func (e *Engine) observe(event *Event) error {
	if stored := e.history.stored[event.ID]; stored != nil && event.Type == "step_completed" {
		if err := json.Unmarshal(stored.Payload, &event.Stored); err != nil {
			return fmt.Errorf("decode what step %s has stored: %w", event.ID, err)
		}
	}
	if e.Observe != nil {
		e.Observe(event)
	}
	return nil
}

// Inbox returns the inbox with the name, which a run has from its beginning.
func (e *Engine) Inbox(name string) *Operation {
	k := key{KindHook.space(), inbox + name}
	if e.ops[k] == nil {
		e.ops[k] = &Operation{Kind: KindHook, ID: k.id}
	}
	return e.ops[k]
}

// ReplyID returns the ID of the step that holds the answer to a message of an inbox.
func ReplyID(name, message string) string {
	digest := sha256.Sum256([]byte(inbox + name + " " + message))
	return "reply:" + hex.EncodeToString(digest[:16])
}

// inboxes yields the inboxes of which the code has asked for one, or received messages.
func (e *Engine) inboxes() iter.Seq2[string, *Operation] {
	return func(yield func(string, *Operation) bool) {
		for k, op := range e.ops {
			name, ok := strings.CutPrefix(k.id, inbox)
			if ok && k.space == KindHook.space() && !yield(name, op) {
				return
			}
		}
	}
}

// Unread returns how many messages of inboxes were delivered that the code has not taken.
func (e *Engine) Unread() (n int) {
	for _, op := range e.inboxes() {
		n += len(op.Received) - op.Taken
	}
	return n
}

// Taken returns the position of the last message that the code has taken, by the name of the inbox.
func (e *Engine) Taken() map[string]int64 {
	taken := map[string]int64{}
	for name, op := range e.inboxes() {
		if op.Taken > 0 {
			taken[name] = op.Received[op.Taken-1].Seq
		}
	}
	return taken
}

// HasInbox reports whether the log has the inbox with the name.
func (e *Engine) HasInbox(name string) bool {
	return e.history.created[key{KindHook.space(), inbox + name}] != nil
}

// Written returns the position of the event that carried out the idempotent command of the kind with the ID. For a
// command that has not been written yet it is the greatest position.
func (e *Engine) Written(kind Kind, id string) int64 {
	if at := e.history.settled[key{kind.space(), id}]; at > 0 {
		return at
	}
	return math.MaxInt64
}

// ChildOf returns the ID of the run that an operation has started; empty if the log does not have it.
func (e *Engine) ChildOf(op *Operation) string { return e.history.children[op.ID] }
