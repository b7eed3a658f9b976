// Package memo keeps the outputs of steps for equal steps, which then have them without being executed.
//
// A row says where the output is: in the log of the run that made it. Whoever uses it copies it into the own log, so
// that each log is complete by itself. A run that is deleted takes its rows along.
package memo

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// MaxOutput limits the outputs that are kept, in bytes.
	MaxOutput = 1 << 20
	// maxLoaded limits the outputs that one transaction copies, in bytes. The steps beyond are executed.
	maxLoaded = 16 << 20
	// batch is how many rows one statement deletes.
	batch = 10_000
)

// Known is an output that is known.
type Known struct {
	// Nth is the place of its hash among those that were asked for, from 1.
	Nth int
	// MemoRef is the event that has the output.
	entities.MemoRef

	Output []byte
}

// knownSQL selects the outputs that are known for the hashes $2 of project $1.
const knownSQL = `
	SELECT nth, run_id, seq, output FROM (
		SELECT asked.nth, m.run_id, m.seq, e.payload AS output,
			sum(octet_length(e.payload)) OVER (ORDER BY asked.nth) AS bytes
		FROM unnest($2::text[]) WITH ORDINALITY AS asked (hash, nth)
			JOIN memos m ON m.project = $1 AND m.hash = asked.hash AND m.expires_at > now()
			JOIN events e ON e.run_id = m.run_id AND e.seq = m.seq) AS known
	WHERE bytes <= $3`

// Load queues a read of the outputs that are known for the hashes.
func Load(b *pgx.Batch, project entities.Project, hashes []string, add func(Known)) {
	pg.LoadEach(b, add, knownSQL, project, hashes, maxLoaded)
}

// Find reads the output that is known for the hash; nil if there is none.
func Find(ctx context.Context, q pg.Querier, project entities.Project, hash string) (*Known, error) {
	list, err := pg.CollectAll[Known](q.Query(ctx, knownSQL, project, []string{hash}, maxLoaded))
	if err != nil || len(list) == 0 {
		return nil, pg.Wrap(err, "look for a known output")
	}
	return &list[0], nil
}

// Keep queues the write that makes the output known, in the transaction that logs it. The newest output counts.
func Keep(b *pgx.Batch, project entities.Project, spec entities.MemoSpec, at entities.MemoRef) {
	b.Queue(`
		INSERT INTO memos (project, hash, run_id, seq, expires_at)
		VALUES ($1, $2, $3, $4, now() + $5 * interval '1 millisecond')
		ON CONFLICT (project, hash) DO UPDATE SET run_id = excluded.run_id, seq = excluded.seq,
			expires_at = excluded.expires_at`, project, spec.Hash, at.RunID, at.Seq, spec.ForMS)
}

// DeleteExpired deletes the rows whose time is over.
func DeleteExpired(ctx context.Context, pool *pgxpool.Pool) error {
	for {
		tag, err := pg.NewPool(pool).Exec(ctx, `
			DELETE FROM memos WHERE (project, hash) IN (
				SELECT project, hash FROM memos WHERE expires_at <= now()
				ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)`, batch)
		if err != nil || tag.RowsAffected() < batch {
			return pg.Wrap(err, "delete expired memos")
		}
	}
}
