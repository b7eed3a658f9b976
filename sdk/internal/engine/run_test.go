package engine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The commands of the tests.
type (
	runStep struct{ id, name string }
	wait    struct{ id string }
	hook    struct{ id string }
	record  struct {
		id, name string
		result   Result
		recorded Recorded
	}
	// retry records a failed attempt. If it is inline, a later invocation makes the next one, otherwise the server.
	retry struct {
		id, name string
		inline   bool
	}
)

// run is a run with a log, and what a server does with it.
type run struct {
	log  []Event
	open []key // steps, waits and hooks that may get a result, and inline operations that are tried again later

	// told is the position up to which the last acknowledged invocation knew the log, and await what it waits for.
	told    int64
	await   *Await
	fired   bool            // the time of a failed inline operation has come since
	pausing map[string]bool // failed inline operations whose time has not come
	attempt int

	// lease is the number of the invocation under way. Written is how long the log was when a copy of it last wrote, and
	// request is what wrote then.
	lease   int
	written int64
	request string
}

// write writes what a copy of an invocation has done, which knows the log up to a position. It reports false if the
// invocation is over, or another copy has written something that this one does not know.
func (r *run) write(lease int, a Answer, knows int64, request string) bool {
	if lease != r.lease || r.written > knows && (request == "" || request != r.request) {
		return false
	}
	r.apply(a)
	r.written, r.request = int64(len(r.log)), request
	return true
}

func newRun() *run {
	r := &run{pausing: map[string]bool{}, attempt: 1, fired: true}
	r.append(Event{Type: "run_created"})
	return r
}

func (r *run) append(e Event) {
	e.Seq = int64(len(r.log)) + 1
	e.At = time.Unix(e.Seq, 0)
	r.log = append(r.log, e)
}

// apply writes an answer. Commands of existing operations change nothing.
func (r *run) apply(a Answer) {
	before := len(r.log)
	for _, command := range a.Commands {
		switch c := command.(type) {
		case runStep:
			r.create("step", Event{Type: "step_created", ID: c.id, Data: Data{StepName: c.name}})
		case wait:
			r.create("wait", Event{Type: "wait_created", ID: c.id})
		case hook:
			r.create("hook", Event{Type: "hook_created", ID: c.id})
		case record:
			r.record(c)
		case retry:
			r.retry(c)
		default:
			panic(fmt.Sprintf("unknown command %T", c))
		}
	}
	if len(r.log) > before {
		r.log[before].Data.Open = a.Open
	}
}

func (r *run) record(c record) {
	if r.ended(c.id) {
		return
	}
	if !r.has("step_created", c.id) {
		r.append(Event{Type: "step_created", ID: c.id, Data: Data{StepName: c.name}})
	}
	delete(r.pausing, c.id)
	r.open = slices.DeleteFunc(r.open, func(k key) bool { return k == key{"retry", c.id} })
	r.append(Event{Type: "step_completed", ID: c.id, Payload: c.result.Output, Data: Data{Recorded: c.recorded}})
}

func (r *run) retry(c retry) {
	if r.ended(c.id) || !c.inline && r.has("step_created", c.id) {
		return
	}
	if !c.inline {
		r.create("step", Event{Type: "step_created", ID: c.id, Data: Data{StepName: c.name}})
	} else if !r.has("step_created", c.id) {
		r.append(Event{Type: "step_created", ID: c.id, Data: Data{StepName: c.name}})
	}
	r.append(Event{Type: "step_retrying", ID: c.id})
	if c.inline && !slices.Contains(r.open, key{"retry", c.id}) {
		r.pausing[c.id] = true
		r.open = append(r.open, key{"retry", c.id})
	}
}

func (r *run) ended(step string) bool { return r.has("step_completed", step) }

// acknowledge ends an invocation that knew the log up to a position, unless another copy has overtaken it.
func (r *run) acknowledge(lease int, a Answer, told int64) bool {
	if !r.write(lease, a, told, "") {
		return false
	}
	r.told, r.await, r.attempt = told, a.Await, 1
	return true
}

// isWanted reports whether the server invokes the run.
func (r *run) isWanted() bool {
	if r.fired || r.attempt > 1 {
		return true
	}
	ended := func(ref string) bool {
		space, id, _ := strings.Cut(ref, ":")
		return !slices.Contains(r.open, key{space, id})
	}
	if r.await != nil && (slices.ContainsFunc(r.await.Any, ended) ||
		slices.ContainsFunc(r.await.All, func(all []string) bool {
			return !slices.ContainsFunc(all, func(ref string) bool { return !ended(ref) })
		})) {
		return true
	}
	return slices.ContainsFunc(r.log[r.told:], func(e Event) bool {
		_, wakes := results[e.Type]
		return e.Type == "hook_received" || wakes && r.await == nil
	})
}

func (r *run) create(space string, e Event) {
	if !r.has(e.Type, e.ID) {
		r.append(e)
		r.open = append(r.open, key{space, e.ID})
	}
}

func (r *run) has(eventType, id string) bool {
	return slices.ContainsFunc(r.log, func(e Event) bool { return e.Type == eventType && e.ID == id })
}

// happen appends the result of a random open operation, if there is one. Hooks stay open for two payloads.
func (r *run) happen(random *rand.Rand) bool {
	if len(r.open) == 0 {
		return false
	}
	i := random.IntN(len(r.open))
	k := r.open[i]
	if k.space == "retry" {
		r.open = slices.Delete(r.open, i, i+1)
		delete(r.pausing, k.id)
		r.fired = true
		return true
	}
	e := Event{ID: k.id, Payload: json.RawMessage(strconv.Itoa(random.IntN(100)))}
	e.Type = map[string]string{"step": "step_completed", "wait": "wait_completed", "hook": "hook_received"}[k.space]
	r.append(e)
	if k.space != "hook" || r.count("hook_received", k.id) >= 2 {
		r.open = slices.Delete(r.open, i, i+1)
	}
	return true
}

func (r *run) count(eventType, id string) (n int) {
	for _, e := range r.log {
		if e.Type == eventType && e.ID == id {
			n++
		}
	}
	return n
}
