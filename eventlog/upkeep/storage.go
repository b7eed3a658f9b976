package upkeep

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// measureStorage measures what projects with a storage limit store, if that is due. A project that cannot be measured
// does not keep others from it.
func (p *pass) measureStorage(ctx context.Context) error {
	var failed error
	for {
		next, err := admin.TakeMeasurement(ctx, pg.NewPool(p.pool))
		if next == nil || err != nil {
			return errors.Join(failed, err)
		}
		bytes, err := p.storedBytes(ctx, next.Project)
		if err == nil {
			err = next.Record(ctx, pg.NewPool(p.pool), bytes)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("measure storage of project %s: %w", next.Project, err))
		}
	}
}

// storedBytes sums up what a project stores. It takes no locks, and the transaction writes nothing, so that it does not
// hold up readers who follow the log.
func (p *pass) storedBytes(ctx context.Context, project entities.Project) (bytes int64, err error) {
	err = pg.InTx(ctx, p.pool, func(tx pgx.Tx) error {
		// The server's own bound is too short for a large project.
		ctx, err := pg.WithStatementTimeout(ctx, tx, admin.MeasureLimit)
		if err != nil {
			return err
		}
		bytes, err = store.StoredBytes(ctx, tx, project)
		return err
	})
	return bytes, err
}
