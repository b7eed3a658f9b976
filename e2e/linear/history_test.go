package linear

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/stepwell-dev/stepwell/e2e/model"
)

// operation is a request with its outcome.
type operation struct {
	model.Request

	client       int           // number of the client in the visualization
	call, answer time.Duration // since the start of the test; answer is never if the outcome is unknown
	got          model.Answer  // the answer; its Status is 0 if the outcome is unknown
	// seq is the log position of the event that a request of unknown outcome wrote, or 0 if it wrote no mark. For a
	// delivery it is the count of the previous known delivery.
	seq int
	// cut means that the history ends before the answer, so that the request need not take effect in it.
	cut bool
	// leaseAtRisk means that the message's lease may have been lost because a server or the database was killed.
	leaseAtRisk bool
	// final marks a read of the final state.
	final bool
}

const never = time.Duration(math.MaxInt64)

func (o operation) known() bool { return o.got.Status != 0 }

// changes reports whether the operation may have changed anything, given its answer.
func (o operation) changes() bool {
	switch o.Op {
	case model.ReadLog, model.ByToken, model.Read:
		return false
	default:
		return !o.known() || o.got.Status/100 == 2
	}
}

func (o operation) String() string {
	if !o.known() {
		at := ""
		if o.seq > 0 {
			at = fmt.Sprintf(", but found at position %d", o.seq)
		}
		return o.Request.String() + " → unknown" + at
	}
	s := fmt.Sprintf("%s → %d", o.Request, o.got.Status)
	if o.got.Code != "" {
		s += " " + o.got.Code
	}
	if o.got.Event != nil {
		s += " " + o.got.Event.String()
	}
	for _, item := range o.got.Items {
		s += fmt.Sprintf(" {%d %s", item.Status, item.Code)
		if item.Event != nil {
			s += item.Event.String()
		}
		s += "}"
	}
	if len(o.got.Events) > 0 {
		s += fmt.Sprintf(" and %v", o.got.Events)
	}
	if o.got.Hook != nil {
		s += " " + o.got.Hook.ID + " of " + o.got.Hook.Run
	}
	if o.got.ID != "" {
		s += fmt.Sprintf(" %s %s delivery %d", o.got.ID, o.got.Handle, o.got.Count)
	}
	if o.Op == model.Read {
		s += fmt.Sprintf(" %v done=%t", o.got.Chunks, o.got.Done)
	}
	return s
}

// history holds the operations of one partition: some runs with the tokens they compete for, or a message, or a stream.
// Partitions are independent of each other.
type history struct {
	name string

	mu         sync.Mutex
	operations []operation
}

func (h *history) add(o operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, o)
}

// soFar returns a copy of the operations. Deliveries may still add more.
func (h *history) soFar() []operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.operations)
}

// sequential is the model in porcupine's form. States are immutable worlds.
var sequential = porcupine.Model{
	Init: func() any { return &model.World{} },
	Step: func(state, input, _ any) (bool, any) {
		next := state.(*model.World).Clone()
		ok := step(next, input.(operation))
		return ok, next
	},
	Equal:             reflect.DeepEqual,
	DescribeOperation: func(input, _ any) string { return input.(operation).String() },
	DescribeState:     func(state any) string { return describe(state.(*model.World)) },
}

// step applies the operation to the world, and reports whether the answer is possible.
func step(w *model.World, o operation) bool {
	switch o.Op {
	case model.Send, model.Deliver, model.Extend, model.Ack:
		return stepMessage(w, o)
	}
	before := w
	if o.seq > 0 {
		before = w.Clone()
	}
	want := w.Do(o.Request)
	switch {
	case o.known():
		if o.Op == model.Post && (o.Since > 0 || o.Events[0].Type == "run_started") {
			want.Events = nil // see parts
		}
		same := reflect.DeepEqual(withoutTimes(want.WithoutOmitted(o.got)), withoutTimes(o.got))
		return same && (o.Op != model.Write || o.tookEffect(w, want))
	case o.seq == 0 || o.tookEffect(w, want):
		return true
	// It takes effect after the cut, or another request caused the same hook_conflict.
	case o.cut || o.Op == model.Post && o.Events[0].Type == "hook_created":
		*w = *before
		return true
	default:
		return false
	}
}

