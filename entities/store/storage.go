package store

import (
	"context"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// StoredBytes returns the size of a project's payloads and streams, as they were received: Postgres may compress them,
// and needs more for rows and indexes. It reads all events and chunks of the project, but not the payloads themselves,
// because their lengths are in the rows.
func StoredBytes(ctx context.Context, q pg.Querier, project entities.Project) (int64, error) {
	return pg.CollectValue[int64](q.Query(ctx, `
		SELECT ((
			SELECT coalesce(sum(coalesce(octet_length(payload), 0) + coalesce(octet_length(extra), 0)), 0)
			FROM events WHERE project = $1
		) + (
			SELECT coalesce(sum(octet_length(c.data)), 0)
			FROM streams s JOIN stream_chunks c ON c.stream_id = s.id WHERE s.project = $1
		))::bigint`, project))
}
