package queue

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/queue/contract"
)

// Deployment is a version of an app: messages for ID are sent to its functions below URL.
type Deployment struct {
	ID  string
	URL string
	// Workflows are the names of its workflows, sorted. If empty, the deployment may have any workflow.
	Workflows []string
	CreatedAt time.Time
	UpdatedAt time.Time
}

const deploymentColumns = `id, url, workflows, created_at, updated_at`

// maxWorkflows is how many workflows a deployment may list.
const maxWorkflows = 1000

// ErrNotRescheduled is the error when a registration was stored but its waiting messages keep their backoff.
var ErrNotRescheduled = errors.New("waiting messages keep their backoff")

// PutDeployment registers a deployment or moves it to another URL. It then makes messages due now that could not be
// delivered to it: those that did not reach it, invocations of runs that are held, and, if it has moved, all that
// failed. Workflows are the names of its workflows. It fails with [entities.ErrInvalid] when the URL is not an absolute
// http or https URL or a workflow name is invalid, and with [ErrNotRescheduled] when only the registration succeeded.
func (q *Queue) PutDeployment(
	ctx context.Context, project entities.Project, id, baseURL string, workflows ...string,
) (Deployment, error) {
	if err := entities.ValidateID("deployment ID", id); err != nil {
		return Deployment{}, err
	}
	if id == contract.Latest {
		return Deployment{}, entities.Invalid("deployment ID %q is reserved for the newest of a workflow: choose another", id)
	}
	if err := validateURL(baseURL); err != nil {
		return Deployment{}, err
	}
	workflows, err := validateWorkflows(workflows)
	if err != nil {
		return Deployment{}, err
	}
	d, moved, err := q.writeDeployment(ctx, project, Deployment{ID: id, URL: baseURL, Workflows: workflows})
	if err != nil {
		return Deployment{}, fmt.Errorf("put deployment %s: %w", id, err)
	}
	defer q.announceDue(nil)
	waiting := unreachedHeld
	if moved {
		waiting = unreachedAll
	}
	if err := makeDueNow(ctx, q.pool, project, d, waiting); err != nil {
		return Deployment{}, fmt.Errorf("put deployment %s: %w: %w", id, ErrNotRescheduled, err)
	}
	return d, nil
}

// writeDeployment writes a registration and, if it changed, its audit entry; moved reports whether the URL changed.
func (q *Queue) writeDeployment(
	ctx context.Context, project entities.Project, d Deployment,
) (written Deployment, moved bool, err error) {
	err = pg.InTx(ctx, q.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			INSERT INTO deployments (project, id, url, workflows) VALUES ($1, $2, $3, $4)
			ON CONFLICT (project, id) DO UPDATE SET url = excluded.url, workflows = excluded.workflows, updated_at = now()
			RETURNING `+deploymentColumns+`,
				url IS DISTINCT FROM (SELECT url FROM deployments WHERE project = $1 AND id = $2) AS moved,
				workflows IS DISTINCT FROM (SELECT workflows FROM deployments WHERE project = $1 AND id = $2) AS relisted`,
			project, d.ID, d.URL, d.Workflows)
		if err != nil {
			return err
		}
		row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[struct {
			Deployment
			Moved, Relisted bool
		}])
		if err != nil {
			return err
		}
		written, moved = row.Deployment, row.Moved
		if !row.Moved && !row.Relisted {
			return nil // apps repeat their registration at every start, which needs no audit entry
		}
		return audit(ctx, tx, project, admin.ActionDeploymentPut, d.ID,
			map[string]any{"url": written.URL, "workflows": written.Workflows})
	})
	return written, moved, err
}

// audit writes an audit entry in the transaction of the audited action, so that neither is stored without the other.
func audit(
	ctx context.Context, tx pgx.Tx, project entities.Project, kind admin.ActionKind, subject string,
	detail map[string]any,
) error {
	var b pgx.Batch
	admin.InsertAction(ctx, &b, project, kind, subject, detail)
	return tx.SendBatch(ctx, &b).Close()
}

func validateURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return entities.Invalid("url %q is not an absolute http or https URL", s)
	}
	if strings.ContainsAny(s, "?#") || u.User != nil {
		return entities.Invalid("the url has a query, a fragment or credentials; want a base URL") // logs would show them
	}
	return nil
}

// validateWorkflows checks the names and returns them sorted, without duplicates.
func validateWorkflows(names []string) ([]string, error) {
	if n := len(names); n > maxWorkflows {
		return nil, entities.Invalid("a deployment has %d workflows; the limit is %d", n, maxWorkflows)
	}
	for _, name := range names {
		if err := entities.ValidateWorkflowName("workflow", name); err != nil {
			return nil, err
		}
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	if sorted == nil {
		sorted = []string{} // an empty array, not NULL
	}
	return sorted, nil
}

// Deployment reads a deployment. It fails with [message.ErrDeploymentNotFound].
func (q *Queue) Deployment(ctx context.Context, project entities.Project, id string) (Deployment, error) {
	return q.oneDeployment(ctx, `id = $2`, project, id)
}

// NewestDeployment reads the deployment for a new run of the workflow: the newest one that lists it, or else the newest
// one that lists no workflows. It fails with [message.ErrDeploymentNotFound].
func (q *Queue) NewestDeployment(ctx context.Context, project entities.Project, workflow string) (Deployment, error) {
	return q.oneDeployment(ctx, `($2 = ANY (workflows) OR workflows = '{}')
		ORDER BY workflows = '{}', created_at DESC, id DESC LIMIT 1`, project, workflow)
}

// oneDeployment reads the deployment that the condition selects; the condition refers to the argument as $2.
func (q *Queue) oneDeployment(
	ctx context.Context, condition string, project entities.Project, argument string,
) (Deployment, error) {
	rows, err := pg.NewPool(q.pool).Query(ctx,
		`SELECT `+deploymentColumns+` FROM deployments WHERE project = $1 AND `+condition, project, argument)
	if err != nil {
		return Deployment{}, fmt.Errorf("read deployment: %w", err)
	}
	d, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Deployment])
	if errors.Is(err, pgx.ErrNoRows) {
		err = message.ErrDeploymentNotFound
	}
	if err != nil {
		return Deployment{}, fmt.Errorf("read deployment for %s: %w", argument, err)
	}
	return d, nil
}

// Deployments lists the project's deployments by ID.
func (q *Queue) Deployments(ctx context.Context, project entities.Project) ([]Deployment, error) {
	rows, err := pg.NewPool(q.pool).Query(ctx,
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

// RemoveDeployment deletes a deployment. Its messages wait until it is registered again. It fails with
// [message.ErrDeploymentNotFound].
func (q *Queue) RemoveDeployment(ctx context.Context, project entities.Project, id string) error {
	err := pg.InTx(ctx, q.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM deployments WHERE project = $1 AND id = $2`, project, id)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return message.ErrDeploymentNotFound
		}
		return audit(ctx, tx, project, admin.ActionDeploymentRemove, id, nil)
	})
	if err != nil {
		return fmt.Errorf("remove deployment %s: %w", id, err)
	}
	return nil
}
