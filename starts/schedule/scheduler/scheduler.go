// Package scheduler decides the ticks of schedules.
//
// A schedule has a piece of work in the queue, which is due at the next tick. Its handler reads the schedule and what
// its last run is doing, decides (decide.go), and writes the decision in one transaction: the run that starts, with its
// first event and its work, the recorded tick, the schedule's new state, and when its work is due next. So each tick is
// decided once, or not at all.
//
// The position in the sequence of ticks is the schedule's DecidedUntil, and the ticks after it are computed anew each
// time. So nothing is lost or decided twice if a tick is late, or if the rules of its time zone or the schedule change.
//
// Two guards hold against others. The work's lease keeps other processes away. The schedule's revision keeps away
// changes made meanwhile: then the decision starts over. Schedules are locked before their work, always.
//
// Requests change a schedule in the same way: read, decide, write if the revision is the same. They then make its work
// due.
package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/starts/schedule"
)

// Scheduler starts runs at the ticks of schedules.
type Scheduler struct {
	pool  *pgxpool.Pool
	queue *queue.Queue
	log   *eventlog.Log
}

// New returns a scheduler for the queue and the log of one database.
func New(q *queue.Queue, log *eventlog.Log) *Scheduler {
	return &Scheduler{pool: q.Pool(), queue: q, log: log}
}

// Handler returns the handler of [message.WorkSchedule], for [queue.WorkerOptions].
func (s *Scheduler) Handler() queue.Handler { return s.handle }

// untilUnchanged repeats what fails because the schedule has changed meanwhile.
func untilUnchanged(do func() error) error {
	return pg.Again(func(err error) bool { return errors.Is(err, schedule.ErrChanged) }, do)
}

// handle decides what is due, and has the work done again when there is something to decide next.
func (s *Scheduler) handle(ctx context.Context, d queue.Delivery) error {
	return untilUnchanged(func() error {
		sched, err := schedule.ByID(ctx, pg.NewPool(s.pool), d.Project, schedule.ID(d.Subject))
		if errors.Is(err, schedule.ErrNotFound) {
			return d.End(ctx)
		}
		if err != nil {
			return err
		}
		timing, err := sched.Timing()
		if err != nil {
			return err
		}
		f, err := s.facts(ctx, sched)
		if err != nil {
			return err
		}
		err = s.write(ctx, sched, decide(sched, timing, f), byDelivery(d))
		if err == nil {
			s.queue.WakeTimer(nil)
		}
		return err
	})
}

// facts reads what a decision about the schedule depends on.
func (s *Scheduler) facts(ctx context.Context, sched schedule.Schedule) (f facts, err error) {
	f.now = s.log.Now()
	if f.run, err = s.openRun(ctx, sched.Project, sched.RunID); err != nil || sched.BackfillAt == nil {
		return f, err
	}
	if f.backfilled, err = s.openRun(ctx, sched.Project, sched.BackfillRunID); err != nil {
		return f, err
	}
	f.started, err = schedule.StartedTicks(ctx, pg.NewPool(s.pool), sched)
	return f, err
}

// openRun reads a run, or the last one of those as which it has continued, if it has not ended; else nil.
func (s *Scheduler) openRun(ctx context.Context, p entities.Project, id entities.RunID) (*entities.Run, error) {
	if id == "" {
		return nil, nil
	}
	run, err := store.RunByID(ctx, pg.NewPool(s.pool), p, id)
	if err == nil && run.ContinuedAs != "" {
		if id, err = store.InChain(ctx, pg.NewPool(s.pool), p, id, ""); err == nil {
			run, err = store.RunByID(ctx, pg.NewPool(s.pool), p, id)
		}
	}
	if errors.Is(err, entities.ErrRunNotFound) || err == nil && run.Status.Ended() {
		return nil, nil
	}
	return &run, err
}

// writer is on whose behalf a decision is written.
type writer struct {
	// guard queues what has to be locked after the schedule, and returns the check of it.
	guard func(*pgx.Batch) (check func() error)
	// finish queues what is written besides the decision.
	finish func(b *pgx.Batch, d decision)
	// addTo adds both to a conditional statement, or reports false if that needs locks.
	addTo func(c *pg.Conditional, d decision) bool
}

// byDelivery writes a decision for a delivery of the schedule's work, and moves the work to when it is due next.
func byDelivery(d queue.Delivery) writer {
	return writer{
		guard: func(b *pgx.Batch) func() error { return d.Guard(b).Check },
		finish: func(b *pgx.Batch, next decision) {
			if next.due.IsZero() {
				d.EndIn(b)
			} else {
				d.RescheduleIn(b, next.due)
			}
		},
		addTo: func(c *pg.Conditional, next decision) bool {
			if next.due.IsZero() {
				return false
			}
			d.RescheduleIf(c, next.due)
			return true
		},
	}
}

// byRequest writes a decision for a request, with an entry in the audit.
func byRequest(ctx context.Context, sched schedule.Schedule, kind admin.ActionKind) writer {
	return writer{
		guard: pg.NoCheck,
		finish: func(b *pgx.Batch, _ decision) {
			admin.InsertAction(ctx, b, sched.Project, kind, sched.Name, nil)
		},
		addTo: func(*pg.Conditional, decision) bool { return false },
	}
}

