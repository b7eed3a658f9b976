package read

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// HookHistory is the state of a hook according to the log, because the hook's row may be deleted.
type HookHistory struct {
	RunID entities.RunID
	ID    entities.HookID
	// Seq is the position of its hook_created or hook_conflict, and CreatedAt the time of that event.
	Seq       int64
	CreatedAt time.Time
	// Type is the type of that event. After a hook_conflict the hook never had its token.
	Type entities.EventType
	// Data is the data of that event.
	Data entities.EventData
	// ReceivedAt is the time of the last hook_received; nil if there was none.
	ReceivedAt *time.Time
	// DisposedAt is when the hook was disposed of, explicitly or by the end of its run and of its retention; nil if it
	// is live.
	DisposedAt *time.Time
	// ClosedAt is when its run disposed of it explicitly; nil if it did not.
	ClosedAt *time.Time
	// RunEndedAt is when the run ended; nil if it has not.
	RunEndedAt *time.Time
}

// setDisposedAt computes the end of a hook that has no hook_disposed.
func (h *HookHistory) setDisposedAt(now time.Time) {
	if h.Type != entities.EventHookCreated || h.DisposedAt != nil || h.RunEndedAt == nil {
		return
	}
	end := h.RunEndedAt
	if until := h.Data.TokenRetentionUntil; until != nil && until.After(*end) {
		end = until
	}
	if !end.After(now) {
		h.DisposedAt = end
	}
}

// WaitHistory is the state of a wait according to the log, because the wait's row may be deleted.
type WaitHistory struct {
	RunID entities.RunID
	ID    entities.WaitID
	// Seq is the position of its wait_created, and CreatedAt the time of that event.
	Seq       int64
	CreatedAt time.Time
	// Data is the data of that event, with the time at which the wait ends.
	Data entities.EventData
	// CompletedAt is when the wait was completed or cancelled; nil if it was not, as when its run ended first. Cancelled
	// says which.
	CompletedAt *time.Time
	Cancelled   bool
}

// Status returns the status of the wait.
func (w WaitHistory) Status() entities.WaitStatus {
	switch {
	case w.CompletedAt == nil:
		return entities.WaitWaiting
	case w.Cancelled:
		return entities.WaitCancelled
	default:
		return entities.WaitCompleted
	}
}

// joinLatest returns a join with the time of an entity's latest event of the type, as column "at" of a table with the
// name.
func joinLatest(name string, event entities.EventType) string {
	return fmt.Sprintf(` CROSS JOIN LATERAL (SELECT (
		SELECT e.created_at FROM events e
		WHERE e.run_id = made.run_id AND e.correlation_id = made.correlation_id AND e.correlation_id <> ''
			AND e.%s = '%s'
		ORDER BY e.%s DESC LIMIT 1) AS at) %s`, store.OfType, event, store.BySeq, name)
}

var (
	hookHistory = `
		SELECT made.run_id, made.correlation_id AS id, made.seq, made.created_at, made.type, made.data,
			received.at AS received_at, disposed.at AS disposed_at, disposed.at AS closed_at, r.completed_at AS run_ended_at
		FROM events made JOIN runs r ON r.id = made.run_id` +
		joinLatest("received", entities.EventHookReceived) + joinLatest("disposed", entities.EventHookDisposed) + `
		WHERE made.type IN ('hook_created', 'hook_conflict')`

	waitHistory = `
		SELECT made.run_id, made.correlation_id AS id, made.seq, made.created_at, made.data,
			coalesce(completed.at, cancelled.at) AS completed_at, cancelled.at IS NOT NULL AS cancelled
		FROM events made JOIN runs r ON r.id = made.run_id` +
		joinLatest("completed", entities.EventWaitCompleted) + joinLatest("cancelled", entities.EventWaitCancelled) + `
		WHERE made.type = 'wait_created'`
)

