package queue

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
)

// Deployment says where the functions of an app are: messages for ID are POSTed below URL.
type Deployment struct {
	ID        string
	URL       string
	CreatedAt time.Time
	UpdatedAt time.Time
}

const deploymentColumns = `id, url, created_at, updated_at`

// ErrNotHurried is of a registration that holds, and after which messages wait for the end of their backoff.
var ErrNotHurried = errors.New("messages wait for their backoff")

// PutDeployment registers a deployment or moves it to another URL, and then hurries along the messages that
// could not be delivered to it: those that did not reach it and, if it has moved, all that failed. It fails with
// [entities.ErrInvalid] when the URL is not an absolute http or https URL, and with [ErrNotHurried] when the
// registration is all that was done.
func (q *Queue) PutDeployment(ctx context.Context, project entities.Project, id, baseURL string) (Deployment, error) {
	if err := entities.ValidateID("deployment ID", id); err != nil {
		return Deployment{}, err
	}
	if err := validateURL(baseURL); err != nil {
		return Deployment{}, err
	}
	rows, err := q.pool.Query(ctx, `
		INSERT INTO deployments (project, id, url) VALUES ($1, $2, $3)
		ON CONFLICT (project, id) DO UPDATE SET url = excluded.url, updated_at = now()
		RETURNING `+deploymentColumns+`,
			url IS DISTINCT FROM (SELECT url FROM deployments WHERE project = $1 AND id = $2) AS moved`,
		project, id, baseURL)
	if err != nil {
		return Deployment{}, fmt.Errorf("put deployment %s: %w", id, err)
	}
	d, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[struct {
		Deployment
		Moved bool
	}])
	if err != nil {
		return Deployment{}, fmt.Errorf("put deployment %s: %w", id, err)
	}
	defer q.hub.Publish(timerTopic)
	if err := hurry(ctx, q.pool, project, d.Deployment, d.Moved); err != nil {
		return Deployment{}, fmt.Errorf("put deployment %s: %w: %w", id, ErrNotHurried, err)
	}
	return d.Deployment, nil
}

func validateURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return entities.Invalid("url %q is not an absolute http or https URL", s)
	}
	if strings.ContainsAny(s, "?#") || u.User != nil {
		return entities.Invalid("url %q has a query, a fragment or credentials; want a base URL", s)
	}
	return nil
}

// Deployments lists the project's deployments by ID.
func (q *Queue) Deployments(ctx context.Context, project entities.Project) ([]Deployment, error) {
	rows, err := q.pool.Query(ctx,
		`SELECT `+deploymentColumns+` FROM deployments WHERE project = $1 ORDER BY id`, project)
	if err != nil {
		return nil, fmt.Errorf("list deployments: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Deployment])
	if err != nil {
		return nil, fmt.Errorf("list deployments: %w", err)
	}
	return list, nil
}

// RemoveDeployment forgets a deployment. Its messages wait until it is registered again. It fails with
// [entities.ErrDeploymentNotFound].
func (q *Queue) RemoveDeployment(ctx context.Context, project entities.Project, id string) error {
	tag, err := q.pool.Exec(ctx, `DELETE FROM deployments WHERE project = $1 AND id = $2`, project, id)
	if err == nil && tag.RowsAffected() == 0 {
		err = entities.ErrDeploymentNotFound
	}
	if err != nil {
		return fmt.Errorf("remove deployment %s: %w", id, err)
	}
	return nil
}
