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
)

// maxRemembered is of how many workflows this process remembers the newest deployment.
const maxRemembered = 1000

// ErrNewerDeployment means that a start relied on a deployment that is no longer the newest.
var ErrNewerDeployment = errors.New("new runs of the workflow go to another deployment now")

// workflowOf identifies a workflow among all projects.
type workflowOf struct {
	project entities.Project
	name    string
}

// newestDeployments has the ID and the URL of the deployments to which the last starts went.
type newestDeployments = cache.Cache[workflowOf, Deployment]

func rememberNewest() *newestDeployments {
	return cache.New(maxRemembered, maxRemembered, func(workflowOf, Deployment) int { return 1 })
}

// StartNewest returns the deployment for a new run of the workflow as [Queue.NewestDeployment] does, perhaps from
// memory: then only its ID and URL are set, and the start must be made with the companion, which makes it fail with
// [ErrNewerDeployment] if another deployment is the newest now. After that, the next call reads. Flows are not
// remembered: inputs are checked against their schemas before.
func (q *Queue) StartNewest(
	ctx context.Context, project entities.Project, workflow string,
) (Deployment, eventlog.Companion, error) {
	of := workflowOf{project, workflow}
	if d, ok := q.newest.Get(of); ok {
		return d, &stillNewest{q.newest, of, d}, nil
	}
	d, err := q.NewestDeployment(ctx, project, workflow)
	if err == nil && !strings.HasPrefix(d.URL, contract.FlowScheme) {
		q.newest.Put(of, Deployment{ID: d.ID, URL: d.URL})
	}
	return d, nil, err
}

// stillNewest is the companion of a start that relies on a remembered deployment.
type stillNewest struct {
	remembered *newestDeployments
	of         workflowOf
	deployment Deployment
}

func (s *stillNewest) args() []any {
	return []any{s.of.project, s.of.name, s.deployment.ID, s.deployment.URL}
}

// Lock implements [eventlog.Companion].
func (s *stillNewest) Lock(b *pgx.Batch) (check func([]eventlog.Request) error) {
	var holds bool
	b.Queue(`SELECT `+isStillNewest, s.args()...).QueryRow(func(row pgx.Row) error { return row.Scan(&holds) })
	return func([]eventlog.Request) error {
		if holds {
			return nil
		}
		s.remembered.Remove(s.of)
		return ErrNewerDeployment
	}
}

// AddTo implements [eventlog.Companion].
func (s *stillNewest) AddTo(c *pg.Conditional, _ eventlog.Outlook) {
	c.Require(isStillNewest, s.args()...)
}
