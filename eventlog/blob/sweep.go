package blob

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"golang.org/x/sync/errgroup"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// sweepAfter is the age at which a blob that no run has is deleted. No append takes as long.
	sweepAfter = time.Hour
	// sweepBatch is how many are deleted at a time, and sweepBatches how often in one pass.
	sweepBatch, sweepBatches = 200, 500
)

// doomed is a blob that is being deleted.
type doomed struct {
	ID      pgtype.UUID
	Project entities.Project
}

// Sweep deletes blobs that no run has: those of appends that were not committed, and of deleted runs. It returns how
// many it has deleted. Several processes may sweep at once. It fails with [ErrUnavailable]; then the next pass goes on.
func (s *Store) Sweep(ctx context.Context) (swept int, err error) {
	for range sweepBatches {
		batch, err := pg.CollectAll[doomed](s.pool.Query(ctx, `
			UPDATE blobs SET doomed = true WHERE id = ANY (ARRAY (
				SELECT id FROM blobs WHERE run_id IS NULL AND created_at < now() - $1::interval AND `+pg.Staying("project")+`
				ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED))
			RETURNING id, project`, sweepAfter, sweepBatch))
		if err == nil {
			err = s.delete(ctx, batch)
		}
		if err != nil {
			return swept, fmt.Errorf("sweep blobs: %w", err)
		}
		if swept += len(batch); len(batch) < sweepBatch {
			break
		}
	}
	return swept, nil
}

// Discard deletes blobs of an append that has not claimed them, without waiting for the sweeper. An append that is
// still to be committed then fails.
func (s *Store) Discard(ctx context.Context, project entities.Project, refs []Reference) error {
	batch, err := pg.CollectAll[doomed](s.pool.Query(ctx, `
		UPDATE blobs SET doomed = true WHERE id = ANY ($1) AND project = $2 AND run_id IS NULL RETURNING id, project`,
		uuids(refs), project))
	if err != nil {
		return fmt.Errorf("discard blobs: %w", err)
	}
	return s.delete(ctx, batch)
}

// delete deletes doomed blobs, first the objects and then the rows.
func (s *Store) delete(ctx context.Context, batch []doomed) error {
	ids := make([]pgtype.UUID, len(batch))
	all, limited := errgroup.WithContext(ctx)
	all.SetLimit(ofRequest)
	for i, b := range batch {
		ids[i] = b.ID
		all.Go(func() error {
			limited, cancel := context.WithTimeout(limited, transferLimit)
			defer cancel()
			return unavailable(ctx, s.objects.Delete(limited, key(b.Project, b.ID.Bytes)))
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	_, err := s.pool.Exec(ctx, `DELETE FROM blobs WHERE id = ANY ($1) AND doomed`, ids)
	return pg.Wrap(err, "delete blobs")
}
