package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/pg"
)

// Result is what an append did.
type Result struct {
	// Event is the last event appended. For a repeated request it is the event that recorded it before, if that was
	// read.
	Event *entities.Event
	// Repeated is set if the log already recorded the request, so that nothing was written.
	Repeated bool
	// StepCreated is set if a step_started created its step.
	StepCreated bool
	// Run is the run right after the request. It does not include the events of an [InlineStart], which follow.
	Run entities.Run
	// Step, Hook and Wait are the entity that the event is about, after the append. Those of other kinds are nil, as is
	// an entity that no longer exists.
	Step *entities.Step
	Hook *entities.Hook
	Wait *entities.Wait
	// Log is the run's whole log after the append if it is cached, else nil. It must not be modified.
	Log []entities.Event
}

// Page returns a page of [Result.Log], as [read.Log.Events] would with payloads. It reports false if the log is not
// cached, the page is in descending order, or the cursor is invalid; then the log must be read.
func (r Result) Page(p pg.Page) (read.EventPage, bool) {
	from := int64(0)
	if p.Cursor != "" {
		var err error
		if from, err = read.ParseEventCursor(p.Cursor); err != nil {
			return read.EventPage{}, false
		}
	}
	if r.Log == nil || p.Descending {
		return read.EventPage{}, false
	}
	rest := r.Log[min(from, int64(len(r.Log))):]
	n := min(len(rest), p.Limit)
	return read.EventPage{Events: rest[:n], More: n < len(rest)}, true
}

// Append appends the event that a request asks for, updates rows, and enqueues the work that follows, in one
// transaction.
//
// It fails with [entities.ErrInvalid] if the request can never succeed, with the not-found error of a missing entity,
// with [entities.ErrConflict] or [entities.ErrRunEnded] if the transition tables refuse it, with [entities.ErrNotYet]
// if the step is not due, and with a *[admin.QuotaError] if the event would create a run beyond a limit of the project.
// When it fails with one of these, nothing was written.
func (l *Log) Append(ctx context.Context, project entities.Project, r Request) (Result, error) {
	outcomes, err := l.append(ctx, call{project: project, runID: r.RunID, requests: []Request{r}})
	if err == nil {
		err = outcomes[0].Err
	}
	if pg.ViolatedConstraint(err) == "runs_pkey" {
		// The run belongs to another project; otherwise the retry would have found it.
		return Result{}, r.conflict("taken")
	}
	if err != nil {
		return Result{}, fmt.Errorf("append %s: %w", r.Type, err)
	}
	return outcomes[0].Result, nil
}

// AppendAll appends several requests for one run, in their order and in one transaction with what the options add: all
// of them or none. The list of requests may be empty. The run must exist, unless a request creates it.
//
// It fails with a *[RefusedError] about the first request that [Log.Append] would refuse, with the errors of the
// options, and with [entities.ErrRunNotFound].
func (l *Log) AppendAll(
	ctx context.Context, project entities.Project, runID entities.RunID, requests []Request, o AppendOptions,
) ([]Result, error) {
	for _, s := range o.Streams {
		if err := entities.ValidateName("stream name", string(s.Name)); err != nil {
			return nil, err
		}
	}
	outcomes, err := l.append(ctx, call{
		AppendOptions: o, project: project, runID: runID, requests: aboutRun(runID, requests), atomic: true,
	})
	if err != nil {
		return nil, fmt.Errorf("append to %s: %w", runID, err)
	}
	results := make([]Result, len(outcomes))
	for i, o := range outcomes {
		results[i] = o.Result
	}
	return results, nil
}

// AppendEach appends several requests for one run, in their order and in one transaction with what the options add.
// Each has the outcome that it would have alone with [Log.Append], as long as the refused ones only come too late:
// those with [entities.ErrConflict] or [entities.ErrRunEnded].
//
// Otherwise it fails with a *[RefusedError] about the first other refusal, and nothing is written. It also fails with
// the errors of the options and with [entities.ErrRunNotFound].
func (l *Log) AppendEach(
	ctx context.Context, project entities.Project, runID entities.RunID, requests []Request, o AppendOptions,
) ([]Outcome, error) {
	outcomes, err := l.append(ctx, call{
		AppendOptions: o, project: project, runID: runID, requests: aboutRun(runID, requests), atomic: true, late: true,
	})
	starts := func(r Request) bool { return r.startsRun() }
	if i := slices.IndexFunc(requests, starts); i >= 0 && pg.ViolatedConstraint(err) == "runs_pkey" {
		err = &RefusedError{i, requests[i].conflict("taken")} // by another project
	}
	if err != nil {
		return nil, fmt.Errorf("append to %s: %w", runID, err)
	}
	return outcomes, nil
}

