package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/health"
)

// Deployment is a version of an app: messages for ID are sent to its functions below URL.
type Deployment struct {
	ID string
	// URL is [PulledURL] if the app asks for its deliveries.
	URL string
	// Workflows are the names of its workflows, sorted. If empty, the deployment may have any workflow, unless it is for
	// steps only. Where it is registered, nil leaves them as they are.
	Workflows []string
	// StepsOnly is set if it executes steps, and has no workflow. Where it is registered, nil leaves it as it is.
	StepsOnly *bool
	// Build is the version of its program; empty if unknown. Where it is registered, empty leaves it as it is.
	Build string
	// Schemas is a JSON object with the JSON Schemas of inputs and outputs, by workflow; nil if there are none. Only
	// [Queue.DeploymentDetails] and [Queue.Register] return it.
	Schemas json.RawMessage
	// MaxConcurrent is how many calls of its functions may be under way at once, over all servers; 0 for any number. Where
	// it is registered, nil leaves the bound as it is.
	MaxConcurrent *int
	// OpenRuns is how many of its runs have not ended, at most [maxOpenRuns]. [Queue.Deployment] and
	// [Queue.NewestDeployment], which a start of a run uses, do not count them.
	OpenRuns int64
	// Waiting is how many messages are delivered at once when the deployment is moved: those of its messages that failed
	// and are not parked, at most [maxWaiting]. It is read where OpenRuns is.
	Waiting int64
	// Reached says how the deployment could be reached. It is read where OpenRuns is.
	Reached
	// Health says how it is probed; nil if it is not. [Queue.Register] leaves it as it is if it is nil, and ends the
	// probes if it has no path. State is what they have found out. Both are read where OpenRuns is.
	Health *health.Settings
	health.State
	// RetiredAt is set if it is a version of a flow that begins no new runs.
	RetiredAt *time.Time
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Reached says how a deployment could be reached by the server, by calls of its functions.
type Reached struct {
	// AnsweredAt is when it last answered a call, with any status, or asked for its deliveries, to the minute; nil if it
	// never did.
	AnsweredAt *time.Time
	// FailedAt is when it could not be reached last, and Failure why.
	FailedAt *time.Time
	Failure  string
	// UnreachableSince is set as long as it has not answered since.
	UnreachableSince *time.Time
}

// deploymentColumns are what the start of a run reads.
const deploymentColumns = `id, url, workflows, steps_only, build, max_concurrent, retired_at, created_at, updated_at`

const (
	// maxWorkflows is how many workflows a deployment may list.
	maxWorkflows = 1000
	// maxSchemas is the size limit of a deployment's schemas in bytes.
	maxSchemas = 1 << 20
	// maxBuild is the length limit of a deployment's build in bytes.
	maxBuild = 256
	// maxOpenRuns is how many open runs of a deployment are counted.
	maxOpenRuns = 10_000
	// maxWaiting is how many waiting messages of a deployment are counted.
	maxWaiting = 1000
)

// state has the columns of the deployment d that the start of a run does not need.
var state = fmt.Sprintf(`(SELECT count(*) FROM (SELECT FROM runs
	WHERE project = d.project AND deployment_id = d.id AND completed_at IS NULL LIMIT %d) open) AS open_runs,
	(SELECT count(*) FROM (SELECT FROM messages
	WHERE project = d.project AND deployment_id = d.id AND parked_at IS NULL AND last_error <> '' LIMIT %d) failed)
	AS waiting,
	answered_at, failed_at, failure, unreachable_since, health, `+health.Columns, maxOpenRuns, maxWaiting)

// Deployment reads a deployment. It fails with [message.ErrDeploymentNotFound].
func (q *Queue) Deployment(ctx context.Context, project entities.Project, id string) (Deployment, error) {
	return q.oneDeployment(ctx, "", `id = $2`, project, id)
}

// DeploymentDetails reads a deployment with its schemas and its state, which a start does not need.
// It fails with [message.ErrDeploymentNotFound].
func (q *Queue) DeploymentDetails(ctx context.Context, project entities.Project, id string) (Deployment, error) {
	return q.oneDeployment(ctx, `, nullif(schemas, '{}') AS schemas, `+state, `id = $2`, project, id)
}

// NewestDeployment reads the deployment for a new run of the workflow: the newest one that lists it, or else the newest
// one that lists no workflows and is not for steps only. Workers list theirs: an app that asks and lists none is one of
// the Workflow SDK, which has no functions to call. It fails with [message.ErrDeploymentNotFound], with
// [message.ErrDeploymentRetired] if the workflow is a flow whose versions are all retired: no app has it; and with
// [message.ErrIsCatalog] if it is a catalog, and no app lists it: a plan is for what its run wants.
func (q *Queue) NewestDeployment(ctx context.Context, project entities.Project, workflow string) (Deployment, error) {
	d, err := q.oneDeployment(ctx, "", isNewest, project, workflow)
	if errors.Is(err, message.ErrDeploymentNotFound) {
		var planned bool
		if err := pg.NewPool(q.pool).QueryRow(ctx, `SELECT `+isCatalog, project, workflow).Scan(&planned); err != nil {
			return d, fmt.Errorf("find a catalog: %w", err)
		}
		if planned {
			return d, fmt.Errorf("start a run of %s: %w", workflow, message.ErrIsCatalog)
		}
		err = fmt.Errorf("no app with workflow %q is registered: %w", workflow, message.ErrDeploymentNotFound)
	}
	if err == nil && d.RetiredAt != nil {
		err = fmt.Errorf("start a run of %s: %w", workflow, message.ErrDeploymentRetired)
	}
	return d, err
}

// StartDeployment reads the deployment for a new run of the workflow: the one with the ID, the version of a flow that
// an alias with the ID points to, or that of [Queue.NewestDeployment] if it is empty. It fails with
// [message.ErrDeploymentNotFound], with [message.ErrDeploymentRetired], with [message.ErrStepsOnly], and with
// [entities.ErrInvalid] if it is a version of another flow.
func (q *Queue) StartDeployment(
	ctx context.Context, project entities.Project, workflow, id string,
) (Deployment, error) {
	if id == "" {
		return q.NewestDeployment(ctx, project, workflow)
	}
	d, err := q.Deployment(ctx, project, id)
	if errors.Is(err, message.ErrDeploymentNotFound) && strings.Contains(id, "@") {
		d, err = q.oneDeployment(ctx, "", `id = (SELECT v.deployment_id FROM flow_aliases a
			JOIN flow_versions v USING (project, name, version) WHERE a.project = $1 AND a.id = $2)`, project, id)
	}
	switch {
	case err != nil:
	case d.RetiredAt != nil:
		err = fmt.Errorf("start a run of %s: %w", id, message.ErrDeploymentRetired)
	case *d.StepsOnly:
		err = fmt.Errorf("start a run of %s on %s: %w", workflow, id, message.ErrStepsOnly)
	case strings.HasPrefix(d.URL, contract.FlowScheme) && !slices.Contains(d.Workflows, workflow):
		err = entities.Invalid("deployment %s is a version of the flow %s, not of %s: name that flow, or another deployment",
			id, strings.Join(d.Workflows, ", "), workflow)
	}
	return d, err
}

// oneDeployment reads the deployment that the condition selects; see [Queue.readDeployments].
func (q *Queue) oneDeployment(
	ctx context.Context, more, condition string, project entities.Project, argument string,
) (Deployment, error) {
	list, err := q.readDeployments(ctx, more, ` AND `+condition, project, argument)
	if err == nil && len(list) == 0 {
		err = message.ErrDeploymentNotFound
	}
	if err != nil {
		return Deployment{}, fmt.Errorf("read deployment for %s: %w", argument, err)
	}
	return list[0], nil
}

// readDeployments reads deployments of the project $1 with more columns than the usual ones. The rest of the statement
// may have conditions and an order.
func (q *Queue) readDeployments(ctx context.Context, more, rest string, args ...any) ([]Deployment, error) {
	rows, err := pg.NewPool(q.pool).Query(ctx,
		`SELECT `+deploymentColumns+more+` FROM deployments d WHERE project = $1`+rest, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByNameLax[Deployment])
}

// Deployments lists the project's deployments by ID, with their state.
func (q *Queue) Deployments(ctx context.Context, project entities.Project) ([]Deployment, error) {
	list, err := q.readDeployments(ctx, `, `+state, ` ORDER BY id`, project)
	return list, pg.Wrap(err, "list deployments")
}

// RemoveDeployment deletes a deployment. Its messages wait until it is registered again. It fails with
// [message.ErrDeploymentNotFound].
func (q *Queue) RemoveDeployment(ctx context.Context, project entities.Project, id string) error {
	err := pg.InTx(ctx, q.pool, func(tx pgx.Tx) error {
		var address string
		err := tx.QueryRow(ctx, `DELETE FROM deployments WHERE project = $1 AND id = $2 RETURNING url`, project, id).
			Scan(&address)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return message.ErrDeploymentNotFound
		case err != nil:
			return err
		case strings.HasPrefix(address, contract.FlowScheme):
			return errIsFlow(id)
		}
		if _, err := q.writeProbes(ctx, tx, project, Deployment{ID: id}); err != nil {
			return err
		}
		return audit(ctx, tx, project, admin.ActionDeploymentRemove, id, nil)
	})
	if err != nil {
		return fmt.Errorf("remove deployment %s: %w", id, err)
	}
	return nil
}
