package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/strictjson"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

// The error codes of failures that the server itself reports.
const (
	// CodeChildFailed and CodeChildCancelled mean that a child run failed or was cancelled.
	CodeChildFailed    = "child_failed"
	CodeChildCancelled = "child_cancelled"
	// CodeStoreLimit means that a step's writes to the run's store exceeded a limit.
	CodeStoreLimit = "store_limit"
)

// executeStep executes a step, by a call of its function or by an HTTP request, and records the result.
func (e *Engine) executeStep(ctx context.Context, d queue.Delivery) error {
	s, ok, err := e.startStep(ctx, d)
	if len(s.spec.Limits) > 0 {
		d.Afterwards(func() { e.queue.Freed(d.Project, s.spec.Limits) })
	}
	if !ok || err != nil {
		return err
	}
	if s.spec.HTTP != nil {
		err = e.executeHTTP(ctx, d, s)
	} else {
		err = e.callStep(ctx, d, s)
	}
	if err != nil && s.atMostOnce() && d.Failure(err).Reached {
		err = fmt.Errorf("%w: %w", queue.ErrCalled, err)
	}
	return err
}

// callStep calls the function that executes a step, whose attempt has begun, and records the result.
func (e *Engine) callStep(ctx context.Context, d queue.Delivery, s stepWork) error {
	timeout := s.spec.AttemptTimeout(e.log.Now())
	token, err := e.tokenOf(ctx, d, timeout+stepTokenMargin)
	if err != nil {
		return err
	}
	call := s.call(d, token)
	if s.spec.Async {
		if call.Step.Callback, err = e.callback(ctx, d, s); err != nil {
			return err
		}
	}
	if call.Run.Store, err = e.loadStore(ctx, s.run); err != nil {
		return err
	}
	silence := time.Duration(s.spec.HeartbeatTimeoutMS) * time.Millisecond
	if err = d.StartBeats(ctx, silence); err != nil {
		return err
	}
	a, err := e.askInTime(ctx, d, call, timeout, silence)
	now := e.log.Now()
	if errors.Is(err, errStepOver) {
		return d.End(ctx)
	}
	if err != nil {
		if queue.IsOver(err) || queue.Interrupted(ctx, err) {
			return err
		}
		if f := d.Failure(err); !f.Reached { // it does not count as an attempt
			f.After = s.spec.Within(f.After, now)
			return &f
		}
	}
	v := s.decide(a, err, d.DeliveryCount, now)
	v.answered = v.isResult(err)
	return e.record(ctx, d, s, v)
}

// The codes of attempts without a result: they are step_retrying in the log.
const (
	// codeAccepted means that the function has accepted an async step. Its time is the step's deadline.
	codeAccepted = "accepted"
	// codeNotReady means that the function has asked to be called later. Such an attempt does not count.
	codeNotReady = "not_ready"
	// minNotReady is the shortest pause before the function is called again that was not ready.
	minNotReady = time.Second
)

// later returns the decision for an answer 202 that has no result yet. It reports false for any other answer.
func (s stepWork) later(a answer, now time.Time) (decision, bool) {
	switch {
	case a.status != http.StatusAccepted:
		return decision{}, false
	case s.spec.Async:
		return decision{
			event: entities.EventStepRetrying, code: codeAccepted, after: s.spec.Deadline.Sub(now),
			payload: contract.Payload("the function has accepted the step, and sends its result later", codeAccepted),
		}, true
	case a.asksLater:
		return decision{
			event: entities.EventStepRetrying, code: codeNotReady,
			after:   s.spec.Within(max(a.retryAfter, minNotReady), now),
			payload: []byte(message.NotReady),
		}, true
	default:
		return decision{}, false
	}
}

// refused returns the decision about a step that gets no slot of its limits: it fails with the error.
func refused(payload []byte) decision {
	var f contract.Failure
	_ = json.Unmarshal(payload, &f)
	return decision{event: entities.EventStepFailed, payload: payload, code: f.Code}
}

