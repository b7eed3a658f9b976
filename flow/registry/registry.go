// Package registry keeps the versions of flows, and answers the calls of their runs. Each version is a deployment whose
// address is that of no server: its functions are called in this process.
package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/cache"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/flow/goal"
	"github.com/stepwell-dev/stepwell/pg"
)

// MaxFlows limits the flows of a project.
const MaxFlows = 1000

// ErrTooMany refuses one more flow than a project may have.
var ErrTooMany = fmt.Errorf("the project has %d flows already: put a new version of one of them", MaxFlows)

var (
	// ErrNotFound reports a flow, or a version of one, that does not exist.
	ErrNotFound = errors.New("flow not found")
	// ErrAliasNotFound reports an alias that does not exist.
	ErrAliasNotFound = errors.New("alias not found")
	// ErrTaken refuses a version or an alias whose ID is that of a deployment which somebody has registered.
	ErrTaken = errors.New("the ID belongs to the deployment of an app: remove that deployment, or choose another name")
	// ErrSemantics reports a version whose document was put by a later version of the server, and means what this one
	// does not know.
	ErrSemantics = errors.New("the flow has rules that this server does not know: update the server")
	// ErrInUse refuses to retire a version, or to remove an alias, that something uses.
	ErrInUse = errors.New("it is in use")
)

// Version is a version of a flow.
type Version struct {
	Name    string
	Version int64
	// DeploymentID is the deployment of its runs.
	DeploymentID string
	// Digest is that of the document's values: see [flow.Program.Digest].
	Digest   []byte
	Document string
	// Semantics is the number of the rules by which the document is interpreted: see [flow.Semantics].
	Semantics int
	CreatedAt time.Time
	// RetiredAt is set once the version begins no new runs.
	RetiredAt *time.Time
}

const columns = `name, version, deployment_id, digest, semantics, created_at,
	(SELECT retired_at FROM deployments d WHERE d.project = f.project AND d.id = f.deployment_id) AS retired_at`

// newVersion returns a version that is not stored yet.
func newVersion(p *flow.Program, document []byte, number int64, now time.Time) Version {
	return Version{
		Name: p.Name, Version: number, DeploymentID: deploymentID(p.Name, number), Digest: p.Digest(),
		Document: string(document), Semantics: flow.Semantics, CreatedAt: now,
	}
}

// stands reports whether the version does for a document with the digest, so that no other one is needed.
func (v *Version) stands(digest []byte) bool {
	return bytes.Equal(v.Digest, digest) && v.RetiredAt == nil && v.Semantics >= flow.Semantics
}

// has reports whether the version does for the document of a program.
func (v *Version) has(p *flow.Program) bool {
	if v.stands(p.Digest()) {
		return true
	}
	stored, err := flow.Parse([]byte(v.Document))
	return err == nil && v.stands(v.Digest) && stored.Equal(p)
}

const (
	// maxPrograms is how many compiled flows a process keeps, and programMemory how many bytes they may have.
	maxPrograms   = 1000
	programMemory = 128 << 20
	// maxCatalogs is how many catalogs a process keeps, and catalogMemory how many bytes they may have.
	maxCatalogs   = 256
	catalogMemory = 64 << 20
)

// Registry keeps flows in a database.
type Registry struct {
	pool     *pgxpool.Pool
	now      func() time.Time
	programs *cache.Cache[programKey, *flow.Program]
	catalogs *cache.Cache[catalogKey, *goal.Catalog]
}

type programKey struct {
	project    string
	deployment string
}

// New returns the registry in the pool's database. Now is the log's clock.
func New(pool *pgxpool.Pool, now func() time.Time) *Registry {
	return &Registry{
		pool, now,
		cache.New(maxPrograms, programMemory, func(_ programKey, p *flow.Program) int { return p.Size() }),
		cache.New(maxCatalogs, catalogMemory, func(_ catalogKey, c *goal.Catalog) int { return c.Size() }),
	}
}

// Stored is the version that has a document.
type Stored struct {
	Version

	// Created is set if it is a new version, rather than the newest one, which has the same values.
	Created bool
	// Warnings are what is probably not meant in the document.
	Warnings flow.Faults
	// Starts are what its steps start.
	Starts []flow.Start
}

// Put stores a document as the newest version of its flow, unless it has the same values as the newest one and that is
// not retired. It fails with a [flow.Faults] if the document has faults, with [ErrTooMany] if the project has
// [MaxFlows], with [ErrTooManyVersions], with [ErrTaken], and with [ErrNameTaken].
func (r *Registry) Put(
	ctx context.Context, project entities.Project, document []byte,
) (s Stored, err error) {
	return r.putThen(ctx, project, document, nil)
}

