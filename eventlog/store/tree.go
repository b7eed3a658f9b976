package store

import (
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// Tree is what decides whether a run starts below a root.
type Tree struct {
	// Cancelled says that the root was cancelled, which closes the tree.
	Cancelled bool
	// Open is how many descendants of the root have not ended, counted up to a limit; nil if they were not counted.
	Open *int64
}

// LoadTree queues a read of a tree. With count, it counts up to limit open descendants. A root that was deleted leaves
// its tree open.
func LoadTree(
	b *pgx.Batch, project entities.Project, root entities.RunID, count bool, limit int64, into **Tree,
) {
	pg.LoadInto(b, into, `
		SELECT coalesce((SELECT status = 'cancelled' FROM runs WHERE `+OfRun+`), false) AS cancelled,
			CASE WHEN $3::boolean THEN (SELECT count(*) FROM (
				SELECT FROM runs WHERE root_id = $1 AND root_id <> '' AND completed_at IS NULL LIMIT $4) AS o)
			END AS open`, root, project, count, limit)
}
