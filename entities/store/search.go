package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

const (
	// searchedRuns is how many of the newest runs of each status are searched for the end of an ID.
	searchedRuns = 2000
	// searchedKeys is in how many attributes a value is searched.
	searchedKeys = 50
)

// RunsByIDEnd reads up to limit of the project's runs whose IDs end with a text. No index has the ends of IDs: an
// eleventh index would slow down every run. So it reads the IDs of the newest 2,000 runs of each status, all from the
// index that lists of runs use.
func RunsByIDEnd(
	ctx context.Context, q pg.Querier, project entities.Project, end string, limit int,
) ([]entities.Run, error) {
	rows, err := q.Query(ctx, `
		SELECT `+runColumns+` FROM runs WHERE id IN (
			SELECT recent.id FROM unnest($2::text[]) AS wanted (status)
			CROSS JOIN LATERAL (
				SELECT id FROM runs WHERE project = $1 AND status = wanted.status ORDER BY created_at DESC, id DESC LIMIT $3
			) recent
			WHERE right(recent.id, length($4)) = $4 LIMIT $5)`,
		project, runStatuses(), searchedRuns, end, limit)
	runs, err := pg.CollectAll[entities.Run](rows, err)
	return runs, pg.Wrap(err, "find runs by the end of an ID")
}

// AttributesWithValue returns up to limit of the attributes for which a run of the project has the value. It looks at
// the first 50 attributes of the project.
func AttributesWithValue(
	ctx context.Context, q pg.Querier, project entities.Project, value string, limit int,
) ([]string, error) {
	return texts(q.Query(ctx, skipScan(`run_attributes`, `key`, ``)+`
		SELECT found.text FROM (SELECT text FROM found WHERE text IS NOT NULL LIMIT $2) found
		WHERE EXISTS (SELECT FROM run_attributes WHERE project = $1 AND key = found.text AND value = $3)
		LIMIT $4`, project, searchedKeys, value, limit))
}

// WorkflowsByPrefix returns up to limit of the workflows of the project's runs whose names begin with a text.
func WorkflowsByPrefix(
	ctx context.Context, q pg.Querier, project entities.Project, prefix string, limit int,
) ([]string, error) {
	// The upper bound ends the scan of the index: no text that begins with the prefix is greater. Plans that Postgres
	// keeps for all prefixes, which it does after five executions, do not derive it.
	const begins = ` AND workflow_name >= $2 AND workflow_name < $2 || chr(1114111) AND starts_with(workflow_name, $2)`
	return texts(q.Query(ctx, skipScan(`runs`, `workflow_name`, begins)+`
		SELECT text FROM found WHERE text IS NOT NULL LIMIT $3`, project, prefix, limit))
}

// skipScan returns a WITH clause: the table found has the distinct values of a column of the project, in their order,
// each read by one probe of an index. Where restricts them, preceded by " AND ".
func skipScan(table, column, where string) string {
	return fmt.Sprintf(`
		WITH RECURSIVE found (text) AS (
			(SELECT %[2]s FROM %[1]s WHERE project = $1%[3]s ORDER BY %[2]s LIMIT 1)
			UNION ALL
			SELECT (SELECT %[2]s FROM %[1]s WHERE project = $1 AND %[2]s > found.text%[3]s ORDER BY %[2]s LIMIT 1)
			FROM found WHERE found.text IS NOT NULL
		)`, table, column, where)
}

// texts collects the rows of a query for one column.
func texts(rows pgx.Rows, err error) ([]string, error) {
	list, err := pg.CollectColumn[string](rows, err)
	return list, pg.Wrap(err, "search")
}
