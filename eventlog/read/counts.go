package read

import (
	"context"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// MaxParts is up to how many parts of a kind are counted.
const MaxParts = 1000

// PartCounts is what a run has of each kind. What is above [MaxParts] stands for any number that is.
type PartCounts struct {
	Steps, Hooks, Waits, Children, Streams, Values int
	// Messages are those by which the server owes it something.
	Messages int
}

// partsSQL counts what run $1 of project $2 and deployment $3 has, up to $4 of each kind.
var partsSQL = `SELECT` +
	upTo(`steps WHERE run_id = $1`) + ` AS steps,` +
	upTo(`hooks WHERE run_id = $1`) + ` AS hooks,` +
	upTo(`waits WHERE run_id = $1`) + ` AS waits,` +
	upTo(`runs WHERE parent_id = $1 AND parent_id <> ''`) + ` AS children,` +
	upTo(`streams WHERE project = $2 AND run_id = $1`) + ` AS streams,` +
	upTo(`run_store WHERE run_id = $1`) + ` AS values,` +
	upTo(`messages WHERE run_id = $1 AND work <> ''`) + ` +` +
	upTo(`messages WHERE project = $2 AND deployment_id = $3 AND run_id = $1 AND work = ''`) + ` AS messages`

func upTo(rows string) string {
	return ` (SELECT count(*) FROM (SELECT FROM ` + rows + ` LIMIT $4) AS found)`
}

// CountParts counts what a run has, so that nobody needs to look for what is not there. It reads a bounded part of a
// run of any length.
func (l *Log) CountParts(ctx context.Context, run entities.Run) (PartCounts, error) {
	rows, err := l.pool.Query(ctx, partsSQL, run.ID, run.Project, run.DeploymentID, MaxParts+1)
	c, err := pg.CollectOne[PartCounts](rows, err, entities.ErrRunNotFound)
	return c, pg.Wrap(err, "count the parts of %s", run.ID)
}
