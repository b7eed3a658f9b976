package memserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// inboxID is what the IDs of hooks begin with that are inboxes.
const inboxID = "inbox:"

// OpenInbox opens an inbox with a run that was just started.
func (s *Server) OpenInbox(r *Run, name string) {
	s.append(r, "hook_created", inboxID+name, nil, nil)
	r.hooks = append(r.hooks, &hook{id: inboxID + name, messages: map[string]bool{}})
}

// Send sends a message to a run's inbox, or to that of the last run as which it goes on. A message whose ID the inbox
// has received is ignored.
func (s *Server) Send(r *Run, inbox, id string, payload json.RawMessage) error {
	for ; r.next != nil; r = r.next {
		for _, h := range r.hooks {
			if id != "" && h.id == inboxID+inbox && h.messages[id] {
				return nil
			}
		}
	}
	if r.Status != "running" {
		return errors.New("the run has ended")
	}
	h := r.openHook(inboxID + inbox)
	if h == nil {
		return fmt.Errorf("the run has no inbox %q", inbox)
	}
	if id != "" && h.messages[id] {
		return nil
	}
	h.messages[id] = true
	s.append(r, "hook_received", h.id, map[string]any{"messageId": id, "via": "api"}, payload)
	return nil
}

func (r *Run) openHook(id string) *hook {
	i := slices.IndexFunc(r.hooks, func(h *hook) bool { return h.id == id && !h.closed })
	if i < 0 {
		return nil
	}
	return r.hooks[i]
}

// signal is a signal that was sent, and may be kept for hooks that are opened later.
type signal struct {
	n       int // the n-th
	name    string
	payload json.RawMessage
	data    any
	at      time.Time
	until   time.Time
}

// Signal sends a signal to all hooks that wait for its name and whose condition is true, and keeps it for those that
// are opened in that time. An error says that a condition cannot be evaluated here; see evaluateFor.
func (s *Server) Signal(name string, data json.RawMessage, keepFor time.Duration) error {
	sent := signal{n: len(s.sent) + 1, name: name, at: s.now, until: s.now.Add(keepFor)}
	if err := json.Unmarshal(data, &sent.data); err != nil {
		return err
	}
	sent.payload, _ = json.Marshal(map[string]any{ // all of it comes from JSON
		"signal": name, "id": "sign_" + strconv.Itoa(sent.n), "data": data,
	})
	s.sent = append(s.sent, sent)
	for _, r := range s.running() {
		for _, h := range r.hooks {
			if err := s.receive(r, h, sent); err != nil {
				return err
			}
		}
	}
	return nil
}

// receive resumes a hook with a signal that it waits for.
func (s *Server) receive(r *Run, h *hook, sent signal) error {
	if h.closed || h.signal == nil || h.signal.Name != sent.name {
		return nil
	}
	if isTrue, err := evaluateFor(r, h.signal.Condition, sent.data); err != nil || !isTrue {
		return err
	}
	s.append(r, "hook_received", h.id, map[string]any{"via": "signal"}, sent.payload)
	if _, again := r.received[sent.n]; !again {
		r.received[sent.n] = len(r.Log)
	}
	return nil
}

// Request sends a request to the webhook with the token. It returns the webhook's run and the ID of the
// request; see [Run.Response].
func (s *Server) Request(
	token, method string, headers map[string][]string, body json.RawMessage,
) (*Run, string, error) {
	r, h := s.openHookOf(token)
	if h == nil || h.webhook == nil {
		return nil, "", fmt.Errorf("no open webhook has the token %q", token)
	}
	s.requests++
	id := "hreq_" + strconv.Itoa(s.requests)
	payload, err := json.Marshal(map[string]any{
		"request": id, "method": method, "query": map[string][]string{}, "headers": headers,
		"contentType": "application/json", "receivedAt": s.now, "body": body,
	})
	if err != nil {
		return nil, "", err
	}
	s.append(r, "hook_received", h.id, map[string]any{"via": "webhook", "verified": h.webhook.Verify}, payload)
	return r, id, nil
}

// Cancel cancels a run, or the last one as which it goes on: at once, or after the grace if it does not end before. A
// run that was never called has nothing to undo, and ends at once.
func (s *Server) Cancel(r *Run, reason string, grace time.Duration) {
	switch r = r.Last(); {
	case r.Status != "running":
	case grace <= 0 || r.Invocations == 0:
		s.end(r, "cancelled", errorText("the run was cancelled", "cancelled"))
	default:
		s.ask(r, reason, grace, false)
	}
}

// ask asks a run to cancel. Of several requests, the one that ends it first counts.
func (s *Server) ask(r *Run, reason string, grace time.Duration, timeout bool) {
	at := s.now.Add(grace)
	if !r.forcedAt.IsZero() && !at.Before(r.forcedAt) {
		return
	}
	r.forcedAt, r.timedOut = at, timeout
	s.append(r, "cancel_requested", "", map[string]any{"reason": reason, "forcedAt": at}, nil)
}

// Limit limits the time of a run from now on. When it is over, the run is asked to cancel, and forced after the grace.
func (s *Server) Limit(r *Run, timeout, grace time.Duration) {
	r.deadline, r.grace = s.now.Add(timeout), grace
}

// isOverdue reports whether the time of a run's cancellation or deadline is over.
func (s *Server) isOverdue(r *Run) bool {
	return r.isForced(s.now) || !r.deadline.IsZero() && !r.deadline.After(s.now)
}

func (r *Run) isForced(now time.Time) bool { return !r.forcedAt.IsZero() && !r.forcedAt.After(now) }

// overdue does what is to be done then.
func (s *Server) overdue(r *Run) {
	if r.isForced(s.now) {
		s.endCancelled(r)
		return
	}
	r.deadline = time.Time{}
	if r.grace > 0 && r.Invocations > 0 {
		s.ask(r, "timeout", r.grace, true)
		return
	}
	r.timedOut = true
	s.endCancelled(r)
}

// endCancelled ends a run that was asked to cancel.
func (s *Server) endCancelled(r *Run) {
	if r.timedOut {
		s.end(r, "failed", errorText("the run was not over in time", "timeout"))
		return
	}
	s.end(r, "cancelled", errorText("the run was cancelled", "cancelled"))
}

// errorText returns an error as the contract describes it. The code may be empty.
func errorText(message, code string) json.RawMessage {
	fields := map[string]string{"message": message}
	if code != "" {
		fields["code"] = code
	}
	data, _ := json.Marshal(fields) // texts always encode
	return data
}

// IsChild reports whether a workflow started the run.
func (r *Run) IsChild() bool { return r.childOf != "" }

// Tokens returns the tokens of the run's open hooks.
func (r *Run) Tokens() (tokens []string) {
	for _, h := range r.hooks {
		if !h.closed && h.token != "" {
			tokens = append(tokens, h.token)
		}
	}
	return tokens
}

// Stored returns the run's store.
func (r *Run) Stored() map[string]json.RawMessage { return maps.Clone(r.store) }

// Attributes returns the run's attributes.
func (r *Run) Attributes() map[string]string { return maps.Clone(r.attributes) }

// Response is a workflow's response to a request of a webhook.
type Response struct {
	Status int
	Body   json.RawMessage
}

// Response returns the workflow's response to a request of a webhook; false if there is none.
func (r *Run) Response(request string) (Response, bool) {
	response, ok := r.responses[request]
	return response, ok
}
