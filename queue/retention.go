package queue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
)

// retentionPoll is how often a worker looks for what may leave.
const retentionPoll = time.Minute

// DropRuns deletes the messages about runs of the project that leave, which are all for the deployment that
// executes them: delayed and parked ones, and what an ended run was still to be told. Tickets and leases of
// theirs come to nothing.
func DropRuns(ctx context.Context, tx pgx.Tx, project entities.Project, runs []entities.RunID) error {
	_, err := tx.Exec(ctx, `
		DELETE FROM messages WHERE id = ANY (ARRAY(
			SELECT m.id FROM messages m JOIN runs r
				ON m.project = r.project AND m.deployment_id = r.deployment_id AND m.run_id = r.id
			WHERE r.id = ANY ($1) AND r.project = $2
			`+inOrder+` OF m))`, runs, project)
	return wrap("delete messages of runs", err)
}

// retain lets runs leave whose time is over.
func (w *Worker) retain(ctx context.Context) {
	ticker := time.NewTicker(retentionPoll)
	defer ticker.Stop()
	for {
		w.retainOnce(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (w *Worker) retainOnce(ctx context.Context) {
	done, err := w.options.Retention.Pass(ctx)
	if done.Runs > 0 || done.Streams > 0 {
		w.logger.InfoContext(ctx, "retention", "runs", done.Runs, "orphan_streams", done.Streams)
	}
	if err != nil && ctx.Err() == nil {
		w.logger.ErrorContext(ctx, "retention", "error", err)
	}
}
