package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// Enqueuer puts messages on the queue as part of a transaction. Package queue implements it. It returns the work that
// begins with the transaction, and what is to be called once that is over, as with [InTxThen], which only hurries the
// delivery along. The batch has what the transaction is to execute before; Enqueue may leave it to its end, and add to
// it.
type Enqueuer interface {
	Enqueue(
		ctx context.Context, tx pgx.Tx, before *pgx.Batch, messages []entities.Message,
	) (begins []*Beginning, ended func(error), err error)
	// EnqueueBelieved is Enqueue for messages that the chain is to put on the queue. It reports false if more is needed
	// for that than a chain, or surely more than a belief.
	EnqueueBelieved(c *pg.Conditional, messages []entities.Message) (begins []*Beginning, ended func(error), ok bool)
}

// Log appends events to runs and reads them.
type Log struct {
	*read.Log

	pool     *pgxpool.Pool
	hub      *pg.Hub
	enqueuer Enqueuer
	observer Observer
	memory   *memory
	group    *pg.GroupCommit
}

// New makes a log on the database behind pool. Through hub it tells of new events and of runs that ended. Now is the
// clock; it is read once per append and cut to whole milliseconds.
func New(pool *pgxpool.Pool, hub *pg.Hub, enqueuer Enqueuer, now func() time.Time, options ...Option) *Log {
	l := &Log{
		Log: read.New(pool, hub, now), pool: pool, hub: hub, enqueuer: enqueuer,
		observer: unobserved{}, memory: newMemory(), group: pg.NewGroupCommit(pool),
	}
	for _, o := range options {
		o(l)
	}
	return l
}

// Result is what an append did.
type Result struct {
	// Event is what was appended last. When the request was already so, it is the event that made it so.
	Event *entities.Event
	// Repeated says that the request was already so, and that nothing was written.
	Repeated bool
	// StepCreated says that a step_started created its step.
	StepCreated bool
	// Run is the run after what was asked for. What begins with it comes after: see [Beginning].
	Run entities.Run
	// Step, Hook and Wait are the entity the event is about, after the append; nil when it is about
	// something else, or is gone.
	Step *entities.Step
	Hook *entities.Hook
	Wait *entities.Wait
	// Log is the run's whole log after the append, if it was at hand; nil if it has to be read. It must not be changed.
	Log []entities.Event
}

// Page is a page of [Result.Log], first to last, as [Log.Events] would return it; false if the log is not at hand.
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

// Append records that something happened to a run and does all that follows from it, in one transaction.
//
// It fails with [entities.ErrInvalid] on a request that can never succeed, with the not-found error of
// what is missing, with [entities.ErrConflict] or [entities.ErrRunEnded] as the transition tables say,
// and with [entities.ErrNotYet] on a step that is not due; then nothing was written.
func (l *Log) Append(ctx context.Context, project entities.Project, r Request) (Result, error) {
	outcomes, err := l.append(ctx, project, r.RunID, []Request{r}, eachByItself{})
	if err == nil {
		err = outcomes[0].Err
	}
	if isDuplicateRun(err) {
		// Not ours to see, or it would have been found: another project has a run of this ID.
		return Result{}, &entities.TransitionError{
			Kind: entities.KindRun, ID: string(r.RunID), Status: "taken", Event: r.Type, Refusal: entities.Conflict,
		}
	}
	if err != nil {
		return Result{}, fmt.Errorf("append %s: %w", r.Type, err)
	}
	return outcomes[0].Result, nil
}

