package encryption

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/pg"
)

// ErrNoRunKey means that payloads of a run are encrypted by the key of its project, or not at all.
var ErrNoRunKey = errors.New(
	"the run began before its project had keys for each run: shred the project, or wait for the retention of the run")

// settled is how long after a change of the project all processes go by it.
const settled = fresh + patience

// ShredRun destroys the secret of a run, which the transaction has locked, with an entry in the audit. It reports false
// if it is destroyed already. It fails with [ErrNoRunKey].
func ShredRun(ctx context.Context, tx pgx.Tx, run *entities.Run) (bool, error) {
	rows, err := tx.Query(ctx, `
		SELECT k.run_id IS NOT NULL AS made, k.run_id IS NOT NULL AND k.secret IS NULL AS destroyed,
			(SELECT min(created_at) FROM data_keys WHERE project = $2 AND per_run) AS since
		FROM (SELECT) AS one LEFT JOIN run_keys k ON k.run_id = $1 AND k.project = $2`, run.ID, run.Project)
	found, err := pg.CollectOne[struct {
		Made, Destroyed bool
		Since           *time.Time
	}](rows, err, pgx.ErrNoRows)
	switch {
	case err != nil:
		return false, pg.Wrap(err, "read key of run")
	case !found.Made || found.Since == nil || run.CreatedAt.Before(found.Since.Add(settled)):
		return false, ErrNoRunKey
	case found.Destroyed:
		return false, nil
	}
	var b pgx.Batch
	b.Queue(`UPDATE run_keys SET secret = NULL, shredded_at = now() WHERE run_id = $1`, run.ID)
	admin.InsertAction(ctx, &b, run.Project, admin.ActionRunShred, string(run.ID), nil)
	return true, pg.Wrap(tx.SendBatch(ctx, &b).Close(), "destroy key of run")
}

// RequireSecret fails with [atrest.ErrShredded] if a run has no secret in the database.
func RequireSecret(ctx context.Context, q pg.Querier, run entities.RunID) error {
	has, err := pg.CollectValue[bool](q.Query(ctx,
		`SELECT EXISTS (SELECT FROM run_keys WHERE run_id = $1 AND secret IS NOT NULL)`, run))
	if err == nil && !has {
		err = atrest.ErrShredded
	}
	return pg.Wrap(err, "read key of run %s", run)
}
