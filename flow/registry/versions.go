package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
)

const (
	// MaxVersions limits the stored versions of a flow, and so the plans of a catalog, with those that are retired.
	MaxVersions = 10_000
	// MaxCatalogVersions is how many versions of a catalog are kept: the newest ones.
	MaxCatalogVersions = 1000
	// maxForgotten is how many versions make room for new ones at once.
	maxForgotten = 500
	// forgetAfter is for how long a version stays that was retired: a run may have begun at the same moment.
	forgetAfter = 24 * time.Hour
)

// ErrTooManyVersions refuses one more version than a flow may have.
var ErrTooManyVersions = fmt.Errorf("the flow has %d versions with runs, or not retired for a day: retire old ones, "+
	"and have retention delete their runs", MaxVersions)

// forget makes room for a version if the flow has [MaxVersions]: it deletes the oldest ones that were retired and of
// which there is no run. It fails with [ErrTooManyVersions] if there are none. The newest one stays, because numbers go
// on from it.
func (r *Registry) forget(ctx context.Context, tx pgx.Tx, project entities.Project, name string) error {
	var versions int
	err := tx.QueryRow(ctx, `SELECT count(*) FROM flow_versions WHERE project = $1 AND name = $2`, project, name).
		Scan(&versions)
	if err != nil || versions < MaxVersions {
		return err
	}
	tag, err := tx.Exec(ctx, `
		WITH gone AS (
			DELETE FROM flow_versions WHERE project = $1 AND name = $2 AND version = ANY (ARRAY(
				SELECT v.version FROM flow_versions v
				JOIN deployments d ON d.project = v.project AND d.id = v.deployment_id
				WHERE v.project = $1 AND v.name = $2 AND d.retired_at < $3
					AND v.version < (SELECT max(version) FROM flow_versions WHERE project = $1 AND name = $2)
					AND NOT EXISTS (SELECT FROM flow_aliases a
						WHERE a.project = $1 AND a.name = $2 AND a.version = v.version)
					AND v.deployment_id NOT IN (SELECT deployment_id FROM runs
						WHERE project = $1 AND workflow_name = $2)
				ORDER BY v.version LIMIT $4))
			RETURNING deployment_id
		) DELETE FROM deployments d USING gone WHERE d.project = $1 AND d.id = gone.deployment_id`,
		project, name, r.now().Add(-forgetAfter), maxForgotten)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrTooManyVersions
	}
	return err
}