// AppendAll appends all of several requests for one run, or none of them, in one transaction and in their order,
// and has the turn taken in it. There may be no requests; then the run must exist all the same.
//
// It fails with a *[RefusedError] about the first request that [Log.Append] would refuse, with the errors of the
// turn, and with [entities.ErrRunNotFound].
func (l *Log) AppendAll(
	ctx context.Context, project entities.Project, runID entities.RunID, requests []Request, turn Turn,
) ([]Result, error) {
	requests = slices.Clone(requests)
	for i := range requests {
		requests[i].RunID = runID
	}
	for _, s := range turn.Streams {
		if err := entities.ValidateName("stream name", string(s.Name)); err != nil {
			return nil, err
		}
	}
	outcomes, err := l.append(ctx, project, runID, requests, allOrNone{turn, project, runID, l.Now()})
	if err != nil {
		return nil, fmt.Errorf("append to %s: %w", runID, err)
	}
	results := make([]Result, len(outcomes))
	for i, o := range outcomes {
		results[i] = o.Result
	}
	return results, nil
}

// appendIn is append, unobserved.
func (l *Log) appendIn(
	ctx context.Context, project entities.Project, runID entities.RunID, requests []Request, t terms,
) (judgement, error) {
	now := l.Now()
	for i, r := range requests {
		requests[i] = r.exact()
		if err := requests[i].validate(now); err != nil {
			return judgement{}, &RefusedError{i, err}
		}
	}
	leave, err := l.memory.enter(ctx, runID)
	if err != nil {
		return judgement{}, err
	}
	defer leave()
	j, ok, err := l.appendBelieved(ctx, project, requests, t, now)
	if err == nil && !ok {
		j, err = l.appendLocked(ctx, project, runID, requests, t, now)
	}
	if err != nil && !errors.Is(err, errUnwritten) {
		l.memory.forget(runID) // it may have been written all the same
		return judgement{}, err
	}
	l.memory.keep(j, now)
	for i, o := range j.outcomes {
		if o.Err == nil {
			j.outcomes[i].Log = l.memory.logOf(j.after.Run)
		}
	}
	if err != nil {
		return j, nil
	}
	for _, topic := range t.written() {
		l.hub.Publish(topic)
	}
	if len(j.events) > 0 {
		l.Announce(project, runID, j.endsRun())
	}
	return j, nil
}

// appendLocked decides on what it reads under the run's lock.
func (l *Log) appendLocked(
	ctx context.Context, project entities.Project, runID entities.RunID, requests []Request, t terms, now time.Time,
) (judgement, error) {
	var j judgement
	var f *facts
	var verdict func() error
	err := pg.Pipelined{
		First: func(b *pgx.Batch) {
			f = lockAndRead(b, project, runID, requests)
			verdict = t.before(b)
		},
		Then: func(ctx context.Context, tx pgx.Tx, last *pgx.Batch) (ended func(error), err error) {
			if err := verdict(); err != nil {
				return nil, err
			}
			j = judge(*f, requests, now)
			if err := t.agree(j); err != nil {
				return nil, err
			}
			if ended, err = l.enqueue(ctx, tx, last, f, &j, now, t); err != nil {
				return nil, err
			}
			return ended, t.after(ctx, tx, last)
		},
	}.Run(ctx, l.pool)
	return j, err
}

// lockAndRead queues the lock on the run, and reads of what the decisions need.
func lockAndRead(b *pgx.Batch, project entities.Project, runID entities.RunID, requests []Request) *facts {
	f := &facts{
		Snapshot: NewSnapshot(project), claimed: map[string]bool{}, holders: map[string]*entities.Hook{},
	}
	var (
		steps []entities.StepID
		waits []entities.WaitID
	)
	store.LockRun(b, project, runID, &f.Run)
	for _, r := range requests {
		switch entities.KindOf(r.Type) {
		case entities.KindStep:
			steps = append(steps, entities.StepID(r.CorrelationID))
		case entities.KindWait:
			waits = append(waits, entities.WaitID(r.CorrelationID))
		case entities.KindHook:
			store.LoadHook(b, runID, entities.HookID(r.CorrelationID), f.Hooks)
		}
	}
	if len(steps) > 0 {
		store.LoadSteps(b, runID, steps, f.Steps)
	}
	if len(waits) > 0 {
		store.LoadWaits(b, runID, waits, f.Waits)
	}
	for _, r := range byToken(requests) {
		f.load(b, project, r)
	}
	return f
}

