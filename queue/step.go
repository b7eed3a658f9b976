package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

// The codes of failures that the server finds by itself.
const (
	// CodeTimeout: there was no result in time.
	CodeTimeout = "timeout"
	// CodeChildFailed and CodeChildCancelled: what became of a child.
	CodeChildFailed    = "child_failed"
	CodeChildCancelled = "child_cancelled"
)

// executeStep calls the function that is to execute a step, and records what becomes of it.
func (w *deliverer) executeStep(ctx context.Context, d delivery) error {
	s, ok, err := w.beginStep(ctx, d)
	if !ok || err != nil {
		return err
	}
	a, err := w.ask(ctx, d, s.call(d), s.spec.Patience(w.options.Runs.log.Now()))
	now := w.options.Runs.log.Now()
	if err != nil {
		if over(err) || ctx.Err() != nil && !errors.Is(err, errDrainOver) {
			return err
		}
		if f := unreached(d, err); f != nil { // which is no attempt
			f.after = s.spec.Within(f.after, now)
			return &laterError{*f}
		}
	}
	return w.record(ctx, d, s, s.judge(a, err, d.DeliveryCount, now))
}

// beginStep records that an attempt begins, unless that is in the log since the step was created. It reports false when
// there is nothing to call.
func (w *deliverer) beginStep(ctx context.Context, d delivery) (s stepWork, ok bool, err error) {
	if d.hasBegun() {
		return workOf(d.begun.Step), true, nil
	}
	s, err = w.options.Runs.step(ctx, d)
	if errors.Is(err, entities.ErrStepNotFound) || err == nil && s.CompletedAt != nil {
		return s, false, w.drop(ctx, d)
	}
	if err != nil {
		return s, false, err
	}
	if s.spec.Late(w.options.Runs.log.Now()) {
		return s, false, w.record(ctx, d, s, s.timeout())
	}
	err = w.options.Runs.attempt(ctx, d, &s)
	return s, err == nil, err
}

// unreached is what follows from a call that did not reach the function; nil if it did.
func unreached(d delivery, err error) *failure {
	if unregistered := (*laterError)(nil); errors.As(err, &unregistered) {
		return &unregistered.failure
	}
	if f := failureOf(d, err); !f.reached {
		return &f
	}
	return nil
}

// stepWork is a step and how it is to be executed.
type stepWork struct {
	entities.Step

	spec  entities.StepSpec
	input []byte
	run   entities.Run
}

// step reads what the work is about.
func (r *Runs) step(ctx context.Context, d delivery) (stepWork, error) {
	found, err := r.log.Step(ctx, d.Project, d.RunID, entities.StepID(d.Subject))
	if err != nil {
		return stepWork{}, err
	}
	return workOf(found), nil
}

func workOf(state eventlog.StepState) stepWork {
	s := stepWork{Step: state.Step, input: state.Created.Payload, run: state.Run}
	if state.Created.Data.Step != nil {
		s.spec = *state.Created.Data.Step
	}
	return s
}

// attempt records that an attempt begins, and makes the lease last as long as it may take. One that did not reach
// the function goes on.
func (r *Runs) attempt(ctx context.Context, d delivery, s *stepWork) error {
	var requests []eventlog.Request
	if s.Status != entities.StepRunning || d.Unreached == 0 {
		requests = append(requests, s.request(entities.EventStepStarted))
	}
	results, err := r.log.AppendAll(ctx, d.Project, d.RunID, requests, eventlog.Turn{
		Check: holds(d),
		Settle: func(ctx context.Context, _ pgx.Tx, last *pgx.Batch) error {
			return extendLease(ctx, queued{last}, d.Lease, s.spec.Patience(r.log.Now())+persistTimeout)
		},
	})
	if early := (*entities.NotYetError)(nil); errors.As(err, &early) {
		return &laterError{failure{reason: early.Error(), public: early.Error(), after: early.RetryAfter}}
	}
	if err == nil && len(results) > 0 && results[0].Step != nil {
		s.Step = *results[0].Step
	}
	return err
}

// request is a request for an event of the step.
func (s stepWork) request(t entities.EventType) eventlog.Request {
	return eventlog.Request{
		Type: t, CorrelationID: string(s.ID), SpecVersion: entities.SpecDriven, Data: entities.EventData{StepName: s.Name},
	}
}

func (s stepWork) call(d delivery) contract.Call {
	return contract.Call{
		Type: contract.TypeStep, Invocation: d.Lease, Attempt: d.DeliveryCount, Run: contract.About(s.run),
		Step: &contract.Step{ID: s.ID, Name: s.Name, Input: s.input, Deadline: s.spec.Deadline},
	}
}

// verdict is what follows for a step from an attempt.
type verdict struct {
	event   entities.EventType
	payload []byte
	code    string
	// after is when to try again, if the event says so.
	after time.Duration
}

func (s stepWork) timeout() verdict {
	return verdict{
		event: entities.EventStepFailed, code: CodeTimeout,
		payload: contract.Payload("there was no result before "+s.spec.Deadline.Format(time.RFC3339), CodeTimeout),
	}
}

