package queue

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// DropRuns deletes the messages about runs of the project that leave, which are all for the deployment that
// executes them: delayed and parked ones, and what an ended run was still to be told. Tickets and leases of
// theirs come to nothing.
func DropRuns(ctx context.Context, tx pgx.Tx, project entities.Project, runs []entities.RunID) error {
	_, err := tx.Exec(ctx, `
		DELETE FROM messages WHERE id = ANY (ARRAY(
			SELECT m.id FROM messages m JOIN runs r
				ON m.project = r.project AND m.deployment_id = r.deployment_id AND m.run_id = r.id
			WHERE r.id = ANY ($1) AND r.project = $2
			`+cluster.LockOrder+` OF m))`, runs, project)
	return wrap("delete messages of runs", err)
}
