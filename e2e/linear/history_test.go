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

// operation is a request with what came of it.
type operation struct {
	model.Request

	client       int           // a number for each in the visualization
	call, answer time.Duration // since the test began; answer is endless when nobody knows the outcome
	got          model.Answer  // what was answered; its Status is 0 when nobody knows
	// at is the position at which the log has what a request of unknown outcome wrote; 0 when it leaves no mark.
	// For a delivery it is the count of the delivery before, as far as they were seen.
	at int
	// cut says that the history ends before the answer: it may be that the request does not take effect in it.
	cut bool
	// shaky says that the lease of a message may have got lost: a server was killed, or the database was.
	shaky bool
	// final says that it is a look at what remains when all is over.
	final bool
}

const endless = time.Duration(math.MaxInt64)

func (o operation) known() bool { return o.got.Status != 0 }

// changes reports whether the operation may have changed anything.
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
		if o.at > 0 {
			at = fmt.Sprintf(", but is there at %d", o.at)
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

// history is the operations of one partition: a few runs with the tokens they compete for, a message, or a stream.
// What is in another partition has no part in it.
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

// soFar is a copy of the operations. More may come: deliveries go on.
func (h *history) soFar() []operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.operations)
}

// sequential is the model as porcupine asks for it. States are worlds that nobody changes any more.
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

// step does the operation in the world and reports whether what was answered may be.
func step(w *model.World, o operation) bool {
	switch o.Op {
	case model.Send, model.Deliver, model.Extend, model.Ack:
		return stepMessage(w, o)
	}
	before := w
	if o.at > 0 {
		before = w.Clone()
	}
	want := w.Do(o.Request)
	switch {
	case o.known():
		if o.Op == model.Post && (o.Since > 0 || o.Events[0].Type == "run_started") {
			want.Events = nil // see parts
		}
		same := reflect.DeepEqual(timeless(want.LeavingOut(o.got)), timeless(o.got))
		return same && (o.Op != model.Write || o.landed(w, want))
	case o.at == 0 || o.landed(w, want):
		return true
	// It is not in this part of the history, or another one became the same conflict.
	case o.cut || o.Op == model.Post && o.Events[0].Type == "hook_created":
		*w = *before
		return true
	default:
		return false
	}
}

// landed reports whether the operation has left its mark where it is.
func (o operation) landed(w *model.World, want model.Answer) bool {
	if o.Op == model.Post && o.Events[0].Type == "run_started" { // it made the run
		return w.Runs[o.Run] != nil && w.Runs[o.Run].Log[0].Mark == o.Events[0].Mark
	}
	if o.Op == model.Write { // with its last chunk at the end
		return o.at == 0 || len(w.Streams[o.Stream].Chunks) == o.at-1+len(o.Chunks)
	}
	there := func(a model.Answer) bool { return a.Event != nil && a.Event.Seq == o.at }
	return there(want) || slices.ContainsFunc(want.Items, there)
}

// nameless is the ID of a message that was accepted without the sender being told.
const nameless = "?"

// stepMessage is step for messages, of which a partition has one.
func stepMessage(w *model.World, o operation) bool {
	if o.Op == model.Send && o.ID == "" {
		o.ID = o.got.ID
	}
	if o.ID == "" {
		o.ID = nameless
	}
	if o.Op == model.Deliver && o.Handle == "" { // pulled by someone who does not know
		o.Handle = fmt.Sprint("rh_lost_", o.call)
	}
	if m, ok := w.Messages[nameless]; ok && o.ID != nameless { // now we know
		m.ID = o.ID
		delete(w.Messages, nameless)
		w.Messages[m.ID] = m
		for key := range w.Keys {
			w.Keys[key] = m.ID
		}
	}
	if o.Op == model.Deliver && o.got.Status == 409 { // it is leased, or a worker is just looking at it
		m, ok := w.Messages[o.ID]
		return ok && !m.Acked
	}
	if o.shaky {
		mislay(w, o)
	}
	want := w.Do(o.Request)
	return !o.known() || reflect.DeepEqual(want, o.got)
}

// mislay is what happens to a lease when servers die: it ends, and others may have held the message before it is
// seen again; a delivery that its server did not survive does not count. What never happens is that an old handle
// comes to life, or that an acknowledged message comes back.
func mislay(w *model.World, o operation) {
	m, ok := w.Messages[o.ID]
	switch {
	case o.Op == model.Deliver && ok && !m.Acked && o.got.Status == 200 && m.Count >= o.at:
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

// describe is the state in a few words.
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

// timeless is the answer without what clocks say, and with nothing rather than something empty.
func timeless(a model.Answer) model.Answer {
	a.RetryAfter = 0
	if a.Event != nil {
		e := timelessEvent(*a.Event)
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
		a.Events = append(a.Events, timelessEvent(e))
	}
	for _, item := range items {
		a.Items = append(a.Items, timeless(item))
	}
	if len(a.Chunks) == 0 {
		a.Chunks = nil
	}
	return a
}

func timelessEvent(e model.Event) model.Event {
	e.At = 0
	if len(e.Attributes) == 0 {
		e.Attributes = nil
	}
	return e
}
