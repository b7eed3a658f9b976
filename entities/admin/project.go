package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// ErrProjectNotFound means that no such project exists.
var ErrProjectNotFound = errors.New("project not found")

// ListedProject is a row of table projects.
type ListedProject struct {
	Name      entities.Project
	CreatedAt time.Time
}

const projectColumns = `name, created_at`

// PutProject queues the creation of a project, and makes *into point to it. If the project exists, *into stays as it
// is.
func PutProject(b *pgx.Batch, name entities.Project, now time.Time, into **ListedProject) {
	pg.LoadInto(b, into, `
		INSERT INTO projects (name, created_at) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING
		RETURNING `+projectColumns, name, now)
}

// ProjectByName reads a project. It fails with [ErrProjectNotFound].
func ProjectByName(ctx context.Context, q pg.Querier, name entities.Project) (ListedProject, error) {
	rows, err := q.Query(ctx, `SELECT `+projectColumns+` FROM projects WHERE name = $1`, name)
	p, err := pg.CollectOne[ListedProject](rows, err, ErrProjectNotFound)
	if err != nil {
		return p, fmt.Errorf("read project %s: %w", name, err)
	}
	return p, nil
}

// ListProjects reads all projects, ordered by name.
func ListProjects(ctx context.Context, q pg.Querier) ([]ListedProject, error) {
	list, err := pg.CollectAll[ListedProject](q.Query(ctx, `SELECT `+projectColumns+` FROM projects ORDER BY name`))
	if err != nil {
		return nil, fmt.Errorf("list projects: %w", err)
	}
	return list, nil
}
