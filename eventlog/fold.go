package eventlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/store"
)

// foldFetch is how many events, and foldPiece how many correlation IDs, a fold has in memory at once.
const (
	foldFetch = 1000
	foldPiece = 1000
)

// folding adds up the whole log of a run, however long, in bounded memory. It goes through the events about
// the run first, and then through those of one correlation ID after the other: what happens to a step,
// hook or wait depends on its own events and on the end of the run alone.
type folding struct {
	runID   entities.RunID
	project entities.Project
	// fault is told what is wrong with the log itself. An event that was not legal has no effect.
	fault func(entity, what string)
	// whole is called once, with the run.
	whole func(*entities.Run) error
	// piece is then called with the entities whose IDs are in one span after the other. Together the spans
	// cover all IDs. The snapshot's run is that of whole.
	piece func(*Snapshot, store.Span) error

	run   *Snapshot       // the run as it is in the end
	shape shape           // of the log
	end   *entities.Event // what ended the run
	group *Snapshot       // the entities of the correlation ID under way, in a run of that moment
	of    string          // that correlation ID
	used  bool            // that it is used up by a hook
	done  *Snapshot       // the entities of the span under way
	count int             // of correlation IDs in done
	after string          // where that span begins
}

// errNoRun ends the fold of a log that never creates its run. It was told as a fault.
var errNoRun = errors.New("the log creates no run")

// shape is what a log looks like from afar.
type shape struct {
	LastSeq int64
	LastAt  time.Time
	// Hole is the first event whose position is not one more than that of the event before it, Back the
	// first that is from before the event before it; 0 when there is none.
	Hole, Back int64
}

// all folds the log as the transaction sees it.
func (f *folding) all(ctx context.Context, tx pgx.Tx) error {
	if err := f.look(ctx, tx); err != nil {
		return err
	}
	err := f.read(ctx, tx)
	if errors.Is(err, errNoRun) {
		f.fault("log", errNoRun.Error())
		return nil
	}
	return err
}

func (f *folding) read(ctx context.Context, tx pgx.Tx) error {
	f.run, f.done = NewSnapshot(f.project), NewSnapshot(f.project)
	if err := declareLog(ctx, tx, f.runID); err != nil {
		return err
	}
	for more := true; more; {
		events, err := fetchLog(ctx, tx)
		if err != nil {
			return err
		}
		more = len(events) == foldFetch
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

// look finds out about the log's shape.
func (f *folding) look(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `
		SELECT coalesce(max(seq), 0) AS last_seq,
			coalesce((SELECT created_at FROM events WHERE run_id = $1 ORDER BY seq DESC LIMIT 1), 'epoch') AS last_at,
			coalesce(min(seq) FILTER (WHERE seq <> position), 0) AS hole,
			coalesce(min(seq) FILTER (WHERE created_at < before), 0) AS back
		FROM (
			SELECT seq, created_at, row_number() OVER log AS position, lag(created_at) OVER log AS before
			FROM events WHERE run_id = $1 WINDOW log AS (ORDER BY seq)
		) placed`, f.runID)
	if err != nil {
		return fmt.Errorf("look at log of %s: %w", f.runID, err)
	}
	if f.shape, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[shape]); err != nil {
		return fmt.Errorf("look at log of %s: %w", f.runID, err)
	}
	if f.shape.Hole > 0 {
		f.fault(fmt.Sprintf("event %d", f.shape.Hole), "the event before it is missing")
	}
	if f.shape.Back > 0 {
		f.fault(fmt.Sprintf("event %d", f.shape.Back), "it is from before the event before it")
	}
	return nil
}

// declareLog opens a cursor on the log without payloads: first the events about the run, then the others
// by correlation ID; within each in their order.
func declareLog(ctx context.Context, tx pgx.Tx, runID entities.RunID) error {
	_, err := tx.Exec(ctx, `
		DECLARE log NO SCROLL CURSOR FOR
		SELECT run_id, seq, type, correlation_id, spec_version, created_at, occurred_at, data,
			NULL::bytea AS extra, NULL::bytea AS payload
		FROM events WHERE run_id = $1
		ORDER BY type <> ALL ($2::text[]), CASE WHEN type <> ALL ($2) THEN correlation_id END, seq`,
		runID, slices.Sorted(maps.Keys(entities.Runs)))
	if err != nil {
		return fmt.Errorf("read log of %s: %w", runID, err)
	}
	return nil
}

