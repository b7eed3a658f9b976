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

// Signals and waiting hooks are matched by two kinds of work: dispatch, enqueued with a signal, goes through the hooks;
// replay, enqueued with a hook that looks back, goes through earlier signals. Each is enqueued in the transaction of
// the signal or hook itself, so it starts after that commit and sees everything committed before. Whichever of the two
// is committed second, its work sees the other: no signal is lost. If both see each other, or work is repeated after a
// crash, they ask for a resumption of the same ID, which the log records once under the run's lock: none is doubled.
//
// After each page the work stores its position in its message. Everything before the position is done. A row that
// appears there later was committed after the work began, and is seen by the other kind of work.

const (
	// hooksPage is the number of hooks after which dispatch stores its position.
	hooksPage = 200
	// signalsPage is the same for replay; each signal may have [MaxSignal] bytes.
	signalsPage = 16
	// resumers is how many hooks a signal resumes concurrently.
	resumers = 4
)

// signalDispatch does both kinds of work.
type signalDispatch struct {
	*Engine

	page     int
	parallel int
}

func newSignalDispatch(e *Engine) signalDispatch { return signalDispatch{e, hooksPage, resumers} }

// hookCursor is a position in the order in which a signal goes through hooks.
type hookCursor struct {
	RunID entities.RunID  `json:"runId"`
	ID    entities.HookID `json:"id"`
}

// dispatch resumes every hook that waited for the dispatch when it was recorded. A hook that cannot be resumed for now does
// not hold up the others: the work is retried for it.
func (h signalDispatch) dispatch(ctx context.Context, d queue.Delivery) error {
	s, err := h.load(ctx, d)
	if errors.Is(err, store.ErrSignalNotFound) {
		return d.End(ctx)
	}
	if err != nil {
		return err
	}
	var place hookCursor
	if err := loadCursor(d, &place); err != nil {
		return err
	}
	var failed error
	for next := place; ; {
		hooks, err := store.WaitingFor(ctx, h.pool, d.Project, s.Name, next.RunID, next.ID, h.page)
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
			place = next // a retry begins before the first failure
		}
		if err := h.saveCursor(ctx, d, place); err != nil {
			return err
		}
	}
	if failed != nil {
		return failed
	}
	return h.end(ctx, d, s)
}

// resumeAll resumes the hooks that match the signal, and fails if one could not be resumed.
func (h signalDispatch) resumeAll(ctx context.Context, d queue.Delivery, s decodedSignal, hooks []store.Waiting) error {
	var all errgroup.Group
	all.SetLimit(h.parallel)
	for _, hook := range hooks {
		all.Go(func() error { return h.resume(ctx, d, s, hook) })
	}
	return all.Wait()
}

// decodedSignal is a signal with its decoded data.
type decodedSignal struct {
	store.Signal

	value any
}

func (h signalDispatch) load(ctx context.Context, d queue.Delivery) (decodedSignal, error) {
	s, err := store.SignalByID(ctx, h.pool, d.Project, store.SignalID(d.Subject))
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

// resume resumes a hook in a transaction of its own if its condition holds for the signal. A hook that was closed
// meanwhile, by its run or with it, is skipped (I7).
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

// isClosed reports whether an error means that a hook is no longer open.
func isClosed(err error) bool {
	return errors.Is(err, entities.ErrHookNotFound) || errors.Is(err, entities.ErrConflict) ||
		errors.Is(err, entities.ErrRunEnded) || errors.Is(err, entities.ErrRunNotFound)
}

// signalPayload is what the hook receives: {"signal": name, "id", "data"}, with the data unchanged.
func signalPayload(s store.Signal) []byte {
	head, err := json.Marshal(struct {
		Signal string         `json:"signal"`
		ID     store.SignalID `json:"id"`
	}{s.Name, s.ID})
	if err != nil {
		panic(err) // two strings
	}
	b := append(head[:len(head)-1], `,"data":`...)
	return append(append(b, s.Data...), '}')
}

// end ends the work of a signal, and deletes the signal if it is not kept.
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

// replay resumes a hook with the signals that came before it, in their order, until it is closed.
func (h signalDispatch) replay(ctx context.Context, d queue.Delivery) error {
	hook, err := store.WaitingHook(ctx, h.pool, d.Project, d.RunID, entities.HookID(d.Subject))
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
	place := store.SignalPlace{
		CreatedAt: hook.CreatedAt.Add(-time.Duration(created.Data.LookBackMS) * time.Millisecond),
	}
	if err := loadCursor(d, &place); err != nil {
		return err
	}
	for {
		signals, err := store.EarlierSignals(ctx, h.pool, hook.Hook, place, signalsPage)
		if err != nil {
			return err
		}
		for _, s := range signals {
			opened, err := decodeSignal(s)
			if err != nil {
				return err
			}
			if err := h.resume(ctx, d, opened, hook); err != nil {
				return err
			}
			place = s.Place()
		}
		if len(signals) < signalsPage {
			return d.End(ctx)
		}
		if err := h.saveCursor(ctx, d, place); err != nil {
			return err
		}
	}
}

// loadCursor reads the position that an earlier attempt stored; the first attempt leaves place unchanged.
func loadCursor(d queue.Delivery, place any) error {
	if len(d.Body) == 0 {
		return nil
	}
	if err := json.Unmarshal(d.Body, place); err != nil {
		return fmt.Errorf("read place: %w", err)
	}
	return nil
}

// saveCursor stores the position and extends the lease.
func (h signalDispatch) saveCursor(ctx context.Context, d queue.Delivery, place any) error {
	text, err := json.Marshal(place)
	if err != nil {
		return fmt.Errorf("write place: %w", err)
	}
	return d.Advance(ctx, text)
}
