package memserver

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"time"
	"unicode"
)

// features are those of the contract that the server has.
var features = []string{
	"seen", "commands", "at", "heard", "firstAttempt", "retryAfter", "cancelStep", "cancelWait", "cancel", "await",
	"store", "inbox",
}

// hooksURL is what the URLs of webhooks begin with.
const hooksURL = "https://stepwell.test/hooks/"

// more are further fields of commands.
type more struct {
	Reason       string
	Grace        string
	RetryAfter   string    `json:"retryAfter"`
	StartedAt    time.Time `json:"startedAt"`
	FirstAttempt *struct {
		Error      json.RawMessage
		RetryAfter string `json:"retryAfter"`
	} `json:"firstAttempt"`
	Values       map[string]json.RawMessage
	Store        map[string]json.RawMessage
	Hook         string
	Request      string
	Status       int
	Body         json.RawMessage
	Metadata     json.RawMessage
	Signal       *signalSpec
	Webhook      *webhookSpec
	TimeoutGrace string `json:"timeoutGrace"`
	OnParentEnd  string `json:"onParentEnd"`
}

type signalSpec struct {
	Name, Condition string
	LookBack        string `json:"lookBack"`
}

type webhookSpec struct{ Verify, Secret, Respond string }

func (s *Server) carryOutMore(r *Run, c command, data map[string]any) {
	switch c.Type {
	case "cancelled":
		s.endCancelled(r)
	case "cancelStep":
		s.cancelStep(r, c)
	case "cancelWait":
		before := len(r.waits)
		r.waits = slices.DeleteFunc(r.waits, func(w *wait) bool { return w.id == c.ID })
		if len(r.waits) < before {
			s.write(r, "wait_cancelled", c.ID, data, nil)
		}
	case "setStore":
		if !r.hasStored(c.ID) {
			s.setStore(r, c.ID, data, c.Values)
		}
	case "setAttributes":
		s.setAttributes(r, c, data)
	case "respond":
		if _, done := r.responses[c.Request]; !done {
			if r.responses == nil {
				r.responses = map[string]Response{}
			}
			r.responses[c.Request] = Response{c.Status, c.Body}
		}
	}
}

// Response returns the workflow's response to a request of a webhook; false if there is none.
func (r *Run) Response(request string) (Response, bool) {
	response, ok := r.responses[request]
	return response, ok
}

// recordStep records what an inline step has done.
func (s *Server) recordStep(r *Run, c command, data map[string]any) {
	if r.HasResult(c.ID) {
		return
	}
	if !r.has("step_created", c.ID) {
		data["stepName"] = c.name()
		s.write(r, "step_created", c.ID, data, c.Input)
	}
	recorded := map[string]any{}
	if !c.EndedAt.IsZero() {
		recorded["seen"], recorded["startedAt"], recorded["endedAt"] = c.Seen, c.StartedAt, c.EndedAt
		recorded["recorded"] = map[string]any{"seen": c.Seen, "endedAt": c.EndedAt}
	}
	if c.RetryAfter != "" {
		s.recordRetry(r, c)
		return
	}
	delete(r.pausing, c.ID)
	r.steps = slices.DeleteFunc(r.steps, func(st *step) bool { return st.command.ID == c.ID })
	if c.Error == nil {
		if len(c.Store) > 0 {
			s.setStore(r, c.ID, map[string]any{"stepName": c.name()}, c.Store)
		}
		s.append(r, "step_completed", c.ID, recorded, c.Output)
	} else {
		s.append(r, "step_failed", c.ID, recorded, c.Error)
	}
}

// recordRetry records an attempt at an inline step that is not the last one.
func (s *Server) recordRetry(r *Run, c command) {
	due, started := r.pausing[c.ID]
	if due.After(s.now) {
		return // it repeats the last one
	}
	if r.pausing == nil {
		r.pausing = map[string]time.Time{}
	}
	r.pausing[c.ID] = s.now.Add(duration(c.RetryAfter, 0))
	if !started {
		s.write(r, "step_started", c.ID, nil, nil)
	}
	s.write(r, "step_retrying", c.ID, map[string]any{"retryAfter": r.pausing[c.ID]}, c.Error)
}