// tookEffect reports whether the operation wrote its mark at the known position.
func (o operation) tookEffect(w *model.World, want model.Answer) bool {
	if o.Op == model.Post && o.Events[0].Type == "run_started" { // it created the run
		return w.Runs[o.Run] != nil && w.Runs[o.Run].Log[0].Mark == o.Events[0].Mark
	}
	if o.Op == model.Write { // its chunks are the last ones
		return o.seq == 0 || len(w.Streams[o.Stream].Chunks) == o.seq-1+len(o.Chunks)
	}
	there := func(a model.Answer) bool { return a.Event != nil && a.Event.Seq == o.seq }
	return there(want) || slices.ContainsFunc(want.Items, there)
}

// unknownID stands for the ID of a message whose sender got no answer.
const unknownID = "?"

// stepMessage is step for messages, of which a partition has one.
func stepMessage(w *model.World, o operation) bool {
	if o.Op == model.Send && o.ID == "" {
		o.ID = o.got.ID
	}
	if o.ID == "" {
		o.ID = unknownID
	}
	if o.Op == model.Deliver && o.Handle == "" { // pulled, but the answer was lost
		o.Handle = fmt.Sprint("rh_lost_", o.call)
	}
	if m, ok := w.Messages[unknownID]; ok && o.ID != unknownID { // now the ID is known
		m.ID = o.ID
		delete(w.Messages, unknownID)
		w.Messages[m.ID] = m
		for key := range w.Keys {
			w.Keys[key] = m.ID
		}
	}
	if o.Op == model.Deliver && o.got.Status == 409 { // it is leased, or a worker is checking it
		m, ok := w.Messages[o.ID]
		return ok && !m.Acked
	}
	if o.leaseAtRisk {
		loseLease(w, o)
	}
	want := w.Do(o.Request)
	return !o.known() || reflect.DeepEqual(want, o.got)
}

// loseLease models the effect of a crash on a lease: the lease ends, and there may be unseen deliveries before the next
// one. A delivery does not count if its server did not survive it. An old handle never becomes valid again, and an
// acknowledged message never returns.
func loseLease(w *model.World, o operation) {
	m, ok := w.Messages[o.ID]
	switch {
	case o.Op == model.Deliver && ok && !m.Acked && o.got.Status == 200 && m.Count >= o.seq:
		m.Handle, m.Count = "", max(m.Count-1, o.got.Count-1)
		w.Messages[o.ID] = m
	case o.Op != model.Deliver && o.got.Status == 404:
		for id, m := range w.Messages {
			if m.Handle == o.Handle {
				m.Handle = ""
				w.Messages[id] = m
			}
		}
	}
}

// describe summarizes the state.
func describe(w *model.World) string {
	var words []string
	for id, h := range w.Runs {
		words = append(words, fmt.Sprintf("%s: %s, %d events", id, h.Run.Status, len(h.Log)))
	}
	for id, m := range w.Messages {
		words = append(words, fmt.Sprintf("%s: %+v", id, m))
	}
	for name, s := range w.Streams {
		words = append(words, fmt.Sprintf("%s: %v %t", name, s.Chunks, s.Done))
	}
	slices.Sort(words)
	return strings.Join(words, "; ")
}

// withoutTimes returns the answer without times, and with nil instead of empty values.
func withoutTimes(a model.Answer) model.Answer {
	a.RetryAfter = 0
	if a.Event != nil {
		e := eventWithoutTimes(*a.Event)
		a.Event = &e
	}
	if a.Run != nil {
		r := *a.Run
		r.Created, r.Updated, r.Started, r.Ended = 0, 0, 0, 0
		if len(r.Attributes) == 0 {
			r.Attributes = nil
		}
		a.Run = &r
	}
	if a.Step != nil {
		s := *a.Step
		s.Created, s.Updated, s.Started, s.Ended = 0, 0, 0, 0
		a.Step = &s
	}
	if a.Hook != nil {
		k := *a.Hook
		k.Created = 0
		a.Hook = &k
	}
	if a.Wait != nil {
		v := *a.Wait
		v.Created, v.Updated, v.Ended = 0, 0, 0
		a.Wait = &v
	}
	events, items := a.Events, a.Items
	a.Events, a.Items = nil, nil
	for _, e := range events {
		a.Events = append(a.Events, eventWithoutTimes(e))
	}
	for _, item := range items {
		a.Items = append(a.Items, withoutTimes(item))
	}
	if len(a.Chunks) == 0 {
		a.Chunks = nil
	}
	return a
}

func eventWithoutTimes(e model.Event) model.Event {
	e.At = 0
	if len(e.Attributes) == 0 {
		e.Attributes = nil
	}
	return e
}
