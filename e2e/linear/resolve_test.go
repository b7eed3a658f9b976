package linear

import (
	"slices"

	"github.com/stepwell-dev/stepwell/e2e/model"
)

// finalState is the state at the end of the test, as read by the final operations.
type finalState struct {
	operations []operation
	logs       map[string][]model.Event // by run
	// marks holds the positions of each mark that no answered request is known to have written.
	marks map[string][]int
}

// resolved returns the history with as many unknown outcomes as possible resolved from the final state. A request of
// unknown outcome whose mark is in the log took effect at that position. If its mark is missing, it never took effect,
// or changed nothing. Requests without marks remain unknown: they may have taken effect at any time after they were
// sent, or never.
//
// Porcupine could work this out itself, but would take too long: each unknown outcome doubles the number of histories.
func (h *history) resolved() []operation {
	operations := h.soFar()
	final := finalState{operations, map[string][]model.Event{}, map[string][]int{}}
	for _, o := range operations {
		if o.final {
			final.add(o)
		}
	}
	var resolved []operation
	for _, o := range operations {
		if o.known() {
			final.takeKnown(&o)
			resolved = append(resolved, o.parts()...)
		}
	}
	for _, o := range operations {
		if !o.known() && final.mayHaveTakenEffect(&o) {
			resolved = append(resolved, o)
		}
	}
	linkDeliveries(resolved)
	return resolved
}

// parts splits a write whose answer contains part of the log into a write and a later read, because other operations
// may come between the two. Events that the answer contains because of MaxSlot are atomic with the write, and are not
// split.
func (o operation) parts() []operation {
	if o.Op != model.Post || !o.known() || o.got.Status != 200 || o.Since == 0 && o.Events[0].Type != "run_started" {
		return []operation{o}
	}
	read := o
	read.Request = model.Request{Op: model.ReadLog, Now: o.Now, Run: o.Run, Since: o.Since}
	read.got = model.Answer{Status: 200, Events: o.got.Events}
	read.client += 10_000 // porcupine needs another client, because the two overlap
	o.got.Events = nil
	if len(read.got.Events) == 0 && o.Since == 0 { // it did not request the log, or the run had already started
		return []operation{o}
	}
	return []operation{o, read}
}

// add records the result of a final read.
func (r finalState) add(o operation) {
	if o.Op == model.ReadLog {
		r.logs[o.Run] = o.got.Events
	}
	for _, e := range o.got.Events {
		if e.Mark != "" {
			r.marks[e.Mark] = append(r.marks[e.Mark], e.Seq)
		}
	}
	for i, chunk := range o.got.Chunks {
		r.marks[chunk] = append(r.marks[chunk], i+1)
	}
}

// takeKnown removes the marks of an answered request, whose positions are in the answer.
func (r finalState) takeKnown(o *operation) {
	remove := func(mark string, e *model.Event) {
		if e != nil {
			r.marks[mark] = slices.DeleteFunc(r.marks[mark], func(at int) bool { return at == e.Seq })
		}
	}
	switch o.Op {
	case model.Post:
		remove(o.Events[0].Mark, o.got.Event)
	case model.Batch:
		for i, item := range o.got.Items {
			remove(o.Events[i].Mark, item.Event)
		}
	case model.Write: // the answer has no position, but a unique mark has only one
		if len(o.Chunks) > 0 && len(r.marks[o.Chunks[0]]) == 1 {
			o.seq = r.marks[o.Chunks[0]][0]
		}
		r.take(*o)
	}
}

// take removes one position of each of the request's marks, and returns the first, or 0.
func (r finalState) take(o operation) (at int) {
	names := slices.Clone(o.Chunks)
	for _, e := range o.Events {
		names = append(names, e.Mark)
	}
	for _, name := range names {
		there := r.marks[name]
		if len(there) == 0 {
			continue
		}
		if r.marks[name] = there[1:]; at == 0 {
			at = there[0]
		}
	}
	return at
}

