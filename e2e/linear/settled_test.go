package linear

import (
	"slices"

	"github.com/stepwell-dev/stepwell/e2e/model"
)

// remains is what was there when all was over.
type remains struct {
	operations []operation
	logs       map[string][]model.Event // by run
	// marks are where the marks are that nobody is known to have left there.
	marks map[string][]int
}

// settled is the history without doubts that what remained resolves: a request of unknown outcome whose mark is in
// the log took effect there, and one whose mark is not there never did, or changed nothing. What leaves no mark stays
// in doubt: it may have taken effect at any time after it was made, or never.
//
// Porcupine would find out by itself, but it takes it too long: each doubt doubles the number of possible pasts.
func (h *history) settled() []operation {
	operations := h.soFar()
	left := remains{operations, map[string][]model.Event{}, map[string][]int{}}
	for _, o := range operations {
		if o.final {
			left.add(o)
		}
	}
	var settled []operation
	for _, o := range operations {
		if o.known() {
			left.takeKnown(&o)
			settled = append(settled, o.parts()...)
		}
	}
	for _, o := range operations {
		if !o.known() && left.may(&o) {
			settled = append(settled, o)
		}
	}
	chain(settled)
	return settled
}

// parts are the write and the read that an answer with a part of the log is: the second comes after the first, and
// others may be between them. That an event is told of what is just before it is one thing, however.
func (o operation) parts() []operation {
	if o.Op != model.Post || !o.known() || o.got.Status != 200 || o.Since == 0 && o.Events[0].Type != "run_started" {
		return []operation{o}
	}
	read := o
	read.Request = model.Request{Op: model.ReadLog, Now: o.Now, Run: o.Run, Since: o.Since}
	read.got = model.Answer{Status: 200, Events: o.got.Events}
	read.client += 10_000 // it overlaps
	o.got.Events = nil
	if len(read.got.Events) == 0 && o.Since == 0 { // it did not ask, or the run had been started before
		return []operation{o}
	}
	return []operation{o, read}
}

// add notes what a last look saw.
func (r remains) add(o operation) {
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

// takeKnown removes the marks of a request whose answer says where they are.
func (r remains) takeKnown(o *operation) {
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
	case model.Write: // its answer does not say, but if there is one place only, we know
		if len(o.Chunks) > 0 && len(r.marks[o.Chunks[0]]) == 1 {
			o.at = r.marks[o.Chunks[0]][0]
		}
		r.take(*o)
	}
}

// take removes one of each of the request's marks and returns where the first was; 0 when there was none.
func (r remains) take(o operation) (at int) {
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

// may reports whether the request, whose outcome nobody knows, may have changed something, and notes where if that
// can be seen.
func (r remains) may(o *operation) bool {
	switch {
	case o.Op == model.Post && o.Events[0].Type == "run_started":
		return r.mayStart(o)
	case o.Op == model.Post && o.Events[0].Type == "hook_created":
		if o.at = r.take(*o); o.at == 0 {
			o.at = r.conflict(*o)
		}
		return o.at > 0
	case o.Op == model.Post || o.Op == model.Batch:
		o.at = r.take(*o)
		return o.at > 0
	case o.Op == model.Write && len(o.Chunks) > 0:
		o.at = r.take(*o)
		return o.at > 0
	case o.Op == model.Send:
		return r.mayBeFirst(*o)
	case o.Op == model.Extend || o.Op == model.Ack: // to hold on to a lease changes nothing, nor does a stale handle
		return o.Seconds == 0 && !r.stale(*o) && !r.dominated(*o)
	default:
		return true
	}
}

// mayStart is may for run_started, whose event has no mark. That of the run_created that it may make up for has.
func (r remains) mayStart(o *operation) bool {
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
		o.at = 2
		return !by(log[0].Mark, true)
	case by(log[0].Mark, false):
		return false
	}
	return !r.earlier(*o, func(b operation) bool {
		return b.Run == o.Run && b.Events[0].Type == "run_started" && b.got.Status == 200
	})
}

// conflict is where the log has the hook_conflict, which bears no mark, that the request may have become: nobody who
// was answered got it.
func (r remains) conflict(o operation) (at int) {
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

// earlier reports whether such a request had been answered when this one was made.
func (r remains) earlier(o operation, such func(operation) bool) bool {
	return slices.ContainsFunc(r.operations, func(b operation) bool {
		return b.known() && b.answer < o.call && b.Op == o.Op && such(b)
	})
}

// mayBeFirst reports whether the request may have sent the message: there is one key, so that the first wins, and what
// is delivered is the first one's.
func (r remains) mayBeFirst(o operation) bool {
	for _, b := range r.operations {
		if b.got.Count > 0 && b.got.Body != o.Body {
			return false
		}
	}
	return !r.earlier(o, func(operation) bool { return true })
}

// stale reports whether it was known, when the request was made, that the lease was over whose handle it shows.
func (r remains) stale(o operation) bool {
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

// dominated reports whether another request of unknown outcome, made earlier, would do the same, which can be done
// once.
func (r remains) dominated(o operation) bool {
	return slices.ContainsFunc(r.operations, func(b operation) bool {
		return !b.known() && b.Op == o.Op && b.Handle == o.Handle && b.Seconds == o.Seconds &&
			(b.call < o.call || b.call == o.call && b.client < o.client)
	})
}

// chain notes for each delivery the count of the one before it.
func chain(operations []operation) {
	counts := []int{0}
	for _, o := range operations {
		counts = append(counts, o.got.Count)
	}
	slices.Sort(counts)
	for i, o := range operations {
		if o.got.Handle != "" {
			at, _ := slices.BinarySearch(counts, o.got.Count)
			operations[i].at = counts[at-1]
		}
	}
}
