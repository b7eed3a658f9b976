package upkeep

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// A fold holds at most fetchSize events and the entities of spanSize correlation IDs and runs in memory.
const (
	fetchSize = 1000
	spanSize  = 1000
)

// span is what the logs of runs demand in a range of places. The snapshots have the rows of their runs as they were
// passed on, and of their entities those in the span.
type span struct {
	store.Span

	runs []*eventlog.Snapshot
}

// logFold folds the whole logs of runs, however long, in bounded memory. It reads one run after the other: first the
// events about the run, and then those of one correlation ID after another. That order is sound because the state of a
// step, hook or wait depends only on its own events and on the end of the run.
type logFold struct {
	runs []entities.Run // their rows, ordered by ID
	// fault is called for errors in a log itself. An illegal event is reported and not applied.
	fault func(run entities.RunID, entity, fault string)
	// onRun is called once for each run, with its final state.
	onRun func(*entities.Run) error
	// onSpan is called for one span after another. Together they cover all places of the runs. A run whose log does not
	// create it is in none.
	onSpan func(span) error

	shapes map[entities.RunID]shape
	next   int // the index of the run whose log follows that of the current one

	id      entities.RunID     // of the current run
	run     *eventlog.Snapshot // the run alone, in its final state once all its events are read
	end     *entities.Event    // the event that ended the run; nil for a live one
	skipped bool               // whether the rest of the log is left out, as it does not create the run

	group   *eventlog.Snapshot // the entities of the current correlation ID; nil before the first
	groupID string
	claimed bool // whether a hook has used groupID

	span     span // the finished entities since the last one
	spanSize int  // the number of correlation IDs and runs in it
}

// notCreated is the fault of a log that never creates its run.
const notCreated = "the log creates no run"

// shape summarizes a log.
type shape struct {
	RunID   entities.RunID
	LastSeq int64
	LastAt  time.Time
	// Gap is the first event whose predecessor is missing, and Backward the first that is older than its predecessor;
	// 0 for none.
	Gap, Backward int64
	// InBand is how many events a run with a fence counts as in-band.
	InBand int64
}

// fold folds the logs that the transaction sees.
func (f *logFold) fold(ctx context.Context, tx pgx.Tx) error {
	ids := make([]entities.RunID, len(f.runs))
	for i, r := range f.runs {
		ids[i] = r.ID
	}
	if err := f.checkShapes(ctx, tx, ids); err != nil {
		return err
	}
	if err := declareCursor(ctx, tx, ids); err != nil {
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
		return fmt.Errorf("read logs: %w", err)
	}
	return f.finish()
}

// checkShapes reports gaps and backward steps in time. The fold itself cannot see them, as it reads the logs in another
// order.
func (f *logFold) checkShapes(ctx context.Context, tx pgx.Tx, ids []entities.RunID) error {
	shapes, err := pg.CollectAll[shape](tx.Query(ctx, `
		SELECT run_id, max(seq) AS last_seq,
			(SELECT created_at FROM events e WHERE e.run_id = placed.run_id ORDER BY seq DESC LIMIT 1) AS last_at,
			coalesce(min(seq) FILTER (WHERE seq <> position), 0) AS gap,
			coalesce(min(seq) FILTER (WHERE created_at < before), 0) AS backward,
			count(*) FILTER (WHERE in_band) AS in_band
		FROM (
			SELECT run_id, seq, created_at, type = 'run_created' OR data ? 'inBand' AS in_band,
				row_number() OVER log AS position, lag(created_at) OVER log AS before
			FROM events WHERE run_id = ANY ($1) WINDOW log AS (PARTITION BY run_id ORDER BY seq)
		) placed GROUP BY run_id ORDER BY run_id`, ids))
	if err != nil {
		return fmt.Errorf("check logs: %w", err)
	}
	f.shapes = make(map[entities.RunID]shape, len(shapes))
	for _, s := range shapes {
		f.shapes[s.RunID] = s
		if s.Gap > 0 {
			f.fault(s.RunID, fmt.Sprintf("event %d", s.Gap), "the event before it is missing")
		}
		if s.Backward > 0 {
			f.fault(s.RunID, fmt.Sprintf("event %d", s.Backward), "it is older than the event before it")
		}
	}
	return nil
}

// declareCursor opens a cursor on the logs, without payloads that no row has: of each run the events about the run,
// then the others grouped by correlation ID, each group in log order. A cursor lets Postgres, not this process, hold
// the sorted logs.
func declareCursor(ctx context.Context, tx pgx.Tx, ids []entities.RunID) error {
	_, err := tx.Exec(ctx, `
		DECLARE log NO SCROLL CURSOR FOR
		SELECT run_id, seq, type, correlation_id, spec_version, created_at, occurred_at, data,
			NULL::bytea AS extra, CASE WHEN type = 'store_set' THEN payload END AS payload
		FROM events WHERE run_id = ANY ($1)
		ORDER BY run_id, type <> ALL ($2::text[]), CASE WHEN type <> ALL ($2) THEN correlation_id END, seq`,
		ids, slices.Sorted(maps.Keys(entities.Runs)))
	if err != nil {
		return fmt.Errorf("read logs: %w", err)
	}
	return nil
}

