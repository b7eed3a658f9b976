package memserver

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// carryOut carries out a command. Those that repeat an earlier one change nothing.
func (s *Server) carryOut(r *Run, c command) { //nolint:gocyclo // a case for each command
	data := c.data()
	switch c.Type {
	case "runStep", "startChild":
		s.createStep(r, c, data)
	case "recordStep":
		s.recordStep(r, c, data)
	case "cancelStep":
		s.cancelStep(r, c)
	case "wait":
		s.wait(r, c, data)
	case "cancelWait":
		s.cancelWait(r, c, data)
	case "openHook":
		s.openHook(r, c, data)
	case "closeHook":
		s.closeHook(r, c, data)
	case "respond":
		r.respond(c)
	case "reply":
		s.reply(r, c, data)
	case "setStore":
		if !r.hasStored(c.ID) {
			s.setStore(r, c.ID, data, c.Values)
		}
	case "setAttributes":
		s.setAttributes(r, c, data)
	case "continueAs":
		s.continueAs(r, c)
	case "complete":
		s.end(r, "completed", c.Output)
	case "fail":
		s.end(r, "failed", c.Error)
	case "cancelled":
		s.endCancelled(r)
	}
}

// data returns what all commands add to the data of their event.
func (c command) data() map[string]any {
	data := map[string]any{}
	if c.At != "" {
		data["at"] = c.At
	}
	if c.Undo != "" {
		data["undo"] = c.Undo
	}
	return data
}

func (s *Server) wait(r *Run, c command, data map[string]any) {
	if r.has("wait_created", c.ID) {
		return
	}
	due := s.now.Add(duration(c.For, 0))
	if c.Until != "" {
		due, _ = time.Parse(time.RFC3339Nano, c.Until) // the zero time is over
	}
	s.append(r, "wait_created", c.ID, data, nil)
	r.waits = append(r.waits, &wait{c.ID, due})
}

func (s *Server) cancelWait(r *Run, c command, data map[string]any) {
	before := len(r.waits)
	r.waits = slices.DeleteFunc(r.waits, func(w *wait) bool { return w.id == c.ID })
	if len(r.waits) < before {
		s.write(r, "wait_cancelled", c.ID, data, nil)
	}
}

func (s *Server) closeHook(r *Run, c command, data map[string]any) {
	if h := r.openHook(c.ID); h != nil {
		h.closed = true
		s.append(r, "hook_disposed", c.ID, data, nil)
	}
}

func (s *Server) createStep(r *Run, c command, data map[string]any) {
	if r.has("step_created", c.ID) {
		return
	}
	if c.Type == "startChild" {
		data["stepName"] = c.Workflow
		s.append(r, "step_created", c.ID, data, c.Input)
		s.startChild(r, c)
		return
	}
	data["stepName"] = c.name()
	s.append(r, "step_created", c.ID, data, c.Input)
	st := &step{command: c, due: s.now}
	r.steps = append(r.steps, st)
	if c.FirstAttempt != nil {
		s.append(r, "step_started", c.ID, nil, nil)
		st.attempt = 1
		s.retry(r, st, c.FirstAttempt.Error, duration(c.FirstAttempt.RetryAfter, 0))
	}
}

func (s *Server) openHook(r *Run, c command, data map[string]any) {
	if r.has("hook_created", c.ID) || r.has("hook_conflict", c.ID) {
		return
	}
	data["token"] = c.Token
	if other, _ := s.openHookOf(c.Token); other != nil {
		data["conflictingRunId"] = other.ID
		s.append(r, "hook_conflict", c.ID, data, nil)
		return
	}
	if c.Token == "" {
		c.Token = r.ID + "/" + c.ID
		data["token"] = c.Token
	}
	s.append(r, "hook_created", c.ID, data, c.Metadata)
	r.hooks = append(r.hooks, &hook{
		id: c.ID, token: c.Token, created: len(r.Log), signal: c.Signal, webhook: c.Webhook, messages: map[string]bool{},
	})
}

func (r *Run) respond(c command) {
	if _, done := r.responses[c.Request]; !done {
		r.responses[c.Request] = Response{c.Status, c.Body}
	}
}

// end ends a run, and tells its parent.
func (s *Server) end(r *Run, status string, output json.RawMessage) {
	r.Status, r.Output = status, output
	s.append(r, "run_"+status, "", nil, output)
	for _, st := range r.steps {
		if st.child != nil && st.command.OnParentEnd != "leave" {
			st.child.parent = nil // nobody is to be told
			s.Cancel(st.child, "", 0)
		}
	}
	if r.parent == nil || r.parent.Status != "running" {
		return
	}
	r.parent.steps = slices.DeleteFunc(r.parent.steps, func(st *step) bool { return st.child == r })
	if status == "completed" {
		s.append(r.parent, "step_completed", r.childOf, nil, output)
		return
	}
	code := "child_failed"
	if status == "cancelled" {
		code = "child_cancelled"
		output = errorText("run "+r.ID+" was cancelled", code)
	}
	s.append(r.parent, "step_failed", r.childOf, map[string]any{"errorCode": code}, output)
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
		recorded["seen"], recorded["endedAt"] = c.Seen, c.EndedAt
		if !c.StartedAt.IsZero() {
			recorded["startedAt"] = c.StartedAt
		}
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
	r.pausing[c.ID] = s.now.Add(duration(c.RetryAfter, 0))
	if !started {
		s.write(r, "step_started", c.ID, nil, nil)
	}
	s.write(r, "step_retrying", c.ID, map[string]any{"retryAfter": r.pausing[c.ID]}, c.Error)
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
		child.attributes[key] = *value
	}
	child.Log[0].Data["attributes"] = maps.Clone(child.attributes) // those that it has at its start
	r.Log[len(r.Log)-1].Data["step"] = map[string]any{"childId": child.ID}
	r.steps = append(r.steps, &step{command: c, child: child})
}

// remembered is how long signals are remembered for runs that had started before.
const remembered = time.Minute

// lookBack gives a hook the signals that were kept for it, and those of the last minute that its run has missed.
func (s *Server) lookBack(r *Run, h *hook) {
	if h.signal == nil {
		return
	}
	since := s.now.Add(-duration(h.signal.LookBack, 0))
	for _, sent := range s.sent {
		kept := !sent.at.Before(since) && sent.until.After(s.now)
		missed := sent.n > r.signals && !sent.at.Before(s.now.Add(-remembered))
		if first, received := r.received[sent.n]; (kept || missed) && (!received || first >= h.created) {
			_ = s.receive(r, h, sent) // a condition that cannot be evaluated is false
		}
	}
}
