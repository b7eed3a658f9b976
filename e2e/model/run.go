package model

import (
	"maps"
	"slices"
	"strings"
)

// Event is an event that a client requests or, with Seq and At, an event of the log.
type Event struct {
	Seq  int
	At   int64
	Type string
	ID   string // the correlation ID: of the step, hook, wait or change of attributes
	Body string // the payload
	Name string // of a step
	Due  int64  // resumeAt of a wait, retryAfter of a step

	Token          string
	Force          bool   // hook_created: the hook may take the token over
	From           string // hook_created: the run and hook that have lost the token to this hook
	By             string // hook_disposed: the run and hook that have taken the token over
	Holder         string // in a hook_conflict: the ID of the run that holds the token
	Kept           string // in a hook_conflict: why the holder could not lose it
	Webhook        bool
	Retain         int64 // tokenRetentionUntil
	Resume, Digest string
	Attempt        int // step_started: its number, by its client

	Deployment, Workflow, ErrorCode string
	Attributes                      map[string]string
	Changes                         []Change

	// Mark lets a client recognize its event. A server may drop it.
	Mark string
}

// Change sets or deletes an attribute.
type Change struct {
	Key, Value string
	Delete     bool
}

// Run is a run. Output is its result or its error.
type Run struct {
	ID, Status, Deployment, Workflow, Input, Output, ErrorCode string
	Spec                                                       int
	Attributes                                                 map[string]string
	Created, Updated, Started, Ended                           int64
}

// Step is a step. Output is its result or its last error.
type Step struct {
	ID, Name, Status, Input, Output              string
	Attempt                                      int
	Created, Updated, Started, Ended, RetryAfter int64
}

// Hook is a hook that holds its token: until its run ends, or until Retain if that is later.
type Hook struct {
	Run, ID, Token, Metadata string
	From                     string // the run and hook that have lost the token to this hook
	Webhook                  bool
	Created, Retain          int64
}

// Wait is a wait. The end of a run removes its waits.
type Wait struct {
	ID, Status                   string
	Due, Created, Updated, Ended int64
}

// History is a run with its log and the entities derived from the log.
type History struct {
	Run   Run
	Steps map[string]Step
	Hooks map[string]Hook
	Waits map[string]Wait
	Log   []Event
	// InBand is how many events of the log the orchestrator wrote, of a run with a fence.
	InBand int
	// Resumed maps resume IDs to their events, with the digests, which the log does not contain.
	Resumed map[string]Event
}

// fenced reports whether the run has a fence (§12).
func (h *History) fenced() bool { return h.Run.Spec >= fenceSpec }

func (h *History) ended() bool { return h.Run.Status != "pending" && h.Run.Status != "running" }

// record appends an event to the log.
func (h *History) record(e Event, now int64) *Event {
	e.Seq, e.At = len(h.Log)+1, now
	h.Log, h.Run.Updated = append(h.Log, e), now
	return &e
}

// earlier returns the first event of the log with one of the types for which is returns true.
func (h *History) earlier(is func(Event) bool, types ...string) *Event {
	i := slices.IndexFunc(h.Log, func(e Event) bool { return slices.Contains(types, e.Type) && is(e) })
	if i < 0 {
		return nil
	}
	return &h.Log[i]
}

// post is §3.3, the append of one event. It checks first the request itself, then the run, then the entity.
func (w *World) post(r Request) Answer {
	before := 0
	if h := w.Runs[r.Run]; h != nil {
		before = len(h.Log)
	}
	a := w.append(r, r.Events[0])
	if a.Status != 200 {
		return a
	}
	h, repeated := w.Runs[r.Run], a.Event.Seq <= before
	switch {
	case a.Event.Type == "run_started" && r.Frames: // §3.5
		return h.read(r, h.Log)
	case r.Since > 0: // §3.2
		a.Events = h.Log[min(r.Since, len(h.Log)):]
	case repeated || a.Event.Type == "run_started" && r.Skip:
	case a.Event.Type == "run_started":
		a.Events = h.Log
	case r.MaxSlot > 0 && a.Event.Seq > r.MaxSlot+1:
		a.Events = h.Log[r.MaxSlot : a.Event.Seq-1]
	}
	return a
}

func (w *World) append(r Request, e Event) Answer {
	if !valid(e, r.Now) {
		return invalid
	}
	if refusal, refused := w.fence(r, e); refused {
		return refusal
	}
	return w.count(r, e)
}