func fetchLog(ctx context.Context, tx pgx.Tx) ([]entities.Event, error) {
	rows, err := tx.Query(ctx, fmt.Sprintf(`FETCH %d FROM log`, foldFetch))
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	events, err := pgx.CollectRows(rows, pgx.RowToStructByName[entities.Event])
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	return events, nil
}

func (f *folding) add(e entities.Event) error {
	if e.Type.Kind() == entities.KindRun {
		f.addToRun(e)
		return nil
	}
	if f.run.Run == nil {
		return errNoRun
	}
	if e.CorrelationID != f.of || f.group == nil {
		if err := f.nextGroup(e.CorrelationID); err != nil {
			return err
		}
	}
	if f.end != nil && e.Seq > f.end.Seq {
		f.endGroup()
	}
	if f.legal(f.group, e) {
		f.group.Apply(e)
		f.used = f.used || e.Type == entities.EventHookCreated || e.Type == entities.EventHookConflict
	}
	return nil
}

func (f *folding) addToRun(e entities.Event) {
	if !f.legal(f.run, e) {
		return
	}
	f.run.Apply(e)
	if f.end == nil && f.run.Run.Status.Ended() {
		f.end = &e
	}
}

// legal asks the transition tables about an event of the log.
func (f *folding) legal(s *Snapshot, e entities.Event) bool {
	r := Request{RunID: e.RunID, Type: e.Type, CorrelationID: e.CorrelationID}
	err := facts{Snapshot: s, claimed: map[string]bool{r.CorrelationID: f.used}}.permit(r, e.CreatedAt)
	if err == nil && e.Type == entities.EventAttrSet {
		_, err = entities.MergeAttributes(s.Run.Attributes, e.Data.Changes, true)
	}
	if err != nil {
		f.fault(fmt.Sprintf("event %d", e.Seq), fmt.Sprintf("%s is not legal: %v", e.Type, err))
	}
	return err == nil
}

// nextGroup begins with another correlation ID.
func (f *folding) nextGroup(id string) error {
	if f.group == nil {
		if err := f.runDone(); err != nil {
			return err
		}
	} else if err := f.groupDone(); err != nil {
		return err
	}
	f.of, f.used = id, false
	run := *f.run.Run
	run.Status = entities.RunRunning
	f.group = NewSnapshot(f.project)
	f.group.Run = &run
	return nil
}

// endGroup lets the end of the run happen to the entities of the present correlation ID.
func (f *folding) endGroup() {
	if !f.group.Run.Status.Ended() {
		f.group.Apply(*f.end)
	}
}

func (f *folding) groupDone() error {
	if f.end != nil {
		f.endGroup()
	}
	maps.Copy(f.done.Steps, f.group.Steps)
	maps.Copy(f.done.Hooks, f.group.Hooks)
	maps.Copy(f.done.Waits, f.group.Waits)
	if f.count++; f.count < foldPiece {
		return nil
	}
	return f.pieceDone(f.of)
}

// runDone hands out the run.
func (f *folding) runDone() error {
	f.run.Run.LastSeq, f.run.Run.UpdatedAt = f.shape.LastSeq, f.shape.LastAt
	return f.whole(f.run.Run)
}

// pieceDone hands out the entities up to that ID.
func (f *folding) pieceDone(upTo string) error {
	f.done.Run = f.run.Run
	if err := f.piece(f.done, store.Span{After: f.after, UpTo: upTo}); err != nil {
		return err
	}
	f.done, f.count, f.after = NewSnapshot(f.project), 0, upTo
	return nil
}

func (f *folding) finish() error {
	if f.run.Run == nil {
		return errNoRun
	}
	if f.group == nil {
		if err := f.runDone(); err != nil {
			return err
		}
	} else if err := f.groupDone(); err != nil {
		return err
	}
	return f.pieceDone(store.LastID)
}
