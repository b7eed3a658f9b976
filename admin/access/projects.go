package access

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// Projects creates the projects of a database and sets their limits.
type Projects struct {
	pool *pgxpool.Pool
	now  func() time.Time
}

// NewProjects returns the projects of the database behind pool.
func NewProjects(pool *pgxpool.Pool, now func() time.Time) *Projects {
	return &Projects{pool: pool, now: now}
}

// Put creates a project unless it exists, changes its limits unless change is nil, and returns it. It fails with
// [entities.ErrInvalid]; about a limit, with an *[entities.FieldError].
func (s *Projects) Put(
	ctx context.Context, name entities.Project, change func(admin.Limits) admin.Limits,
) (admin.ListedProject, error) {
	if err := entities.ValidateID("project", string(name)); err != nil {
		return admin.ListedProject{}, err
	}
	now := s.now().UTC().Truncate(time.Millisecond)
	var p admin.ListedProject
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		var created bool
		var before *admin.Limits
		var b pgx.Batch
		admin.InsertProject(&b, name, now, &created)
		if change != nil {
			admin.LockLimits(&b, name, &before)
		}
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		var audit pgx.Batch
		if created {
			admin.InsertAction(ctx, &audit, name, admin.ActionProjectCreate, string(name), nil)
		}
		if change != nil {
			after := change(*before)
			if err := after.Validate(); err != nil {
				return err
			}
			putLimits(ctx, &audit, name, *before, after)
		}
		if err := tx.SendBatch(ctx, &audit).Close(); err != nil {
			return err
		}
		var err error
		p, err = admin.ProjectByName(ctx, tx, name, now)
		return err
	})
	return p, pg.Wrap(err, "put project %s", name)
}

// putLimits queues a change of limits and its audit entry, unless they are the same.
func putLimits(ctx context.Context, b *pgx.Batch, name entities.Project, before, after admin.Limits) {
	if before.Equal(after) {
		return
	}
	admin.PutLimits(b, name, after)
	admin.InsertAction(ctx, b, name, admin.ActionProjectLimit, string(name), map[string]any{
		"dailyStarts": after.DailyStarts, "storageBytes": after.StorageBytes, "maxDepth": after.MaxDepth,
		"maxDescendants": after.MaxDescendants,
	})
}

// SetPaused pauses a project or resumes it, with an audit entry unless it is so already. It fails with
// [admin.ErrProjectNotFound].
func (s *Projects) SetPaused(ctx context.Context, name entities.Project, paused bool) (admin.ListedProject, error) {
	now := s.now().UTC().Truncate(time.Millisecond)
	var p admin.ListedProject
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		var b pgx.Batch
		admin.LockPause(&b, name)
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		before, err := admin.ProjectByName(ctx, tx, name, now)
		if err != nil {
			return err
		}
		var change pgx.Batch
		switch {
		case paused && before.PausedAt == nil:
			admin.PutPause(&change, name, &now)
			admin.InsertAction(ctx, &change, name, admin.ActionProjectPause, string(name), nil)
		case !paused && before.PausedAt != nil:
			admin.PutPause(&change, name, nil)
			admin.InsertAction(ctx, &change, name, admin.ActionProjectResume, string(name), nil)
		}
		if err := tx.SendBatch(ctx, &change).Close(); err != nil {
			return err
		}
		p, err = admin.ProjectByName(ctx, tx, name, now)
		return err
	})
	return p, pg.Wrap(err, "pause project %s", name)
}