// startStep records the start of an attempt, unless the step was started inline. It returns false if the step needs no
// call.
func (e *Engine) startStep(ctx context.Context, d queue.Delivery) (s stepWork, ok bool, err error) {
	if d.HasStarted() {
		return newStepWork(d.Inline.Step), true, nil
	}
	s, err = e.loadStep(ctx, d)
	if errors.Is(err, entities.ErrStepNotFound) || err == nil && s.CompletedAt != nil {
		return s, false, d.End(ctx)
	}
	if err != nil {
		return s, false, err
	}
	if s.spec.DeploymentID == "" {
		return s, false, e.resumeStep(ctx, d, s)
	}
	if len(d.Body) > 0 {
		return s, false, e.record(ctx, d, s, refused(d.Body))
	}
	if s.spec.Late(e.log.Now()) {
		return s, false, e.record(ctx, d, s, s.timeout())
	}
	if s.atMostOnce() && s.Status == entities.StepRunning && d.UnreachedCount == 0 {
		return s, false, e.record(ctx, d, s, unknownOutcome())
	}
	err = e.startAttempt(ctx, d, &s)
	return s, err == nil, err
}

// atMostOnce reports whether the step's function must not be called again when nobody knows what it did. An attempt
// that has begun is in the log before the function is called; the message tells whether that call did not reach it.
func (s stepWork) atMostOnce() bool { return s.spec.MaxAttempts == 1 }

// unknownOutcome fails a step whose only attempt has begun, and of which nobody knows what it did.
func unknownOutcome() decision {
	return decision{
		event: entities.EventStepFailed, code: contract.CodeNoAnswer,
		payload: contract.Payload("the server that made the call has died or stopped, so nobody knows what the function "+
			"did. It is not called again, since the step has one attempt", contract.CodeNoAnswer),
	}
}

// resumeStep records that the next attempt at a step begins that the function of its run executes itself, and has the
// run invoked for it.
func (e *Engine) resumeStep(ctx context.Context, d queue.Delivery, s stepWork) error {
	r := s.request(entities.EventStepStarted)
	r.Data.Resumed = true
	r.Messages = []message.Message{{
		Project: d.Project, DeploymentID: s.run.DeploymentID, RunID: d.RunID, Topic: s.run.WorkflowName,
		Work: message.WorkRun,
	}}
	err := e.finish(ctx, d, r)
	if early := (*entities.NotYetError)(nil); errors.As(err, &early) {
		return notYet(early)
	}
	return err
}

// notYet returns the failure of an attempt that comes before its time.
func notYet(early *entities.NotYetError) *queue.Failure {
	return &queue.Failure{Reason: early.Error(), Public: early.Error(), After: early.RetryAfter}
}

// stepWork is a step and how to execute it.
type stepWork struct {
	entities.Step

	spec  entities.StepSpec
	input []byte
	run   entities.Run
}

// loadStep reads the step that the work is about.
func (e *Engine) loadStep(ctx context.Context, d queue.Delivery) (stepWork, error) {
	found, err := e.log.Step(ctx, d.Project, d.RunID, entities.StepID(d.Subject))
	if err != nil {
		return stepWork{}, err
	}
	return newStepWork(found), nil
}

func newStepWork(state read.StepState) stepWork {
	s := stepWork{Step: state.Step, input: state.Created.Payload, run: state.Run}
	if state.Created.Data.Step != nil {
		s.spec = *state.Created.Data.Step
	}
	return s
}

// startAttempt records the start of an attempt, and extends the lease for as long as the attempt may take. If the last
// call did not reach the function, its attempt continues and nothing is recorded. An attempt that somebody asked for
// does not wait for its time: its deliveries are counted anew (see [queue.Queue.Retry]).
func (e *Engine) startAttempt(ctx context.Context, d queue.Delivery, s *stepWork) error {
	var requests []eventlog.Request
	if s.Status != entities.StepRunning || d.UnreachedCount == 0 {
		r := s.request(entities.EventStepStarted)
		r.Early = d.DeliveryCount == 1
		requests = append(requests, r)
	}
	results, err := e.log.AppendAll(ctx, d.Project, d.RunID, requests, eventlog.AppendOptions{With: eventlog.UnderLock{
		Guard: checkLease(d),
		Write: func(last *pgx.Batch) { d.ExtendIn(last, s.spec.AttemptTimeout(e.log.Now())) },
	}})
	if early := (*entities.NotYetError)(nil); errors.As(err, &early) {
		return notYet(early)
	}
	if err == nil && len(results) > 0 && results[0].Step != nil {
		s.Step = *results[0].Step
	}
	return err
}

