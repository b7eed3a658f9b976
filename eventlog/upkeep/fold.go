package upkeep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// A fold holds at most fetchSize events and the entities of spanSize correlation IDs in memory.
const (
	fetchSize = 1000
	spanSize  = 1000
)

// logFold folds the whole log of a run, however long, in bounded memory. It reads the events about the run first and
// then those of one correlation ID after another. That order is sound because the state of a step, hook or wait depends
// only on its own events and on the end of the run.
type logFold struct {
	runID   entities.RunID
	project entities.Project
	// fault is called for errors in the log itself. An illegal event is reported and not applied.
	fault func(entity, fault string)
	// onRun is called once, with the final state of the run.
	onRun func(*entities.Run) error
	// onSpan is then called for one span of IDs after another, with the entities in it. Together the spans cover all
	// IDs. The snapshot has the run that onRun received.
	onSpan func(*eventlog.Snapshot, store.Span) error

	shape shape
	run   *eventlog.Snapshot // the run alone, in its final state once all its events are read
	end   *entities.Event    // the event that ended the run; nil for a live one

	group   *eventlog.Snapshot // the entities of the current correlation ID; nil before the first
	groupID string
	claimed bool // whether a hook has used groupID

	span      *eventlog.Snapshot // the finished entities of the current span
	spanIDs   int                // the number of correlation IDs in it
	spanAfter string             // the last ID of the span before it
}

// errRunNotCreated ends the fold of a log that never creates its run.
var errRunNotCreated = errors.New("the log creates no run")

// shape summarizes a log.
type shape struct {
	LastSeq int64
	LastAt  time.Time
	// Gap is the first event whose predecessor is missing, and Backward the first that is older than its predecessor;
	// 0 for none.
	Gap, Backward int64
	// InBand is how many events a run with a fence counts as in-band.
	InBand int64
}

// fold folds the log that the transaction sees.
func (f *logFold) fold(ctx context.Context, tx pgx.Tx) error {
	if err := f.checkShape(ctx, tx); err != nil {
		return err
	}
	err := f.read(ctx, tx)
	if errors.Is(err, errRunNotCreated) {
		f.fault("log", errRunNotCreated.Error())
		return nil
	}
	return err
}

func (f *logFold) read(ctx context.Context, tx pgx.Tx) error {
	f.run, f.span = eventlog.NewSnapshot(f.project), eventlog.NewSnapshot(f.project)
	if err := declareCursor(ctx, tx, f.runID); err != nil {
		return err
	}
	for more := true; more; {
		events, err := fetch(ctx, tx)
		if err != nil {
			return err
		}
		more = len(events) == fetchSize
		for _, e := range events {
			if err := f.add(e); err != nil {
				return err
			}
		}
	}
	if _, err := tx.Exec(ctx, `CLOSE log`); err != nil {
		return fmt.Errorf("read log of %s: %w", f.runID, err)
	}
	return f.finish()
}

// checkShape reports gaps and backward steps in time. The fold itself cannot see them, as it reads the log in another
// order.
func (f *logFold) checkShape(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `
		SELECT coalesce(max(seq), 0) AS last_seq,
			coalesce((SELECT created_at FROM events WHERE run_id = $1 ORDER BY seq DESC LIMIT 1), 'epoch') AS last_at,
			coalesce(min(seq) FILTER (WHERE seq <> position), 0) AS gap,
			coalesce(min(seq) FILTER (WHERE created_at < before), 0) AS backward,
			count(*) FILTER (WHERE in_band) AS in_band
		FROM (
			SELECT seq, created_at, type = 'run_created' OR data ? 'inBand' AS in_band,
				row_number() OVER log AS position, lag(created_at) OVER log AS before
			FROM events WHERE run_id = $1 WINDOW log AS (ORDER BY seq)
		) placed`, f.runID)
	if f.shape, err = pg.CollectOne[shape](rows, err, pgx.ErrNoRows); err != nil {
		return fmt.Errorf("check log of %s: %w", f.runID, err)
	}
	if f.shape.Gap > 0 {
		f.fault(fmt.Sprintf("event %d", f.shape.Gap), "the event before it is missing")
	}
	if f.shape.Backward > 0 {
		f.fault(fmt.Sprintf("event %d", f.shape.Backward), "it is older than the event before it")
	}
	return nil
}

