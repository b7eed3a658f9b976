package linear

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/model"
)

// generator generates random requests about the entities of a round. It marks everything that the requests write.
type generator struct {
	*rand.Rand
	round *round
	mark  string
}

var tokens = []string{"t1", "t2"}

func (d generator) one(values ...string) string { return values[d.IntN(len(values))] }

// request generates a request. Often it repeats the last request of another client, to provoke conflicts.
func (d generator) request() model.Request {
	s := d.round
	r := d.fresh()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.Op != "" && d.IntN(3) == 0 {
		own := r.Run
		if r = s.last; r.Op == model.Post && d.IntN(2) == 0 && own != "" {
			r.Run = own // the same request for another run
		}
	}
	s.last = r
	return d.marked(r)
}

// fresh generates a request independently of earlier ones.
func (d generator) fresh() model.Request {
	switch n := d.IntN(100); {
	case n < 15:
		return d.message()
	case n < 25:
		return d.stream()
	case n < 35:
		return model.Request{Op: model.ReadLog, Run: d.run()}
	case n < 40:
		return model.Request{Op: model.ByToken, Events: []model.Event{{Token: d.token()}}}
	case n < 50:
		return d.batch()
	default:
		return d.post()
	}
}

// marked returns the request with new marks.
func (d generator) marked(r model.Request) model.Request {
	part := func(i int) string { return fmt.Sprintf("%s.%d", d.mark, i) }
	r.Events, r.Chunks = slices.Clone(r.Events), slices.Clone(r.Chunks)
	for i := range r.Events {
		r.Events[i].Mark = part(i)
	}
	for i := range r.Chunks {
		r.Chunks[i] = part(i)
	}
	if r.Op == model.Send {
		r.Body = d.round.prefix + d.mark
	}
	return r
}

func (d generator) run() string   { return d.round.ids[d.IntN(len(d.round.ids))] }
func (d generator) token() string { return d.round.prefix + d.one(tokens...) }

// types are event types, repeated by their weight. Ends of runs are rare, because little can happen after them.
var types = func() (list []string) {
	for _, typ := range []struct {
		name   string
		weight int
	}{
		{"run_created", 8}, {"run_started", 10}, {"run_completed", 1}, {"run_failed", 1}, {"run_cancelled", 1},
		{"attr_set", 6}, {"step_created", 10}, {"step_started", 20}, {"step_completed", 8}, {"step_failed", 2},
		{"step_retrying", 5}, {"hook_created", 14}, {"hook_received", 14}, {"hook_disposed", 8},
		{"wait_created", 6}, {"wait_completed", 6},
	} {
		list = append(list, slices.Repeat([]string{typ.name}, typ.weight)...)
	}
	return list
}()

func (d generator) post() model.Request {
	r := model.Request{Op: model.Post, Run: d.run(), Spec: 3 + 4*d.IntN(2)}
	e := d.event(d.one(types...))
	switch {
	case e.Type == "run_started":
		r.Frames = d.IntN(2) == 0
		r.Skip = !r.Frames && d.IntN(2) == 0
	case e.Type != "run_created":
		r.Since, r.MaxSlot = max(0, d.IntN(12)-8), max(0, d.IntN(12)-6)
	}
	r.Events = []model.Event{e}
	return r
}

func (d generator) event(typ string) model.Event {
	hour := time.Now().Add(time.Hour).UnixMilli()
	e := model.Event{Type: typ, Body: d.one("a", "b")}
	switch typ {
	case "run_created", "run_started":
		e.Deployment, e.Workflow = "dpl_none", "wf"
		if typ == "run_started" && d.IntN(2) == 0 {
			e = model.Event{Type: typ}
		}
	case "run_cancelled":
		e.Body = ""
	case "attr_set":
		e.ID, e.Body = d.one("attr_1", "attr_2", "attr_3"), ""
		e.Changes = []model.Change{{Key: d.one("k1", "k2"), Value: d.mark}}
	case "step_created", "step_started", "step_completed", "step_failed", "step_retrying":
		e.ID, e.Name = d.one("step_1", "step_2", "step_3"), "f"
		if typ == "step_started" && d.IntN(2) == 0 {
			e.Body = "" // else it creates the step
		}
		if typ == "step_retrying" && d.IntN(4) == 0 {
			e.Due = hour
		}
	case "hook_created", "hook_received", "hook_disposed":
		e.ID = d.one("hook_1", "hook_2", "hook_3", "hook_4")
		switch typ {
		case "hook_created":
			e.Token = d.token()
			if d.IntN(3) == 0 {
				e.Retain = hour
			}
		case "hook_received":
			e.Resume = d.one("", "res_1", "res_2")
			if e.Resume != "" {
				e.Digest = d.one("d1", "d1", "d2")
			}
		default:
			e.Body = ""
		}
	case "wait_created", "wait_completed":
		e.ID, e.Body, e.Due = d.one("wait_1", "wait_2"), "", hour
	}
	return e
}

func (d generator) batch() model.Request {
	r := model.Request{Op: model.Batch, Run: d.run(), Spec: 7}
	for _, id := range []string{"step_1", "step_2", "step_3"} {
		switch d.IntN(4) {
		case 0:
			r.Events = append(r.Events, model.Event{Type: "step_created", ID: id, Name: "f", Body: "a"},
				model.Event{Type: "step_started", ID: id, Name: "f"})
		case 1:
			typ := d.one("step_created", "step_started", "step_completed", "step_retrying")
			e := model.Event{Type: typ, ID: id, Name: "f"}
			if typ != "step_started" {
				e.Body = "a"
			}
			r.Events = append(r.Events, e)
		}
	}
	e := d.event("wait_created")
	e.Body = ""
	r.Events = append(r.Events, e)
	return r
}

func (d generator) message() model.Request {
	s := d.round
	s.mu.Lock()
	defer s.mu.Unlock()
	r := model.Request{Topic: topic}
	if s.id == "" || d.IntN(5) == 0 {
		r.Op, r.Deployment, r.Key = model.Send, deployment, s.prefix+"key"
		return r
	}
	if len(s.handles) == 0 || d.IntN(10) == 0 {
		r.Op, r.ID = model.Deliver, s.id
		return r
	}
	// Mostly the latest handle, else a stale one.
	r.Handle = s.handles[max(len(s.handles)-1-d.IntN(3), 0)]
	switch d.IntN(10) {
	case 0:
		r.Op = model.Ack
	case 1, 2, 3:
		r.Op, r.Seconds = model.Extend, 300
	default:
		r.Op = model.Extend // at once
	}
	return r
}

func (d generator) stream() model.Request {
	r := model.Request{Run: d.round.ids[0], Stream: d.round.prefix + "stream"}
	switch n := d.IntN(20); {
	case n < 8:
		r.Op = model.Read
	case n < 19:
		r.Op, r.Chunks = model.Write, make([]string, 1+n%2)
	default:
		r.Op, r.Done = model.Write, true
	}
	return r
}
