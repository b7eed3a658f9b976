package memserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/backoff"
)

// call calls the function.
func (s *Server) call(body map[string]any) (*httptest.ResponseRecorder, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	s.Function.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(data)))
	return w, nil
}

func (r *Run) describe() map[string]any {
	return map[string]any{
		"id": r.ID, "workflow": r.Workflow, "deployment": "test", "input": r.Input, "createdAt": r.Log[0].At,
		"store": r.store, "attributes": r.attributes,
	}
}

// CallOf returns the call of an invocation of a run.
func (s *Server) CallOf(r *Run) map[string]any {
	return map[string]any{
		"type": "workflow", "invocation": "rh_" + strconv.Itoa(r.Invocations), "attempt": r.failed + r.died + 1,
		"run": r.describe(), "events": r.Log, "known": r.known, "hooksUrl": hooksURL, "token": "swct_" + r.ID,
		"server": map[string]any{"contract": 2, "features": features},
	}
}

func (s *Server) invoke(r *Run) {
	if r.wanted = false; r.Invocations == 0 {
		s.write(r, "run_started", "", nil, nil)
	}
	r.Invocations++
	got, err := s.call(s.CallOf(r))
	switch {
	case r.Status != "running": // it has ended meanwhile
		return
	case err != nil:
	case got.Code == StatusDied:
		r.died++
		fallthrough
	case got.Code == StatusLost:
		r.wanted = true
		return
	case got.Code/100 != 2:
		err = errors.New(failureText(got.Code, got.Body.Bytes()))
	}
	if err == nil {
		err = s.apply(r, got.Body.Bytes())
	}
	if err != nil {
		r.LastError, r.wanted = err.Error(), true
		r.failed++
		r.due = s.now.Add(backoff.Pause(time.Second, 15*time.Minute, 2, r.failed))
		return
	}
	r.LastError, r.failed, r.died = "", 0, 0
}

// failureText returns what a failed call of a workflow says, with the stack of a panic.
func failureText(status int, body []byte) string {
	var failure struct {
		Error struct {
			Message, Code string
			Details       struct{ Stack string }
		}
	}
	if json.Unmarshal(body, &failure) != nil || failure.Error.Message == "" {
		return fmt.Sprintf("the workflow's call was answered %d: %s", status, body)
	}
	text := failure.Error.Message
	if failure.Error.Code != "" {
		text = failure.Error.Code + ": " + text
	}
	if failure.Error.Details.Stack != "" {
		text += "\n" + failure.Error.Details.Stack
	}
	return text
}

// callStep makes one attempt of a step.
func (s *Server) callStep(r *Run, st *step) {
	st.attempt++
	if st.attempt == 1 && !r.has("step_started", st.command.ID) {
		s.append(r, "step_started", st.command.ID, nil, nil)
	}
	got, err := s.call(map[string]any{
		"type": "step", "attempt": st.attempt, "run": r.describe(), "token": "swct_" + r.ID,
		"server": map[string]any{"contract": 2, "features": features},
		"step": map[string]any{
			"id": st.command.ID, "name": st.command.name(), "input": st.command.Input, "progress": st.progress,
		},
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
		s.append(r, "step_failed", st.command.ID, nil, errorText(err.Error(), ""))
		return
	}
	var failure struct{ Error json.RawMessage }
	if json.Unmarshal(got.Body.Bytes(), &failure) != nil || failure.Error == nil {
		failure.Error = errorText(got.Body.String(), "")
	}
	if got.Code/100 == 4 && got.Code != 408 && got.Code != 425 && got.Code != 429 {
		r.endStep(st)
		s.append(r, "step_failed", st.command.ID, nil, failure.Error)
		return
	}
	s.retry(r, st, failure.Error, duration(got.Header().Get("Retry-After")+"s", 0))
}

// Beat notes a heartbeat of a step that is called, with its progress; nil for nothing new. It fails with [ErrCallOver]
// if nobody waits for the step any more.
func (s *Server) Beat(r *Run, stepID string, progress json.RawMessage) error {
	i := slices.IndexFunc(r.steps, func(st *step) bool { return st.command.ID == stepID })
	if r.Status != "running" || i < 0 {
		return ErrCallOver
	}
	if progress != nil {
		r.steps[i].progress = progress
	}
	return nil
}

// retry makes another attempt of a step later, or fails it if there is none.
func (s *Server) retry(r *Run, st *step, failure json.RawMessage, after time.Duration) {
	policy := st.command.Retry
	if st.attempt >= cmp.Or(policy.MaxAttempts, 5) {
		r.endStep(st)
		s.append(r, "step_failed", st.command.ID, nil, failure)
		return
	}
	pause := backoff.Pause(duration(policy.Backoff, time.Second), duration(policy.MaxBackoff, 5*time.Minute),
		cmp.Or(policy.Factor, 2), st.attempt)
	st.due = s.now.Add(max(pause, after))
	s.append(r, "step_retrying", st.command.ID, map[string]any{"retryAfter": st.due}, failure)
}

func (r *Run) endStep(st *step) {
	r.steps = slices.DeleteFunc(r.steps, func(other *step) bool { return other == st })
}

// duration parses a duration; what is none is the default.
func duration(text string, or time.Duration) time.Duration {
	if d, err := time.ParseDuration(text); err == nil {
		return d
	}
	return or
}

// complete records the output of a step, and what it has written to the store.
func (s *Server) complete(r *Run, st *step, got *httptest.ResponseRecorder) {
	output := json.RawMessage(slices.Clone(got.Body.Bytes()))
	if strings.HasPrefix(got.Header().Get("Content-Type"), "application/vnd.stepwell.step+json") {
		var answer struct {
			Output json.RawMessage
			Store  map[string]json.RawMessage
		}
		if err := json.Unmarshal(output, &answer); err != nil {
			s.append(r, "step_failed", st.command.ID, nil, errorText(err.Error(), ""))
			return
		}
		output = answer.Output
		s.setStore(r, st.command.ID, map[string]any{"stepName": st.command.name()}, answer.Store)
	}
	s.append(r, "step_completed", st.command.ID, nil, output)
}