// fetch reads the next events from the cursor; fewer than fetchSize are the last.
func fetch(ctx context.Context, tx pgx.Tx) ([]entities.Event, error) {
	events, err := read.CollectEvents(tx.Query(ctx, fmt.Sprintf(`FETCH %d FROM log`, fetchSize)))
	if err != nil {
		return nil, fmt.Errorf("read logs: %w", err)
	}
	return events, nil
}

// add folds the next event in the order of the cursor.
func (f *logFold) add(e entities.Event) error {
	for e.RunID != f.id {
		if err := f.startRun(); err != nil {
			return err
		}
	}
	if e.Type.Kind() == entities.KindRun {
		f.addToRun(e)
		return nil
	}
	if f.skip() {
		return nil
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
		f.group.Apply(&e)
		f.claimed = f.claimed || e.Type == entities.EventHookCreated || e.Type == entities.EventHookConflict
	}
	return nil
}

// startRun finishes the current run and starts the next one.
func (f *logFold) startRun() error {
	if err := f.finishRun(); err != nil {
		return err
	}
	next := f.runs[f.next]
	f.next++
	f.id, f.run, f.end, f.skipped = next.ID, eventlog.NewSnapshot(next.Project), nil, false
	f.group, f.groupID = nil, ""
	return nil
}

// skip reports whether the run was not created, once all events about it are read. It reports that fault once.
func (f *logFold) skip() bool {
	if f.run.Run == nil && !f.skipped {
		f.skipped = true
		f.fault(f.id, "log", notCreated)
	}
	return f.skipped
}

// addToRun folds an event about the run. It remembers the end, which the groups still have to see.
func (f *logFold) addToRun(e entities.Event) {
	if !f.isLegal(f.run, e) {
		return
	}
	f.run.Apply(&e)
	if f.end == nil && f.run.Run.Status.Ended() {
		end := e // alone, since the event is large, and would be copied to the heap
		f.end = &end
	}
}

// isLegal reports whether the transition tables allow an event of the log, and reports a fault if not.
func (f *logFold) isLegal(s *eventlog.Snapshot, e entities.Event) bool {
	err := s.CheckNext(e, f.claimed)
	if err != nil {
		f.fault(f.id, fmt.Sprintf("event %d", e.Seq), fmt.Sprintf("%s is not legal: %v", e.Type, err))
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
	f.group = eventlog.NewSnapshot(f.run.Project)
	f.group.Run = &run
	return nil
}

// endGroup applies the end of the run to the current group: it releases hooks and waits.
func (f *logFold) endGroup() {
	if !f.group.Run.Status.Ended() {
		f.group.Apply(f.end)
	}
}

// finishGroup adds the current group to the span. Before the first group, when all events about the run are read, it
// passes on the run instead.
func (f *logFold) finishGroup() error {
	if f.group == nil {
		return f.passOn()
	}
	if f.end != nil {
		f.endGroup()
	}
	of := f.span.runs[len(f.span.runs)-1]
	maps.Copy(of.Steps, f.group.Steps)
	maps.Copy(of.Hooks, f.group.Hooks)
	maps.Copy(of.Waits, f.group.Waits)
	if f.spanSize++; f.spanSize < spanSize {
		return nil
	}
	if err := f.finishSpan(f.groupID); err != nil {
		return err
	}
	f.addToSpan()
	return nil
}

// passOn passes on the run, which is complete.
func (f *logFold) passOn() error {
	// Every event advances these, including the events of later groups.
	run, shape := f.run.Run, f.shapes[f.id]
	run.LastSeq, run.UpdatedAt = shape.LastSeq, shape.LastAt
	if run.Fenced() {
		run.SeqInBand = shape.InBand
	}
	f.addToSpan()
	f.spanSize++
	return f.onRun(run)
}

// addToSpan adds the current run to the span, without entities.
func (f *logFold) addToSpan() {
	s := eventlog.NewSnapshot(f.run.Project)
	s.Run, s.Store = f.run.Run, f.run.Store
	f.span.runs = append(f.span.runs, s)
	f.span.Runs = append(f.span.Runs, f.id)
}

// finishSpan passes on the entities up to that ID of the current run.
func (f *logFold) finishSpan(upTo string) error {
	f.span.UpTo = store.Place{RunID: f.id, ID: upTo}
	if err := f.onSpan(f.span); err != nil {
		return err
	}
	f.span, f.spanSize = span{Span: store.Span{After: f.span.UpTo}}, 0
	return nil
}

// finishRun finishes the current run, if there is one.
func (f *logFold) finishRun() error {
	if f.run == nil || f.skip() {
		return nil
	}
	if err := f.finishGroup(); err != nil || f.spanSize < spanSize {
		return err
	}
	return f.finishSpan(store.LastID)
}

// finish passes on the rest, and reports the runs without any event. The last span ends with all IDs of its run, so
// that rows beyond those of the log are found.
func (f *logFold) finish() error {
	for f.next < len(f.runs) {
		if err := f.startRun(); err != nil {
			return err
		}
	}
	if err := f.finishRun(); err != nil {
		return err
	}
	return f.finishSpan(store.LastID)
}
