package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/queue/flow"
	"github.com/stepwell-dev/stepwell/queue/flow/goal"
)

const (
	// MaxCatalogs limits the catalogs of a project.
	MaxCatalogs = 1000
	// MaxPlans limits the plans that are kept of a catalog.
	MaxPlans = 1000
	// maxPlanDepth limits how deep the plans of catalogs are nested.
	maxPlanDepth = 8
)

var (
	// ErrCatalogNotFound reports a catalog, or a version of one, that does not exist.
	ErrCatalogNotFound = errors.New("catalog not found")
	// ErrTooManyCatalogs refuses one more catalog than a project may have.
	ErrTooManyCatalogs = fmt.Errorf("the project has %d catalogs already: put a new version of one of them", MaxCatalogs)
	// ErrTooManyPlans refuses one more plan than a catalog may have.
	ErrTooManyPlans = fmt.Errorf("%d plans of the catalog are kept already: start runs that want and have the same names",
		MaxPlans)
	// ErrNameTaken refuses a catalog with the name of a flow, and the other way round: both are workflows.
	ErrNameTaken = errors.New("a flow and a catalog cannot have the same name: choose another one")
)

// Catalog is a version of a catalog.
type Catalog struct {
	Name      string
	Version   int64
	Digest    []byte
	Document  string
	CreatedAt time.Time
}

const catalogColumns = `name, version, digest, document, created_at`

func catalogs(ctx context.Context, q querier, rest string, args ...any) ([]Catalog, error) {
	rows, err := q.Query(ctx, `SELECT `+catalogColumns+` FROM catalogs c `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read catalogs: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[Catalog])
}

// PutCatalog stores a document as the newest version of its catalog, unless it has the same values as the newest one,
// and reports whether it has created one. A dry run stores nothing. It fails with a [flow.Faults] if the document has
// faults, with [ErrTooManyCatalogs] and with [ErrNameTaken].
func (r *Registry) PutCatalog(
	ctx context.Context, project entities.Project, document []byte, dryRun bool,
) (v Catalog, created bool, err error) {
	c, err := goal.Parse(document)
	if err != nil {
		return v, false, err
	}
	err = r.change(ctx, project, func(tx pgx.Tx, b *pgx.Batch) error {
		list, err := catalogs(ctx, tx, `WHERE project = $1 AND name = $2 ORDER BY version DESC LIMIT 1`, project, c.Name)
		if err == nil && len(list) == 0 {
			err = checkNewCatalog(ctx, tx, project, c.Name)
		}
		if err != nil {
			return err
		}
		for _, v = range list {
			if bytes.Equal(v.Digest, c.Digest()) {
				return nil
			}
		}
		v = Catalog{c.Name, v.Version + 1, c.Digest(), string(document), r.now()}
		if dryRun {
			return nil
		}
		created = true
		b.Queue(`INSERT INTO catalogs (project, name, version, digest, document, created_at) VALUES ($1, $2, $3, $4, $5, $6)`,
			project, v.Name, v.Version, v.Digest, v.Document, v.CreatedAt)
		admin.InsertAction(ctx, b, project, admin.ActionCatalogPut, v.Name, map[string]any{"version": v.Version})
		return nil
	})
	return v, created, wrap("put catalog "+c.Name, err)
}

// checkNewCatalog fails unless the project may have a catalog with the name.
func checkNewCatalog(ctx context.Context, tx pgx.Tx, project entities.Project, name string) error {
	var others int
	var taken bool
	err := tx.QueryRow(ctx, `SELECT (SELECT count(*) FROM catalogs WHERE project = $1 AND version = 1),
		EXISTS (SELECT FROM flow_versions WHERE project = $1 AND name = $2)`, project, name).Scan(&others, &taken)
	switch {
	case err != nil:
		return err
	case taken:
		return ErrNameTaken
	case others >= MaxCatalogs:
		return ErrTooManyCatalogs
	}
	return nil
}

// checkFlowName fails with [ErrNameTaken] if a catalog has the name of a flow.
func checkFlowName(ctx context.Context, tx pgx.Tx, project entities.Project, name string) error {
	list, err := catalogs(ctx, tx, `WHERE project = $1 AND name = $2 LIMIT 1`, project, name)
	if err == nil && len(list) > 0 {
		err = ErrNameTaken
	}
	return err
}

// Catalogs returns the newest version of each catalog, by name.
func (r *Registry) Catalogs(ctx context.Context, project entities.Project) ([]Catalog, error) {
	return catalogs(ctx, pg.NewPool(r.pool), `WHERE project = $1 AND version = (
		SELECT max(version) FROM catalogs WHERE project = c.project AND name = c.name) ORDER BY name`, project)
}

// CatalogVersions returns all versions of a catalog, the newest first. It fails with [ErrCatalogNotFound].
func (r *Registry) CatalogVersions(ctx context.Context, project entities.Project, name string) ([]Catalog, error) {
	list, err := catalogs(ctx, pg.NewPool(r.pool), `WHERE project = $1 AND name = $2 ORDER BY version DESC`, project, name)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s: %w", name, ErrCatalogNotFound)
	}
	return list, err
}

// catalogKey is a version of a catalog.
type catalogKey struct {
	project, name string
	version       int64
}

