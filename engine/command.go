package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// Command applies commands of an invocation under way, all or none, extends its lease, and returns their events.
// Package contract defines the body; an empty one only extends the lease. If a command calls for an invocation, another
// one follows this one.
//
// It fails with [entities.ErrInvalid] if a command is invalid, with [message.ErrStale] if the invocation has ended,
// with [entities.ErrRunEnded] if the run has, and as [eventlog.Log.AppendAll] does.
func (e *Engine) Command(ctx context.Context, c token.Call, body []byte) ([]eventlog.Result, error) {
	return e.command(ctx, c, nil, body)
}

// Exchange is [Engine.Command] for a function that follows the log: it knows the log up to the position after, and
// reads the events of its commands from the response. So they are not new to it, and no invocation follows for their
// sake. If another copy of the call has sent commands since, it fails with [message.ErrStale] too; repeating a request
// is fine.
func (e *Engine) Exchange(ctx context.Context, c token.Call, after int64, body []byte) ([]eventlog.Result, error) {
	return e.command(ctx, c, &queue.Copy{Knows: after, Request: identify(after, body)}, body)
}

// identify returns a number that identifies the request among those of a call.
func identify(after int64, body []byte) int64 {
	h := sha256.New()
	_ = binary.Write(h, binary.BigEndian, after) // a hash never fails
	_, _ = h.Write(body)
	return int64(binary.BigEndian.Uint64(h.Sum(nil)))
}

// command applies commands of a call. Follows is the copy of the call, if its function learns of the events by itself.
func (e *Engine) command(
	ctx context.Context, c token.Call, follows *queue.Copy, body []byte,
) ([]eventlog.Result, error) {
	run, err := e.log.RecentRun(ctx, c.Project, c.RunID)
	if err != nil {
		return nil, err
	}
	if run.Status.Ended() {
		return nil, endedError(run)
	}
	plan, err := e.planner(ctx, run).Plan(body)
	if err == nil && (plan.Await != nil || plan.Keep != nil || plan.Continues()) {
		err = entities.Invalid("await, keep and continueAs are not for commands during a call: they belong in the answer")
	}
	if err != nil {
		return nil, err
	}
	with := &commanding{
		Delivery: queue.Delivery{Project: c.Project, RunID: c.RunID, Work: message.WorkRun, Lease: c.Invocation},
		follows:  follows != nil, here: e.queue.IsNewCallHere(c.Invocation, e.log.Now()),
	}
	if len(plan.Requests) > 0 {
		with.by = follows
	}
	results, err := e.log.AppendAll(ctx, c.Project, c.RunID, plan.Requests, eventlog.AppendOptions{
		With: with, Streams: plan.Responses, Open: plan.Open,
	})
	return results, plan.Explain(e.whyStale(ctx, c, err))
}

// whyStale returns an error about a call. One that says that the call is over it replaces by the reason: the end of the
// run deletes its work.
func (e *Engine) whyStale(ctx context.Context, c token.Call, failed error) error {
	if !errors.Is(failed, message.ErrStale) {
		return failed
	}
	run, err := store.RunByID(ctx, pg.NewPool(e.pool), c.Project, c.RunID)
	switch {
	case errors.Is(err, entities.ErrRunNotFound):
		return err
	case err == nil && run.Status.Ended():
		return endedError(run)
	default:
		return failed
	}
}

func endedError(run entities.Run) error {
	return fmt.Errorf("run %s is %s: %w", run.ID, run.Status, entities.ErrRunEnded)
}

// commanding is an invocation that sends commands before its answer.
type commanding struct {
	queue.Delivery

	// follows is set if the function learns of the events of its commands by itself. By is then the copy of the call that
	// writes; nil if it only extends the lease.
	follows bool
	by      *queue.Copy
	// here is set for a new call to an app in this process.
	here bool
}

// Lock checks the lease, and that no other copy of the call has written something that this one does not know.
func (c *commanding) Lock(b *pgx.Batch) func([]eventlog.Request) error {
	guard := c.Guard(b)
	return func([]eventlog.Request) error {
		if err := guard.Check(); err != nil {
			return err
		}
		if err := guard.CheckCopy(c.by); err != nil {
			return fmt.Errorf("%w: %w: stop, and answer the call with 409 stale_invocation; "+
				"if these are your own commands, read them first", message.ErrStale, err)
		}
		return nil
	}
}

// StartNext starts no invocation: this one is under way.
func (*commanding) StartNext(*pgx.Batch, bool) func() *eventlog.InlineStart { return nil }

// AddTo extends the lease, unless that is as good as new. The end of the run deletes its work.
func (c *commanding) AddTo(s *pg.Conditional, o eventlog.Outlook) {
	again := o.Wakes && !c.follows
	if o.Ended || c.here && !again {
		c.RequireLease(s, "", c.by)
	} else {
		c.KeepIf(s, again, c.by, o.Events)
	}
}
