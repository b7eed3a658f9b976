package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/condition"
)

// Two kinds of work match signals with waiting hooks. Dispatch, enqueued with a signal, goes through the hooks. Replay,
// enqueued with a hook that looks back, goes through earlier signals. Both are enqueued in the transaction of the
// signal or hook itself, so they start after that commit and see everything committed before.
//
// No signal is lost: of a signal and a hook, the one that commits second has work that sees the other. No signal is
// received twice: if both see each other, or work is repeated after a crash, they append a resumption with the same ID,
// which the log records only once under the run's lock.
//
// After each page the work stores a cursor in its message. Everything before the cursor is done. A row that appears
// before it later was committed after the work started, and the other kind of work sees it.

const (
	// hooksPage is the number of hooks after which dispatch stores its cursor.
	hooksPage = 200
	// signalsPage is the number of signals after which replay does. It is small, since a signal may have [MaxSignal]
	// bytes.
	signalsPage = 16
	// resumers is the number of hooks that a signal resumes concurrently.
	resumers = 4
)

// signalDispatch handles both kinds of work.
type signalDispatch struct {
	*Engine

	page     int // hooks per page
	parallel int // hooks resumed at once
}

func newSignalDispatch(e *Engine) signalDispatch { return signalDispatch{e, hooksPage, resumers} }

// hookCursor is the last hook of a page, in the order in which dispatch goes through hooks.
type hookCursor struct {
	RunID entities.RunID  `json:"runId"`
	ID    entities.HookID `json:"id"`
}

