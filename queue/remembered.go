package queue

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/cache"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	isCatalog = `EXISTS (SELECT FROM catalogs c WHERE c.project = $1::text AND c.name = $2)`
	// isNewest selects, of the deployments of the project $1, that for new runs of the workflow $2.
	isNewest = `CASE WHEN ` + isCatalog + `
			THEN $2::text = ANY (workflows) AND url NOT LIKE '` + contract.FlowScheme + `%'
			ELSE $2::text = ANY (workflows) OR workflows = '{}' AND NOT steps_only AND url <> '` + PulledURL + `' END
		ORDER BY workflows = '{}', retired_at IS NOT NULL, created_at DESC, id DESC LIMIT 1`
	// isStillNewest is the condition that this is the deployment $3 with the URL $4.
	isStillNewest = `EXISTS (
		SELECT FROM (SELECT id, url, retired_at FROM deployments WHERE project = $1::text AND ` + isNewest + `) AS newest
		WHERE id = $3::text AND url = $4::text AND retired_at IS NULL)`
	// isStillThere is the condition that the deployment $2 of the project $1 has the URL $3, and begins runs.
	isStillThere = `EXISTS (SELECT FROM deployments WHERE project = $1::text AND id = $2::text AND url = $3::text
		AND retired_at IS NULL AND NOT steps_only)`
)

// maxRemembered is for how many of [startOf] this process remembers the deployment.
const maxRemembered = 1000

// ErrDeploymentChanged means that a start relied on a deployment that new runs do not go to any more.
var ErrDeploymentChanged = errors.New("new runs of the workflow go to another deployment now")

// startOf is what starts that go to the same deployment have in common. The deployment is the one that they name; empty
// means the newest.
type startOf struct {
	project              entities.Project
	workflow, deployment string
}

// startDeployments has the ID and the URL of the deployments to which the last starts went.
type startDeployments = cache.Cache[startOf, Deployment]

func rememberStarts() *startDeployments {
	return cache.New(maxRemembered, maxRemembered, func(startOf, Deployment) int { return 1 })
}

// StartRemembered returns the deployment for a new run of the workflow as [Queue.StartDeployment] does, perhaps from
// memory: then only its ID and URL are set, and the start must be made with the companion, which makes it fail with
// [ErrDeploymentChanged] if the run would go elsewhere now. After that, the next call reads.
//
// A flow is remembered only if its version is named, which never changes: inputs are checked against its schemas before
// the start. What an alias points to is not remembered.
func (q *Queue) StartRemembered(
	ctx context.Context, project entities.Project, workflow, id string,
) (Deployment, eventlog.Companion, error) {
	of := startOf{project, workflow, id}
	if d, ok := q.starts.Get(of); ok {
		return d, &stillStarts{q.starts, of, d}, nil
	}
	d, err := q.StartDeployment(ctx, project, workflow, id)
	if err == nil && (id == d.ID || id == "" && !strings.HasPrefix(d.URL, contract.FlowScheme)) {
		q.starts.Put(of, Deployment{ID: d.ID, URL: d.URL})
	}
	return d, nil, err
}

// stillStarts is the companion of a start that relies on a remembered deployment.
type stillStarts struct {
	remembered *startDeployments
	of         startOf
	deployment Deployment
}

// condition returns the condition that the start goes there still.
func (s *stillStarts) condition() (sql string, args []any) {
	if s.of.deployment != "" {
		return isStillThere, []any{s.of.project, s.deployment.ID, s.deployment.URL}
	}
	return isStillNewest, []any{s.of.project, s.of.workflow, s.deployment.ID, s.deployment.URL}
}

// Lock implements [eventlog.Companion].
func (s *stillStarts) Lock(b *pgx.Batch) (check func([]eventlog.Request) error) {
	var holds bool
	sql, args := s.condition()
	b.Queue(`SELECT `+sql, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&holds) })
	return func([]eventlog.Request) error {
		if holds {
			return nil
		}
		s.remembered.Remove(s.of)
		return ErrDeploymentChanged
	}
}

// AddTo implements [eventlog.Companion].
func (s *stillStarts) AddTo(c *pg.Conditional, _ eventlog.Outlook) {
	sql, args := s.condition()
	c.Require(sql, args...)
}
