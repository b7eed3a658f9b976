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

// command is a command of an answer.
type command struct {
	Type   string          `json:"type"`
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Input  json.RawMessage `json:"input"`
	Output json.RawMessage `json:"output"`
	more
	Error          json.RawMessage `json:"error"`
	Seen           int64           `json:"seen"`
	StartedAt      time.Time       `json:"startedAt"`
	EndedAt        time.Time       `json:"endedAt"`
	At             string          `json:"at"`
	For, Until     string
	Token          string             `json:"token"`
	Workflow       string             `json:"workflow"`
	Attributes     map[string]*string `json:"attributes"`
	AttemptTimeout string             `json:"attemptTimeout"`
	Timeout        string             `json:"timeout"`
	Retry          struct {
		MaxAttempts int     `json:"maxAttempts"`
		Backoff     string  `json:"backoff"`
		Factor      float64 `json:"factor"`
		MaxBackoff  string  `json:"maxBackoff"`
	} `json:"retry"`
}

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
		r.await = &await{} // what the answer itself records is no news
	}
	before := int64(len(r.Log))
	s.commit(r, a)
	r.heard = max(r.heard, cmp.Or(a.Seen, before))
	if r.await = a.Await; r.await != nil && r.await.holds(r) {
		r.wanted = true
	}
	return nil
}