// errDryRun undoes what a dry run has written.
var errDryRun = errors.New("dry run")

// putThen puts a document, and ends the transaction with the given error.
func (r *Registry) putThen(
	ctx context.Context, project entities.Project, document []byte, end error,
) (s Stored, err error) {
	p, err := flow.Parse(document)
	if err != nil {
		return s, err
	}
	err = pg.InTx(ctx, r.pool, func(tx pgx.Tx) error {
		if s, err = r.put(ctx, tx, project, p, document); err != nil {
			return err
		}
		return end
	})
	if err != nil && !errors.Is(err, errDryRun) {
		return Stored{}, fmt.Errorf("put flow %s: %w", p.Name, err)
	}
	return s, nil
}

func (r *Registry) put(
	ctx context.Context, tx pgx.Tx, project entities.Project, p *flow.Program, document []byte,
) (s Stored, err error) {
	if s, err = r.next(ctx, tx, project, p, document); err != nil || !s.Created {
		return s, err
	}
	return s, r.insert(ctx, tx, project, s.Version, p)
}

// Check returns what [Registry.Put] would, and stores nothing.
func (r *Registry) Check(
	ctx context.Context, project entities.Project, document []byte,
) (s Stored, err error) {
	s, err = r.putThen(ctx, project, document, errDryRun)
	s.Created = false
	return s, err
}

// next returns the version that a document is or will be.
func (r *Registry) next(
	ctx context.Context, tx pgx.Tx, project entities.Project, p *flow.Program, document []byte,
) (s Stored, err error) {
	s.Warnings, s.Starts = p.Warnings, p.Starts()
	if err := lock(ctx, tx, project); err != nil {
		return s, err
	}
	if err := checkFlowName(ctx, tx, project, p.Name); err != nil {
		return s, err
	}
	s.Version, err = one(ctx, tx, `WHERE project = $1 AND name = $2 ORDER BY version DESC LIMIT 1`, project, p.Name)
	switch {
	case errors.Is(err, ErrNotFound):
		if err := checkCount(ctx, tx, project); err != nil {
			return s, err
		}
	case err != nil || s.has(p):
		return s, err
	}
	s.Created, s.Version = true, newVersion(p, document, s.Version.Version+1, r.now())
	return s, nil
}

// lock has the flows of a project change one after the other, and no app take an ID meanwhile that could be one of
// them.
func lock(ctx context.Context, tx pgx.Tx, project entities.Project) error {
	_, err := tx.Exec(ctx, contract.LockFlows, project)
	return err
}

func deploymentID(name string, version int64) string { return fmt.Sprintf("%s@%d", name, version) }

// checkCount fails with [ErrTooMany] unless the project may have one more flow.
func checkCount(ctx context.Context, tx pgx.Tx, project entities.Project) error {
	var flows int
	err := tx.QueryRow(ctx, `SELECT count(DISTINCT name) FROM flow_versions WHERE project = $1`, project).Scan(&flows)
	if err == nil && flows >= MaxFlows {
		err = ErrTooMany
	}
	return err
}