// catalog returns a compiled catalog, and its version. Version 0 is the newest one.
func (r *Registry) catalog(
	ctx context.Context, project entities.Project, name string, version int64,
) (*goal.Catalog, int64, error) {
	var newest int64
	err := pg.NewPool(r.pool).QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM catalogs
		WHERE project = $1 AND name = $2 AND ($3 = 0 OR version = $3)`, project, name, version).Scan(&newest)
	if err == nil && newest == 0 {
		err = fmt.Errorf("%s: %w", name, ErrCatalogNotFound)
	}
	if err != nil {
		return nil, 0, err
	}
	key := catalogKey{string(project), name, newest}
	if c, ok := r.catalogs.Get(key); ok {
		return c, newest, nil
	}
	list, err := catalogs(ctx, pg.NewPool(r.pool), `WHERE project = $1 AND name = $2 AND version = $3`,
		project, name, newest)
	if err == nil && len(list) == 0 {
		err = ErrCatalogNotFound
	}
	if err != nil {
		return nil, 0, err
	}
	c, err := goal.Parse([]byte(list[0].Document))
	if err != nil {
		return nil, 0, fmt.Errorf("version %d of catalog %s: %w", newest, name, err)
	}
	r.catalogs.Add(key, c)
	return c, newest, nil
}

// Planned is a plan of a version of a catalog. If its goals cannot be reached, it has no document.
type Planned struct {
	*goal.Plan
	Version  int64
	Document []byte
}

// Preview plans and stores nothing. Version 0 is the newest one. It fails with [ErrCatalogNotFound], with
// [entities.ErrInvalid], and with [goal.ErrUnreached] if a child cannot reach its goals.
func (r *Registry) Preview(
	ctx context.Context, project entities.Project, name string, version int64, ask goal.Ask,
) (Planned, error) {
	return r.plan(ctx, project, name, version, ask, func(context.Context, Planned) (string, error) { return "", nil })
}

// Plan returns the version of a flow that executes a plan of the newest version of a catalog, and stores it if it is
// not there. It fails like [Registry.Preview], with [goal.ErrUnreached], with [ErrTooManyPlans], and with a
// [flow.Faults] if the plan is too large for a flow.
func (r *Registry) Plan(
	ctx context.Context, project entities.Project, name string, ask goal.Ask,
) (deployment string, err error) {
	keep := func(ctx context.Context, p Planned) (string, error) { return r.keepPlan(ctx, project, p) }
	p, err := r.plan(ctx, project, name, 0, ask, keep)
	if err == nil {
		err = p.Check()
	}
	if err != nil {
		return "", err
	}
	return keep(ctx, p)
}

type depthKey struct{}

// plan plans, and has the plans of children kept.
func (r *Registry) plan(
	ctx context.Context, project entities.Project, name string, version int64, ask goal.Ask,
	keep func(context.Context, Planned) (string, error),
) (p Planned, err error) {
	depth, _ := ctx.Value(depthKey{}).(int)
	if depth >= maxPlanDepth {
		return p, entities.Invalid("plans of catalogs are nested deeper than %d: %s plans itself again", maxPlanDepth, name)
	}
	c, version, err := r.catalog(ctx, project, name, version)
	if err != nil {
		return p, err
	}
	if p.Plan, err = c.Plan(ask); err != nil {
		return p, err
	}
	p.Version = version
	for _, child := range p.Children() {
		planned, err := r.plan(context.WithValue(ctx, depthKey{}, depth+1), project, child.Catalog, 0, child.Ask, keep)
		if err == nil {
			err = planned.Check()
		}
		var deployment string
		if err == nil {
			deployment, err = keep(ctx, planned)
		}
		if err != nil {
			return p, fmt.Errorf("step %s of catalog %s: %w", child.Step, name, err)
		}
		p.Execute(child, deployment)
	}
	if p.IsReached() {
		p.Document = p.Plan.Document(fmt.Sprintf("Version %d of the catalog %s (%x)", version, name, c.Digest()[:8]))
	}
	return p, nil
}

// keepPlan stores a plan as a version of the flow with the catalog's name, unless one has it already.
func (r *Registry) keepPlan(ctx context.Context, project entities.Project, p Planned) (string, error) {
	digest := sha256.Sum256(p.Document)
	const same = `WHERE project = $1 AND name = $2 AND digest = $3 ORDER BY version DESC LIMIT 1`
	v, err := one(ctx, pg.NewPool(r.pool), same, project, p.Name, digest[:])
	if err == nil && v.RetiredAt == nil {
		return v.DeploymentID, nil
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return "", err
	}
	program, err := flow.Parse(p.Document)
	if err != nil {
		return "", fmt.Errorf("the plan of catalog %s: %w", p.Name, err)
	}
	err = pg.InTx(ctx, r.pool, func(tx pgx.Tx) error {
		if err := lock(ctx, tx, project); err != nil {
			return err
		}
		if v, err = one(ctx, tx, same, project, p.Name, digest[:]); err == nil && v.RetiredAt == nil {
			return nil // another start has stored it meanwhile
		}
		var number int64
		err := tx.QueryRow(ctx, `SELECT coalesce(max(version), 0) + 1 FROM flow_versions WHERE project = $1 AND name = $2`,
			project, p.Name).Scan(&number)
		if err == nil && number > MaxPlans {
			err = ErrTooManyPlans
		}
		if err != nil {
			return err
		}
		v = Version{
			Name: p.Name, Version: number, DeploymentID: deploymentID(p.Name, number), Digest: program.Digest(),
			Document: string(p.Document), Semantics: flow.Semantics, CreatedAt: r.now(),
		}
		return r.insert(ctx, tx, project, v, program)
	})
	return v.DeploymentID, wrap("keep a plan of catalog "+p.Name, err)
}
