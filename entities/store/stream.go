package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// Stream is an append-only list of chunks.
type Stream struct {
	ID int64
	// RunID groups streams; there need not be such a run.
	RunID entities.RunID
	Name  entities.StreamName
	// Chunks is how many chunks there are; the next one gets this index.
	Chunks int64
	// ClosedAt is set once no more chunks will come.
	ClosedAt *time.Time
}

// Chunk is one piece of a stream, as its writer cut it.
type Chunk struct {
	// Idx is the chunk's position, dense from 0.
	Idx  int64
	Data []byte
}

const streamColumns = `id, run_id, name, chunks, closed_at`

// StreamByName reads a stream. A stream nobody has written yet is the zero Stream: that is no error, as
// readers may come first (protocol §4).
func StreamByName(ctx context.Context, q pg.Querier, project entities.Project, name entities.StreamName) (Stream, error) {
	fail := func(err error) (Stream, error) { return Stream{}, fmt.Errorf("read stream %s: %w", name, err) }
	rows, err := q.Query(ctx, `SELECT `+streamColumns+` FROM streams WHERE project = $1 AND name = $2`, project, name)
	if err != nil {
		return fail(err)
	}
	streams, err := pgx.CollectRows(rows, pgx.RowToStructByName[Stream])
	if err != nil {
		return fail(err)
	}
	if len(streams) == 0 {
		return Stream{Name: name}, nil
	}
	return streams[0], nil
}

// ListStreams reads the names of a run's streams, in their order.
func ListStreams(ctx context.Context, q pg.Querier, project entities.Project, runID entities.RunID) ([]entities.StreamName, error) {
	rows, err := q.Query(ctx, `SELECT name FROM streams WHERE project = $1 AND run_id = $2 ORDER BY name`, project, runID)
	if err != nil {
		return nil, fmt.Errorf("list streams of %s: %w", runID, err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[entities.StreamName])
	if err != nil {
		return nil, fmt.Errorf("list streams of %s: %w", runID, err)
	}
	return names, nil
}

// Chunks reads at most limit chunks of a stream, from index from on, and stops early after the chunk that
// brings their size to maxBytes.
func Chunks(ctx context.Context, q pg.Querier, streamID, from int64, limit, maxBytes int) ([]Chunk, error) {
	// The sum is over the sizes before a row's own, so one chunk always comes, however large.
	rows, err := q.Query(ctx, `
		SELECT idx, data FROM (
			SELECT idx, data, sum(octet_length(data)) OVER (ORDER BY idx) - octet_length(data) AS before
			FROM stream_chunks WHERE stream_id = $1 AND idx >= $2 AND idx < $2 + $3
		) sized
		WHERE before < $4
		ORDER BY idx`, streamID, from, limit, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("read chunks: %w", err)
	}
	chunks, err := pgx.CollectRows(rows, pgx.RowToStructByName[Chunk])
	if err != nil {
		return nil, fmt.Errorf("read chunks: %w", err)
	}
	return chunks, nil
}

// AppendChunks queues the creation of the stream if need be and the append of chunks; to a closed stream
// it appends nothing.
func AppendChunks(b *pgx.Batch, project entities.Project, runID entities.RunID, name entities.StreamName, chunks [][]byte, now time.Time) {
	if chunks == nil {
		chunks = [][]byte{} // an empty array, not NULL
	}
	b.Queue(`
		WITH stream AS (
			INSERT INTO streams (project, name, run_id, chunks, created_at) VALUES ($1, $2, $3, cardinality($4::bytea[]), $5)
			ON CONFLICT (project, name) DO UPDATE SET chunks = streams.chunks + excluded.chunks
			WHERE streams.closed_at IS NULL
			RETURNING id, chunks
		)
		INSERT INTO stream_chunks (stream_id, idx, data)
		SELECT stream.id, stream.chunks - cardinality($4) + ord - 1, coalesce(data, '')
		FROM stream, unnest($4) WITH ORDINALITY AS new (data, ord)`, project, name, runID, chunks, now)
}

// CloseStream queues the closing of a stream, also of one nobody has written; a second close changes nothing.
func CloseStream(b *pgx.Batch, project entities.Project, runID entities.RunID, name entities.StreamName, now time.Time) {
	b.Queue(`
		INSERT INTO streams (project, name, run_id, chunks, created_at, closed_at) VALUES ($1, $2, $3, 0, $4, $4)
		ON CONFLICT (project, name) DO UPDATE SET closed_at = coalesce(streams.closed_at, excluded.closed_at)`,
		project, name, runID, now)
}
