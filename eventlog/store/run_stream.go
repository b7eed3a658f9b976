package store

import (
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// OpenStream is a stream of a run's own that is about to be written, as the transaction has locked it.
type OpenStream struct {
	ID      int64
	Project entities.Project
	Name    entities.StreamName
	// Chunks and Bytes are what it has.
	Chunks, Bytes int64
	Closed        bool
	// Attempt is the attempt that the writer has written in last, and Next the index of what comes next in it; zero if it
	// has written nothing.
	Attempt string
	Next    int64
	// Streams is how many of its own the run has, with this one.
	Streams int
}

// LockRunStream queues a read of a run's own stream, which it locks until the transaction ends, and creates. The
// caller has locked the run, and knows that it has not ended.
func LockRunStream(
	b *pgx.Batch, project entities.Project, runID entities.RunID, name entities.StreamName, writer string,
	into **OpenStream,
) {
	b.Queue(`
		INSERT INTO streams (project, name, run_id, chunks, created_at) VALUES ($1, $2, $3, 0, now())
		ON CONFLICT (project, name) DO UPDATE SET chunks = streams.chunks`, project, name, runID)
	// A statement of its own, so that it sees what has been written while the one before waited for the lock. Names of
	// streams that are the run's own have one beginning.
	pg.LoadInto(b, into, `
		SELECT s.id, s.project, s.name, s.chunks, s.bytes, s.closed_at IS NOT NULL AS closed,
			coalesce(w.attempt, '') AS attempt, coalesce(w.next, 0) AS next,
			(SELECT count(*)::int FROM streams WHERE project = $1 AND run_id = $3 AND starts_with(name, $5)) AS streams
		FROM streams s LEFT JOIN stream_writers w ON w.stream_id = s.id AND w.writer = $4
		WHERE s.project = $1 AND s.name = $2`, project, name, runID, writer, string(entities.RunStream(runID, "")))
}

// WriteRunStream queues the append of chunks to a stream that [LockRunStream] has locked, and closes it if it is to
// be closed. The writer's next chunk has the index next. Who writes none leaves no row: there is no limit of writers
// but that of chunks.
func WriteRunStream(
	b *pgx.Batch, s OpenStream, writer, attempt string, next int64, chunks [][]byte, closes bool,
) {
	b.Queue(`
		WITH counted AS (
			UPDATE streams SET chunks = chunks + cardinality($2::bytea[]), bytes = bytes + $3,
				closed_at = CASE WHEN $4 THEN coalesce(closed_at, now()) ELSE closed_at END
			WHERE id = $1
		)
		INSERT INTO stream_chunks (stream_id, idx, data)
		SELECT $1, $5 + ord - 1, data FROM unnest($2::bytea[]) WITH ORDINALITY AS new (data, ord)`,
		s.ID, chunksOf(s.Project, s.Name, chunks), sizeOf(chunks), closes, s.Chunks)
	if len(chunks) == 0 {
		return
	}
	b.Queue(`
		INSERT INTO stream_writers (stream_id, writer, attempt, next) VALUES ($1, $2, $3, $4)
		ON CONFLICT (stream_id, writer) DO UPDATE SET attempt = excluded.attempt, next = excluded.next`,
		s.ID, writer, attempt, next)
}

func sizeOf(chunks [][]byte) (bytes int64) {
	for _, c := range chunks {
		bytes += int64(len(c))
	}
	return bytes
}
