package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/flow/condition"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/starts/trigger/triggers"
)

// Before the hooks come the triggers that wait for the signal, once: each that matches gets work of its own, and a
// cursor says that this is done; see package triggers.
//
// Two kinds of work match signals with waiting hooks. Dispatch, enqueued with a signal, goes through the hooks. Replay,
// enqueued with a hook, goes through earlier signals: those for which it looks back, and those of the last minute that
// its run has missed, because none of its hooks was open. Both are enqueued in the transaction of the
// signal or hook itself, so they start after that commit and see everything committed before.
//
// No signal is lost: of a signal and a hook, the one that commits second has work that sees the other. No signal is
// received twice: if both see each other, or work is repeated after a crash, they append a resumption with the same ID,
// which the log records only once under the run's lock. A run that listens again does not receive it again: both leave
// out hooks that were created after the run had received the signal.
//
// After each page the work stores a cursor in its message. Everything before the cursor is done. A row that appears
// before it later was committed after the work started, and the other kind of work sees it.

const (
	// hooksPage is the number of hooks after which dispatch stores its cursor, and pageTime the time it spends on their
	// conditions before it does. Replay stores its cursor after that time.
	hooksPage = 200
	pageTime  = time.Second
	// signalsPage is the number of signals that replay reads at once. It is small, since a signal may have [MaxSignal]
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
	s, err := h.pastTriggers(ctx, d)
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
		hooks, err := store.WaitingFor(ctx, pg.NewPool(h.pool), s, next.RunID, next.ID, h.page)
		if err != nil {
			return err
		}
		evaluated, matching, err := h.match(ctx, d, s, hooks)
		if err != nil {
			return err
		}
		if err := h.resumeAll(ctx, d, s, matching); err != nil {
			failed = err
		}
		if evaluated == len(hooks) && len(hooks) < h.page {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		last := hooks[evaluated-1]
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

// pastTriggers returns the signal of a delivery, which has gone through its triggers.
func (h signalDispatch) pastTriggers(ctx context.Context, d queue.Delivery) (store.Signal, error) {
	due, err := store.SignalByID(ctx, pg.NewPool(h.pool), d.Project, store.SignalID(d.Subject))
	if err == nil && due.Triggers && len(d.Body) == 0 {
		err = h.triggers.Signal(ctx, d, due.Signal)
	}
	return due.Signal, err
}

// match evaluates the conditions of the hooks in their order, until [pageTime] is over. It returns how many hooks it
// has evaluated, at least one, and those that match the signal. It fails if the signal is invalid or the context ends.
func (h signalDispatch) match(
	ctx context.Context, d queue.Delivery, s store.Signal, hooks []store.Waiting,
) (evaluated int, matching []store.Waiting, err error) {
	if len(hooks) == 0 {
		return 0, nil, nil
	}
	release, err := triggers.AcquireConditions(ctx, h.conditions, d.Project)
	if err != nil {
		return 0, nil, err
	}
	defer release()
	value, err := condition.Decode(s.Data)
	if err != nil {
		return 0, nil, fmt.Errorf("signal %s: %w", s.ID, err)
	}
	var problems problems
	end := h.log.Now().Add(pageTime)
	for ; evaluated < len(hooks) && (evaluated == 0 || h.log.Now().Before(end)); evaluated++ {
		hook := hooks[evaluated]
		matches, err := h.conditions.Matches(ctx, hook.Condition, condition.Variables{
			Data: value, SignalName: s.Name, SignalID: s.ID, RunID: hook.RunID, Attributes: hook.Attributes,
		})
		if ctx.Err() != nil {
			return 0, nil, ctx.Err()
		}
		if matches {
			matching = append(matching, hook)
		}
		problems.add(hook, err)
	}
	problems.log(ctx, d.Logger(), s)
	return evaluated, matching, nil
}

// problems are the conditions that could not be evaluated for a signal. Their hooks do not receive it.
type problems struct {
	limited, failed int
	// hook is the first hook whose condition exceeds the limits, and reason the limit.
	hook   entities.Hook
	reason error
}

// add counts the condition of the hook, if there is an error.
func (p *problems) add(hook store.Waiting, err error) {
	switch {
	case err == nil:
	case errors.Is(err, condition.ErrLimit) || errors.Is(err, entities.ErrInvalid):
		if p.limited++; p.limited == 1 {
			p.hook, p.reason = hook.Hook, err
		}
	default:
		p.failed++
	}
}

// log logs the problems in at most two lines. Other errors than limits are left out: they may quote the signal, and
// are usual for signals that lack a field.
func (p *problems) log(ctx context.Context, logger *slog.Logger, s store.Signal) {
	if p.limited > 0 {
		logger.WarnContext(ctx, "conditions exceed their limits, so their hooks do not receive the signal",
			"project", s.Project, "signal", s.ID, "hooks", p.limited, "run", p.hook.RunID, "hook", p.hook.ID, "error", p.reason)
	}
	if p.failed > 0 {
		logger.DebugContext(ctx, "conditions cannot be evaluated, so they do not match",
			"project", s.Project, "signal", s.ID, "hooks", p.failed)
	}
}

// resumeAll resumes the hooks. It tries all of them, and fails if one could not be resumed.
func (h signalDispatch) resumeAll(ctx context.Context, d queue.Delivery, s store.Signal, hooks []store.Waiting) error {
	var all errgroup.Group
	all.SetLimit(h.parallel)
	for _, hook := range hooks {
		all.Go(func() error {
			return rescue.Do(ctx, "resume", func() error { return h.resume(ctx, d, s, hook.Hook) })
		})
	}
	return all.Wait()
}

// resume resumes a hook in a transaction of its own. It skips a hook that has been closed meanwhile, or whose run has
// ended (I7).
func (h signalDispatch) resume(ctx context.Context, d queue.Delivery, s store.Signal, hook entities.Hook) error {
	_, err := h.log.Append(ctx, s.Project, eventlog.Request{
		RunID: hook.RunID, Type: entities.EventHookReceived, CorrelationID: string(hook.ID),
		SpecVersion: entities.SpecDriven, Payload: signalPayload(s),
		Data: entities.EventData{ResumeID: string(s.ID) + ":" + string(hook.ID), Via: webhook.ViaSignal},
	})
	if errors.Is(err, webhook.ErrUnverified) { // in earlier versions such a hook could wait for signals too
		d.Logger().WarnContext(ctx, "hook accepts only signed requests, so it does not receive the signal",
			"run", hook.RunID, "hook", hook.ID, "signal", s.ID)
		return nil
	}
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
func (h signalDispatch) end(ctx context.Context, d queue.Delivery, s store.Signal) error {
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
	lookBack := time.Duration(created.Data.LookBackMS) * time.Millisecond
	cursor := store.SignalPlace{CreatedAt: hook.CreatedAt.Add(-max(lookBack, store.Remembered))}
	if err := loadCursor(d, &cursor); err != nil {
		return err
	}
	for saved := h.log.Now(); ; {
		signals, err := store.EarlierSignals(ctx, pg.NewPool(h.pool), hook.Hook, lookBack, cursor, signalsPage)
		if err != nil {
			return err
		}
		for _, s := range signals {
			_, matching, err := h.match(ctx, d, s, []store.Waiting{hook})
			if err != nil {
				return err
			}
			if err := h.resumeAll(ctx, d, s, matching); err != nil {
				return err
			}
			cursor = s.Place()
		}
		if len(signals) < signalsPage {
			return d.End(ctx)
		}
		if h.log.Now().Before(saved.Add(pageTime)) {
			continue
		}
		if err := h.saveCursor(ctx, d, cursor); err != nil {
			return err
		}
		saved = h.log.Now()
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
