package read

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
)

// EventFilter narrows the list of a run's events; empty fields match everything.
type EventFilter struct {
	Type entities.EventType
	// CorrelationID is that of the step, hook, wait or change the events are about.
	CorrelationID string
}

// FilteredEvents reads a page of those of a run's events that match the filter, without their payloads.
// Cursors and errors are as for [Log.Events], but a run that the project does not have has no events.
func (l *Log) FilteredEvents(
	ctx context.Context, project entities.Project, runID entities.RunID, f EventFilter, p pg.Page,
) (EventPage, error) {
	where := `run_id = (SELECT id FROM runs WHERE ` + store.OfRun + `)`
	args := []any{runID, project}
	if f.Type != "" {
		args = append(args, f.Type)
		where += ` AND type = $` + strconv.Itoa(len(args))
	}
	if f.CorrelationID != "" {
		args = append(args, f.CorrelationID)
		where += ` AND correlation_id <> '' AND correlation_id = $` + strconv.Itoa(len(args))
	}
	return l.eventsWhere(ctx, p, WithoutPayloads, where, args...)
}

// LastStarts reads, of each of a run's steps, the latest step_started, without its payload. Steps that
// never started are left out.
func (l *Log) LastStarts(
	ctx context.Context, runID entities.RunID, steps []entities.StepID,
) (map[entities.StepID]entities.Event, error) {
	rows, err := l.pool.Query(ctx, `
		SELECT last.* FROM unnest($2::text[]) AS step (id)
		CROSS JOIN LATERAL (
			SELECT `+WithoutPayloads.columns()+` FROM events
			WHERE run_id = $1 AND correlation_id = step.id AND correlation_id <> '' AND type = 'step_started'
			ORDER BY seq DESC LIMIT 1) last`, runID, steps)
	if err != nil {
		return nil, fmt.Errorf("read starts: %w", err)
	}
	events, err := pgx.CollectRows(rows, pgx.RowToStructByName[entities.Event])
	if err != nil {
		return nil, fmt.Errorf("read starts: %w", err)
	}
	starts := make(map[entities.StepID]entities.Event, len(events))
	for _, e := range events {
		starts[entities.StepID(e.CorrelationID)] = e
	}
	return starts, nil
}

// HookHistory is what the log has of a hook, which outlives its row.
type HookHistory struct {
	RunID entities.RunID
	ID    entities.HookID
	// Seq is the position of its hook_created or hook_conflict, and CreatedAt the time.
	Seq       int64
	CreatedAt time.Time
	// Type says which: with a hook_conflict it never had its token.
	Type entities.EventType
	// Data is that of that event.
	Data entities.EventData
	// ReceivedAt is when it last received something.
	ReceivedAt *time.Time
	// DisposedAt is when it was disposed of, by itself or by the end of its run and of its retention.
	DisposedAt *time.Time
	// RunEndedAt is when its run ended.
	RunEndedAt *time.Time
}

// settle works out the end of a hook that nobody disposed of.
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

// WaitHistory is what the log has of a wait, which outlives its row.
type WaitHistory struct {
	RunID entities.RunID
	ID    entities.WaitID
	// Seq is the position of its wait_created, and CreatedAt the time.
	Seq       int64
	CreatedAt time.Time
	// Data is that of that event; it says when the wait is to be over.
	Data entities.EventData
	// CompletedAt is when it was over; nil for good when its run ended before.
	CompletedAt *time.Time
}

// Status is where the wait stands.
func (w WaitHistory) Status() entities.WaitStatus {
	if w.CompletedAt != nil {
		return entities.WaitCompleted
	}
	return entities.WaitWaiting
}

// latest joins when an entity's latest event of a type was, under a name.
func joinLatest(name string, event entities.EventType) string {
	return fmt.Sprintf(` CROSS JOIN LATERAL (SELECT (
		SELECT e.created_at FROM events e
		WHERE e.run_id = made.run_id AND e.correlation_id = made.correlation_id AND e.correlation_id <> ''
			AND e.type = '%s'
		ORDER BY e.seq DESC LIMIT 1) AS at) %s`, event, name)
}

var (
	hookHistory = `
		SELECT made.run_id, made.correlation_id AS id, made.seq, made.created_at, made.type, made.data,
			received.at AS received_at,
			disposed.at AS disposed_at, r.completed_at AS run_ended_at
		FROM events made JOIN runs r ON r.id = made.run_id` +
		joinLatest("received", entities.EventHookReceived) + joinLatest("disposed", entities.EventHookDisposed) + `
		WHERE made.type IN ('hook_created', 'hook_conflict')`

	waitHistory = `
		SELECT made.run_id, made.correlation_id AS id, made.seq, made.created_at, made.data,
			completed.at AS completed_at
		FROM events made JOIN runs r ON r.id = made.run_id` +
		joinLatest("completed", entities.EventWaitCompleted) + `
		WHERE made.type = 'wait_created'`
)

