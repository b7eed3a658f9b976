// Package memserver is the function contract's server in memory and in virtual time: it keeps logs, calls functions and
// carries out their commands, as docs/function-contract.md describes. It is for tests of workflows.
package memserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// features are those of the contract that the server has.
var features = []string{
	"seen", "commands", "at", "known", "firstAttempt", "retryAfter", "cancelStep", "cancelWait", "cancel", "await",
	"store", "inbox", "undo", "heartbeat", "continueAs", "stream", "reply",
}

// hooksURL is what the URLs of webhooks begin with.
const hooksURL = "https://stepwell.test/hooks/"

// Server has runs and one function that executes them.
type Server struct {
	// Function is called with each call.
	Function http.Handler
	// Choose returns which of n things that can happen now happens next. Then each run is invoked after each of them; if
	// it is nil, things happen in the order in which they became due.
	Choose func(n int) int

	now      time.Time
	runs     []*Run
	messages []message

	sent     []signal
	requests int // sent so far
}

const (
	// StatusLost is the status of a function's answer that was lost with the server that waited for it: the call is made
	// again at once, and the attempt does not count.
	StatusLost = 599
	// StatusDied is the status of a call of a workflow whose process died: the call is made again, as the next attempt,
	// but at once. The real server makes a pause, which would decide races of timers.
	StatusDied = 598
)

// New returns a server whose clock stands at the given time.
func New(now time.Time) *Server { return &Server{now: now} }

// Now returns the virtual time.
func (s *Server) Now() time.Time { return s.now }

// givenUp is after how many failed invocations in a row a run is called no more until something happens to it. The real
// server never stops, but a test has to end.
const givenUp = 3