// mayHaveTakenEffect reports whether a request of unknown outcome may have changed anything. If it left a mark, the
// function sets the request's seq to the position.
func (r finalState) mayHaveTakenEffect(o *operation) bool {
	switch {
	case o.Op == model.Post && o.Events[0].Type == "run_started":
		return r.mayHaveStarted(o)
	case o.Op == model.Post && o.Events[0].Type == "hook_created":
		if o.seq = r.take(*o); o.seq == 0 {
			o.seq = r.conflictSeq(*o)
		}
		return o.seq > 0
	case o.Op == model.Post || o.Op == model.Batch:
		o.seq = r.take(*o)
		return o.seq > 0
	case o.Op == model.Write && len(o.Chunks) > 0:
		o.seq = r.take(*o)
		return o.seq > 0
	case o.Op == model.Send:
		return r.mayBeFirst(*o)
	case o.Op == model.Extend || o.Op == model.Ack: // extending a lease changes nothing, nor does a stale handle
		return o.Seconds == 0 && !r.stale(*o) && !r.duplicated(*o)
	default:
		return true
	}
}

// mayHaveStarted is mayHaveTakenEffect for run_started, whose event has no mark. If run_started also created the run,
// its run_created has one.
func (r finalState) mayHaveStarted(o *operation) bool {
	log := r.logs[o.Run]
	started := slices.ContainsFunc(log, func(e model.Event) bool { return e.Type == "run_started" })
	by := func(mark string, knownOnly bool) bool { // a start
		return slices.ContainsFunc(r.operations, func(b operation) bool {
			return b.Op == model.Post && b.Events[0].Type == "run_started" && b.Events[0].Mark == mark && (b.known() || !knownOnly)
		})
	}
	switch {
	case !started:
		return false
	case log[0].Mark == o.Events[0].Mark:
		o.seq = 2
		return !by(log[0].Mark, true)
	case by(log[0].Mark, false):
		return false
	}
	return !r.earlier(*o, func(b operation) bool {
		return b.Run == o.Run && b.Events[0].Type == "run_started" && b.got.Status == 200
	})
}

// conflictSeq returns the position of the hook_conflict that the request may have caused, or 0. A hook_conflict has no
// mark, but it must not be the answer to another request.
func (r finalState) conflictSeq(o operation) (at int) {
	for _, e := range r.logs[o.Run] {
		if e.Type == "hook_conflict" && e.ID == o.Events[0].ID && e.Token == o.Events[0].Token {
			at = e.Seq
		}
	}
	for _, b := range r.operations {
		if b.Op == model.Post && b.Run == o.Run && b.got.Event != nil && b.got.Event.Seq == at {
			return 0
		}
	}
	return at
}

// earlier reports whether a matching request of the same kind was answered before this one was sent.
func (r finalState) earlier(o operation, matches func(operation) bool) bool {
	return slices.ContainsFunc(r.operations, func(b operation) bool {
		return b.known() && b.answer < o.call && b.Op == o.Op && matches(b)
	})
}

// mayBeFirst reports whether the request may have sent the message. All sends have the same key, so only the first
// counts, and its body is delivered.
func (r finalState) mayBeFirst(o operation) bool {
	for _, b := range r.operations {
		if b.got.Count > 0 && b.got.Body != o.Body {
			return false
		}
	}
	return !r.earlier(o, func(operation) bool { return true })
}

// stale reports whether the lease of the request's handle was known to have ended when the request was sent.
func (r finalState) stale(o operation) bool {
	count := 0
	for _, b := range r.operations {
		if b.got.Handle == o.Handle {
			count = b.got.Count
		}
	}
	return slices.ContainsFunc(r.operations, func(b operation) bool {
		over := b.got.Handle == "" && b.Handle == o.Handle && (b.got.Status == 404 || b.Op == model.Ack || b.Seconds == 0)
		return b.known() && b.answer < o.call && (over || b.got.Count > count)
	})
}

// duplicated reports whether an earlier request of unknown outcome has the same effect, which can occur only once.
func (r finalState) duplicated(o operation) bool {
	return slices.ContainsFunc(r.operations, func(b operation) bool {
		return !b.known() && b.Op == o.Op && b.Handle == o.Handle && b.Seconds == o.Seconds &&
			(b.call < o.call || b.call == o.call && b.client < o.client)
	})
}

// linkDeliveries sets the seq of each delivery to the count of the previous one.
func linkDeliveries(operations []operation) {
	counts := []int{0}
	for _, o := range operations {
		counts = append(counts, o.got.Count)
	}
	slices.Sort(counts)
	for i, o := range operations {
		if o.got.Handle != "" {
			at, _ := slices.BinarySearch(counts, o.got.Count)
			operations[i].seq = counts[at-1]
		}
	}
}
