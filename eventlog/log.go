package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
)

// Enqueuer puts messages on the queue as part of a transaction. Package queue implements it. What it
// returns is to be called once the transaction has committed; it only hurries the delivery along.
type Enqueuer interface {
	Enqueue(ctx context.Context, tx pgx.Tx, messages []entities.Message) (committed func(), err error)
}

// Log appends events to runs and reads them.
type Log struct {
	pool     *pgxpool.Pool
	enqueuer Enqueuer
	now      func() time.Time
}

// New makes a log on the database behind pool. Now is the clock; it is read once per append and cut to
// whole milliseconds.
func New(pool *pgxpool.Pool, enqueuer Enqueuer, now func() time.Time) *Log {
	return &Log{pool: pool, enqueuer: enqueuer, now: now}
}

// Result is what an append did.
type Result struct {
	// Event is what was appended last; nil when the request was already so and nothing was written.
	Event *entities.Event
	// Run is the run after the append.
	Run entities.Run
	// Step, Hook and Wait are the entity the event is about, after the append; nil when it is about
	// something else, or is gone.
	Step *entities.Step
	Hook *entities.Hook
	Wait *entities.Wait
}

// Append records that something happened to a run and does all that follows from it, in one transaction.
//
// It fails with [entities.ErrInvalid] on a request that can never succeed, with the not-found error of
// what is missing, with [entities.ErrConflict] or [entities.ErrRunEnded] as the transition tables say,
// and with [entities.ErrNotYet] on a step that is not due; then nothing was written.
func (l *Log) Append(ctx context.Context, project entities.Project, r Request) (Result, error) {
	now := l.now().UTC().Truncate(time.Millisecond)
	r = r.exact()
	if err := r.validate(now); err != nil {
		return Result{}, err
	}
	var result Result
	var committed func()
	err := InTx(ctx, l.pool, func(tx pgx.Tx) error {
		committed = func() {} // also that of an earlier try, which was rolled back
		f, err := read(ctx, tx, project, r)
		if err != nil {
			return err
		}
		events, err := decide(f, r, f.stamp(now))
		if errors.Is(err, errRepeat) {
			result = resultOf(f.Snapshot, nil, r)
			return nil
		}
		if err != nil {
			return err
		}
		after := f.clone()
		for _, e := range events {
			after.Apply(e)
		}
		if err := write(ctx, tx, f.Snapshot, after, events); err != nil {
			return err
		}
		result = resultOf(after, &events[len(events)-1], r)
		if len(r.Messages) == 0 {
			return nil
		}
		committed, err = l.enqueuer.Enqueue(ctx, tx, r.Messages)
		return err
	})
	if isDuplicateRun(err) {
		// Not ours to see, or it would have been found: another project has a run of this ID.
		return Result{}, &entities.TransitionError{
			Kind: entities.KindRun, ID: string(r.RunID), Status: "taken", Event: r.Type, Refusal: entities.Conflict,
		}
	}
	if err != nil {
		return Result{}, fmt.Errorf("append %s: %w", r.Type, err)
	}
	committed()
	return result, nil
}

// stamp is the time of the next event: now, but never before the run's previous event, as replay sets its
// clock from them.
func (f facts) stamp(now time.Time) time.Time {
	if f.Run != nil && f.Run.UpdatedAt.After(now) {
		return f.Run.UpdatedAt
	}
	return now
}

func resultOf(s *Snapshot, e *entities.Event, r Request) Result {
	result := Result{Event: e, Run: *s.Run}
	if step, ok := s.Steps[entities.StepID(r.CorrelationID)]; ok {
		result.Step = &step
	}
	if hook, ok := s.Hooks[entities.HookID(r.CorrelationID)]; ok {
		result.Hook = &hook
	}
	if wait, ok := s.Waits[entities.WaitID(r.CorrelationID)]; ok {
		result.Wait = &wait
	}
	return result
}

// read locks the run and reads what the decision needs, in one round trip.
func read(ctx context.Context, tx pgx.Tx, project entities.Project, r Request) (facts, error) {
	f := facts{Snapshot: NewSnapshot(project)}
	var (
		b    pgx.Batch
		step *entities.Step
		hook *entities.Hook
		wait *entities.Wait
	)
	entities.LockRun(&b, project, r.RunID, &f.Run)
	switch entities.KindOf(r.Type) {
	case entities.KindStep:
		entities.LoadStep(&b, r.RunID, entities.StepID(r.CorrelationID), &step)
	case entities.KindHook:
		entities.LoadHook(&b, r.RunID, entities.HookID(r.CorrelationID), &hook)
	case entities.KindWait:
		entities.LoadWait(&b, r.RunID, entities.WaitID(r.CorrelationID), &wait)
	}
	if r.Type == entities.EventHookCreated {
		entities.LockToken(&b, project, r.Data.Token, &f.holder)
	}
	if r.Type == entities.EventHookCreated || r.Type == entities.EventAttrSet {
		loadClaimed(&b, r.RunID, r.CorrelationID, &f.claimed)
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return f, fmt.Errorf("lock run %s: %w", r.RunID, err)
	}
	if step != nil {
		f.Steps[step.ID] = *step
	}
	if hook != nil {
		f.Hooks[hook.ID] = *hook
	}
	if wait != nil {
		f.Waits[wait.ID] = *wait
	}
	return f, nil
}

// write sends the events and what they changed, in one round trip.
func write(ctx context.Context, tx pgx.Tx, before, after *Snapshot, events []entities.Event) error {
	var b pgx.Batch
	if before.Run == nil {
		entities.InsertRun(&b, after.Run)
	} else {
		entities.UpdateRun(&b, after.Run)
	}
	for _, e := range events {
		insertEvent(&b, e)
	}
	writeSteps(&b, before, after)
	if after.Run.Status.Ended() {
		if before.Run == nil || !before.Run.Status.Ended() {
			entities.DeleteHooks(&b, after.Run.ID)
			entities.DeleteWaits(&b, after.Run.ID)
		}
	} else {
		writeHooks(&b, before, after)
		writeWaits(&b, before, after)
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("write run %s: %w", after.Run.ID, err)
	}
	return nil
}

func writeSteps(b *pgx.Batch, before, after *Snapshot) {
	for id, step := range after.Steps {
		if _, ok := before.Steps[id]; ok {
			entities.UpdateStep(b, &step)
		} else {
			entities.InsertStep(b, &step)
		}
	}
}

func writeHooks(b *pgx.Batch, before, after *Snapshot) {
	for id, hook := range after.Hooks {
		if _, ok := before.Hooks[id]; !ok {
			entities.InsertHook(b, &hook)
		}
	}
	for id, hook := range before.Hooks {
		if _, ok := after.Hooks[id]; !ok {
			entities.DeleteHook(b, hook.RunID, id)
		}
	}
}

func writeWaits(b *pgx.Batch, before, after *Snapshot) {
	for id, wait := range after.Waits {
		if _, ok := before.Waits[id]; ok {
			entities.UpdateWait(b, &wait)
		} else {
			entities.InsertWait(b, &wait)
		}
	}
}
