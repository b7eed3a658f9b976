// Package collector collects starts of runs: it debounces them, and makes batches of them.
//
// A collection is a row that says how its run is started, and a piece of work in the queue. A start locks the row, and
// adds itself in the same transaction. The work is due when the run was to start at first; if starts have come since,
// it is put off. So a start that is collected writes no message.
//
// The run starts in one transaction, which locks the row, reads what was collected, appends the first event, and
// deletes the row: on behalf of the work, of the start that makes a list full, or of a request. Whoever comes too late
// finds no row. So each start is in one run, and a run that was promised starts once.
//
// Collections are locked before their work, always.
package collector

import (
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
	"github.com/stepwell-dev/stepwell/starts/collection"
)

// Collector collects starts.
type Collector struct {
	pool  *pgxpool.Pool
	queue *queue.Queue
	log   *eventlog.Log
	// limits tells which limits there are.
	limits *limit.Store
}

// New returns a collector for the queue and the log of one database.
func New(q *queue.Queue, log *eventlog.Log) *Collector {
	return &Collector{pool: q.Pool(), queue: q, log: log, limits: limit.NewStore(q.Pool(), log.Now)}
}

// Collected is what became of a start.
type Collected struct {
	// Collection is the one that has taken the start; nil if its run has started.
	Collection *collection.Collection
	Run        entities.Run
	// Created is set if this start has started the run, because it made the list full.
	Created bool
	// Repeated is set if an earlier start had the idempotency key: nothing was written.
	Repeated bool
}

// Beside is what the transaction that collects a start does besides; its functions may be nil.
type Beside struct {
	// Guard queues what has to be locked after the collection, and returns the check of it.
	Guard func(*pgx.Batch) (check func() error)
	// Finish queues what is written besides, for the run that the collection will be.
	Finish func(*pgx.Batch, entities.RunID)
}

func (b Beside) guard(batch *pgx.Batch) (check func() error) {
	if b.Guard == nil {
		return pg.NoCheck(batch)
	}
	return b.Guard(batch)
}

func (b Beside) finish(batch *pgx.Batch, id entities.RunID) {
	if b.Finish != nil {
		b.Finish(batch, id)
	}
}

// Add collects a start. One with the idempotency key of an earlier start changes nothing, and gets the same run.
//
// It fails with [entities.ErrInvalid]; with [entities.ErrKeyReused] if the idempotency key was used with another
// digest; with [message.ErrDeploymentNotFound]; with [limit.ErrNotFound]; and, if the start opens a collection, with
// [collection.ErrTooMany] and with a *[admin.QuotaError]. A start that makes a list full fails as [eventlog.Log.Start]
// does; it is not collected then.
func (c *Collector) Add(
	ctx context.Context, p entities.Project, rule collection.Rule, s collection.Start,
) (Collected, error) {
	return c.AddWith(ctx, p, rule, s, Beside{})
}

// AddWith is [Collector.Add] with what the transaction does besides. It fails with its errors as well.
func (c *Collector) AddWith(
	ctx context.Context, p entities.Project, rule collection.Rule, s collection.Start, by Beside,
) (Collected, error) {
	if err := entities.ValidateAttributes(withKind(s.Data.Attributes, rule.Kind), true); err != nil {
		return Collected{}, &entities.FieldError{Field: "attributes", Err: err}
	}
	for {
		done, ok, err := c.collectedBefore(ctx, p, s)
		if ok || err != nil {
			return done, err
		}
		done, err = c.collect(ctx, p, rule, s, by)
		// If a collection has changed meanwhile, another start was collected, or a run started.
		again := errors.Is(err, collection.ErrChanged) || pg.ViolatedConstraint(err) == "collected_key"
		if !again || ctx.Err() != nil {
			return done, pg.Wrap(err, "collect start")
		}
	}
}

// collectedBefore returns what became of an earlier start with the same idempotency key, and reports whether there is
// one.
func (c *Collector) collectedBefore(
	ctx context.Context, p entities.Project, s collection.Start,
) (done Collected, ok bool, err error) {
	q := pg.NewPool(c.pool)
	before, err := collection.ByIdempotencyKey(ctx, q, p, s.IdempotencyKey)
	if err != nil || before == nil {
		return done, false, err
	}
	if before.Digest != s.Digest {
		return done, false, fmt.Errorf("%w: a different start was collected for run %s with key %q",
			entities.ErrKeyReused, before.RunID, s.IdempotencyKey)
	}
	// The run appears in the transaction in which the collection disappears.
	open, err := collection.ByID(ctx, q, p, before.RunID)
	switch {
	case err == nil:
		done.Collection = &open
	case errors.Is(err, collection.ErrNotFound):
		if done.Run, err = store.RunByID(ctx, q, p, before.RunID); errors.Is(err, entities.ErrRunNotFound) {
			err = fmt.Errorf("run %s, for which the start was collected, no longer exists: %w",
				before.RunID, entities.ErrConflict)
		}
	}
	if err != nil {
		return done, false, err
	}
	done.Repeated = true
	return done, true, c.log.AwaitDurability(ctx)
}

