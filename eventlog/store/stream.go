package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/pg"
)

// Stream is an append-only list of chunks.
type Stream struct {
	ID int64
	// RunID groups streams; the run need not exist.
	RunID entities.RunID
	Name  entities.StreamName
	// Chunks is the number of chunks, and so the index of the next one.
	Chunks int64
	// ClosedAt is set when the stream is closed; no chunk is appended afterwards.
	ClosedAt *time.Time
}

// Chunk is one piece of a stream, as its writer sent it.
type Chunk struct {
	// Idx is the chunk's position, dense from 0.
	Idx  int64
	Data []byte
}

// streamChunk is a chunk with what identifies its stream among all projects.
type streamChunk struct {
	Chunk

	Stream string
}

// Payloads implements [atrest.Row].
func (c *streamChunk) Payloads(o *atrest.Opener) {
	o.Bytes(atrest.Place{Kind: atrest.Chunk, Owner: c.Stream}, &c.Data)
}

// chunkOwner identifies a stream among all projects, in SQL.
const chunkOwner = `(SELECT project || '/' || name FROM streams WHERE id = $1) AS stream`

// chunksOf returns the chunks as arguments.
func chunksOf(project entities.Project, name entities.StreamName, chunks [][]byte) []atrest.Payload {
	list := make([]atrest.Payload, len(chunks)) // an empty array, not NULL
	for i, c := range chunks {
		list[i] = atrest.Payload{
			Place:   atrest.Place{Kind: atrest.Chunk, Owner: string(project) + "/" + string(name)},
			Project: string(project), Bytes: c,
		}
	}
	return list
}

const streamColumns = `id, run_id, name, chunks, closed_at`

// StreamByName reads a stream. For one that was never written it returns a Stream with only a name, and no error:
// readers may come before the writer (protocol §4). A run's own stream is closed at the end of the run at the latest,
// also if it was never written; [entities.ErrStreamNotFound] means that it has no run.
func StreamByName(
	ctx context.Context, q pg.Querier, project entities.Project, name entities.StreamName,
) (Stream, error) {
	if runID, _, ok := name.OfRun(); ok {
		rows, err := q.Query(ctx, `
			SELECT coalesce(s.id, 0) AS id, r.id AS run_id, $3::text AS name, coalesce(s.chunks, 0) AS chunks,
				coalesce(s.closed_at, r.completed_at) AS closed_at
			FROM runs r LEFT JOIN streams s ON s.project = r.project AND s.name = $3
			WHERE r.id = $1 AND r.project IS NOT DISTINCT FROM $2`, runID, project, name)
		stream, err := pg.CollectOne[Stream](rows, err, entities.ErrStreamNotFound)
		return stream, pg.Wrap(err, "read stream %s", name)
	}
	streams, err := pg.CollectAll[Stream](q.Query(ctx,
		`SELECT `+streamColumns+` FROM streams WHERE project = $1 AND name = $2`, project, name))
	if err != nil {
		return Stream{}, fmt.Errorf("read stream %s: %w", name, err)
	}
	if len(streams) == 0 {
		return Stream{Name: name}, nil
	}
	return streams[0], nil
}

// ListStreams reads the names of a run's streams, in order.
func ListStreams(
	ctx context.Context, q pg.Querier, project entities.Project, runID entities.RunID,
) ([]entities.StreamName, error) {
	names, err := pg.CollectColumn[entities.StreamName](q.Query(ctx,
		`SELECT name FROM streams WHERE project = $1 AND run_id = $2 ORDER BY name`, project, runID))
	return names, pg.Wrap(err, "list streams of %s", runID)
}

// Chunks reads at most limit chunks of a stream, beginning at index from. It stops early after the chunk that brings
// their total size to maxBytes.
func Chunks(ctx context.Context, q pg.Querier, streamID, from int64, limit, maxBytes int) ([]Chunk, error) {
	read, err := pg.CollectAll[streamChunk](q.Query(ctx, `
		SELECT idx, data, `+chunkOwner+` FROM `+chunkPage+` ORDER BY idx`, streamID, from, limit, maxBytes))
	chunks := make([]Chunk, len(read))
	for i, c := range read {
		chunks[i] = c.Chunk
	}
	return chunks, pg.Wrap(err, "read chunks")
}

