package memserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// command is a command of an answer, with the fields of all types of commands.
type command struct {
	Type, ID, Name string
	At, Undo       string
	Input          json.RawMessage
	Output, Error  json.RawMessage // of recordStep, complete and fail

	// Of runStep:
	AttemptTimeout string
	Retry          struct {
		MaxAttempts         int
		Backoff, MaxBackoff string
		Factor              float64
	}
	FirstAttempt *struct {
		Error      json.RawMessage
		RetryAfter string
	}
	// Of recordStep:
	Seen               int64
	StartedAt, EndedAt time.Time
	RetryAfter         string
	Store              map[string]json.RawMessage
	// Of startChild:
	Workflow              string
	Attributes            map[string]*string // also of setAttributes
	Timeout, TimeoutGrace string
	OnParentEnd           string
	// Of wait:
	For, Until string
	// Of cancelStep and cancelWait:
	Reason, Grace string
	// Of openHook:
	Token    string
	Metadata json.RawMessage
	Signal   *signalSpec
	Webhook  *webhookSpec
	// Of respond:
	Hook, Request string
	Status        int
	Body          json.RawMessage
	// Of reply:
	Inbox, Message string
	// Of continueAs:
	Read map[string]int64
	// Of setStore:
	Values map[string]json.RawMessage
}

type signalSpec struct{ Name, Condition, LookBack string }

type webhookSpec struct{ Verify, Secret, Respond string }

// answer is the body of an answer, or of commands during a call.
type answer struct {
	Commands []command
	Open     []string
	Await    *await
	Seen     int64
}

// apply carries out the commands of an answer. It refuses none: the SDK asks for nothing that the server refuses, but
// to wait for nothing, which [Run.WaitsFor] says.
func (s *Server) apply(r *Run, body []byte) error {
	a, err := read(body)
	if err != nil {
		return err
	}
	if r.await = nil; a.Await != nil {
		r.await = &await{} // what the answer itself records wakes nobody
	}
	r.known = max(r.known, cmp.Or(a.Seen, int64(len(r.Log))))
	s.commit(r, a)
	if r.await = a.Await; r.await != nil && r.await.isMet(r) {
		r.wanted = true
	}
	return nil
}

// open returns the steps, waits and hooks that have not ended.
func (r *Run) open() map[string]bool {
	open := map[string]bool{}
	for _, st := range r.steps {
		open["step:"+st.command.ID] = true
	}
	for id := range r.pausing {
		open["step:"+id] = true
	}
	for _, w := range r.waits {
		open["wait:"+w.id] = true
	}
	for _, h := range r.hooks {
		if !h.closed {
			open["hook:"+h.id] = true
		}
	}
	return open
}

// read decodes commands.
func read(body []byte) (a answer, err error) {
	if len(body) > 0 {
		if err := json.Unmarshal(body, &a); err != nil {
			return a, fmt.Errorf("read the answer: %w", err)
		}
	}
	return a, nil
}

// commit carries out commands.
func (s *Server) commit(r *Run, a answer) {
	before := len(r.Log)
	for _, c := range a.Commands {
		s.carryOut(r, c)
	}
	for _, h := range r.hooks {
		if h.created > before && !h.closed {
			s.lookBack(r, h)
		}
	}
	for _, c := range a.Commands { // the server cancels children by itself, after the commands
		i := slices.IndexFunc(r.steps, func(st *step) bool { return st.child != nil && st.command.ID == c.ID })
		if c.Type == "cancelStep" && i >= 0 {
			s.Cancel(r.steps[i].child, c.Reason, duration(c.Grace, 0))
		}
	}
	if len(a.Open) > 0 && len(r.Log) > before {
		r.Log[before].Data["open"] = a.Open
	}
}

// ErrCallOver means that a call's commands come too late: its run has ended.
var ErrCallOver = errors.New("the call is over")

// Command carries out commands of a call under way, and returns the events that the log then has after a position. If
// Choose is set, other things can happen to the run before it returns.
func (s *Server) Command(r *Run, body []byte, after int64) ([]Event, error) {
	if r.Status != "running" {
		return nil, ErrCallOver
	}
	a, err := read(body)
	if err != nil {
		return nil, err
	}
	wanted := r.wanted
	s.commit(r, a)
	r.wanted = wanted // the function learns of the events of its commands here
	for s.Choose != nil && r.Status == "running" {
		due := append(s.deliverable(), s.due(r)...)
		if next := s.Choose(len(due) + 1); next < len(due) {
			due[next]()
		} else {
			break
		}
	}
	return slices.Clone(r.Log[after:]), nil
}

func (c command) name() string {
	if c.Name == "" {
		return c.ID
	}
	return c.Name
}

// await is what a run waits for besides payloads.
type await struct {
	Any []string
	All [][]string
}

// isMet reports whether the run is to be invoked.
func (a *await) isMet(r *Run) bool {
	return slices.ContainsFunc(a.Any, r.isOver) || slices.ContainsFunc(a.All, func(all []string) bool {
		return !slices.ContainsFunc(all, func(ref string) bool { return !r.isOver(ref) })
	})
}

// isOver reports whether a step or wait is not open.
func (r *Run) isOver(ref string) bool {
	kind, id, _ := strings.Cut(ref, ":")
	if kind == "wait" {
		return !slices.ContainsFunc(r.waits, func(w *wait) bool { return w.id == id })
	}
	_, pausing := r.pausing[id]
	return !pausing && !slices.ContainsFunc(r.steps, func(st *step) bool { return st.command.ID == id })
}
