package cluster

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// Watch is what the sweeper knows about one run that has not ended.
type Watch struct {
	// Reason describes the event or state for which a message is missing. It is empty unless the run is stranded: a sweep
	// at the same moment would find it.
	Reason string
	// FoundAt is when a sweep first found the run stranded; nil if none has.
	FoundAt *time.Time
	// Wakes is how often the run has been woken since its last event.
	Wakes int
	// WakeAt is when the run is woken if it is stranded; nil if that is not known, because there are many runs to read
	// before it.
	WakeAt *time.Time
	// QuietUntil is when the run, without another event, can first count as stranded.
	QuietUntil time.Time
}

// LoadWatches queues the reads of what the sweeper knows about runs, and notes it where the function says. It locks
// nothing.
func LoadWatches(b *pgx.Batch, ids []string, of func(entities.RunID) *Watch) {
	pg.LoadEach(b, func(s Stranded) { of(s.ID).Reason = s.Reason }, strandedSQL, ids, sweepQuiet, len(ids))
	b.Queue(watchSQL, ids, firstRepairBackoff, maxRepairBackoff, sweepBatch, sweepQuiet).Query(func(rows pgx.Rows) error {
		var id entities.RunID
		var w Watch
		_, err := pgx.ForEachRow(rows, []any{&id, &w.FoundAt, &w.Wakes, &w.WakeAt, &w.QuietUntil}, func() error {
			into := of(id)
			w.Reason = into.Reason
			*into = w
			return nil
		})
		return pg.Wrap(err, "read what the sweeper has noted")
	})
}

// watchSQL selects what sweeps have noted about the runs $1. The next pass reads the runs that were stranded before,
// and all runs if one pass suffices for them.
var watchSQL = `
	SELECT r.id, w.stranded_at, CASE WHEN w.stranded_seq = r.last_seq THEN w.repairs ELSE 0 END,
		CASE
			WHEN w.stranded_at IS NOT NULL AND w.stranded_seq = r.last_seq
				THEN greatest(s.due_at, now(), w.repaired_at + ` + repairPause("$2", "$3") + `)
			WHEN w.stranded_at IS NOT NULL
				OR (SELECT count(*) FROM (SELECT FROM runs WHERE completed_at IS NULL LIMIT $4) AS open) < $4
				THEN greatest(s.due_at, now())
		END,
		r.updated_at + $5::interval
	FROM runs r LEFT JOIN run_wakes w ON w.run_id = r.id, sweeper s
	WHERE r.id = ANY ($1)`