// HookHistories reads a page of all hooks that a run ever had or asked for, in the order of their creation. It also
// returns the cursor of the next page, which is empty after the last. A run of another project has no hooks. It fails
// with [entities.ErrInvalid] on an invalid cursor.
func (l *Log) HookHistories(
	ctx context.Context, project entities.Project, runID entities.RunID, p pg.Page,
) ([]HookHistory, string, error) {
	hooks, next, err := histories(ctx, l, hookHistory, project, runID, p, func(h HookHistory) int64 { return h.Seq })
	for i := range hooks {
		hooks[i].setDisposedAt(l.Now())
	}
	return hooks, next, err
}

// WaitHistories reads a page of all waits that a run ever had, or of those with the status if that is not empty. Order,
// cursors and errors are as for [Log.HookHistories].
func (l *Log) WaitHistories(
	ctx context.Context, project entities.Project, runID entities.RunID, status entities.WaitStatus, p pg.Page,
) ([]WaitHistory, string, error) {
	sql := waitHistory
	switch status {
	case "":
	case entities.WaitWaiting:
		sql += ` AND completed.at IS NULL AND cancelled.at IS NULL`
	case entities.WaitCompleted:
		sql += ` AND completed.at IS NOT NULL`
	case entities.WaitCancelled:
		sql += ` AND cancelled.at IS NOT NULL`
	default:
		return nil, "", entities.Invalid("%q is not a wait status", status)
	}
	return histories(ctx, l, sql, project, runID, p, func(w WaitHistory) int64 { return w.Seq })
}

// histories reads a page of a run's entities, in the order of the events that created them.
func histories[T any](
	ctx context.Context, l *Log, sql string, project entities.Project, runID entities.RunID, p pg.Page,
	seq func(T) int64,
) ([]T, string, error) {
	from, err := parsePosition(p.Cursor)
	if err != nil {
		return nil, "", err
	}
	q := pageQuery{Page: p, args: pg.Args{runID, project}}
	sql += ` AND made.run_id = $1 AND r.project IS NOT DISTINCT FROM $2`
	order, after := q.Order()
	if p.Cursor != "" {
		sql += ` AND made.seq ` + after + ` ` + q.args.Add(from)
	}
	rows, err := l.pool.Query(ctx, sql+` ORDER BY made.seq `+order+q.limit(), q.args...)
	items, next, err := pg.CollectPage(rows, err, p.Limit, func(item T) string {
		return strconv.FormatInt(seq(item), 10)
	})
	return items, next, pg.Wrap(err, "read histories of %s", runID)
}

// HookHistory reads the history of a hook. An empty runID means any run of the project. It fails with
// [entities.ErrHookNotFound].
func (l *Log) HookHistory(
	ctx context.Context, project entities.Project, runID entities.RunID, id entities.HookID,
) (HookHistory, error) {
	hook, err := history[HookHistory](ctx, l, hookHistory, project, runID, string(id), entities.ErrHookNotFound)
	hook.setDisposedAt(l.Now())
	return hook, err
}

// WaitHistory reads the history of a wait. An empty runID means any run of the project. It fails with
// [entities.ErrWaitNotFound].
func (l *Log) WaitHistory(
	ctx context.Context, project entities.Project, runID entities.RunID, id entities.WaitID,
) (WaitHistory, error) {
	return history[WaitHistory](ctx, l, waitHistory, project, runID, string(id), entities.ErrWaitNotFound)
}

func history[T any](
	ctx context.Context, l *Log, sql string, project entities.Project, runID entities.RunID, id string, missing error,
) (T, error) {
	rows, err := l.pool.Query(ctx, sql+`
		AND made.correlation_id = $1 AND made.correlation_id <> '' AND r.project IS NOT DISTINCT FROM $2
		AND ($3::text = '' OR made.run_id = $3)
		ORDER BY made.run_id LIMIT 1`, id, project, runID)
	item, err := pg.CollectOne[T](rows, err, missing)
	if err != nil {
		return item, fmt.Errorf("read history of %s: %w", id, err)
	}
	return item, nil
}