func (r *Registry) insert(
	ctx context.Context, tx pgx.Tx, project entities.Project, v Version, p *flow.Program,
) error {
	if err := r.forget(ctx, tx, project, v.Name); err != nil {
		return err
	}
	schemas := json.RawMessage("{}")
	if p.Input != nil {
		var err error
		schemas, err = json.Marshal(map[string]any{p.Name: map[string]json.RawMessage{"input": p.Input}})
		if err != nil {
			return err
		}
	}
	// The newest version is the newest deployment, whichever transaction began first, and whatever the clock does.
	tag, err := tx.Exec(ctx, `INSERT INTO deployments (project, id, url, workflows, build, schemas, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, greatest(clock_timestamp(), (
			SELECT created_at + interval '1 microsecond' FROM deployments WHERE project = $1 AND id = $7)))
		ON CONFLICT (project, id) DO NOTHING`,
		project, v.DeploymentID, contract.FlowScheme+v.DeploymentID, []string{v.Name}, flow.Build(v.Digest),
		schemas, deploymentID(v.Name, v.Version-1))
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("%s: %w", v.DeploymentID, ErrTaken)
	}
	if err != nil {
		return err
	}
	var b pgx.Batch
	b.Queue(`INSERT INTO flow_versions (project, name, version, deployment_id, digest, document, semantics, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		project, v.Name, v.Version, v.DeploymentID, v.Digest, v.Document, v.Semantics, v.CreatedAt)
	admin.InsertAction(ctx, &b, project, admin.ActionFlowPut, v.Name, map[string]any{"version": v.Version})
	return tx.SendBatch(ctx, &b).Close()
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func one(ctx context.Context, q querier, rest string, args ...any) (Version, error) {
	list, err := list(ctx, q, `document`, rest, args...)
	if err == nil && len(list) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Version{}, err
	}
	return list[0], nil
}

// list reads versions of flows. Document is the SQL of their documents, which lists leave out.
func list(ctx context.Context, q querier, document, rest string, args ...any) ([]Version, error) {
	rows, err := q.Query(ctx, `SELECT `+columns+`, `+document+` AS document FROM flow_versions f `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read flows: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[Version])
}

// List returns the newest version of each flow, by name.
func (r *Registry) List(ctx context.Context, project entities.Project) ([]Version, error) {
	return list(ctx, pg.NewPool(r.pool), `''`, `WHERE project = $1 AND version = (
		SELECT max(version) FROM flow_versions WHERE project = f.project AND name = f.name) ORDER BY name`, project)
}

// Versions returns all versions of a flow, the newest first, without their documents.
func (r *Registry) Versions(ctx context.Context, project entities.Project, name string) ([]Version, error) {
	versions, err := list(ctx, pg.NewPool(r.pool), `''`, `WHERE project = $1 AND name = $2 ORDER BY version DESC`,
		project, name)
	if err == nil && len(versions) == 0 {
		err = ErrNotFound
	}
	return versions, err
}

// Version returns a version of a flow; 0 is the newest one. It fails with [ErrNotFound].
func (r *Registry) Version(
	ctx context.Context, project entities.Project, name string, number int64,
) (Version, error) {
	return one(ctx, pg.NewPool(r.pool), `WHERE project = $1 AND name = $2 AND ($3 = 0 OR version = $3)
		ORDER BY version DESC LIMIT 1`, project, name, number)
}

// Build returns the build of a deployment; empty if that is not a flow. It fails with [flow.ErrOtherBuild] if
// another one is wanted.
func (r *Registry) Build(
	ctx context.Context, project entities.Project, deployment, wanted string,
) (string, error) {
	if !strings.Contains(deployment, "@") {
		return "", nil // it can be no version
	}
	var digest []byte
	if p, ok := r.Known(project, deployment); ok {
		digest = p.Digest()
	} else {
		v, err := one(ctx, pg.NewPool(r.pool), `WHERE project = $1 AND deployment_id = $2`, project, deployment)
		if errors.Is(err, ErrNotFound) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		digest = v.Digest
	}
	if found := flow.Build(digest); wanted == "" || wanted == found {
		return found, nil
	}
	return "", fmt.Errorf("start a run of %s: %w", deployment, flow.ErrOtherBuild)
}

// Known returns the program of a deployment if this process has used it lately.
func (r *Registry) Known(project entities.Project, deployment string) (*flow.Program, bool) {
	return r.programs.Get(programKey{string(project), deployment})
}

// Program returns the program of a deployment. It fails with [ErrNotFound] if that is not a flow, and with
// [ErrSemantics].
func (r *Registry) Program(ctx context.Context, project entities.Project, deployment string) (*flow.Program, error) {
	key := programKey{string(project), deployment}
	if p, ok := r.programs.Get(key); ok {
		return p, nil
	}
	v, err := one(ctx, pg.NewPool(r.pool), `WHERE project = $1 AND deployment_id = $2`, project, deployment)
	if err != nil {
		return nil, err
	}
	if !flow.Knows(v.Semantics) {
		return nil, fmt.Errorf("version %d of flow %s has the semantics %d: %w", v.Version, v.Name, v.Semantics, ErrSemantics)
	}
	p, err := flow.Parse([]byte(v.Document))
	if err != nil {
		return nil, fmt.Errorf("version %d of flow %s: %w", v.Version, v.Name, err)
	}
	r.programs.Put(key, p)
	return p, nil
}

// Unknown returns the deployments of all projects that have runs which have not ended, and rules that this server does
// not know, as "project/deployment".
func (r *Registry) Unknown(ctx context.Context) ([]string, error) {
	rows, err := pg.NewPool(r.pool).Query(ctx, `
		SELECT v.project || '/' || v.deployment_id FROM flow_versions v
		WHERE v.semantics <> $1 AND EXISTS (SELECT FROM runs r
			WHERE r.project = v.project AND r.deployment_id = v.deployment_id AND r.completed_at IS NULL)
		ORDER BY 1`, flow.Semantics)
	if err != nil {
		return nil, fmt.Errorf("read semantics of flows: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
