package registry

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// Alias is a name for a version of a flow. Starts name it as NAME@ALIAS, and keep the version that it points to then.
type Alias struct {
	Name    string
	Alias   string
	Version int64
	// ID is how starts name it.
	ID        string
	UpdatedAt time.Time
}

// MaxAliases limits the aliases of a flow.
const MaxAliases = 100

var aliasPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

// PutAlias has an alias point to a version, which must not be retired. It fails with [entities.ErrInvalid], with
// [ErrNotFound] and with [ErrTaken].
func (r *Registry) PutAlias(
	ctx context.Context, project entities.Project, name, alias string, version int64,
) (a Alias, err error) {
	if !aliasPattern.MatchString(alias) {
		return a, entities.Invalid("an alias is a letter and up to 63 letters, digits, - and _: %q is none", alias)
	}
	a = Alias{name, alias, version, name + "@" + alias, r.now()}
	err = r.change(ctx, project, func(tx pgx.Tx, b *pgx.Batch) error {
		if err := checkAlias(ctx, tx, project, a); err != nil {
			return err
		}
		b.Queue(`INSERT INTO flow_aliases (project, name, alias, version, id, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (project, name, alias) DO UPDATE SET version = excluded.version, updated_at = excluded.updated_at`,
			project, a.Name, a.Alias, a.Version, a.ID, a.UpdatedAt)
		admin.InsertAction(ctx, b, project, admin.ActionAliasPut, a.ID, map[string]any{"version": version})
		return nil
	})
	return a, pg.Wrap(err, "put alias %s", a.ID)
}

// checkAlias fails unless the alias may point to its version.
func checkAlias(ctx context.Context, tx pgx.Tx, project entities.Project, a Alias) error {
	v, err := one(ctx, tx, `WHERE project = $1 AND name = $2 AND version = $3`, project, a.Name, a.Version)
	switch {
	case err != nil:
		return err
	case v.RetiredAt != nil:
		return entities.Invalid("version %d is retired: choose another one", a.Version)
	}
	var taken bool
	var others int
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM deployments WHERE project = $1 AND id = $2),
		(SELECT count(*) FROM flow_aliases WHERE project = $1 AND name = $3 AND alias <> $4)`,
		project, a.ID, a.Name, a.Alias).Scan(&taken, &others)
	switch {
	case err != nil:
		return err
	case taken:
		return ErrTaken
	case others >= MaxAliases:
		return entities.Invalid("the flow has %d aliases: remove one first", others)
	}
	return nil
}

// RemoveAlias removes an alias. It fails with [ErrAliasNotFound], and with [ErrInUse] if a schedule, a trigger or a
// collection names it.
func (r *Registry) RemoveAlias(ctx context.Context, project entities.Project, name, alias string) error {
	id := name + "@" + alias
	err := r.change(ctx, project, func(tx pgx.Tx, b *pgx.Batch) error {
		if err := checkUnused(ctx, tx, project, id); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `DELETE FROM flow_aliases WHERE project = $1 AND id = $2`, project, id)
		if err == nil && tag.RowsAffected() == 0 {
			err = ErrAliasNotFound
		}
		admin.InsertAction(ctx, b, project, admin.ActionAliasRemove, id, nil)
		return err
	})
	return pg.Wrap(err, "remove alias %s", id)
}

// Aliases returns the aliases of a flow by name.
func (r *Registry) Aliases(ctx context.Context, project entities.Project, name string) ([]Alias, error) {
	rows, err := pg.NewPool(r.pool).Query(ctx, `SELECT name, alias, version, id, updated_at FROM flow_aliases
		WHERE project = $1 AND name = $2 ORDER BY alias`, project, name)
	if err != nil {
		return nil, pg.Wrap(err, "list aliases")
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[Alias])
}

// Retire ends the new runs of a version, for good; what has been retired stays so. The document stays, and a run that
// begins at the same moment goes on. It fails with [ErrNotFound], and with [ErrInUse] if the version has runs that have
// not ended, or an alias, a schedule, a trigger or a collection names it.
func (r *Registry) Retire(
	ctx context.Context, project entities.Project, name string, version int64,
) (v Version, err error) {
	err = r.change(ctx, project, func(tx pgx.Tx, b *pgx.Batch) error {
		v, err = one(ctx, tx, `WHERE project = $1 AND name = $2 AND version = $3`, project, name, version)
		if err != nil || v.RetiredAt != nil {
			return err
		}
		if err := checkUnused(ctx, tx, project, v.DeploymentID); err != nil {
			return err
		}
		v.RetiredAt = new(r.now())
		b.Queue(`UPDATE deployments SET retired_at = $3, updated_at = $3 WHERE project = $1 AND id = $2`,
			project, v.DeploymentID, v.RetiredAt)
		admin.InsertAction(ctx, b, project, admin.ActionFlowRetire, name, map[string]any{"version": version})
		return nil
	})
	return v, pg.Wrap(err, "retire version %d of flow %s", version, name)
}

// maxUsers is how many users of each kind an [ErrInUse] names.
const maxUsers = 5

// checkUnused fails with an [ErrInUse] that names all that use a version or an alias.
func checkUnused(ctx context.Context, tx pgx.Tx, project entities.Project, id string) error {
	rows, err := tx.Query(ctx, `
		(SELECT 'the open run ' || id FROM runs WHERE project = $1 AND deployment_id = $2 AND completed_at IS NULL LIMIT $3)
		UNION ALL (SELECT 'the alias ' || a.alias FROM flow_aliases a JOIN flow_versions v USING (project, name, version)
			WHERE project = $1 AND v.deployment_id = $2 ORDER BY 1 LIMIT $3)
		UNION ALL (SELECT 'the schedule ' || name FROM schedules WHERE project = $1 AND deployment = $2 ORDER BY 1 LIMIT $3)
		UNION ALL (SELECT 'the trigger ' || name FROM triggers WHERE project = $1 AND deployment = $2 ORDER BY 1 LIMIT $3)
		UNION ALL (SELECT 'the collection ' || run_id FROM collections WHERE project = $1 AND deployment = $2 LIMIT $3)`,
		project, id, maxUsers)
	if err != nil {
		return err
	}
	users, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(users) > 0 {
		err = fmt.Errorf("%w: %s", ErrInUse, strings.Join(users, ", "))
	}
	return err
}

// change executes a change of the project's flows in a transaction: the checks, then what they have queued.
func (r *Registry) change(
	ctx context.Context, project entities.Project, check func(pgx.Tx, *pgx.Batch) error,
) error {
	return pg.InTx(ctx, r.pool, func(tx pgx.Tx) error {
		if err := lock(ctx, tx, project); err != nil {
			return err
		}
		var b pgx.Batch
		if err := check(tx, &b); err != nil {
			return err
		}
		return tx.SendBatch(ctx, &b).Close()
	})
}
