package memserver

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// Last returns the run itself, or the last one of those as which it goes on.
func (r *Run) Last() *Run {
	for r.next != nil {
		r = r.next
	}
	return r
}

// continueAs ends a run, and begins another one that goes on with its work. A run that was asked to cancel ends so.
func (s *Server) continueAs(r *Run, c command) {
	if !r.forcedAt.IsZero() {
		s.endCancelled(r)
		return
	}
	next := s.start(r.Workflow, c.Input, r.parent, r.childOf)
	next.Log[0].Data["continuedFrom"] = r.ID
	if len(r.attributes) > 0 {
		next.attributes = maps.Clone(r.attributes)
		next.Log[0].Data["attributes"] = maps.Clone(r.attributes)
	}
	next.deadline, next.grace, next.signals = r.deadline, r.grace, r.signals
	for n, at := range r.received {
		if int64(at) <= r.known {
			next.received[n] = 0 // before its first hook
		}
	}
	s.moveInboxes(r, next, c.Read)
	if len(r.store) > 0 {
		payload, _ := json.Marshal(r.store) // it comes from JSON
		s.write(next, "store_set", r.ID, nil, payload)
		next.store = maps.Clone(r.store)
	}
	if r.parent != nil {
		for _, st := range r.parent.steps {
			if st.child == r {
				st.child = next
			}
		}
	}
	r.next, r.parent = next, nil // it has nothing to report
	s.end(r, "completed", json.RawMessage("null"))
	r.Log[len(r.Log)-1].Data["continuedAs"] = next.ID
}

// moveInboxes opens the inboxes of a run in the next one, with the messages that were not read.
func (s *Server) moveInboxes(r, next *Run, read map[string]int64) {
	for _, h := range r.hooks {
		if name, ok := strings.CutPrefix(h.id, inboxID); ok && !h.closed {
			s.OpenInbox(next, name)
		}
	}
	for _, e := range r.Log {
		name, _ := strings.CutPrefix(e.ID, inboxID)
		h := next.openHook(e.ID)
		if e.Type != "hook_received" || h == nil || e.Seq <= read[name] {
			continue
		}
		id, ok := e.Data["messageId"].(string)
		if r.has("step_created", engine.ReplyID(name, id)) {
			continue
		}
		if ok {
			h.messages[id] = true
		}
		s.append(next, "hook_received", e.ID, maps.Clone(e.Data), e.Payload)
	}
}