// decide decides on an event that the fence lets pass.
func (w *World) decide(r Request, e Event) Answer {
	h := w.Runs[r.Run]
	switch {
	case e.Type == "run_created":
		return w.create(r, e)
	case h == nil && e.creates():
		e.Type = "run_created" // the start also creates the run, §3.5
		if a := w.create(r, e); a.Status != 200 {
			return a
		}
		h, e.Type = w.Runs[r.Run], "run_started"
	case h == nil:
		return missing("run")
	}
	switch kind, _, _ := strings.Cut(e.Type, "_"); kind {
	case "step":
		return h.step(e, r.Now)
	case "hook":
		return w.hook(h, e, r.Now)
	case "wait":
		return h.wait(e, r.Now)
	default:
		return h.run(e, r.Now)
	}
}

// create is §3.4.
func (w *World) create(r Request, e Event) Answer {
	switch {
	case e.Deployment == "" || e.Workflow == "" || !madeNear(r.Run, r.Now):
		return invalid
	case w.Runs[r.Run] != nil:
		return conflict
	}
	h := &History{Run: Run{
		ID: r.Run, Status: "pending", Spec: r.Spec, Created: r.Now,
		Deployment: e.Deployment, Workflow: e.Workflow, Input: e.Body, Attributes: maps.Clone(e.Attributes),
	}}
	if h.fenced() {
		h.InBand = 1
	}
	put(&w.Runs, r.Run, h)
	return h.answer(h.record(e, r.Now))
}

func (h *History) answer(e *Event) Answer {
	run := h.Run
	return Answer{Status: 200, Event: e, Run: &run}
}

// run is §3.5, §3.6 and §3.9.
func (h *History) run(e Event, now int64) Answer {
	switch e.Type {
	case "run_started":
		if h.ended() {
			return over
		}
		if h.Run.Status == "running" {
			return h.answer(h.earlier(func(Event) bool { return true }, "run_started"))
		}
		h.Run.Status, h.Run.Started = "running", now
		return h.answer(h.record(Event{Type: e.Type}, now))
	case "attr_set":
		same := func(was Event) bool { return e.ID != "" && was.ID == e.ID }
		if h.ended() || h.earlier(same, "attr_set") != nil {
			return conflict
		}
		merged, ok := merge(h.Run.Attributes, e.Changes)
		if !ok {
			return invalid
		}
		h.Run.Attributes = merged
		return h.answer(h.record(e, now))
	}
	if h.Run.Status == "cancelled" && e.Type == "run_cancelled" { // §3.3: a repeated cancel
		return h.answer(h.record(e, now))
	}
	if h.ended() {
		return conflict
	}
	h.Run.Status, h.Run.Output, h.Run.ErrorCode, h.Run.Ended = e.Type[len("run_"):], e.Body, e.ErrorCode, now
	h.Waits = nil
	maps.DeleteFunc(h.Hooks, func(_ string, k Hook) bool { return k.Retain <= now })
	return h.answer(h.record(e, now))
}

// step is §3.7.
func (h *History) step(e Event, now int64) Answer {
	lazy := e.Type == "step_started" && e.Name != "" && e.Body != ""
	if refusal, refused := h.refuseStep(e, lazy || e.Type == "step_created", now); refused {
		return refusal
	}
	s, exists := h.Steps[e.ID]
	if !exists {
		s = Step{ID: e.ID, Name: e.Name, Status: "pending", Input: e.Body, Created: now}
	}
	if lazy {
		h.record(Event{Type: "step_created", ID: e.ID, Name: e.Name, Body: e.Body}, now)
	}
	switch e.Type {
	case "step_started":
		e.Body = ""
		s.Status, s.RetryAfter = "running", 0
		if s.Attempt++; h.fenced() && e.Attempt > 0 {
			s.Attempt = e.Attempt
		}
		if s.Started == 0 {
			s.Started = now
		}
	case "step_retrying":
		s.Status, s.Output, s.RetryAfter = "pending", e.Body, e.Due
	case "step_completed", "step_failed":
		s.Status, s.Output, s.Ended = e.Type[len("step_"):], e.Body, now
	}
	s.Updated = now
	put(&h.Steps, e.ID, s)
	return Answer{Status: 200, Event: h.record(e, now), Step: &s, StepCreated: lazy}
}

// refuseStep returns the refusal of a step's event, if any: §3.7, and §3.3 for events after the end of the run.
func (h *History) refuseStep(e Event, creates bool, now int64) (refusal Answer, refused bool) {
	if h.fenced() {
		return h.refuseFencedStep(e, creates)
	}
	s, exists := h.Steps[e.ID]
	starts := e.Type == "step_started"
	switch {
	case creates:
		return conflict, exists || h.ended()
	case s.Status == "completed" || s.Status == "failed":
		return conflict, true
	case h.ended() && (s.Status != "running" || starts && h.Run.Spec >= 6):
		return over, true
	case !exists:
		return missing("step"), true
	default:
		late := Answer{Status: 425, Code: "too_early", RetryAfter: int((s.RetryAfter - now + 999) / 1000)}
		return late, starts && s.RetryAfter > now
	}
}

