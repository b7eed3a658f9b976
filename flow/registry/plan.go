package registry

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/flow/goal"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// MaxPlans limits the plans of a catalog that begin new runs.
	MaxPlans = 1000
	// maxChildren limits the different plans of a start: that of the run, and those of its children.
	maxChildren = 100
	// maxPlanDepth limits how deep the plans of catalogs are nested.
	maxPlanDepth = 8
	// maxRetired limits how many plans make room for a new one at once, so that the next ones find room.
	maxRetired = 50
)

// ErrTooManyPlans refuses one more plan than a catalog may have.
var ErrTooManyPlans = fmt.Errorf("%d plans of the catalog are in use: wait until runs have ended, or remove aliases, "+
	"schedules and triggers of old plans", MaxPlans)

// Planned is a plan of a version of a catalog. If its goals cannot be reached, it has no document.
type Planned struct {
	*goal.Plan
	Version  int64
	Document []byte

	children []plannedChild
	// height is how deep the plans of children are nested.
	height int
}

// plannedChild is a step of a plan that another plan executes.
type plannedChild struct {
	goal.Child

	plan *Planned
}

// document returns the flow of the plan. It says nothing of the catalog's version, so that equal plans are one.
func (p *Planned) document() []byte { return p.Plan.Document("A plan of the catalog " + p.Name) }

// Preview plans and stores nothing. Version 0 is the newest one. It fails with [ErrCatalogNotFound], with
// [entities.ErrInvalid], with [goal.ErrTooLarge], and with [goal.ErrUnreached] if a child cannot reach its goals.
func (r *Registry) Preview(
	ctx context.Context, project entities.Project, name string, version int64, ask goal.Ask,
) (*Planned, error) {
	p, err := r.newPlanner(project).plan(ctx, name, version, ask, 0)
	if err == nil && p.IsReached() {
		p.Document = p.document()
	}
	return p, err
}

// Plan returns the version of a flow that executes a plan of the newest version of a catalog, and stores it if it is
// not there. It fails like [Registry.Preview], with [goal.ErrUnreached], with [ErrTooManyPlans], with a [flow.Faults]
// if the plan is too large for a flow, and with the violations of its schema if the input does not fit. It stores
// nothing then.
func (r *Registry) Plan(
	ctx context.Context, project entities.Project, name string, ask goal.Ask, input json.RawMessage,
) (deployment string, err error) {
	p, err := r.newPlanner(project).plan(ctx, name, 0, ask, 0)
	if err == nil {
		err = p.Check()
	}
	if err != nil {
		return "", err
	}
	k := keeper{r, project, pg.NewPool(r.pool), map[*Planned]string{}}
	if deployment, err = k.keep(ctx, p, k.none); !errors.Is(err, ErrNotFound) {
		return deployment, err
	}
	program, err := flow.Parse(p.document())
	if err == nil {
		err = program.CheckInput(input, ctx.Err)
	}
	if err != nil {
		return "", fmt.Errorf("the plan of catalog %s: %w", name, err)
	}
	err = pg.InTx(ctx, r.pool, func(tx pgx.Tx) (err error) {
		if err = lock(ctx, tx, project); err == nil {
			k = keeper{r, project, tx, map[*Planned]string{}}
			deployment, err = k.keep(ctx, p, func(p *Planned) (string, error) { return k.store(ctx, tx, p) })
		}
		return err
	})
	return deployment, pg.Wrap(err, "keep a plan of catalog %s", name)
}

// planner makes the plans of a request. Children with the same goals share one, and all share a budget.
type planner struct {
	*Registry

	project entities.Project
	budget  *goal.Budget
	plans   map[string]*Planned
}

func (r *Registry) newPlanner(project entities.Project) *planner {
	return &planner{r, project, goal.NewBudget(), map[string]*Planned{}}
}

// plan plans, with the children.
func (m *planner) plan(ctx context.Context, name string, version int64, ask goal.Ask, depth int) (*Planned, error) {
	c, version, err := m.catalog(ctx, m.project, name, version)
	if err != nil {
		return nil, err
	}
	p := &Planned{Version: version}
	if p.Plan, err = c.Plan(ask, m.budget); err != nil {
		return nil, err
	}
	for _, step := range p.Children() {
		child, err := m.child(ctx, step, depth+1)
		if err != nil {
			return nil, fmt.Errorf("step %s of catalog %s: %w", step.Step, name, err)
		}
		p.children = append(p.children, plannedChild{step, child})
		p.height = max(p.height, child.height+1)
	}
	return p, nil
}

// child plans a child at a depth.
func (m *planner) child(ctx context.Context, step goal.Child, depth int) (*Planned, error) {
	key, err := json.Marshal([]any{step.Catalog, step.Ask})
	if err != nil {
		return nil, err
	}
	p, ok := m.plans[string(key)]
	switch {
	case ok && depth+p.height < maxPlanDepth:
		return p, nil
	case ok || depth >= maxPlanDepth:
		return nil, entities.Invalid("plans of catalogs are nested deeper than %d: look whether %s plans itself again",
			maxPlanDepth, step.Catalog)
	case len(m.plans) >= maxChildren:
		return nil, fmt.Errorf("%w: it has more than %d different children that are planned: want less", goal.ErrTooLarge,
			maxChildren)
	}
	if p, err = m.plan(ctx, step.Catalog, 0, step.Ask, depth); err == nil {
		err = p.Check()
	}
	m.plans[string(key)] = p
	return p, err
}