// Event is an event of a run's log.
type Event struct {
	RunID   string          `json:"runId"`
	Seq     int64           `json:"seq"`
	Type    string          `json:"type"`
	ID      string          `json:"correlationId,omitempty"`
	At      time.Time       `json:"createdAt"`
	Data    map[string]any  `json:"data"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// Run is a run.
type Run struct {
	ID, Workflow string
	Input        json.RawMessage
	// Status is running, completed or failed, and Output the output or error of a run that has ended.
	Status string
	Output json.RawMessage
	Log    []Event
	// LastError is why the last call of the workflow failed; empty if it did not.
	LastError string
	// Invocations counts the calls of the workflow.
	Invocations int

	next    *Run // as which it goes on; nil if it does not
	parent  *Run
	childOf string // the step of the parent
	due     time.Time
	wanted  bool  // something has happened since the last invocation
	failed  int   // failed invocations in a row
	died    int   // invocations in a row whose process died
	known   int64 // position of the last event that the function knew at the last invocation that was answered
	steps   []*step
	waits   []*wait
	hooks   []*hook

	signals    int         // how many were sent before the run
	received   map[int]int // the length of the log when the run received the n-th signal first
	store      map[string]json.RawMessage
	attributes map[string]string
	pausing    map[string]time.Time // when inline steps that failed are executed again; zero if that time has come
	responses  map[string]Response
	streams    map[string]*Stream
	await      *await    // nil: everything
	forcedAt   time.Time // when a run that was asked to cancel ends; zero if it was not asked
	deadline   time.Time // zero if there is none
	grace      time.Duration
	timedOut   bool
}

type step struct {
	command  command
	child    *Run
	attempt  int
	due      time.Time
	progress json.RawMessage // what an attempt last said with a heartbeat
}

type wait struct {
	id  string
	due time.Time
}

type hook struct {
	id, token string
	created   int // length of the log then
	closed    bool

	signal   *signalSpec
	webhook  *webhookSpec
	messages map[string]bool // IDs of those that it has received
}

// Start starts a run.
func (s *Server) Start(workflow string, input json.RawMessage) *Run {
	return s.start(workflow, input, nil, "")
}

func (s *Server) start(workflow string, input json.RawMessage, parent *Run, stepID string) *Run {
	r := &Run{
		ID: fmt.Sprintf("wrun_%026d", len(s.runs)+1), Workflow: workflow, Input: input, Status: "running",
		parent: parent, childOf: stepID, due: s.now, wanted: true,
		store: map[string]json.RawMessage{}, attributes: map[string]string{},
		pausing: map[string]time.Time{}, responses: map[string]Response{},
		signals: len(s.sent), received: map[int]int{},
	}
	s.runs = append(s.runs, r)
	s.append(r, "run_created", "", nil, input)
	return r
}

// Runs returns all runs, in the order in which they started.
func (s *Server) Runs() []*Run { return s.runs }

// Run returns the run with the ID; nil if there is none.
func (s *Server) Run(id string) *Run {
	for _, r := range s.runs {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// append appends an event, and wakes the run if the event calls for it.
func (s *Server) append(r *Run, eventType, id string, data map[string]any, payload json.RawMessage) {
	s.write(r, eventType, id, data, payload)
	switch eventType {
	case "step_completed", "step_failed", "wait_completed":
		if r.await == nil || r.await.isMet(r) {
			r.wanted, r.failed = true, 0
		}
	case "hook_received", "hook_conflict", "cancel_requested":
		r.wanted, r.failed = true, 0
	}
}

// write appends an event.
func (s *Server) write(r *Run, eventType, id string, data map[string]any, payload json.RawMessage) {
	if data == nil {
		data = map[string]any{}
	}
	if code := codeOf(eventType, payload); code != "" && data["errorCode"] == nil {
		data["errorCode"] = code
	}
	r.Log = append(r.Log, Event{r.ID, int64(len(r.Log)) + 1, eventType, id, s.now, data, payload})
}

// codeOf returns the code of the error of an event; empty if it has none.
func codeOf(eventType string, payload json.RawMessage) string {
	var failure struct{ Code string }
	switch eventType {
	case "step_failed", "step_retrying", "run_failed":
		_ = json.Unmarshal(payload, &failure) // other payloads have none
	}
	return failure.Code
}

func (r *Run) has(eventType, id string) bool {
	return slices.ContainsFunc(r.Log, func(e Event) bool { return e.Type == eventType && e.ID == id })
}

// HasResult reports whether the log has the result of a step.
func (r *Run) HasResult(stepID string) bool {
	return r.has("step_completed", stepID) || r.has("step_failed", stepID)
}

// Resume sends a payload to the hook with the token.
func (s *Server) Resume(token string, payload json.RawMessage) error {
	r, h := s.openHookOf(token)
	if h == nil {
		return fmt.Errorf("no open hook has the token %q", token)
	}
	s.append(r, "hook_received", h.id, nil, payload)
	return nil
}

// message is a payload that waits until the hook of its token is open.
type message struct {
	token   string
	payload json.RawMessage
}

// ResumeWhenOpen sends a payload to the hook with the token as soon as it is open.
func (s *Server) ResumeWhenOpen(token string, payload json.RawMessage) {
	s.messages = append(s.messages, message{token, payload})
}

// deliverable returns the deliveries of messages whose hook is open. Messages of one token keep their order.
func (s *Server) deliverable() (due []func()) {
	seen := map[string]bool{}
	for i, m := range s.messages {
		if _, h := s.openHookOf(m.token); h != nil && !seen[m.token] {
			due = append(due, func() {
				s.messages = slices.Delete(s.messages, i, i+1)
				_ = s.Resume(m.token, m.payload) // the hook is open
			})
		}
		seen[m.token] = true
	}
	return due
}

// Undelivered returns the tokens of messages whose hook was never open.
func (s *Server) Undelivered() (tokens []string) {
	for _, m := range s.messages {
		tokens = append(tokens, m.token)
	}
	return tokens
}

// openHookOf returns the open hook with the token, and its run; nil if there is none. Inboxes have no tokens.
func (s *Server) openHookOf(token string) (*Run, *hook) {
	for _, r := range s.running() {
		for _, h := range r.hooks {
			if token != "" && h.token == token && !h.closed {
				return r, h
			}
		}
	}
	return nil, nil
}

// RunUntilIdle does everything that can be done now.
func (s *Server) RunUntilIdle() {
	for s.act() {
	}
}

// RunUntilDone does everything, and lets the time pass until nothing is left that would happen by itself.
func (s *Server) RunUntilDone() {
	for {
		s.RunUntilIdle()
		next, ok := s.next()
		if !ok {
			return
		}
		s.now = next
	}
}

// Advance lets the time pass.
func (s *Server) Advance(d time.Duration) {
	end := s.now.Add(d)
	for {
		s.RunUntilIdle()
		next, ok := s.next()
		if !ok || next.After(end) {
			break
		}
		s.now = next
	}
	s.now = end
	s.RunUntilIdle()
}

// next returns when something happens by itself.
func (s *Server) next() (at time.Time, ok bool) {
	consider := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	for _, r := range s.running() {
		if r.wanted && r.failed < givenUp {
			consider(r.due)
		}
		for _, w := range r.waits {
			consider(w.due)
		}
		for _, st := range r.steps {
			if st.child == nil {
				consider(st.due)
			}
		}
		for _, due := range r.pausing {
			if !due.IsZero() {
				consider(due)
			}
		}
		if !r.forcedAt.IsZero() {
			consider(r.forcedAt)
		}
		if !r.deadline.IsZero() {
			consider(r.deadline)
		}
	}
	return at, ok
}

func (s *Server) running() []*Run {
	return slices.DeleteFunc(slices.Clone(s.runs), func(r *Run) bool { return r.Status != "running" })
}

// Happen does something that is due, but no invocation, if there is such a thing.
func (s *Server) Happen() {
	due := s.deliverable()
	for _, r := range s.running() {
		due = append(due, s.due(r)...)
	}
	if len(due) > 0 {
		due[s.Choose(len(due))]()
	}
}

// act does one thing that is due, and reports whether there was one.
func (s *Server) act() bool {
	if s.Choose == nil {
		for _, r := range s.running() {
			if due := append(s.due(r), s.invocation(r)...); len(due) > 0 {
				due[0]()
				return true
			}
		}
		due := s.deliverable()
		if len(due) > 0 {
			due[0]()
		}
		return len(due) > 0
	}
	due := s.deliverable()
	for _, r := range s.running() {
		if invoke := s.invocation(r); len(invoke) > 0 {
			invoke[0]()
			return true
		}
		due = append(due, s.due(r)...)
	}
	if len(due) == 0 {
		return false
	}
	due[s.Choose(len(due))]()
	return true
}

// due returns what can happen to a run now, except an invocation.
func (s *Server) due(r *Run) (due []func()) {
	if s.isOverdue(r) {
		due = append(due, func() { s.overdue(r) })
	}
	for _, id := range slices.Sorted(maps.Keys(r.pausing)) {
		if at := r.pausing[id]; !at.IsZero() && !at.After(s.now) {
			due = append(due, func() {
				r.pausing[id] = time.Time{}
				s.write(r, "step_started", id, nil, nil)
				r.wanted, r.failed = true, 0
			})
		}
	}
	for _, w := range r.waits {
		if !w.due.After(s.now) {
			due = append(due, func() {
				r.waits = slices.DeleteFunc(r.waits, func(other *wait) bool { return other == w })
				s.append(r, "wait_completed", w.id, nil, nil)
			})
		}
	}
	for _, st := range r.steps {
		if st.child == nil && !st.due.After(s.now) {
			due = append(due, func() { s.callStep(r, st) })
		}
	}
	return due
}

// invocation returns the run's next invocation, if it is due.
func (s *Server) invocation(r *Run) []func() {
	if r.wanted && r.failed < givenUp && !r.due.After(s.now) {
		return []func(){func() { s.invoke(r) }}
	}
	return nil
}

// WaitsFor describes what a run waits for: why its last call failed, and its open steps, waits and hooks.
func (r *Run) WaitsFor() string {
	if r.LastError != "" {
		return r.LastError
	}
	var parts []string
	for _, ref := range slices.Sorted(maps.Keys(r.open())) {
		i := slices.IndexFunc(r.steps, func(st *step) bool { return st.child != nil && "step:"+st.command.ID == ref })
		if i >= 0 {
			child := r.steps[i].child
			ref += fmt.Sprintf(" (run %s of %s: %s)", child.ID, child.Workflow, child.WaitsFor())
		}
		parts = append(parts, ref)
	}
	if len(parts) == 0 {
		return "it has nothing to wait for, which a server refuses"
	}
	return "it waits for " + strings.Join(parts, ", ")
}