// refuseFencedStep is refuseStep for runs with a fence: §12.
func (h *History) refuseFencedStep(e Event, creates bool) (refusal Answer, refused bool) {
	s, exists := h.Steps[e.ID]
	ends := e.Type == "step_completed" || e.Type == "step_failed"
	switch {
	case h.ended() && (!ends || !exists):
		return over, true
	case creates:
		return conflict, exists
	case s.Status == "completed" || s.Status == "failed":
		return conflict, true
	default:
		return missing("step"), !exists
	}
}

// hook is the first half of §3.8.
func (w *World) hook(h *History, e Event, now int64) Answer {
	switch e.Type {
	case "hook_created":
		return w.claim(h, e, now)
	case "hook_received":
		return h.receive(e, now)
	default: // hook_disposed
		if h.live(e.ID, now) == nil {
			return missing("hook")
		}
		delete(h.Hooks, e.ID)
		return Answer{Status: 200, Event: h.record(e, now)}
	}
}

// live returns the hook if it holds its token, else nil.
func (h *History) live(id string, now int64) *Hook {
	if k, exists := h.Hooks[id]; exists && (!h.ended() || k.Retain > now) {
		return &k
	}
	return nil
}

// claim creates a hook, or a hook_conflict if another hook holds the token.
func (w *World) claim(h *History, e Event, now int64) Answer {
	same := func(was Event) bool { return was.ID == e.ID }
	if h.ended() || h.earlier(same, "hook_created", "hook_conflict") != nil {
		return conflict
	}
	if k := w.holder(e.Token, now); k != nil {
		victim := w.Runs[k.Run]
		force := e.Force && victim != h
		if lives := !victim.ended(); !force || lives && victim.Run.Spec < takeoverSpec {
			e = Event{Type: "hook_conflict", ID: e.ID, Token: e.Token, Holder: k.Run}
			if force {
				e.Kept = "victim-spec-version"
			}
			return Answer{Status: 200, Event: h.record(e, now)}
		}
		delete(victim.Hooks, k.ID) // §3.16
		victim.record(Event{Type: "hook_disposed", ID: k.ID, Token: k.Token, By: h.Run.ID + "/" + e.ID}, now)
		e.From = k.Run + "/" + k.ID
	}
	k := Hook{h.Run.ID, e.ID, e.Token, e.Body, e.From, e.Webhook, now, e.Retain}
	put(&h.Hooks, e.ID, k)
	return Answer{Status: 200, Event: h.record(e, now), Hook: &k}
}

// receive records a payload of a hook. A resumption counts once.
func (h *History) receive(e Event, now int64) Answer {
	k := h.live(e.ID, now)
	switch was, again := h.Resumed[e.Resume]; {
	case again && was.ID == e.ID && was.Digest == e.Digest:
		return Answer{Status: 200, Event: &h.Log[was.Seq-1], Hook: k}
	case again:
		return conflict
	case h.earlier(func(was Event) bool { return was.ID == e.ID && was.By != "" }, "hook_disposed") != nil:
		return Answer{Status: 409, Code: "hook-force-claimed"}
	case k == nil || h.ended():
		return missing("hook")
	}
	digest := e.Digest
	e.Digest = ""
	got := h.record(e, now)
	if e.Resume != "" {
		put(&h.Resumed, e.Resume, Event{Seq: got.Seq, ID: e.ID, Digest: digest})
	}
	return Answer{Status: 200, Event: got, Hook: k}
}

// holder returns the hook that holds the token, or nil.
func (w *World) holder(token string, now int64) *Hook {
	for _, h := range w.Runs {
		for id, k := range h.Hooks {
			if k.Token == token && h.live(id, now) != nil {
				return &k
			}
		}
	}
	return nil
}

// wait is the second half of §3.8: clients expect a conflict for every error of a wait.
func (h *History) wait(e Event, now int64) Answer {
	v, exists := h.Waits[e.ID]
	if h.fenced() && h.ended() { // §12
		if e.Type == "wait_created" {
			return over
		}
		return Answer{Status: 200, Event: h.record(e, now)}
	}
	if h.ended() || exists == (e.Type == "wait_created") || v.Status == "completed" {
		return conflict
	}
	if !exists {
		v = Wait{ID: e.ID, Status: "waiting", Due: e.Due, Created: now, Updated: now}
	} else {
		v.Status, v.Updated, v.Ended = "completed", now, now
	}
	put(&h.Waits, e.ID, v)
	return Answer{Status: 200, Event: h.record(e, now), Wait: &v}
}
