package model

import (
	"slices"
	"strings"
)

// batch is §3.13.
func (w *World) batch(r Request) Answer {
	h := w.Runs[r.Run]
	for i := range r.Events {
		if !r.batchable(i, r.InBand && h != nil && h.fenced()) {
			return invalid
		}
	}
	if h == nil {
		return missing("run")
	}
	if refusal, refused := w.fence(r, r.Events[0]); refused {
		return refusal
	}
	a, refused := Answer{Status: 200}, map[string]Answer{}
	for _, e := range r.Events {
		item, fails := refused[e.entity()]
		if !fails {
			item = w.count(r, e)
		}
		if item.Status != 200 {
			refused[e.entity()] = item
		}
		a.Items, a.Allocated = append(a.Items, item), a.Allocated+item.Allocated
	}
	return a
}

// entity names what an event is about. In a batch, an event fails as the one before it that is about the same.
func (e Event) entity() string { return e.Type[:4] + e.ID }

// batchable reports whether event i may be in the batch. A batch has one event per entity, except for a
// create-and-start and for the orchestrator of a run with a fence.
func (r Request) batchable(i int, several bool) bool {
	e := r.Events[i]
	again := slices.ContainsFunc(r.Events[:i], func(b Event) bool { return b.entity() == e.entity() })
	switch {
	case !valid(e, r.Now) || again && !several && !startsCreated(r.Events, i):
		return false
	case e.Type == "step_started":
		return e.Body == ""
	default:
		return e.Type == "run_completed" || e.Type == "run_failed" ||
			strings.HasPrefix(e.Type, "step_") || strings.HasPrefix(e.Type, "wait_")
	}
}

// startsCreated reports whether event i starts the step that event i-1 creates.
func startsCreated(events []Event, i int) bool {
	return i > 0 && events[i-1].Type == "step_created" && events[i].Type == "step_started" &&
		events[i-1].ID == events[i].ID
}