// AppendBatch appends several requests for one run, in their order and in one transaction. Each is appended or refused
// on its own, with the outcome that [Log.Append] would return, except that a request fails if an earlier one about the
// same entity has failed (protocol §3.13). All have one fence, which is that of the first.
//
// The whole batch fails, and nothing is written, with [entities.ErrInvalid] if a request can never succeed or is not
// allowed in a batch, with [entities.ErrSuperseded], and with [entities.ErrRunNotFound].
func (l *Log) AppendBatch(
	ctx context.Context, project entities.Project, runID entities.RunID, requests []Request,
) ([]Outcome, error) {
	requests = aboutRun(runID, requests)
	if err := validateBatch(requests); err != nil {
		return nil, err
	}
	outcomes, err := l.append(ctx, call{project: project, runID: runID, requests: requests, block: true})
	if err != nil {
		return nil, fmt.Errorf("append batch: %w", err)
	}
	for _, o := range outcomes {
		if errors.Is(o.Err, entities.ErrRunNotFound) {
			return nil, fmt.Errorf("append batch: %w", o.Err)
		}
	}
	return outcomes, nil
}

// aboutRun returns copies of the requests, with the run's ID.
func aboutRun(runID entities.RunID, requests []Request) []Request {
	requests = slices.Clone(requests)
	for i := range requests {
		requests[i].RunID = runID
	}
	return requests
}

// append carries out a call and reports it to the observer.
func (l *Log) append(ctx context.Context, c call) ([]Outcome, error) {
	if err := l.noteBuilds(ctx, c); err != nil {
		return nil, cmp.Or(l.findStarted(ctx, c), err)
	}
	if err := l.payloads.Prepare(string(c.project)); err != nil {
		return nil, fmt.Errorf("prepare payloads: %w", err)
	}
	if err := l.payloads.PrepareRuns(string(c.project), string(c.runID), c.begin()); err != nil {
		return nil, fmt.Errorf("prepare payloads: %w", err)
	}
	if err := l.putBlobs(ctx, &c, c.requests); err != nil {
		return nil, fmt.Errorf("write payloads: %w", err)
	}
	ctx, done := l.observer.Append(ctx, c.runID, c.requests)
	d, err := l.carryOut(ctx, c)
	if errors.Is(err, errCreateFirst) {
		if err = l.createFirst(ctx, c); err == nil {
			d, err = l.carryOut(ctx, c)
		}
	}
	l.discardBlobs(ctx, c, d)
	if _, before := errors.AsType[*startedBefore](err); before {
		done(Appended{})
		return nil, err
	}
	if err != nil {
		done(Appended{Err: err})
		return nil, err
	}
	done(d.appended())
	return d.outcomes, nil
}

// begin returns the runs that the call begins.
func (c call) begin() (list []string) {
	for i := range c.requests {
		r := &c.requests[i]
		if r.Type == entities.EventRunCreated {
			list = append(list, string(c.runID))
		}
		if r.Child != nil {
			list = append(list, string(r.Child.RunID))
		}
		if r.Continue != nil {
			list = append(list, string(r.Continue.Next.RunID))
		}
		for j := range r.Children {
			list = append(list, string(r.Children[j].Child.RunID))
		}
	}
	return list
}

// MaxBatch is the most requests one batch may have.
const MaxBatch = 1000

// allowedInBatch has the types that are allowed in a batch: those whose decision needs only the rows of the run, its
// steps and its waits.
var allowedInBatch = map[entities.EventType]bool{
	entities.EventStepCreated:   true,
	entities.EventStepStarted:   true,
	entities.EventStepCompleted: true,
	entities.EventStepFailed:    true,
	entities.EventStepRetrying:  true,
	entities.EventWaitCreated:   true,
	entities.EventWaitCompleted: true,
	entities.EventRunCompleted:  true,
	entities.EventRunFailed:     true,
}

// validateBatch checks that the events are allowed in a batch: of one entity at most one, unless they are in-band.
func validateBatch(requests []Request) error {
	if n := len(requests); n < 1 || n > MaxBatch {
		return entities.Invalid("a batch must have 1 to %d events, not %d", MaxBatch, n)
	}
	for i := range requests {
		r := &requests[i]
		if !allowedInBatch[r.Type] {
			return entities.Invalid("event %d of the batch: %q is not allowed in a batch", i, r.Type)
		}
		if r.Type == entities.EventStepStarted && len(r.Payload) > 0 {
			return entities.Invalid("event %d of the batch: a step_started in a batch must not have input; "+
				"put a step_created before it", i)
		}
		if !r.sameFence(&requests[0]) {
			return entities.Invalid("event %d of the batch: inBand and expectedSeqInBand differ from those of event 0", i)
		}
	}
	if !requests[0].InBand {
		return onePerEntity(requests)
	}
	return nil
}

// continuesStepOf reports whether r is about an attempt at the step that before creates. What it depends on follows
// from the creation.
func (r *Request) continuesStepOf(before *Request) bool {
	switch r.Type {
	case entities.EventStepStarted, entities.EventStepCompleted, entities.EventStepFailed, entities.EventStepRetrying:
		return before.Type == entities.EventStepCreated && before.CorrelationID == r.CorrelationID
	default:
		return false
	}
}

// startsStepOf reports whether r starts the step that before creates.
func (r *Request) startsStepOf(before *Request) bool {
	return r.Type == entities.EventStepStarted && r.continuesStepOf(before)
}