// isLeft reports whether the run ends with an answer, or has something to wait for after it.
func (s *Server) isLeft(r *Run, a answer) bool {
	open := r.open()
	for _, c := range a.Commands {
		switch c.Type {
		case "complete", "fail", "cancelled":
			return true
		case "runStep", "startChild":
			open["step:"+c.ID] = open["step:"+c.ID] || !r.has("step_created", c.ID)
		case "recordStep":
			if c.RetryAfter == "" && a.Await == nil && !r.HasResult(c.ID) {
				return true // it is news
			}
			open["step:"+c.ID] = c.RetryAfter != "" && !r.HasResult(c.ID)
		case "wait":
			open["wait:"+c.ID] = open["wait:"+c.ID] || !r.has("wait_created", c.ID)
		case "openHook":
			if r.has("hook_created", c.ID) || r.has("hook_conflict", c.ID) {
				continue
			}
			if c.Token != "" && s.openHookOf(c.Token) != nil {
				return true // the conflict is news
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

// check refuses commands that the server would refuse.
func (r *Run) check(c command, last bool) error {
	for _, e := range r.Log {
		if e.Type == "step_created" && e.ID == c.ID && (c.Type == "runStep" || c.Type == "recordStep") &&
			e.Data["stepName"] != c.name() {
			return fmt.Errorf("the log has it as %q: the code has changed", e.Data["stepName"])
		}
	}
	if (c.Type == "complete" || c.Type == "fail" || c.Type == "cancelled") && !last {
		return errors.New("it is not the last one")
	}
	if c.Type == "cancelled" && r.forcedAt.IsZero() {
		return errors.New("nobody has asked to cancel the run")
	}
	return nil
}

// checkHook refuses to close a hook that there is not, and to open one twice. The earlier commands are of the same answer.
func (r *Run) checkHook(c command, earlier []command) error {
	opened := slices.ContainsFunc(earlier, func(other command) bool { return other.Type == "openHook" && other.ID == c.ID })
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

func (s *Server) carryOut(r *Run, c command) {
	data := map[string]any{}
	if c.At != "" {
		data["at"] = c.At
	}
	switch c.Type {
	case "runStep", "startChild":
		if !r.has("step_created", c.ID) {
			s.createStep(r, c, data)
		}
	case "recordStep":
		s.recordStep(r, c, data)
	case "wait":
		if !r.has("wait_created", c.ID) {
			due := s.now.Add(duration(c.For, 0))
			if c.Until != "" {
				due, _ = time.Parse(time.RFC3339Nano, c.Until) // the zero time is over
			}
			s.append(r, "wait_created", c.ID, data, nil)
			r.waits = append(r.waits, &wait{c.ID, due})
		}
	case "openHook":
		s.openHook(r, c, data)
	case "closeHook":
		for _, h := range r.hooks {
			if h.id == c.ID && !h.closed {
				h.closed = true
				s.append(r, "hook_disposed", c.ID, data, nil)
			}
		}
	case "complete":
		s.end(r, "completed", c.Output)
	case "fail":
		s.end(r, "failed", c.Error)
	default:
		s.carryOutMore(r, c, data)
	}
}

func (s *Server) createStep(r *Run, c command, data map[string]any) {
	data["stepName"] = c.name()
	if c.Type == "startChild" {
		data["stepName"] = c.Workflow
	}
	s.append(r, "step_created", c.ID, data, c.Input)
	switch c.Type {
	case "startChild":
		s.startChild(r, c)
	default:
		st := &step{command: c, due: s.now}
		r.steps = append(r.steps, st)
		if c.FirstAttempt != nil {
			s.append(r, "step_started", c.ID, nil, nil)
			st.attempt = 1
			s.retry(r, st, c.FirstAttempt.Error, duration(c.FirstAttempt.RetryAfter, 0))
		}
	}
}

func (s *Server) openHook(r *Run, c command, data map[string]any) {
	if r.has("hook_created", c.ID) || r.has("hook_conflict", c.ID) {
		return
	}
	data["token"] = c.Token
	for _, other := range s.running() {
		for _, h := range other.hooks {
			if c.Token != "" && h.token == c.Token && !h.closed {
				data["conflictingRunId"] = other.ID
				s.append(r, "hook_conflict", c.ID, data, nil)
				return
			}
		}
	}
	if c.Token == "" {
		c.Token = r.ID + "/" + c.ID
		data["token"] = c.Token
	}
	s.append(r, "hook_created", c.ID, data, c.Metadata)
	h := &hook{id: c.ID, token: c.Token, signal: c.Signal, webhook: c.Webhook}
	r.hooks = append(r.hooks, h)
	s.lookBack(r, h)
}

// end ends a run, and tells its parent.
func (s *Server) end(r *Run, status string, output json.RawMessage) {
	r.Status, r.Output = status, output
	s.append(r, "run_"+status, "", nil, output)
	for _, st := range r.steps {
		if st.child != nil && st.command.OnParentEnd != "leave" {
			st.child.parent = nil // nobody is to be told
			s.Cancel(st.child, "", 0)
		}
	}
	if r.parent == nil || r.parent.Status != "running" {
		return
	}
	r.parent.steps = slices.DeleteFunc(r.parent.steps, func(st *step) bool { return st.child == r })
	if status == "completed" {
		s.append(r.parent, "step_completed", r.childOf, nil, output)
		return
	}
	code := "child_failed"
	if status == "cancelled" {
		code = "child_cancelled"
		output = errorText("run "+r.ID+" was cancelled", code)
	}
	s.append(r.parent, "step_failed", r.childOf, map[string]any{"errorCode": code}, output)
}

// callStep makes one attempt of a step.
func (s *Server) callStep(r *Run, st *step) {
	st.attempt++
	if st.attempt == 1 && !r.has("step_started", st.command.ID) {
		s.append(r, "step_started", st.command.ID, nil, nil)
	}
	got, err := s.call(map[string]any{
		"type": "step", "attempt": st.attempt, "run": r.describe(),
		"step": map[string]any{"id": st.command.ID, "name": st.command.name(), "input": st.command.Input},
	})
	switch {
	case err == nil && got.Code == StatusLost:
		st.attempt--
		return
	case err == nil && got.Code/100 == 2:
		r.endStep(st)
		s.complete(r, st, got)
		return
	case err != nil:
		r.endStep(st)
		s.append(r, "step_failed", st.command.ID, nil, errorOf(err.Error()))
		return
	}
	var failure struct{ Error json.RawMessage }
	if json.Unmarshal(got.Body.Bytes(), &failure) != nil || failure.Error == nil {
		failure.Error = errorOf(got.Body.String())
	}
	if got.Code/100 == 4 && got.Code != 408 && got.Code != 425 && got.Code != 429 {
		r.endStep(st)
		s.append(r, "step_failed", st.command.ID, nil, failure.Error)
		return
	}
	s.retry(r, st, failure.Error, duration(got.Header().Get("Retry-After")+"s", 0))
}

// retry makes another attempt of a step later, or fails it if there is none.
func (s *Server) retry(r *Run, st *step, failure json.RawMessage, after time.Duration) {
	policy := st.command.Retry
	attempts := policy.MaxAttempts
	if attempts == 0 {
		attempts = 5
	}
	if st.attempt >= attempts {
		r.endStep(st)
		s.append(r, "step_failed", st.command.ID, nil, failure)
		return
	}
	factor := policy.Factor
	if factor == 0 {
		factor = 2
	}
	pause := backoff(st.attempt, duration(policy.Backoff, time.Second), factor, duration(policy.MaxBackoff, 5*time.Minute))
	st.due = s.now.Add(max(pause, after))
	s.append(r, "step_retrying", st.command.ID, map[string]any{"retryAfter": st.due}, failure)
}

func (r *Run) endStep(st *step) {
	r.steps = slices.DeleteFunc(r.steps, func(other *step) bool { return other == st })
}

func errorOf(text string) json.RawMessage {
	data, _ := json.Marshal(map[string]string{"message": text}) // texts always encode
	return data
}

// duration parses a duration; what is none is the default.
func duration(text string, or time.Duration) time.Duration {
	if d, err := time.ParseDuration(text); err == nil {
		return d
	}
	return or
}