// request returns a request for an event of the step.
func (s stepWork) request(t entities.EventType) eventlog.Request {
	return eventlog.Request{
		Type: t, CorrelationID: string(s.ID), SpecVersion: entities.SpecDriven, Data: entities.EventData{StepName: s.Name},
	}
}

// call builds the call of the function that executes the step.
func (s stepWork) call(d queue.Delivery, token string) contract.Call {
	return contract.Call{
		Type: contract.TypeStep, Invocation: d.Lease, Attempt: d.DeliveryCount, Server: contract.Offer(), Token: token,
		Run:  contract.About(s.run),
		Step: &contract.Step{ID: s.ID, Name: s.Name, Input: s.input, Deadline: s.spec.Deadline, Progress: d.Progress},
	}
}

// decision is the result of an attempt for its step.
type decision struct {
	event   entities.EventType
	payload []byte
	code    string
	// store is the payload of the event that writes to the run's store with the result; nil for none.
	store []byte
	// after is the pause before the next attempt, if the event is step_retrying.
	after time.Duration
	// answered is set if it is a result that the step's function, or the service, has answered with.
	answered bool
}

// isResult reports whether a call that ended with the error was answered with a result, and not that one comes later.
func (v decision) isResult(err error) bool {
	return err == nil && v.code != codeAccepted && v.code != codeNotReady
}

// timeout fails a step whose deadline has passed.
func (s stepWork) timeout() decision {
	return decision{
		event: entities.EventStepFailed, code: contract.CodeTimeout,
		payload: contract.Payload("there was no result before "+s.spec.Deadline.Format(time.RFC3339), contract.CodeTimeout),
	}
}

// decide decides what an answer, or the error of a call, means for the step. The attempts are those that reached the
// function.
func (s stepWork) decide(a answer, err error, attempts int, now time.Time) decision {
	if err == nil && a.ok() {
		v, ok := s.later(a, now)
		if ok {
			return v
		}
		if v, err = completion(a); err == nil {
			return v
		}
	}
	f, retryable := parseFailure(a, err)
	return s.failure(f, retryable, a.retryAfter, attempts, now)
}

// failure decides what the failure of an attempt means for the step.
func (s stepWork) failure(
	f contract.Failure, retryable bool, retryAfter time.Duration, attempts int, now time.Time,
) decision {
	switch {
	case !retryable:
		return decision{event: entities.EventStepFailed, payload: f.Text(), code: f.Code}
	case s.spec.Late(now):
		return s.timeout()
	case attempts >= s.spec.MaxAttempts:
		return decision{event: entities.EventStepFailed, payload: f.Text(), code: f.Code}
	default:
		after := s.spec.Within(max(s.spec.Backoff(attempts), retryAfter), now)
		return decision{event: entities.EventStepRetrying, payload: f.Text(), code: f.Code, after: after}
	}
}

// completion returns the decision to complete a step with its answer, or to fail it if it writes more to the run's
// store than that may have. It fails if the answer cannot be parsed.
func completion(a answer) (decision, error) {
	if !a.isStepAnswer {
		output, ok := parseOutput(a.body)
		if !ok {
			return decision{}, fmt.Errorf("the answer is not JSON: %.100q", a.body)
		}
		return completed(output, nil), nil
	}
	parsed, err := contract.ParseStepAnswer(a.body)
	if errors.Is(err, kv.ErrLimit) {
		return storeLimit(err), nil
	}
	if err != nil {
		return decision{}, fmt.Errorf("the answer is not of the type %s: %w", contract.StepAnswerType, err)
	}
	return completed(parsed.Output, parsed.Store), nil
}

// completed returns the decision to complete a step, or to fail it if others could not decode its output.
func completed(output, store []byte) decision {
	var refused *strictjson.Refusal
	if errors.As(errors.Join(strictjson.Check(output), strictjson.Check(store)), &refused) {
		return decision{
			event: entities.EventStepFailed, code: refused.Code,
			payload: contract.Payload("the output: "+refused.Error(), refused.Code),
		}
	}
	return decision{event: entities.EventStepCompleted, payload: output, store: store}
}