// declareCursor opens a cursor on the log, without payloads that no row has: the events about the run, then the others
// grouped by correlation ID, each group in log order. A cursor lets Postgres, not this process, hold the sorted log.
func declareCursor(ctx context.Context, tx pgx.Tx, runID entities.RunID) error {
	_, err := tx.Exec(ctx, `
		DECLARE log NO SCROLL CURSOR FOR
		SELECT run_id, seq, type, correlation_id, spec_version, created_at, occurred_at, data,
			NULL::bytea AS extra, CASE WHEN type = 'store_set' THEN payload END AS payload
		FROM events WHERE run_id = $1
		ORDER BY type <> ALL ($2::text[]), CASE WHEN type <> ALL ($2) THEN correlation_id END, seq`,
		runID, slices.Sorted(maps.Keys(entities.Runs)))
	if err != nil {
		return fmt.Errorf("read log of %s: %w", runID, err)
	}
	return nil
}

// fetch reads the next events from the cursor; fewer than fetchSize are the last.
func fetch(ctx context.Context, tx pgx.Tx) ([]entities.Event, error) {
	events, err := pg.CollectAll[entities.Event](tx.Query(ctx, fmt.Sprintf(`FETCH %d FROM log`, fetchSize)))
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	return events, nil
}

// add folds the next event in the order of the cursor.
func (f *logFold) add(e entities.Event) error {
	if e.Type.Kind() == entities.KindRun {
		f.addToRun(e)
		return nil
	}
	if f.run.Run == nil {
		return errRunNotCreated
	}
	if f.group == nil || e.CorrelationID != f.groupID {
		if err := f.startGroup(e.CorrelationID); err != nil {
			return err
		}
	}
	// An event after the end applies to the entity as the end left it.
	if f.end != nil && e.Seq > f.end.Seq {
		f.endGroup()
	}
	if f.isLegal(f.group, e) {
		f.group.Apply(e)
		f.claimed = f.claimed || e.Type == entities.EventHookCreated || e.Type == entities.EventHookConflict
	}
	return nil
}

// addToRun folds an event about the run. It remembers the end, which the groups still have to see.
func (f *logFold) addToRun(e entities.Event) {
	if !f.isLegal(f.run, e) {
		return
	}
	f.run.Apply(e)
	if f.end == nil && f.run.Run.Status.Ended() {
		f.end = &e
	}
}

// isLegal reports whether the transition tables allow an event of the log, and reports a fault if not.
func (f *logFold) isLegal(s *eventlog.Snapshot, e entities.Event) bool {
	err := s.CheckNext(e, f.claimed)
	if err != nil {
		f.fault(fmt.Sprintf("event %d", e.Seq), fmt.Sprintf("%s is not legal: %v", e.Type, err))
	}
	return err == nil
}

// startGroup finishes the current group and starts that of another correlation ID.
func (f *logFold) startGroup(id string) error {
	if err := f.finishGroup(); err != nil {
		return err
	}
	f.groupID, f.claimed = id, false
	// The run was live when the group's events up to f.end were appended.
	run := *f.run.Run
	run.Status = entities.RunRunning
	f.group = eventlog.NewSnapshot(f.project)
	f.group.Run = &run
	return nil
}

// endGroup applies the end of the run to the current group: it releases hooks and waits.
func (f *logFold) endGroup() {
	if !f.group.Run.Status.Ended() {
		f.group.Apply(*f.end)
	}
}

// finishGroup adds the current group to the span. Before the first group, when all events about the run are read, it
// passes on the run instead.
func (f *logFold) finishGroup() error {
	if f.group == nil {
		// Every event advances these, including the events of later groups.
		f.run.Run.LastSeq, f.run.Run.UpdatedAt = f.shape.LastSeq, f.shape.LastAt
		if f.run.Run.Fenced() {
			f.run.Run.SeqInBand = f.shape.InBand
		}
		return f.onRun(f.run.Run)
	}
	if f.end != nil {
		f.endGroup()
	}
	maps.Copy(f.span.Steps, f.group.Steps)
	maps.Copy(f.span.Hooks, f.group.Hooks)
	maps.Copy(f.span.Waits, f.group.Waits)
	if f.spanIDs++; f.spanIDs < spanSize {
		return nil
	}
	return f.finishSpan(f.groupID)
}

// finishSpan passes on the entities up to that ID.
func (f *logFold) finishSpan(upTo string) error {
	f.span.Run, f.span.Store = f.run.Run, f.run.Store
	if err := f.onSpan(f.span, store.Span{After: f.spanAfter, UpTo: upTo}); err != nil {
		return err
	}
	f.span, f.spanIDs, f.spanAfter = eventlog.NewSnapshot(f.project), 0, upTo
	return nil
}

// finish passes on the rest. The last span is open-ended, so that rows beyond all IDs of the log are found.
func (f *logFold) finish() error {
	if f.run.Run == nil {
		return errRunNotCreated
	}
	if err := f.finishGroup(); err != nil {
		return err
	}
	return f.finishSpan(store.LastID)
}