// StoredChunks reads chunks as [Chunks] does, as they are stored.
func StoredChunks(ctx context.Context, q pg.Querier, streamID, from int64, limit, maxBytes int) ([]Chunk, error) {
	chunks, err := pg.CollectAll[Chunk](q.Query(ctx, `
		SELECT idx, data FROM `+chunkPage+` ORDER BY idx`, streamID, from, limit, maxBytes))
	return chunks, pg.Wrap(err, "read chunks")
}

// SizeOfChunks returns the total size of what [Chunks] would read, in bytes.
func SizeOfChunks(ctx context.Context, q pg.Querier, streamID, from int64, limit, maxBytes int) (int64, error) {
	size, err := pg.CollectValue[int64](q.Query(ctx,
		`SELECT coalesce(sum(octet_length(data)), 0)::bigint FROM `+chunkPage, streamID, from, limit, maxBytes))
	return size, pg.Wrap(err, "measure chunks")
}

// chunkPage has at most $3 chunks of the stream $1, starting at the index $2. It ends once they have $4 bytes. The sum
// does not include the chunk itself, so the first chunk is always there, however large.
const chunkPage = `(
	SELECT idx, data FROM (
		SELECT idx, data, sum(octet_length(data)) OVER (ORDER BY idx) - octet_length(data) AS before
		FROM stream_chunks WHERE stream_id = $1 AND idx >= $2 AND idx < $2 + $3
	) sized
	WHERE before < $4) page`

// AppendChunks queues the append of chunks, and the creation of the stream if it does not exist. To a closed stream it
// appends nothing. The result has a row if the stream was open: whether it is a new one, of a run that does not exist.
func AppendChunks(
	b *pgx.Batch, project entities.Project, runID entities.RunID, name entities.StreamName, chunks [][]byte, now time.Time,
) *pgx.QueuedQuery {
	// The upsert locks the stream's row, and returns the count after the append: each writer so gets indexes of its
	// own.
	return b.Queue(`
		WITH stream AS (
			INSERT INTO streams (project, name, run_id, chunks, created_at, before_run)
			VALUES ($1, $2, $3, cardinality($4::bytea[]), $5, `+noRun+`)
			ON CONFLICT (project, name) DO UPDATE SET chunks = streams.chunks + excluded.chunks
			WHERE streams.closed_at IS NULL
			RETURNING id, chunks, before_run
		), appended AS (
			INSERT INTO stream_chunks (stream_id, idx, data)
			SELECT stream.id, stream.chunks - cardinality($4) + ord - 1, coalesce(data, '')
			FROM stream, unnest($4) WITH ORDINALITY AS new (data, ord)
		)
		SELECT before_run AND chunks = cardinality($4) FROM stream`, project, name, runID, chunksOf(project, name, chunks),
		now)
}

// noRun says that the project $1 has no run $3.
const noRun = `NOT EXISTS (SELECT FROM runs r WHERE r.id = $3 AND r.project = $1)`

// CloseStream queues the closing of a stream, and its creation if it does not exist. Closing it again changes nothing.
// The result is that of [AppendChunks].
func CloseStream(
	b *pgx.Batch, project entities.Project, runID entities.RunID, name entities.StreamName, now time.Time,
) *pgx.QueuedQuery {
	return b.Queue(`
		INSERT INTO streams (project, name, run_id, chunks, created_at, closed_at, before_run)
		VALUES ($1, $2, $3, 0, $4, $4, `+noRun+`)
		ON CONFLICT (project, name) DO UPDATE SET closed_at = coalesce(streams.closed_at, excluded.closed_at)
		RETURNING before_run AND chunks = 0`, project, name, runID, now)
}