// dispatch resumes every hook that was waiting for the signal when it was recorded. A hook that cannot be resumed now
// does not hold up the others: the work is retried for it.
func (h signalDispatch) dispatch(ctx context.Context, d queue.Delivery) error {
	s, err := h.load(ctx, d)
	if errors.Is(err, store.ErrSignalNotFound) {
		return d.End(ctx)
	}
	if err != nil {
		return err
	}
	var cursor hookCursor
	if err := loadCursor(d, &cursor); err != nil {
		return err
	}
	var failed error
	for next := cursor; ; {
		hooks, err := store.WaitingFor(ctx, pg.NewPool(h.pool), d.Project, s.Name, next.RunID, next.ID, h.page)
		if err != nil {
			return err
		}
		if err := h.resumeAll(ctx, d, s, hooks); err != nil {
			failed = err
		}
		if len(hooks) < h.page {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		last := hooks[len(hooks)-1]
		next = hookCursor{last.RunID, last.ID}
		if failed == nil {
			cursor = next // a retry starts at the page of the first failure
		}
		if err := h.saveCursor(ctx, d, cursor); err != nil {
			return err
		}
	}
	if failed != nil {
		return failed
	}
	return h.end(ctx, d, s)
}

// resumeAll resumes those of the hooks that match the signal. It tries all of them, and fails if one could not be
// resumed.
func (h signalDispatch) resumeAll(ctx context.Context, d queue.Delivery, s decodedSignal, hooks []store.Waiting) error {
	var all errgroup.Group
	all.SetLimit(h.parallel)
	for _, hook := range hooks {
		all.Go(func() error { return h.resume(ctx, d, s, hook) })
	}
	return all.Wait()
}

// decodedSignal is a signal with its data decoded for conditions.
type decodedSignal struct {
	store.Signal

	value any
}

// load reads the signal that the work is about.
func (h signalDispatch) load(ctx context.Context, d queue.Delivery) (decodedSignal, error) {
	s, err := store.SignalByID(ctx, pg.NewPool(h.pool), d.Project, store.SignalID(d.Subject))
	if err != nil {
		return decodedSignal{}, err
	}
	return decodeSignal(s)
}

func decodeSignal(s store.Signal) (decodedSignal, error) {
	value, err := condition.Decode(s.Data)
	if err != nil {
		return decodedSignal{}, fmt.Errorf("signal %s: %w", s.ID, err)
	}
	return decodedSignal{s, value}, nil
}

// resume resumes a hook in a transaction of its own, if its condition holds for the signal. It skips a hook that has
// been closed meanwhile, or whose run has ended (I7).
func (h signalDispatch) resume(ctx context.Context, d queue.Delivery, s decodedSignal, hook store.Waiting) error {
	matches, err := h.conditions.Matches(hook.Condition, condition.Variables{
		Data: s.value, SignalName: s.Name, SignalID: s.ID, RunID: hook.RunID, Attributes: hook.Attributes,
	})
	if err != nil {
		d.Logger().DebugContext(ctx, "condition cannot be evaluated, so it does not match",
			"run", hook.RunID, "hook", hook.ID, "signal", s.ID) // without the error, which may quote the signal
	}
	if !matches {
		return nil
	}
	_, err = h.log.Append(ctx, s.Project, eventlog.Request{
		RunID: hook.RunID, Type: entities.EventHookReceived, CorrelationID: string(hook.ID),
		SpecVersion: entities.SpecDriven, Payload: signalPayload(s.Signal),
		Data: entities.EventData{ResumeID: string(s.ID) + ":" + string(hook.ID)},
	})
	if isClosed(err) {
		return nil
	}
	return err
}

// isClosed reports whether an error means that a hook is not open any more.
func isClosed(err error) bool {
	return errors.Is(err, entities.ErrHookNotFound) || errors.Is(err, entities.ErrConflict) ||
		errors.Is(err, entities.ErrRunEnded) || errors.Is(err, entities.ErrRunNotFound)
}

// signalPayload returns the payload that the hook receives: {"signal": name, "id", "data"}, with the data unchanged.
func signalPayload(s store.Signal) []byte {
	head, err := json.Marshal(struct {
		Signal string         `json:"signal"`
		ID     store.SignalID `json:"id"`
	}{s.Name, s.ID})
	if err != nil {
		panic(err) // impossible: two strings can always be encoded
	}
	b := append(head[:len(head)-1], `,"data":`...)
	return append(append(b, s.Data...), '}')
}

// end ends the work of a signal, and deletes the signal unless it is kept for hooks that look back.
func (h signalDispatch) end(ctx context.Context, d queue.Delivery, s decodedSignal) error {
	return pg.InTx(ctx, h.pool, func(tx pgx.Tx) error {
		var b pgx.Batch
		guard := d.Guard(&b)
		if err := errors.Join(pg.SendQueued(ctx, tx, &b), guard.Check()); err != nil {
			return err
		}
		d.EndIn(&b)
		if err := pg.SendQueued(ctx, tx, &b); err != nil {
			return err
		}
		return store.DropSignal(ctx, tx, d.Project, s.ID)
	})
}

// replay resumes a hook with the signals that came before it, in their order, until the hook is closed.
func (h signalDispatch) replay(ctx context.Context, d queue.Delivery) error {
	hook, err := store.WaitingHook(ctx, pg.NewPool(h.pool), d.Project, d.RunID, entities.HookID(d.Subject))
	if errors.Is(err, entities.ErrHookNotFound) {
		return d.End(ctx)
	}
	if err != nil {
		return err
	}
	created, err := h.log.Event(ctx, d.Project, d.RunID, hook.CreatedSeq)
	if err != nil {
		return err
	}
	cursor := store.SignalPlace{
		CreatedAt: hook.CreatedAt.Add(-time.Duration(created.Data.LookBackMS) * time.Millisecond),
	}
	if err := loadCursor(d, &cursor); err != nil {
		return err
	}
	for {
		signals, err := store.EarlierSignals(ctx, pg.NewPool(h.pool), hook.Hook, cursor, signalsPage)
		if err != nil {
			return err
		}
		for _, s := range signals {
			signal, err := decodeSignal(s)
			if err != nil {
				return err
			}
			if err := h.resume(ctx, d, signal, hook); err != nil {
				return err
			}
			cursor = s.Place()
		}
		if len(signals) < signalsPage {
			return d.End(ctx)
		}
		if err := h.saveCursor(ctx, d, cursor); err != nil {
			return err
		}
	}
}

// loadCursor reads the cursor that an earlier attempt stored. On the first attempt it leaves the cursor unchanged.
func loadCursor(d queue.Delivery, cursor any) error {
	if len(d.Body) == 0 {
		return nil
	}
	if err := json.Unmarshal(d.Body, cursor); err != nil {
		return fmt.Errorf("decode cursor: %w", err)
	}
	return nil
}

// saveCursor stores the cursor in the message and extends the lease.
func (h signalDispatch) saveCursor(ctx context.Context, d queue.Delivery, cursor any) error {
	text, err := json.Marshal(cursor)
	if err != nil {
		return fmt.Errorf("encode cursor: %w", err)
	}
	return d.Advance(ctx, text)
}
