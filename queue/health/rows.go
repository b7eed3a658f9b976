package health

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// Columns are those of a [State] in the table deployments.
const Columns = `probed_at, probe_failures, probe_successes, probe_error, unhealthy_since, trial_at`

// Probed is a deployment that is probed.
type Probed struct {
	URL    string
	Health Settings
	State
}

const probedSQL = `SELECT url, health, ` + Columns + `
	FROM deployments WHERE project = $1 AND id = $2 AND health IS NOT NULL`

// Find reads how a deployment is probed; nil if it is not.
func Find(ctx context.Context, pool *pgxpool.Pool, project entities.Project, id string) (*Probed, error) {
	list, err := pg.CollectAll[Probed](pg.NewPool(pool).Query(ctx, probedSQL, project, id))
	if err != nil || len(list) == 0 {
		return nil, pg.Wrap(err, "read health of deployment %s", id)
	}
	return &list[0], nil
}

// Lock queues a read of how a deployment is probed, and a lock on it; into stays nil if it is not probed.
func Lock(b *pgx.Batch, project entities.Project, id string, into **Probed) {
	pg.LoadInto(b, into, probedSQL+` FOR NO KEY UPDATE`, project, id)
}

// Save queues the write of a state.
func Save(b *pgx.Batch, project entities.Project, id string, s State) {
	b.Queue(`
		UPDATE deployments SET probed_at = $3, probe_failures = $4, probe_successes = $5, probe_error = $6,
			unhealthy_since = $7, trial_at = $8
		WHERE project = $1 AND id = $2`,
		project, id, s.ProbedAt, s.Failures, s.Successes, s.Error, s.UnhealthySince, s.TrialAt)
}

// Try reports whether the caller may make the trial call of an unhealthy deployment that is due. The next one is due a
// TrialEvery later.
func Try(ctx context.Context, pool *pgxpool.Pool, project entities.Project, id string) (bool, error) {
	p, err := Find(ctx, pool, project, id)
	if err != nil || p == nil || p.TrialAt == nil {
		return err == nil, err
	}
	tag, err := pg.NewPool(pool).Exec(ctx, `
		UPDATE deployments SET trial_at = now() + $3 WHERE project = $1 AND id = $2 AND trial_at <= now()`,
		project, id, time.Duration(p.Health.TrialEvery))
	return tag.RowsAffected() > 0, pg.Wrap(err, "try deployment %s", id)
}

// Answered notes that a deployment which was unhealthy has answered a call with success. What the probes have found out
// is forgotten: its health is unknown until the next one.
func Answered(ctx context.Context, pool *pgxpool.Pool, project entities.Project, id string) error {
	_, err := pg.NewPool(pool).Exec(ctx, `
		UPDATE deployments SET probed_at = NULL, probe_failures = 0, probe_successes = 0, probe_error = '',
			unhealthy_since = NULL, trial_at = NULL
		WHERE project = $1 AND id = $2 AND unhealthy_since IS NOT NULL`, project, id)
	return pg.Wrap(err, "note that deployment %s answers", id)
}