// HookHistories reads a page of all the hooks that a run ever had or asked for, in the order of their
// creation, and the cursor of the next page; empty when this is the last. A run of another project has none.
// It fails with [entities.ErrInvalid] on a cursor that is not of this list.
func (l *Log) HookHistories(
	ctx context.Context, project entities.Project, runID entities.RunID, p pg.Page,
) ([]HookHistory, string, error) {
	hooks, next, err := histories(ctx, l, hookHistory, project, runID, p,
		func(h HookHistory) int64 { return h.Seq })
	for i := range hooks {
		hooks[i].setDisposedAt(l.Now())
	}
	return hooks, next, err
}

// WaitHistories reads a page of all the waits that a run ever had, those of a status when it is not empty.
// Order, cursors and errors are as for [Log.HookHistories].
func (l *Log) WaitHistories(
	ctx context.Context, project entities.Project, runID entities.RunID, status entities.WaitStatus, p pg.Page,
) ([]WaitHistory, string, error) {
	sql := waitHistory
	switch status {
	case "":
	case entities.WaitWaiting:
		sql += ` AND completed.at IS NULL`
	case entities.WaitCompleted:
		sql += ` AND completed.at IS NOT NULL`
	default:
		return nil, "", entities.Invalid("%q is not a status a wait can have", status)
	}
	return histories(ctx, l, sql, project, runID, p,
		func(w WaitHistory) int64 { return w.Seq })
}

// histories reads a page of a run's entities by the events that made them.
func histories[T any](
	ctx context.Context, l *Log, sql string, project entities.Project, runID entities.RunID, p pg.Page,
	seq func(T) int64,
) ([]T, string, error) {
	args := []any{runID, project, p.Limit + 1}
	sql += ` AND made.run_id = $1 AND r.project IS NOT DISTINCT FROM $2`
	order, after := "ASC", ">"
	if p.Descending {
		order, after = "DESC", "<"
	}
	if p.Cursor != "" {
		from, err := strconv.ParseInt(p.Cursor, 10, 64)
		if err != nil {
			return nil, "", &pg.CursorError{Cursor: p.Cursor}
		}
		args = append(args, from)
		sql += ` AND made.seq ` + after + ` $4`
	}
	rows, err := l.pool.Query(ctx, sql+` ORDER BY made.seq `+order+` LIMIT $3`, args...)
	if err != nil {
		return nil, "", fmt.Errorf("read histories of %s: %w", runID, err)
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
	if err != nil {
		return nil, "", fmt.Errorf("read histories of %s: %w", runID, err)
	}
	if len(items) <= p.Limit {
		return items, "", nil
	}
	items = items[:p.Limit]
	return items, strconv.FormatInt(seq(items[p.Limit-1]), 10), nil
}

// HookHistory reads what the log has of a hook of one of the project's runs; an empty runID means whichever
// run has it. It fails with [entities.ErrHookNotFound].
func (l *Log) HookHistory(
	ctx context.Context, project entities.Project, runID entities.RunID, id entities.HookID,
) (HookHistory, error) {
	hook, err := history[HookHistory](ctx, l, hookHistory, project, runID, string(id), entities.ErrHookNotFound)
	hook.setDisposedAt(l.Now())
	return hook, err
}

// WaitHistory reads what the log has of a wait. It fails with [entities.ErrWaitNotFound].
func (l *Log) WaitHistory(
	ctx context.Context, project entities.Project, runID entities.RunID, id entities.WaitID,
) (WaitHistory, error) {
	return history[WaitHistory](ctx, l, waitHistory, project, runID, string(id),
		entities.ErrWaitNotFound)
}

func history[T any](
	ctx context.Context, l *Log, sql string, project entities.Project, runID entities.RunID, id string, missing error,
) (T, error) {
	var none T
	rows, err := l.pool.Query(ctx, sql+`
		AND made.correlation_id = $1 AND made.correlation_id <> '' AND r.project IS NOT DISTINCT FROM $2
		AND ($3::text = '' OR made.run_id = $3)
		ORDER BY made.run_id LIMIT 1`, id, project, runID)
	if err != nil {
		return none, fmt.Errorf("read history of %s: %w", id, err)
	}
	item, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[T])
	if errors.Is(err, pgx.ErrNoRows) {
		err = missing
	}
	if err != nil {
		return none, fmt.Errorf("read history of %s: %w", id, err)
	}
	return item, nil
}
