package access

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// Projects creates the projects of a database.
type Projects struct {
	pool *pgxpool.Pool
	now  func() time.Time
}

// NewProjects returns the projects of the database behind pool.
func NewProjects(pool *pgxpool.Pool, now func() time.Time) *Projects {
	return &Projects{pool: pool, now: now}
}

// Put creates a project unless it exists, and returns it. It fails with [entities.ErrInvalid].
func (s *Projects) Put(ctx context.Context, name entities.Project) (admin.ListedProject, error) {
	if err := entities.ValidateID("project", string(name)); err != nil {
		return admin.ListedProject{}, err
	}
	var p admin.ListedProject
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		var made *admin.ListedProject
		var b pgx.Batch
		admin.PutProject(&b, name, s.now().UTC().Truncate(time.Millisecond), &made)
		err := tx.SendBatch(ctx, &b).Close()
		if err == nil && made == nil {
			p, err = admin.ProjectByName(ctx, tx, name)
			return err
		}
		if err != nil {
			return err
		}
		p = *made
		var word pgx.Batch
		admin.InsertAction(ctx, &word, name, admin.ActionProjectCreate, string(name), nil)
		return tx.SendBatch(ctx, &word).Close()
	})
	if err != nil {
		return admin.ListedProject{}, fmt.Errorf("put project %s: %w", name, err)
	}
	return p, nil
}