// collect adds a start to the collection with its key, or opens one.
func (c *Collector) collect(
	ctx context.Context, p entities.Project, rule collection.Rule, s collection.Start, by Beside,
) (Collected, error) {
	if _, err := c.queue.StartDeployment(ctx, p, s.Workflow, s.Deployment); err != nil {
		return Collected{}, err
	}
	for _, use := range s.Data.Limits {
		if _, err := c.limits.Limit(ctx, p, use.Name); err != nil {
			return Collected{}, err
		}
	}
	now, quota := c.log.Now(), c.log.CheckStart(ctx, p, s.Data)
	var found *collection.Collection
	var check func() error
	var after collection.Collection
	var next collection.Next
	err := pg.Pipelined{
		First: func(b *pgx.Batch) {
			found = nil
			collection.LockByKey(b, p, s.Workflow, rule, &found)
			check = by.guard(b)
		},
		Then: func(ctx context.Context, tx pgx.Tx, last *pgx.Batch) (ended func(error), err error) {
			if err := check(); err != nil {
				return nil, err
			}
			if found == nil {
				if quota != nil {
					return nil, quota
				}
				if after, ended, err = c.open(ctx, tx, p, rule, s, now); err == nil {
					by.finish(last, after.RunID)
				}
				return ended, err
			}
			if after, next, err = found.Add(s, now); err != nil {
				return nil, err
			}
			if next != collection.Collects {
				return nil, errFull
			}
			collection.Update(last, after, s)
			by.finish(last, after.RunID)
			if found.DueAt.Before(now) {
				return c.queue.Revive(ctx, tx, work(after, now)) // else nobody might start the run
			}
			return nil, nil
		},
	}.Run(ctx, c.pool)
	if errors.Is(err, errFull) {
		return c.startFull(ctx, *found, s, by, now)
	}
	return Collected{Collection: &after}, err
}

// errFull rolls back a transaction that cannot add a start to a list, because the run has to start.
var errFull = errors.New("the list is full")

// open opens a collection.
func (c *Collector) open(
	ctx context.Context, tx pgx.Tx, p entities.Project, rule collection.Rule, s collection.Start, now time.Time,
) (opened collection.Collection, ended func(error), err error) {
	if opened, err = collection.Open(entities.NewRunID(now), p, rule, s, now); err != nil {
		return opened, nil, err
	}
	var b pgx.Batch
	check := collection.Insert(&b, opened, s)
	if err := pg.SendQueued(ctx, tx, &b); err != nil {
		return opened, nil, err
	}
	if err := check(); err != nil {
		return opened, nil, err
	}
	_, ended, err = c.queue.Enqueue(ctx, tx, &pgx.Batch{}, []message.Message{work(opened, now)})
	return opened, ended, err
}

// work returns the work that starts the run of a collection.
func work(of collection.Collection, now time.Time) message.Message {
	return message.Message{
		Project: of.Project, Topic: of.Workflow, Work: message.WorkCollection, Subject: string(of.RunID),
		Delay: max(of.DueAt.Sub(now), 0),
	}
}

// startFull starts the run of a list that is full with the start. A list that is full without it is started first, and
// the start is not collected yet: that is an [collection.ErrChanged].
func (c *Collector) startFull(
	ctx context.Context, full collection.Collection, s collection.Start, beside Beside, now time.Time,
) (Collected, error) {
	var after collection.Collection
	var next collection.Next
	by := c.byRequest(full)
	by.guard = beside.guard
	by.admit = func(locked collection.Collection) (added []byte, err error) {
		after, next, err = locked.Add(s, now)
		switch {
		case err == nil && next == collection.Collects:
			err = collection.ErrChanged
		case next == collection.Fills:
			added = s.Item()
		}
		return added, err
	}
	drop := by.finish
	by.finish = func(b *pgx.Batch) {
		drop(b)
		if next == collection.Fills {
			collection.Remember(b, after, s)
			beside.finish(b, after.RunID)
		}
	}
	run, err := c.start(ctx, full, by)
	if err == nil && next == collection.Overflows {
		err = collection.ErrChanged
	}
	return Collected{Run: run, Created: err == nil}, err
}

// Flush starts the run of a collection now, and returns it. It fails with [collection.ErrNotFound], and as
// [eventlog.Log.Start] does; then nothing has changed.
func (c *Collector) Flush(ctx context.Context, p entities.Project, id entities.RunID) (run entities.Run, err error) {
	err = untilUnchanged(func() error {
		found, err := collection.ByID(ctx, pg.NewPool(c.pool), p, id)
		if err != nil {
			return err
		}
		by := c.byRequest(found)
		drop := by.finish
		by.finish = func(b *pgx.Batch) {
			drop(b)
			admin.InsertAction(ctx, b, p, admin.ActionCollectionFlush, string(id), map[string]any{"count": found.Count})
		}
		run, err = c.start(ctx, found, by)
		return err
	})
	return run, err
}

// Drop deletes a collection with its starts: its run will never be. It fails with [collection.ErrNotFound].
func (c *Collector) Drop(ctx context.Context, p entities.Project, id entities.RunID) error {
	err := pg.CheckThen(ctx, c.pool, func(b *pgx.Batch) func() error { return collection.Drop(b, p, id) },
		func(b *pgx.Batch) {
			c.queue.DropWorkOf(b, message.WorkCollection, string(id))
			admin.InsertAction(ctx, b, p, admin.ActionCollectionDrop, string(id), nil)
		})
	return pg.Wrap(err, "drop collection %s", id)
}
