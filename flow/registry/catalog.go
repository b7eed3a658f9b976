package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow/goal"
	"github.com/stepwell-dev/stepwell/pg"
)

// MaxCatalogs limits the catalogs of a project.
const MaxCatalogs = 1000

var (
	// ErrCatalogNotFound reports a catalog, or a version of one, that does not exist.
	ErrCatalogNotFound = errors.New("catalog not found")
	// ErrTooManyCatalogs refuses one more catalog than a project may have.
	ErrTooManyCatalogs = fmt.Errorf("the project has %d catalogs already: put a new version of one of them", MaxCatalogs)
	// ErrNameTaken refuses a catalog with the name of a flow or of an app's workflow, and a flow with that of a catalog.
	ErrNameTaken = errors.New("a catalog cannot have the name of another workflow: choose another one")
)

// Catalog is a version of a catalog.
type Catalog struct {
	Name      string
	Version   int64
	Digest    []byte
	Document  string
	CreatedAt time.Time
}

// catalogs reads versions of catalogs. Document is the SQL of their documents, which lists leave out.
func catalogs(ctx context.Context, q querier, document, rest string, args ...any) ([]Catalog, error) {
	rows, err := q.Query(ctx,
		`SELECT name, version, digest, `+document+` AS document, created_at FROM catalogs c `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read catalogs: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[Catalog])
}

// PutCatalog stores a document as the newest version of its catalog, unless it has the same values as the newest one,
// and reports whether it has created one. A dry run stores nothing. It fails with a [flow.Faults] if the document has
// faults, with [ErrTooManyCatalogs] and with [ErrNameTaken]. The oldest version goes if there are more than
// [MaxCatalogVersions]: runs need their plans only.
func (r *Registry) PutCatalog(
	ctx context.Context, project entities.Project, document []byte, dryRun bool,
) (v Catalog, created bool, err error) {
	c, err := goal.Parse(document)
	if err != nil {
		return v, false, err
	}
	err = r.change(ctx, project, func(tx pgx.Tx, b *pgx.Batch) error {
		list, err := catalogs(ctx, tx, `document`, `WHERE project = $1 AND name = $2 ORDER BY version DESC LIMIT 1`,
			project, c.Name)
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
		b.Queue(`DELETE FROM catalogs WHERE project = $1 AND name = $2 AND version <= $3`,
			project, v.Name, v.Version-MaxCatalogVersions)
		admin.InsertAction(ctx, b, project, admin.ActionCatalogPut, v.Name, map[string]any{"version": v.Version})
		return nil
	})
	return v, created, pg.Wrap(err, "put catalog %s", c.Name)
}

// checkNewCatalog fails unless the project may have a catalog with the name.
func checkNewCatalog(ctx context.Context, tx pgx.Tx, project entities.Project, name string) error {
	var others int
	var taken bool
	err := tx.QueryRow(ctx, `SELECT (SELECT count(DISTINCT name) FROM catalogs WHERE project = $1),
		EXISTS (SELECT FROM deployments WHERE project = $1 AND $2 = ANY (workflows))`, project, name).Scan(&others, &taken)
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
	list, err := catalogs(ctx, tx, `''`, `WHERE project = $1 AND name = $2 LIMIT 1`, project, name)
	if err == nil && len(list) > 0 {
		err = ErrNameTaken
	}
	return err
}

// Catalogs returns the newest version of each catalog, by name.
func (r *Registry) Catalogs(ctx context.Context, project entities.Project) ([]Catalog, error) {
	return catalogs(ctx, pg.NewPool(r.pool), `''`, `WHERE project = $1 AND version = (
		SELECT max(version) FROM catalogs WHERE project = c.project AND name = c.name) ORDER BY name`, project)
}

// CatalogVersions returns all versions of a catalog, the newest first. Only the one with the number has its document; 0
// is the newest one. It fails with [ErrCatalogNotFound].
func (r *Registry) CatalogVersions(
	ctx context.Context, project entities.Project, name string, number int64,
) ([]Catalog, error) {
	list, err := catalogs(ctx, pg.NewPool(r.pool),
		`CASE WHEN version = coalesce(nullif($3::bigint, 0), max(version) OVER ()) THEN document ELSE '' END`,
		`WHERE project = $1 AND name = $2 ORDER BY version DESC`, project, name, number)
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
	list, err := catalogs(ctx, pg.NewPool(r.pool), `document`,
		`WHERE project = $1 AND name = $2 AND version = $3`, project, name, newest)
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
	r.catalogs.Put(key, c)
	return c, newest, nil
}