// keeper finds the versions of flows that execute plans.
type keeper struct {
	*Registry

	project entities.Project
	from    querier
	kept    map[*Planned]string
}

// none is for plans that are only looked up.
func (k keeper) none(*Planned) (string, error) { return "", ErrNotFound }

// keep returns the version that executes a plan. Those that are not there are for otherwise, children first.
func (k keeper) keep(ctx context.Context, p *Planned, otherwise func(*Planned) (string, error)) (string, error) {
	if deployment, ok := k.kept[p]; ok {
		return deployment, nil
	}
	for _, child := range p.children {
		deployment, err := k.keep(ctx, child.plan, otherwise)
		if err != nil {
			return "", err
		}
		p.Execute(child.Child, deployment)
	}
	p.Document = p.document()
	digest := sha256.Sum256(p.Document)
	v, err := one(ctx, k.from, `WHERE project = $1 AND name = $2 AND digest = $3 ORDER BY version DESC LIMIT 1`,
		k.project, p.Name, digest[:])
	if err == nil && !v.stands(digest[:]) {
		err = ErrNotFound
	}
	deployment := v.DeploymentID
	if errors.Is(err, ErrNotFound) {
		deployment, err = otherwise(p)
	}
	if err == nil {
		k.kept[p] = deployment
	}
	return deployment, err
}

// store stores a plan as the next version of the flow with the catalog's name.
func (k keeper) store(ctx context.Context, tx pgx.Tx, p *Planned) (string, error) {
	program, err := flow.Parse(p.Document)
	if err != nil {
		return "", err
	}
	var newest, plans int64
	err = tx.QueryRow(ctx, `SELECT coalesce(max(version), 0), count(*) FILTER (WHERE d.retired_at IS NULL)
		FROM flow_versions v LEFT JOIN deployments d ON d.project = v.project AND d.id = v.deployment_id
		WHERE v.project = $1 AND v.name = $2`, k.project, p.Name).Scan(&newest, &plans)
	if err == nil && plans >= MaxPlans {
		err = k.makeRoom(ctx, tx, p.Name)
	}
	if err != nil {
		return "", err
	}
	v := newVersion(program, p.Document, newest+1, k.now())
	return v.DeploymentID, k.insert(ctx, tx, k.project, v, program)
}

// makeRoom retires the oldest plans that nothing uses: no run that has not ended, and no alias, schedule, trigger,
// collection or document. It fails with [ErrTooManyPlans] if all are in use.
func (k keeper) makeRoom(ctx context.Context, tx pgx.Tx, name string) error {
	rows, err := tx.Query(ctx, `
		WITH named AS MATERIALIZED (
			SELECT DISTINCT (regexp_matches(u.document, $2 || '@[0-9]+', 'g'))[1] AS id
			FROM flow_versions u JOIN deployments d ON d.project = u.project AND d.id = u.deployment_id
			WHERE u.project = $1 AND d.retired_at IS NULL
		), unused AS (
			SELECT v.version, v.deployment_id AS id
			FROM flow_versions v JOIN deployments d ON d.project = v.project AND d.id = v.deployment_id
			WHERE v.project = $1 AND v.name = $2 AND d.retired_at IS NULL
				AND NOT EXISTS (SELECT FROM named WHERE named.id = v.deployment_id)
				AND NOT EXISTS (SELECT FROM flow_aliases a
					WHERE a.project = $1 AND a.name = $2 AND a.version = v.version)
				AND NOT EXISTS (SELECT FROM runs WHERE project = $1 AND deployment_id = v.deployment_id
					AND completed_at IS NULL)
				AND NOT EXISTS (SELECT FROM schedules WHERE project = $1 AND deployment = v.deployment_id)
				AND NOT EXISTS (SELECT FROM triggers WHERE project = $1 AND deployment = v.deployment_id)
				AND NOT EXISTS (SELECT FROM collections WHERE project = $1 AND deployment = v.deployment_id)
			ORDER BY v.version LIMIT $3
		), retired AS (
			UPDATE deployments d SET retired_at = $4, updated_at = $4 FROM unused
			WHERE d.project = $1 AND d.id = unused.id RETURNING unused.version
		) SELECT version FROM retired ORDER BY 1`, k.project, name, maxRetired, k.now())
	if err != nil {
		return err
	}
	retired, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err == nil && len(retired) == 0 {
		err = ErrTooManyPlans
	}
	if err != nil {
		return err
	}
	var b pgx.Batch
	for _, version := range retired {
		admin.InsertAction(ctx, &b, k.project, admin.ActionFlowRetire, name, map[string]any{"version": version})
	}
	return tx.SendBatch(ctx, &b).Close()
}