// checkCancellations refuses cancellations of what was never created, and reasons that the server refuses.
func (r *Run) checkCancellations(commands []command) error {
	created := map[string]bool{}
	for _, c := range commands {
		switch c.Type {
		case "runStep", "recordStep", "startChild":
			created["step_created "+c.ID] = true
		case "wait":
			created["wait_created "+c.ID] = true
		case "cancelStep", "cancelWait":
			event := map[string]string{"cancelStep": "step_created", "cancelWait": "wait_created"}[c.Type]
			if !created[event+" "+c.ID] && !r.has(event, c.ID) {
				return fmt.Errorf("%s %s: there is no such thing", c.Type, c.ID)
			}
			if len(c.Reason) > 1024 || strings.ContainsFunc(c.Reason, unicode.IsControl) {
				return fmt.Errorf("%s %s: the reason %q is not a short line", c.Type, c.ID, c.Reason)
			}
		}
	}
	return nil
}

// cancelStep cancels a step that has not ended, unless it is a child; see commit.
func (s *Server) cancelStep(r *Run, c command) {
	i := slices.IndexFunc(r.steps, func(st *step) bool { return st.command.ID == c.ID && st.child == nil })
	if _, pausing := r.pausing[c.ID]; i < 0 && !pausing {
		return
	}
	if i >= 0 {
		r.endStep(r.steps[i])
	}
	delete(r.pausing, c.ID)
	data := map[string]any{"errorCode": "cancelled", "reason": c.Reason}
	s.write(r, "step_failed", c.ID, data, errorText(c.Reason, "cancelled"))
}

// setStore writes to the run's store.
func (s *Server) setStore(r *Run, id string, data map[string]any, values map[string]json.RawMessage) {
	payload, _ := json.Marshal(values) // they come from JSON
	s.write(r, "store_set", id, data, payload)
	if r.store == nil {
		r.store = map[string]json.RawMessage{}
	}
	for key, value := range values {
		if string(value) == "null" {
			delete(r.store, key)
		} else {
			r.store[key] = value
		}
	}
}

// hasStored reports whether a command with the ID has written to the store.
func (r *Run) hasStored(id string) bool {
	return slices.ContainsFunc(r.Log, func(e Event) bool {
		return e.Type == "store_set" && e.ID == id && e.Data["stepName"] == nil
	})
}

func (s *Server) setAttributes(r *Run, c command, data map[string]any) {
	if c.ID != "" && r.has("attr_set", "attr_"+c.ID) {
		return
	}
	var changes []map[string]any
	for key, value := range c.Attributes {
		old, known := r.attributes[key]
		switch {
		case value == nil && known:
			delete(r.attributes, key)
		case value != nil && (!known || old != *value):
			if r.attributes == nil {
				r.attributes = map[string]string{}
			}
			r.attributes[key] = *value
		default:
			continue
		}
		changes = append(changes, map[string]any{"key": key, "value": value})
	}
	if changes != nil {
		data["changes"] = changes
		s.write(r, "attr_set", "attr_"+c.ID, data, nil)
	}
}

// startChild starts a child run.
func (s *Server) startChild(r *Run, c command) {
	child := s.start(c.Workflow, c.Input, r, c.ID)
	if c.Timeout != "" {
		s.Limit(child, duration(c.Timeout, 0), duration(c.TimeoutGrace, 0))
	}
	for key, value := range c.Attributes {
		if child.attributes == nil {
			child.attributes = map[string]string{}
		}
		child.attributes[key] = *value
	}
	child.Log[0].Data["attributes"] = child.attributes
	r.Log[len(r.Log)-1].Data["step"] = map[string]any{"childId": child.ID}
	r.steps = append(r.steps, &step{command: c, child: child})
}

// complete records the output of a step, and what it has written to the store.
func (s *Server) complete(r *Run, st *step, got *httptest.ResponseRecorder) {
	output := json.RawMessage(slices.Clone(got.Body.Bytes()))
	if strings.HasPrefix(got.Header().Get("Content-Type"), "application/vnd.stepwell.step+json") {
		var answer struct {
			Output json.RawMessage
			Store  map[string]json.RawMessage
		}
		if err := json.Unmarshal(output, &answer); err != nil {
			s.append(r, "step_failed", st.command.ID, nil, errorOf(err.Error()))
			return
		}
		output = answer.Output
		s.setStore(r, st.command.ID, map[string]any{"stepName": st.command.name()}, answer.Store)
	}
	s.append(r, "step_completed", st.command.ID, nil, output)
}

// lookBack gives a hook the signals that were kept for it.
func (s *Server) lookBack(r *Run, h *hook) {
	if h.signal == nil || h.signal.LookBack == "" {
		return
	}
	since := s.now.Add(-duration(h.signal.LookBack, 0))
	for _, kept := range s.kept {
		if !kept.at.Before(since) && kept.until.After(s.now) {
			_ = s.receive(r, h, kept) // a condition that cannot be evaluated is false
		}
	}
}
