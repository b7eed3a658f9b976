package upkeep

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// ErrNotEnded means that something is done with ended runs only.
var ErrNotEnded = errors.New("the run has not ended: wait for its end, or cancel it")

// Shred destroys the key of an ended run, in one transaction, so that nobody can read its payloads anywhere. What other
// keys have encrypted of it is deleted: its streams, the values of its store, its messages, which deleteRelated
// deletes, and what was kept of starts that it has collected. It changes nothing if the key is destroyed already. It
// fails with [entities.ErrRunNotFound], [ErrNotEnded] and [encryption.ErrNoRunKey].
func (m *Maintainer) Shred(
	ctx context.Context, project entities.Project, id entities.RunID,
	deleteRelated func(context.Context, pgx.Tx, entities.Project, []entities.RunID) error,
) error {
	err := pg.InTx(ctx, m.pool, func(tx pgx.Tx) error {
		var run *entities.Run
		var lock pgx.Batch
		store.LockRun(&lock, project, id, &run)
		err := tx.SendBatch(ctx, &lock).Close()
		switch {
		case err != nil:
			return err
		case run == nil:
			return entities.ErrRunNotFound
		case !run.Status.Ended():
			return ErrNotEnded
		}
		if shredded, err := encryption.ShredRun(ctx, tx, run); err != nil || !shredded {
			return err
		}
		streams, err := store.LockStreams(ctx, tx, project, []entities.RunID{id})
		if err != nil {
			return err
		}
		if err := deleteRelated(ctx, tx, project, []entities.RunID{id}); err != nil {
			return err
		}
		var b pgx.Batch
		store.DeleteCopies(&b, id, streams)
		return tx.SendBatch(ctx, &b).Close()
	})
	return pg.Wrap(err, "shred run %s", id)
}
