package eventlog

import (
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// The xid of an event is that of its transaction, but never less than that of the run's previous event.
const (
	// xidInOrder is for transactions that may have waited for the run's lock: they can have got theirs before.
	xidInOrder = `greatest(pg_current_xact_id(), (SELECT xid FROM events WHERE run_id = $1 AND seq = $2::bigint - 1))`
	// xidOfNow is for transactions that begin when the previous event is known, so that it was committed.
	xidOfNow = `pg_current_xact_id()`
)

// insertEvent adds the insertion of an event.
func insertEvent(w pg.Writer, xid string, project entities.Project, e entities.Event) {
	w.Add(pg.Write{What: "insert event", SQL: `
		INSERT INTO events (` + read.EventColumns + `, payload, project, xid)
		SELECT $1::text, $2::bigint, $3::text, $4::text, $5::integer, $6::timestamptz, $7::timestamptz, $8::jsonb, $9::bytea,
			$10::bytea, $11::text, ` + xid + `
		WHERE true`, Args: []any{
		e.RunID, e.Seq, e.Type, e.CorrelationID, e.SpecVersion, e.CreatedAt, e.OccurredAt, e.Data, e.Extra, e.Payload,
		project,
	}})
}

// QueueImport queues the insertion of an event that another database logged, exactly as it was logged there. Imported
// events are not decided again; the import checks the log as a whole.
func QueueImport(b *pgx.Batch, project entities.Project, e entities.Event) {
	insertEvent(pg.Batch{Batch: b}, xidInOrder, project, e)
}

// loadClaimed queues the question whether the log has an event that uses up the correlation ID although
// no row may remain of it.
func loadClaimed(b *pgx.Batch, runID entities.RunID, correlationID string, into map[string]bool) {
	b.Queue(`
		SELECT EXISTS (
			SELECT FROM events WHERE correlation_id = $2 AND correlation_id <> '' AND run_id = $1
				AND type IN ('hook_created', 'hook_conflict', 'attr_set'))`,
		runID, correlationID).QueryRow(func(row pgx.Row) error {
		var claimed bool
		err := row.Scan(&claimed)
		into[correlationID] = claimed
		return err
	})
}

// loadStart queues a read of the run's first run_started, which is near the beginning of its log.
func loadStart(b *pgx.Batch, runID entities.RunID, into **entities.Event) {
	read.LoadEvent(b, into, `run_id = $1 AND type = 'run_started' ORDER BY seq LIMIT 1`, runID)
}

// loadResumption queues a read of the hook_received that a resumption has left in the run's log.
func loadResumption(b *pgx.Batch, runID entities.RunID, resumeID string, into **entities.Event) {
	read.LoadEvent(b, into, `run_id = $1 AND type = 'hook_received' AND data ->> 'resumeId' = $2`, runID, resumeID)
}