// write writes a decision about a schedule in one transaction, if the schedule is still as it was read. If its run
// cannot be started, its tick is refused.
func (s *Scheduler) write(ctx context.Context, sched schedule.Schedule, d decision, by writer) error {
	if d.start >= 0 {
		err := s.startRun(ctx, sched, &d, by)
		reason, refused := refusal(err)
		if err == nil || !refused {
			return err
		}
		d.refuse(reason)
	}
	err := pg.CheckThen(ctx, s.pool,
		func(b *pgx.Batch) func() error { return guard(b, sched, by) }, func(b *pgx.Batch) { finish(b, d, by) })
	return pg.Wrap(err, "write schedule %s", sched.Name)
}

// guard queues the locks of a decision: the schedule, then what the writer locks.
func guard(b *pgx.Batch, sched schedule.Schedule, by writer) (check func() error) {
	unchanged := schedule.Lock(b, sched)
	held := by.guard(b)
	return func() error { return cmp.Or(held(), unchanged()) }
}

// finish queues the writes of a decision.
func finish(b *pgx.Batch, d decision, by writer) {
	w := pg.Batch{Batch: b}
	schedule.Update(w, d.after)
	for _, t := range d.ticks {
		schedule.Record(w, d.after, t)
	}
	by.finish(b, d)
}

// startRun writes a decision together with the run that it starts.
func (s *Scheduler) startRun(ctx context.Context, sched schedule.Schedule, d *decision, by writer) error {
	deployment, err := s.queue.StartDeployment(ctx, sched.Project, sched.Workflow, sched.Deployment)
	if err != nil {
		return err
	}
	r := d.event(deployment.ID, s.log.Now())
	started := *d
	started.setRun(r.RunID)
	o := eventlog.AppendOptions{With: start{sched, started, by}}
	_, err = s.log.AppendAll(ctx, sched.Project, r.RunID, []eventlog.Request{r}, o)
	if err == nil {
		*d = started
	}
	return err
}

// start is the companion of the event that starts a run: it writes the decision. So that a thousand ticks at once share
// commits, one conditional statement does all of it if it only adds a tick, as most do.
type start struct {
	sched schedule.Schedule // as it was read
	decision

	by writer
}

func (s start) Lock(b *pgx.Batch) (check func([]eventlog.Request) error) {
	held := guard(b, s.sched, s.by)
	return func([]eventlog.Request) error { return held() }
}

func (s start) AddTo(c *pg.Conditional, _ eventlog.Outlook) {
	onlyAdds := len(s.ticks) == 1 && s.ticks[0].Kind == schedule.KindTick && s.sched.WaitingAt == nil
	if !onlyAdds || !s.by.addTo(c, s.decision) {
		c.UnderLock(func(b *pgx.Batch) { finish(b, s.decision, s.by) })
		return
	}
	schedule.RequireUnchanged(c, s.sched)
	schedule.Update(c, s.after)
	schedule.Record(c, s.after, s.ticks[0])
}

// event returns the event that starts the run of a decision. The run that gives way is cancelled in the same
// transaction, by a message.
func (d decision) event(deployment string, now time.Time) eventlog.Request {
	s, tick := d.after, d.ticks[d.start]
	r := eventlog.NewRun(now, s.Input, entities.EventData{
		WorkflowName: s.Workflow, DeploymentID: deployment, Attributes: s.RunAttributes(tick), AllowReserved: true,
	})
	if s.Timeout > 0 {
		r.Data.Deadline = new(now.Add(s.Timeout))
	}
	if old := d.cancel; old != nil {
		r.Messages = []message.Message{{
			Project: s.Project, Topic: old.WorkflowName, DeploymentID: old.DeploymentID, RunID: old.ID,
			Work: message.WorkCancel, Subject: "0s",
			Body: []byte("schedule " + s.Name + " has started run " + string(r.RunID)),
		}}
	}
	return r
}

// setRun notes the run that the decision starts.
func (d *decision) setRun(id entities.RunID) {
	ticks := append([]schedule.Tick{}, d.ticks...)
	ticks[d.start].RunID = id
	d.ticks = ticks
	if ticks[d.start].Kind == schedule.KindBackfill {
		d.after.BackfillRunID = id
	} else {
		d.after.RunID = id
	}
}

// refuse makes the tick that was to start a run refused.
func (d *decision) refuse(reason string) {
	t := &d.ticks[d.start]
	t.Decision, t.Reason = schedule.Refused, reason
	d.start, d.cancel = -1, nil
}

// refusal returns why a run cannot be started, and reports false for an error after which it can be tried again.
func refusal(err error) (reason string, ok bool) {
	quota, isQuota := errors.AsType[*admin.QuotaError](err)
	switch {
	case isQuota:
		return quota.Error(), true
	case errors.Is(err, message.ErrDeploymentNotFound):
		return fmt.Sprintf("%v: register one with this workflow, then trigger the schedule", err), true
	case errors.Is(err, entities.ErrInvalid), errors.Is(err, limit.ErrFull), errors.Is(err, limit.ErrNotFound):
		return err.Error(), true
	default:
		return "", false
	}
}
