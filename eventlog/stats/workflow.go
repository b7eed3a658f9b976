package stats

import (
	"context"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// MaxOpen is as far as the open runs of a workflow are counted.
const MaxOpen = 1000

// Workflow is a workflow that has runs.
type Workflow struct {
	Name string
	// LastRunAt is when its newest run was created, and Deployment that run's deployment.
	LastRunAt  time.Time
	Deployment string
	// Open is the number of runs that have not ended; MaxOpen+1 for more than [MaxOpen].
	Open int
}

// workflowsSQL selects the first $3 workflows of the project $1 after the name $2.
const workflowsSQL = `
	WITH RECURSIVE named (n, name) AS (
		SELECT 1, (SELECT workflow_name FROM runs WHERE project = $1 AND workflow_name > $2
			ORDER BY project, workflow_name LIMIT 1)
		UNION ALL
		SELECT n + 1, (SELECT workflow_name FROM runs WHERE project = $1 AND workflow_name > named.name
			ORDER BY project, workflow_name LIMIT 1)
		FROM named WHERE named.name IS NOT NULL AND n < $3
	)
	SELECT named.name, newest.created_at AS last_run_at, newest.deployment_id AS deployment, open.count AS open
	FROM named, LATERAL (
		SELECT of_status.* FROM unnest($4::text[]) AS s(status), LATERAL (
			SELECT created_at, deployment_id FROM runs
			WHERE project = $1 AND workflow_name = named.name AND runs.status = s.status
			ORDER BY created_at DESC, id DESC LIMIT 1) of_status
		ORDER BY created_at DESC LIMIT 1) newest, LATERAL (
		SELECT count(*) FROM (
			SELECT FROM unnest($5::text[]) AS s(status), LATERAL (
				SELECT FROM runs WHERE project = $1 AND workflow_name = named.name AND runs.status = s.status
				ORDER BY created_at, id LIMIT $6) of_status
			LIMIT $6) counted) open
	WHERE named.name IS NOT NULL
	ORDER BY named.name`

// Workflows returns the first workflows after a name that have runs, in order of their names; after "" for all. It
// reads one entry of an index for each, apart from the open runs that it counts.
func (r *Reader) Workflows(ctx context.Context, project entities.Project, after string, limit int) ([]Workflow, error) {
	rows, err := r.pool.Query(ctx, workflowsSQL, project, after, limit,
		[]entities.RunStatus{
			entities.RunPending, entities.RunRunning, entities.RunCompleted, entities.RunFailed, entities.RunCancelled,
		}, []entities.RunStatus{entities.RunPending, entities.RunRunning}, MaxOpen+1)
	list, err := pg.CollectAll[Workflow](rows, err)
	if err != nil {
		return nil, fmt.Errorf("list workflows: %w", err)
	}
	return list, nil
}
