package entities

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ListedProject is a project that exists.
type ListedProject struct {
	Name      Project
	CreatedAt time.Time
}

const projectColumns = `name, created_at`

// PutProject queues the creation of a project. Into points to it afterwards if it is new.
func PutProject(b *pgx.Batch, name Project, now time.Time, into **ListedProject) {
	loadInto(b, into, `
		INSERT INTO projects (name, created_at) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING
		RETURNING `+projectColumns, name, now)
}

// ProjectByName reads a project. It fails with [ErrProjectNotFound].
func ProjectByName(ctx context.Context, q Querier, name Project) (ListedProject, error) {
	rows, err := q.Query(ctx, `SELECT `+projectColumns+` FROM projects WHERE name = $1`, name)
	p, err := collectOne[ListedProject](rows, err, ErrProjectNotFound)
	if err != nil {
		return p, fmt.Errorf("read project %s: %w", name, err)
	}
	return p, nil
}

// ListProjects reads all projects by their names.
func ListProjects(ctx context.Context, q Querier) ([]ListedProject, error) {
	rows, err := q.Query(ctx, `SELECT `+projectColumns+` FROM projects ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("list projects: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[ListedProject])
	if err != nil {
		return nil, fmt.Errorf("list projects: %w", err)
	}
	return list, nil
}
