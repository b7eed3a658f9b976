package model_test

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/e2e/model"
)

// one draws one of the values with equal probability: rapid prefers the first value of a list, but draws fair booleans.
// It still shrinks to the first value.
func one[T any](rt *rapid.T, what string, values ...T) T {
	return rapid.Custom(func(rt *rapid.T) T {
		const draws = 12
		n := 0
		for range draws {
			n *= 2
			if rapid.Bool().Draw(rt, "bit") {
				n++
			}
		}
		return values[n*len(values)>>draws]
	}).Draw(rt, what)
}

// eventTypes are types of events, repeated by their weight. Ends of runs are rare, because little can happen after
// them.
var eventTypes = func() (list []string) {
	for _, typ := range []struct {
		name   string
		weight int
	}{
		{"run_created", 2}, {"run_started", 3}, {"run_completed", 1}, {"run_failed", 1}, {"run_cancelled", 1},
		{"attr_set", 5}, {"step_created", 4}, {"step_started", 8}, {"step_completed", 3}, {"step_failed", 2},
		{"step_retrying", 4}, {"hook_created", 9}, {"hook_received", 9}, {"hook_disposed", 4}, {"hook_conflict", 1},
		{"wait_created", 4}, {"wait_completed", 4}, {"noop", 1},
	} {
		list = append(list, slices.Repeat([]string{typ.name}, typ.weight)...)
	}
	return list
}()

// run draws a run, mostly one that has not ended.
func (m *machine) run(rt *rapid.T) string {
	runs := slices.Clone(m.runs)
	for _, id := range m.runs {
		if h := m.w.Runs[id]; h != nil && h.Run.Ended == 0 {
			runs = append(runs, slices.Repeat([]string{id}, len(m.runs))...)
		}
	}
	return one(rt, "run", runs...)
}

// post draws a request for one event.
func (m *machine) post(rt *rapid.T) model.Request {
	r := model.Request{Op: model.Post, Run: m.run(rt)}
	m.fence(rt, &r)
	e := m.event(rt, r.Run, one(rt, "type", eventTypes...))
	switch e.Type {
	case "run_started":
		r.Frames = rapid.Bool().Draw(rt, "frames")
		r.Skip = !r.Frames && rapid.Bool().Draw(rt, "skip")
	case "run_created", "run_cancelled":
	default:
		r.Since = one(rt, "since", 0, 0, 0, 1, 3, 50)
		r.MaxSlot = one(rt, "maxSlot", 0, 0, 1, 2, 5)
	}
	r.Events = []model.Event{e}
	return r
}

// fence draws the protocol version of a request, mostly one that may write to its run, and who writes: an orchestrator
// that has seen all in-band events, one that others have overtaken, or somebody else.
func (m *machine) fence(rt *rapid.T, r *model.Request) {
	seen := 1
	r.Spec = one(rt, "spec", 2, 3, 5, 6, 7, 8, 9, 9)
	if h := m.w.Runs[r.Run]; h != nil && h.Run.Spec == 9 {
		seen, r.Spec = h.InBand, one(rt, "spec", 9, 9, 9, 9, 9, 9, 8)
	}
	if r.InBand = r.Spec == 9 && one(rt, "in-band", true, true, false); r.InBand {
		r.Seen = one(rt, "seen", seen, seen, seen, seen, seen, seen, seen-1, seen+1, 0, -1)
	}
}

// event draws an event of a type for a run. Rarely it lacks a required field.
func (m *machine) event(rt *rapid.T, run, typ string) model.Event {
	now := m.s.clock().UnixMilli()
	e := model.Event{Type: typ, Body: one(rt, "body", "", "a", "bb", "\x00\xff")}
	switch typ {
	case "run_created", "run_started":
		e.Deployment, e.Workflow = one(rt, "deployment", "dpl", "dpl", "dpl", ""), one(rt, "workflow", "wf", "wf", "wf", "")
		e.Attributes = one(rt, "attributes", nil, map[string]string{"k1": "v"}, map[string]string{"$r": "v"})
	case "run_failed":
		e.ErrorCode = one(rt, "code", "", "USER_ERROR")
	case "attr_set":
		e.ID, e.Body = one(rt, "ID", "", "attr_1", "attr_2", "attr_3"), ""
		e.Changes = m.changes(rt)
	case "step_created", "step_started", "step_completed", "step_failed", "step_retrying":
		e.ID, e.Name = one(rt, "ID", "step_1", "step_2", "step_3", "step_4"), one(rt, "name", "f", "g", "f", "")
		if typ == "step_started" {
			e.Attempt = one(rt, "attempt", 0, 0, 1, 2, 7)
		}
		if typ == "step_retrying" {
			e.Due = one(rt, "retryAfter", 0, now-1, now+1, now+1001, now+5000)
		}
	case "hook_created", "hook_received", "hook_disposed", "hook_conflict":
		m.hook(rt, run, &e)
	case "wait_created", "wait_completed":
		e.ID, e.Body = one(rt, "ID", "wait_1", "wait_2", "wait_3", ""), ""
		e.Due = one(rt, "resumeAt", now+1000, now+1000, now-1, 0)
	case "run_cancelled", "noop":
		e.Body = ""
	}
	return e
}