// judge says what follows from an answer, or from there being none: attempts counts those that reached the
// function.
func (s stepWork) judge(a answer, err error, attempts int, now time.Time) verdict {
	if err == nil && a.ok() {
		if output, ok := outputOf(a.body); ok {
			return verdict{event: entities.EventStepCompleted, payload: output}
		}
		err = fmt.Errorf("the answer is no JSON: %.100q", a.body)
	}
	f, retryable := failed(a, err)
	switch {
	case !retryable:
		return verdict{event: entities.EventStepFailed, payload: f.Text(), code: f.Code}
	case s.spec.Late(now):
		return s.timeout()
	case attempts >= s.spec.MaxAttempts:
		return verdict{event: entities.EventStepFailed, payload: f.Text(), code: f.Code}
	default:
		after := s.spec.Within(max(s.backoff(attempts), a.retryAfter), now)
		return verdict{event: entities.EventStepRetrying, payload: f.Text(), code: f.Code, after: after}
	}
}

// outputOf is the output of a step that was answered: JSON, or nothing, which is null.
func outputOf(body []byte) (output []byte, ok bool) {
	if len(body) == 0 {
		return []byte("null"), true
	}
	return body, json.Valid(body) && utf8.Valid(body)
}

// failed is how an attempt failed, and whether to try again makes sense. The function's own words count, then its
// status: what is wrong with the request stays wrong.
func failed(a answer, err error) (contract.Failure, bool) {
	if err != nil {
		return contract.Failure{Message: storable(err.Error())}, true
	}
	retryable := a.status/100 != 4 || a.status == http.StatusRequestTimeout || a.status == http.StatusTooEarly ||
		a.status == http.StatusTooManyRequests
	var body struct {
		Error *struct {
			contract.Failure

			Retryable *bool `json:"retryable"`
		} `json:"error"`
	}
	if json.Unmarshal(a.body, &body) != nil || body.Error == nil || body.Error.Message == "" {
		return contract.Failure{
			Message: storable(fmt.Sprintf("%d %s: %.200q", a.status, http.StatusText(a.status), a.body)),
		}, retryable
	}
	if body.Error.Retryable != nil {
		retryable = *body.Error.Retryable
	}
	f := body.Error.Failure
	f.Message, f.Code, f.Details = storable(f.Message), storable(f.Code), []byte(storable(string(f.Details)))
	return f, retryable
}

// backoff is how long to wait after so many attempts, up to a quarter less by chance.
func (s stepWork) backoff(attempts int) time.Duration {
	longest := float64(s.spec.MaxBackoffMS)
	ms := min(longest, float64(s.spec.BackoffMS)*math.Pow(s.spec.Factor, float64(attempts-1)))
	return jitter(time.Duration(ms) * time.Millisecond)
}

// record appends the verdict on a step, and ends the work or has it done again, in one transaction. It must not get
// lost, for the function has done its work.
func (w *deliverer) record(ctx context.Context, d delivery, s stepWork, v verdict) error {
	r := s.request(v.event)
	r.Payload, r.Data.ErrorCode = v.payload, v.code
	if entities.ValidateName("code", v.code) != nil {
		r.Data.ErrorCode = "" // the log would refuse it, and the step be executed for ever; it is in the payload
	}
	if v.event == entities.EventStepRetrying {
		at := w.options.Runs.log.Now().Add(v.after)
		r.Data.RetryAfter = &at
	}
	var final error
	err := persist(ctx, func(ctx context.Context) error {
		turn := d.lastTurn()
		if v.event == entities.EventStepRetrying {
			turn = d.retryTurn(failure{reason: string(v.payload), after: v.after, reached: true})
		}
		_, final = w.options.Runs.log.AppendAll(ctx, d.Project, d.RunID, []eventlog.Request{r}, turn)
		if refused := (*eventlog.RefusedError)(nil); final == nil || over(final) || errors.As(final, &refused) {
			return nil
		}
		return final
	})
	if v.event == entities.EventStepRetrying {
		w.queue.hub.Publish(timerTopic)
	}
	if err != nil {
		return err
	}
	if errors.Is(final, entities.ErrConflict) {
		return w.drop(ctx, d) // it has a result already
	}
	return final
}

// retryTurn has work done again that has failed.
func (d delivery) retryTurn(f failure) eventlog.Turn {
	return eventlog.Turn{
		Check: holds(d),
		Settle: func(ctx context.Context, _ pgx.Tx, last *pgx.Batch) error {
			return nackMessage(ctx, queued{last}, d.Lease, f)
		},
	}
}

// lastTurn ends work with what is appended.
func (d delivery) lastTurn() eventlog.Turn {
	return eventlog.Turn{
		Check: holds(d),
		Settle: func(ctx context.Context, _ pgx.Tx, last *pgx.Batch) error {
			return deleteWork(ctx, queued{last}, d.Lease)
		},
		Believe: func(c *entities.Chain, _ eventlog.Outlook) bool {
			endBelieved(c, d, "")
			return true
		},
	}
}
