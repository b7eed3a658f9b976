package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// Limits of saved views.
const (
	maxViews          = 100
	maxViewFilter     = 2048 // bytes
	maxViewColumns    = 20
	maxViewColumnName = 256 // bytes
)

var (
	// ErrViewNotFound means that the project has no such view.
	ErrViewNotFound = errors.New("view not found")
	// ErrTooManyViews means that the project already has as many views as it may.
	ErrTooManyViews = fmt.Errorf("the project has %d views; remove one first", maxViews)
)

// View is a list of runs that a project has saved under a name.
type View struct {
	Name string
	// Filter is the text of a filter of the dashboard. The server does not read it.
	Filter string
	// Columns are those that the list shows, in their order; none for the usual ones.
	Columns []string
	// OrderBy is "created" or "ended".
	OrderBy   string
	CreatedAt time.Time
	UpdatedAt time.Time
}

const viewColumns = `name, filter, columns, order_by, created_at, updated_at`

// Views stores the views of projects.
type Views struct {
	pool pg.Pool
	now  func() time.Time
}

// NewViews returns the views in the database behind pool.
func NewViews(pool *pgxpool.Pool, now func() time.Time) *Views {
	return &Views{pool: pg.NewPool(pool), now: now}
}

// Put creates or replaces a view. Of v, it takes all but the times. It fails with [entities.ErrInvalid] and
// [ErrTooManyViews].
func (s *Views) Put(ctx context.Context, project entities.Project, v View) (View, error) {
	if err := v.validate(); err != nil {
		return View{}, err
	}
	view, err := change(ctx, s.pool, ErrTooManyViews, func(b *pgx.Batch, into **View) {
		// Without the lock, two transactions could both create the last view.
		b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended('views ' || $1::text, 0))`, project)
		pg.LoadInto(b, into, `
			INSERT INTO views (project, name, filter, columns, order_by, created_at, updated_at)
			SELECT $1, $2, $3, $4, $5, $6, $6
			WHERE EXISTS (SELECT FROM views WHERE project = $1 AND name = $2)
				OR (SELECT count(*) FROM views WHERE project = $1) < $7
			ON CONFLICT (project, name) DO UPDATE SET filter = excluded.filter, columns = excluded.columns,
				order_by = excluded.order_by, updated_at = excluded.updated_at
			RETURNING `+viewColumns,
			project, v.Name, v.Filter, append([]string{}, v.Columns...), v.OrderBy, s.now().UTC().Truncate(time.Millisecond),
			maxViews)
		InsertAction(ctx, b, project, ActionViewPut, v.Name, nil)
	})
	return view, pg.Wrap(err, "write view %s", v.Name)
}

// Delete deletes a view. It fails with [ErrViewNotFound].
func (s *Views) Delete(ctx context.Context, project entities.Project, name string) error {
	_, err := change(ctx, s.pool, ErrViewNotFound, func(b *pgx.Batch, into **View) {
		pg.LoadInto(b, into, `DELETE FROM views WHERE project = $1 AND name = $2 RETURNING `+viewColumns, project, name)
		InsertAction(ctx, b, project, ActionViewRemove, name, nil)
	})
	return pg.Wrap(err, "write view %s", name)
}

// List reads the project's views, ordered by name.
func (s *Views) List(ctx context.Context, project entities.Project) ([]View, error) {
	list, err := pg.CollectAll[View](s.pool.Query(ctx,
		`SELECT `+viewColumns+` FROM views WHERE project = $1 ORDER BY name LIMIT $2`, project, maxViews))
	return list, pg.Wrap(err, "list views")
}

// View reads a view. It fails with [ErrViewNotFound].
func (s *Views) View(ctx context.Context, project entities.Project, name string) (View, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+viewColumns+` FROM views WHERE project = $1 AND name = $2`, project, name)
	view, err := pg.CollectOne[View](rows, err, ErrViewNotFound)
	return view, pg.Wrap(err, "read view %s", name)
}

func (v View) validate() error {
	if err := entities.ValidateName("view name", v.Name); err != nil {
		return err
	}
	if v.Filter != "" { // an empty filter matches all runs
		if err := entities.ValidateText("filter", v.Filter, maxViewFilter); err != nil {
			return err
		}
	}
	if n := len(v.Columns); n > maxViewColumns {
		return entities.Invalid("the view has %d columns; the limit is %d", n, maxViewColumns)
	}
	for _, name := range v.Columns {
		if err := entities.ValidateText("column", name, maxViewColumnName); err != nil {
			return err
		}
	}
	if v.OrderBy != "created" && v.OrderBy != "ended" {
		return entities.Invalid("orderBy %q is neither created nor ended", v.OrderBy)
	}
	return nil
}