// byToken orders requests so that all who lock the names of several tokens do so in the same order.
func byToken(requests []Request) []Request {
	if len(requests) == 1 {
		return requests
	}
	return slices.SortedStableFunc(slices.Values(requests), func(a, b Request) int {
		return cmp.Compare(a.Data.Token, b.Data.Token)
	})
}

// load queues reads of what is in the log, but in no row of the run.
func (f *facts) load(b *pgx.Batch, project entities.Project, r Request) {
	switch r.Type {
	case entities.EventHookCreated:
		store.LockToken(b, project, r.Data.Token, f.holders)
		loadClaimed(b, r.RunID, r.CorrelationID, f.claimed)
	case entities.EventAttrSet:
		loadClaimed(b, r.RunID, r.CorrelationID, f.claimed)
	case entities.EventHookDisposed:
		if r.Once {
			loadClaimed(b, r.RunID, r.CorrelationID, f.claimed)
		}
	case entities.EventRunStarted:
		loadStart(b, r.RunID, &f.earlier)
	case entities.EventHookReceived:
		if r.Data.ResumeID != "" {
			loadResumption(b, r.RunID, r.Data.ResumeID, &f.earlier)
		}
	default: // the rows say it all
	}
}

// write queues the events and what they changed, and the children that they make.
func write(b *pgx.Batch, before facts, j judgement) {
	if len(j.events) > 0 {
		writeRun(pg.Batch{Batch: b}, before, j)
	}
	for _, child := range j.children {
		writeRun(pg.Batch{Batch: b}, facts{Snapshot: child.before}, child)
	}
}

func writeRun(w pg.Writer, before facts, j judgement) {
	if before.Run == nil {
		store.InsertRun(w, j.after.Run)
	} else {
		store.UpdateRun(w, j.after.Run)
	}
	writeEvents(w, xidInOrder, before, j)
}

// writeEvents queues the events, and what they changed besides the run's row.
func writeEvents(w pg.Writer, xid string, before facts, j judgement) {
	after := j.after
	store.WriteAttributes(w, before.Run, after.Run)
	for _, e := range j.events {
		insertEvent(w, xid, after.Run.Project, e)
	}
	writeSteps(w, before.Snapshot, after)
	writeHooks(w, before, after)
	if j.endsRun() {
		store.EndHooks(w, after.Run.ID, *after.Run.CompletedAt)
		store.DeleteWaits(w, after.Run.ID)
	} else {
		writeWaits(w, before.Snapshot, after)
	}
}

func writeSteps(w pg.Writer, before, after *Snapshot) {
	for id, step := range after.Steps {
		switch was, ok := before.Steps[id]; {
		case !ok:
			store.InsertStep(w, &step)
		case was != step:
			store.UpdateStep(w, &step)
		}
	}
}

// writeHooks writes what became of the hooks that the events are about. What goes makes room for what comes.
func writeHooks(w pg.Writer, before facts, after *Snapshot) {
	for id, hook := range before.Hooks {
		if _, ok := after.Hooks[id]; !ok {
			store.DeleteHook(w, hook.RunID, id)
		}
	}
	for id, hook := range after.Hooks {
		if _, ok := before.Hooks[id]; ok {
			continue
		}
		if holder := before.holders[hook.Token]; holder != nil {
			store.DeleteExpiredHook(w, holder) // or the token would not have been given out
		}
		store.InsertHook(w, &hook)
	}
}

func writeWaits(w pg.Writer, before, after *Snapshot) {
	for id, wait := range after.Waits {
		switch was, ok := before.Waits[id]; {
		case !ok:
			store.InsertWait(w, &wait)
		case was != wait:
			store.UpdateWait(w, &wait)
		}
	}
}