// MoreOrphansThan reports whether the project has more than so many streams of runs that do not exist. If it seems to,
// the streams whose run exists by now are no longer counted, and old answers to health checks, which nobody reads any
// more, are deleted. Other transactions of the project that ask wait for the end of this one.
func MoreOrphansThan(ctx context.Context, tx pgx.Tx, project entities.Project, limit int) (bool, error) {
	var more bool
	count := func(rows pgx.Row) error { return rows.Scan(&more) }
	var first, settled pgx.Batch
	first.Queue(`SELECT pg_advisory_xact_lock(hashtextextended('orphan streams ' || $1::text, 0))`, project)
	first.Queue(countOrphans, project, limit).QueryRow(count)
	if err := tx.SendBatch(ctx, &first).Close(); err != nil || !more {
		return false, pg.Wrap(err, "count orphan streams")
	}
	settled.Queue(`
		UPDATE streams SET before_run = false WHERE id IN (
			SELECT id FROM streams s WHERE project = $1 AND before_run
				AND EXISTS (SELECT FROM runs r WHERE r.id = s.run_id AND r.project = $1)
			FOR UPDATE SKIP LOCKED)`, project)
	settled.Queue(`
		DELETE FROM streams WHERE id IN (
			SELECT id FROM streams WHERE project = $1 AND before_run
				AND name LIKE '\_\_health\_check\_\_%' AND created_at < now() - interval '1 hour'
			FOR UPDATE SKIP LOCKED)`, project)
	settled.Queue(countOrphans, project, limit).QueryRow(count)
	return more, pg.Wrap(tx.SendBatch(ctx, &settled).Close(), "count orphan streams")
}

const countOrphans = `
	SELECT count(*) > $2 FROM (SELECT FROM streams WHERE project = $1 AND before_run LIMIT $2 + 1) counted`

// StreamFault is a stream whose row disagrees with its chunks.
type StreamFault struct {
	RunID entities.RunID
	Name  entities.StreamName
	// Counted is the number of chunks according to the row, and Stored the actual number.
	Counted, Stored int64
	// Dense says that the indexes of the chunks are 0 to Stored-1.
	Dense bool
}

// StreamFaults finds the streams of runs whose chunks differ from what their row says. It looks the streams up run by
// run, as a join might scan all of a table of moderate size.
func StreamFaults(ctx context.Context, q pg.Querier, runs []entities.Run) ([]StreamFault, error) {
	ids, projects := make([]entities.RunID, len(runs)), make([]entities.Project, len(runs))
	for i, r := range runs {
		ids[i], projects[i] = r.ID, r.Project
	}
	faults, err := pg.CollectAll[StreamFault](q.Query(ctx, `
		SELECT run_id, name, counted, stored, dense FROM (
			SELECT s.run_id, s.name, s.chunks AS counted, c.stored, c.last = c.stored - 1 AS dense
			FROM unnest($1::text[], $2::text[]) AS of (run, project), LATERAL (
				SELECT * FROM streams WHERE run_id = of.run AND project = of.project OFFSET 0
			) s, LATERAL (
				SELECT count(*) AS stored, coalesce(max(idx), -1) AS last FROM stream_chunks WHERE stream_id = s.id
			) c
		) counted
		WHERE counted <> stored OR NOT dense
		ORDER BY run_id, name`, ids, projects))
	return faults, pg.Wrap(err, "count chunks")
}

// StoredStream is a stream with all columns of its row, for export and import.
type StoredStream struct {
	Stream
	CreatedAt time.Time
}

// StreamsOf reads the streams of a run of the project, ordered by name.
func StreamsOf(
	ctx context.Context, q pg.Querier, project entities.Project, runID entities.RunID,
) ([]StoredStream, error) {
	streams, err := pg.CollectAll[StoredStream](q.Query(ctx, `
		SELECT `+streamColumns+`, created_at FROM streams WHERE project = $1 AND run_id = $2 ORDER BY name`, project, runID))
	return streams, pg.Wrap(err, "read streams of %s", runID)
}

// InsertStream queues the insertion of a stream whose row already counts the chunks to follow, and stores its ID in id.
// If the project has a stream of that name, the batch fails with a violation of the constraint streams_name_key.
func InsertStream(b *pgx.Batch, project entities.Project, s StoredStream, id *int64) {
	b.Queue(`
		INSERT INTO streams (project, name, run_id, chunks, created_at, closed_at) VALUES ($1, $2, $3, $4, $5, $6)
		RETURNING id`, project, s.Name, s.RunID, s.Chunks, s.CreatedAt, s.ClosedAt,
	).QueryRow(func(row pgx.Row) error { return row.Scan(id) })
}

// InsertChunk queues the insertion of a chunk that the row of its stream already counts.
func InsertChunk(b *pgx.Batch, streamID int64, c Chunk) {
	b.Queue(`INSERT INTO stream_chunks (stream_id, idx, data) VALUES ($1, $2, coalesce($3::bytea, ''))`,
		streamID, c.Idx, c.Data)
}