// storeLimit fails a step that writes more to the run's store than that may have. Another attempt would do so again.
func storeLimit(err error) decision {
	return decision{
		event: entities.EventStepFailed, code: CodeStoreLimit, payload: contract.Payload(err.Error(), CodeStoreLimit),
	}
}

// parseOutput returns the output of a step: the answer's JSON, or null for an empty body.
func parseOutput(body []byte) (output []byte, ok bool) {
	if len(body) == 0 {
		return []byte("null"), true
	}
	return body, json.Valid(body) && utf8.Valid(body)
}

// parseFailure returns the failure of an attempt, and whether to retry it. The body may say so; otherwise the status
// decides: a client error would happen again.
func parseFailure(a answer, err error) (contract.Failure, bool) {
	if isTooLarge(err) {
		return contract.Failure{Message: err.Error(), Code: CodeAnswerTooLarge}, false
	}
	if err != nil {
		return contract.Failure{Message: queue.Storable(egress.Redact(err.Error())), Code: contract.CodeNoAnswer}, true
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
			Message: queue.Storable(fmt.Sprintf("%d %s: %.200q", a.status, http.StatusText(a.status), a.body)),
		}, retryable
	}
	if body.Error.Retryable != nil {
		retryable = *body.Error.Retryable
	}
	f := body.Error.Failure
	f.Message, f.Code = queue.Storable(f.Message), queue.Storable(f.Code)
	if f.Details = []byte(queue.Storable(string(f.Details))); strictjson.Check(f.Details) != nil {
		f.Details = nil
	}
	return f, retryable
}

// record appends the decision about a step, and ends the work or schedules its retry, in one transaction. It persists
// while the server shuts down or the database is away, since the function has done its work.
func (e *Engine) record(ctx context.Context, d queue.Delivery, s stepWork, v decision) error {
	requests := s.results(v, e.log.Now())
	var final error
	err := queue.Persist(ctx, func(ctx context.Context) error {
		final = e.append(ctx, d, v, requests)
		if refused := (*eventlog.RefusedError)(nil); final == nil || queue.IsOver(final) || errors.As(final, &refused) {
			return nil
		}
		return final
	})
	if v.event == entities.EventStepRetrying {
		e.queue.WakeTimer(nil)
	}
	if err != nil {
		return err
	}
	if limit, ok := errors.AsType[*kv.LimitError](final); ok {
		return e.record(ctx, d, s, storeLimit(limit))
	}
	if v.answered && isRefusedResult(final) {
		if final = e.recordLateAnswer(ctx, d, s, v, final); final == nil {
			return d.End(ctx)
		}
	}
	if errors.Is(final, entities.ErrConflict) {
		return d.End(ctx) // the step has a result already
	}
	return final
}

// append appends the events of a decision once.
func (e *Engine) append(ctx context.Context, d queue.Delivery, v decision, events []eventlog.Request) error {
	options := e.endWith(d)
	if v.event == entities.EventStepRetrying {
		options = retryWith(d, queue.Failure{
			Reason: string(v.payload), After: v.after, Reached: v.code != codeNotReady, KeepsSlots: v.code == codeAccepted,
		})
	}
	_, err := e.log.AppendAll(ctx, d.Project, d.RunID, events, options)
	return err
}

// results returns the requests for the events of a decision.
func (s stepWork) results(v decision, now time.Time) []eventlog.Request {
	r := s.request(v.event)
	r.Payload, r.Data.ErrorCode = v.payload, v.code
	if entities.ValidateName("code", v.code) != nil {
		r.Data.ErrorCode = "" // the log would refuse it, and the step would be retried forever; the payload still has it
	}
	if v.event == entities.EventStepRetrying {
		at := now.Add(v.after)
		r.Data.RetryAfter = &at
	}
	if v.store == nil {
		return []eventlog.Request{r}
	}
	write := s.request(entities.EventStoreSet)
	write.Payload = v.store
	return []eventlog.Request{write, r}
}

// retryWith returns options that schedule the retry of failed work in the append's transaction.
func retryWith(d queue.Delivery, f queue.Failure) eventlog.AppendOptions {
	return eventlog.AppendOptions{With: eventlog.UnderLock{
		Guard: checkLease(d), Write: func(last *pgx.Batch) { d.NackIn(last, f) },
	}}
}
