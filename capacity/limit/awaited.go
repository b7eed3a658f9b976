package limit

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// AwaitingProjects reads the projects in which something waits for slots.
func AwaitingProjects(ctx context.Context, pool *pgxpool.Pool) ([]entities.Project, error) {
	projects, err := pg.CollectColumn[entities.Project](pg.NewPool(pool).Query(ctx, awaitingProjects))
	return projects, pg.Wrap(err, "read the projects that wait for limits")
}

const awaitingProjects = `
	WITH RECURSIVE awaiting AS (
		(SELECT project FROM permits WHERE granted_at IS NULL ORDER BY project LIMIT 1)
		UNION ALL
		SELECT next.project FROM awaiting a, LATERAL (
			SELECT project FROM permits w WHERE granted_at IS NULL AND w.project > a.project ORDER BY project LIMIT 1) AS next
	)
	SELECT project FROM awaiting`

// AwaitedPage reads at most n of the slots that something in the project waits for, in order, after the given one. Of a
// limit with a total it reads one key, because a pass for one considers all.
func AwaitedPage(
	ctx context.Context, pool *pgxpool.Pool, project entities.Project, after Bucket, n int,
) ([]Bucket, error) {
	page, err := pg.CollectAll[Bucket](pg.NewPool(pool).Query(ctx, awaitedPage, project, after.Name, after.Key, n))
	return page, pg.Wrap(err, "read what waits for limits")
}

// awaitedPage reads one entry of the index for each bucket, however many wait with its key.
const awaitedPage = `
	WITH RECURSIVE page AS (
		(SELECT name, key, 1 AS n FROM permits WHERE project = $1 AND granted_at IS NULL AND (name, key) > ($2, $3)
			ORDER BY name, key LIMIT 1)
		UNION ALL
		SELECT next.name, next.key, n + 1 FROM page p LEFT JOIN limits l ON l.project = $1 AND l.name = p.name, LATERAL (
			(SELECT name, key FROM permits w
				WHERE project = $1 AND granted_at IS NULL AND l.total > 0 AND w.name > p.name
				ORDER BY name, key LIMIT 1)
			UNION ALL
			(SELECT name, key FROM permits w
				WHERE project = $1 AND granted_at IS NULL AND (l.total > 0) IS NOT TRUE AND (w.name, w.key) > (p.name, p.key)
				ORDER BY name, key LIMIT 1)) AS next
		WHERE n < $4
	)
	SELECT name, key FROM page`

// AwaitedOf returns those of the project's slots that something waits for. With the slots of a limit with a total,
// something may wait for those of any key.
func AwaitedOf(
	ctx context.Context, pool *pgxpool.Pool, project entities.Project, freed []Bucket,
) ([]Bucket, error) {
	names, keys := bucketColumns(freed)
	found, err := pg.CollectAll[Bucket](pg.NewPool(pool).Query(ctx, `
		SELECT f.name, f.key FROM unnest($2::text[], $3::text[]) AS f (name, key)
		WHERE EXISTS (SELECT FROM permits w
				WHERE w.project = $1 AND w.name = f.name AND w.key = f.key AND granted_at IS NULL)
			OR EXISTS (SELECT FROM limits l WHERE l.project = $1 AND l.name = f.name AND total > 0
				AND EXISTS (SELECT FROM permits w WHERE w.project = $1 AND w.name = f.name AND granted_at IS NULL))`,
		project, names, keys))
	return found, pg.Wrap(err, "read what waits for limits")
}

// bucketColumns returns the names and the keys of buckets.
func bucketColumns(buckets []Bucket) (names, keys []string) {
	names, keys = make([]string, 0, len(buckets)), make([]string, 0, len(buckets))
	for _, b := range buckets {
		names, keys = append(names, b.Name), append(keys, b.Key)
	}
	return names, keys
}
