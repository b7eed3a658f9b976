package memserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
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

// apply carries out the commands of an answer: all of them, or none if one is refused.
func (s *Server) apply(r *Run, body []byte) error {
	a, err := r.read(body)
	if err != nil {
		return err
	}
	if !r.wanted && !s.isLeft(r, a) {
		return errors.New("the run has nothing to wait for")
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

// isLeft reports whether the run ends with an answer, or has something to wait for after it.
func (s *Server) isLeft(r *Run, a answer) bool { //nolint:gocyclo // a case for each command
	open := r.open()
	for _, c := range a.Commands {
		switch c.Type {
		case "complete", "fail", "cancelled", "continueAs":
			return true
		case "runStep", "startChild":
			open["step:"+c.ID] = open["step:"+c.ID] || !r.has("step_created", c.ID)
		case "reply":
			if a.Await == nil && !r.HasResult(c.replyID()) {
				return true // it wakes the run
			}
		case "recordStep":
			if c.RetryAfter == "" && a.Await == nil && !r.HasResult(c.ID) {
				return true // it wakes the run
			}
			open["step:"+c.ID] = c.RetryAfter != "" && !r.HasResult(c.ID)
		case "wait":
			open["wait:"+c.ID] = open["wait:"+c.ID] || !r.has("wait_created", c.ID)
		case "openHook":
			if r.has("hook_created", c.ID) || r.has("hook_conflict", c.ID) {
				continue
			}
			if _, h := s.openHookOf(c.Token); h != nil {
				return true // the conflict wakes the run
			}
			open["hook:"+c.ID] = true
		case "closeHook":
			delete(open, "hook:"+c.ID)
		case "cancelStep":
			delete(open, "step:"+c.ID)
		case "cancelWait":
			delete(open, "wait:"+c.ID)
		}
	}
	for ref, isOpen := range open {
		if isOpen && (a.Await == nil || strings.HasPrefix(ref, "hook:")) {
			return true
		}
	}
	return a.Await != nil && len(a.Await.Any)+len(a.Await.All) > 0
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

// read decodes commands, and refuses all of them if the server would refuse one.
func (r *Run) read(body []byte) (a answer, err error) {
	if len(body) > 0 {
		if err := json.Unmarshal(body, &a); err != nil {
			return a, fmt.Errorf("read the answer: %w", err)
		}
	}
	for i, c := range a.Commands {
		err := r.check(c, i == len(a.Commands)-1)
		if err == nil {
			err = r.checkHook(c, a.Commands[:i])
		}
		if err != nil {
			return a, fmt.Errorf("command %d (%s %s): %w", i, c.Type, c.ID, err)
		}
	}
	return a, r.checkCancellations(a.Commands)
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
	a, err := r.read(body)
	if err == nil && a.Await != nil {
		err = errors.New("await belongs in the answer")
	}
	if n := len(a.Commands); err == nil && n > 0 && a.Commands[n-1].Type == "continueAs" {
		err = errors.New("continueAs belongs in the answer")
	}
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

// lastCommands are the types of commands that end a run, and so an answer.
var lastCommands = []string{"complete", "fail", "cancelled", "continueAs"}

// check refuses commands that the server would refuse.
func (r *Run) check(c command, last bool) error {
	for _, e := range r.Log {
		if e.Type == "step_created" && e.ID == c.ID && (c.Type == "runStep" || c.Type == "recordStep") &&
			e.Data["stepName"] != c.name() {
			return fmt.Errorf("the log has it as %q: the code has changed", e.Data["stepName"])
		}
	}
	if slices.Contains(lastCommands, c.Type) && !last {
		return errors.New("it is not the last one")
	}
	for name, seq := range c.Read {
		if seq < 0 || seq > int64(len(r.Log)) {
			return fmt.Errorf("inbox %s: the log has no event %d", name, seq)
		}
	}
	if c.Type == "cancelled" && r.forcedAt.IsZero() {
		return errors.New("nobody has asked to cancel the run")
	}
	return nil
}

// checkHook refuses to close a hook that there is not, and to open one twice. The earlier commands are of the same
// answer.
func (r *Run) checkHook(c command, earlier []command) error {
	opened := slices.ContainsFunc(earlier, func(other command) bool {
		return other.Type == "openHook" && other.ID == c.ID
	})
	switch {
	case c.Type == "openHook" && opened:
		return errors.New("an earlier command of the answer opens it")
	case c.Type == "closeHook" && !opened && !r.has("hook_created", c.ID) && !r.has("hook_conflict", c.ID):
		return fmt.Errorf("hook %s not found", c.ID)
	}
	return nil
}

func (c command) name() string {
	if c.Name == "" {
		return c.ID
	}
	return c.Name
}

// checkCancellations refuses cancellations of what was never created, and reasons that the server refuses.
func (r *Run) checkCancellations(commands []command) error {
	created := map[string]bool{}
	for _, c := range commands {
		switch c.Type {
		case "runStep", "recordStep", "startChild":
			created["step_created "+c.ID] = true
		case "wait":
			created["wait_created "+c.ID] = true
		case "cancelStep", "cancelWait":
			event := map[string]string{"cancelStep": "step_created", "cancelWait": "wait_created"}[c.Type]
			if !created[event+" "+c.ID] && !r.has(event, c.ID) {
				return fmt.Errorf("%s %s: there is no such thing", c.Type, c.ID)
			}
			if len(c.Reason) > 1024 || strings.ContainsFunc(c.Reason, unicode.IsControl) {
				return fmt.Errorf("%s %s: the reason %q is not a short line", c.Type, c.ID, c.Reason)
			}
		}
	}
	return nil
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