// hook draws the other fields of a hook's event, mostly for an existing hook.
func (m *machine) hook(rt *rapid.T, run string, e *model.Event) {
	ids := []string{"hook_1", "hook_2", "hook_3"}
	if h := m.w.Runs[run]; h != nil && e.Type != "hook_created" {
		for _, id := range slices.Sorted(maps.Keys(h.Hooks)) {
			ids = append(ids, id, id, id)
		}
	}
	e.ID = one(rt, "ID", ids...)
	switch e.Type {
	case "hook_created":
		now := m.s.clock().UnixMilli()
		e.Token = one(rt, "token", "t1", "t2") + m.suffix
		e.Force = one(rt, "force", false, false, true)
		e.Webhook = rapid.Bool().Draw(rt, "webhook")
		e.Retain = one(rt, "retain", 0, 0, 0, now-1, now+1000, now+3_600_000, now+31*86_400_000)
	case "hook_received":
		e.Resume = one(rt, "resume", "", "res_1", "res_1", "res_2")
		if e.Resume != "" {
			e.Digest = one(rt, "digest", "d1", "d1", "d2")
		}
	default:
		e.Body = ""
	}
}

func (m *machine) changes(rt *rapid.T) []model.Change {
	changes := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) model.Change {
		c := model.Change{Key: one(rt, "key", "k1", "k2", "k3", "k4", "$r"), Value: one(rt, "value", "", "x", "ü")}
		if c.Delete = one(rt, "delete", false, false, true); c.Delete {
			c.Value = ""
		}
		return c
	}), 0, 3).Draw(rt, "changes")
	if from := one(rt, "many", -1, -1, -1, -1, 0, 30, 60); from >= 0 { // three of these exceed the limit
		for i := range 30 {
			changes = append(changes, model.Change{Key: fmt.Sprintf("m%d", from+i), Value: "x"})
		}
	}
	return changes
}

// batch draws a request for several events that mostly may be in one batch.
func (m *machine) batch(rt *rapid.T) model.Request {
	r := model.Request{Op: model.Batch, Run: m.run(rt)}
	m.fence(rt, &r)
	types := []string{
		"pair", "pair", "pair", "step_created", "step_created", "step_started", "step_completed", "step_failed",
		"step_retrying", "wait_created", "wait_created", "wait_completed", "run_completed", "run_failed",
	}
	for range rapid.IntRange(1, 4).Draw(rt, "events") {
		typ := one(rt, "type", types...)
		if one(rt, "odd", false, false, false, false, false, false, false, false, true) {
			typ = one(rt, "type", eventTypes...)
		}
		if typ != "pair" {
			e := m.event(rt, r.Run, typ)
			if typ == "step_started" && one(rt, "bare", true, true, true, false) {
				e.Body = ""
			}
			r.Events = append(r.Events, e)
			continue
		}
		created := m.event(rt, r.Run, "step_created")
		r.Events = append(r.Events, created, model.Event{Type: "step_started", ID: created.ID, Name: created.Name})
	}
	return r
}

// repeated draws an earlier request, mostly a recent one.
func (m *machine) repeated(rt *rapid.T) model.Request {
	if len(m.past) == 0 {
		rt.Skip("no request to repeat yet")
	}
	return m.past[max(len(m.past)-one(rt, "back", 1, 1, 1, 2, 3, 5, 8, 20), 0)]
}

// message draws a request to the queue.
func (m *machine) message(rt *rapid.T) model.Request {
	r := model.Request{Op: one(rt, "op", model.Send, model.Send, model.Deliver, model.Extend, model.Ack), Topic: "__wkf_workflow_w"}
	if r.Op == model.Send || len(m.ids) == 0 {
		r.Op, r.Body = model.Send, one(rt, "body", "", "b", "\x00\xff")
		r.Topic = one(rt, "topic", "__wkf_workflow_w", "__wkf_workflow_w", "__wkf_step_s")
		r.Deployment = one(rt, "deployment", pushed, pulled)
		r.Key = one(rt, "key", "", "k1"+m.suffix, "k2"+m.suffix)
		r.Seconds = one(rt, "delay", 0, 0, 0, 3600)
		return r
	}
	switch r.Op {
	case model.Deliver:
		r.ID = one(rt, "message", append([]string{"msg_none"}, m.ids...)...)
		r.Topic = one(rt, "topic", m.sent[r.ID].Topic, "__wkf_workflow_w")
	case model.Extend:
		r.Seconds = one(rt, "seconds", 0, 0, 300)
		r.Handle = one(rt, "handle", append([]string{"rh_none"}, m.handles...)...)
	default:
		r.Handle = one(rt, "handle", append([]string{"rh_none"}, m.handles...)...)
	}
	return r
}

// stream draws a write to a stream, or a read.
func (m *machine) stream(rt *rapid.T) model.Request {
	r := model.Request{Op: one(rt, "op", model.Write, model.Write, model.Read), Run: m.runs[0], Stream: one(rt, "stream", "s1", "s2") + m.suffix}
	if r.Op == model.Write {
		r.Chunks = rapid.SliceOfN(rapid.SampledFrom([]string{"x", "yy", "\x00"}), 0, 3).Draw(rt, "chunks")
		r.Done = one(rt, "done", false, false, false, true)
	}
	return r
}
