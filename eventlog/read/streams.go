package read

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
)

const (
	// A live reader that got no hint looks this often by itself.
	streamPoll = 2 * time.Second
	// What a live reader takes from the database at once.
	tailChunks = 256
	tailBytes  = 1 << 20
)

// Streams writes and reads streams. They are not part of the log: a chunk is no event.
type Streams struct {
	pool *pgxpool.Pool
	hub  *pg.Hub
	now  func() time.Time
}

// NewStreams makes the streams of the database behind pool.
func NewStreams(pool *pgxpool.Pool, hub *pg.Hub, now func() time.Time) *Streams {
	return &Streams{pool: pool, hub: hub, now: now}
}

// Write appends chunks to a stream. The stream begins with its first write; the run need not exist. What
// is written after the close is ignored. To write no chunks begins the stream, too.
func (s *Streams) Write(
	ctx context.Context, project entities.Project, runID entities.RunID, name entities.StreamName, chunks [][]byte,
) error {
	return s.update(ctx, project, runID, name, func(b *pgx.Batch, now time.Time) {
		store.AppendChunks(b, project, runID, name, chunks, now)
	})
}

// Close ends a stream: its readers see the end once they have read all of it. A second close is no error.
func (s *Streams) Close(
	ctx context.Context, project entities.Project, runID entities.RunID, name entities.StreamName,
) error {
	return s.update(ctx, project, runID, name, func(b *pgx.Batch, now time.Time) {
		store.CloseStream(b, project, runID, name, now)
	})
}

func (s *Streams) update(
	ctx context.Context, project entities.Project, runID entities.RunID, name entities.StreamName,
	statements func(*pgx.Batch, time.Time),
) error {
	if err := entities.ValidateID("run ID", string(runID)); err != nil {
		return err
	}
	if err := entities.ValidateName("stream name", string(name)); err != nil {
		return err
	}
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		var b pgx.Batch
		statements(&b, s.now().UTC().Truncate(time.Millisecond))
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return fmt.Errorf("write stream %s: %w", name, err)
	}
	s.hub.Publish(StreamTopic(project, name))
	return nil
}

// streamTopic is what hints about a stream are called.
func StreamTopic(project entities.Project, name entities.StreamName) string {
	return "stream " + string(project) + " " + string(name)
}

// Info reads how far a stream has come. One that nobody has written has no chunks.
func (s *Streams) Info(
	ctx context.Context, project entities.Project, name entities.StreamName,
) (store.Stream, error) {
	return store.StreamByName(ctx, s.pool, project, name)
}

// List reads the names of a run's streams.
func (s *Streams) List(
	ctx context.Context, project entities.Project, runID entities.RunID,
) ([]entities.StreamName, error) {
	return store.ListStreams(ctx, s.pool, project, runID)
}

// Chunks reads a page of at most limit chunks from index from on, and the stream as it was just before:
// a stream closed there has no chunks but those it counts. Large chunks make a page short.
func (s *Streams) Chunks(
	ctx context.Context, project entities.Project, name entities.StreamName, from int64, limit int,
) ([]store.Chunk, store.Stream, error) {
	stream, err := s.Info(ctx, project, name)
	if err != nil || from >= stream.Chunks {
		return nil, stream, err
	}
	chunks, err := store.Chunks(ctx, s.pool, stream.ID, max(0, from), limit, MaxPageBytes)
	return chunks, stream, err
}

// Of reads a run's streams, in the order of their names.
func (s *Streams) Of(
	ctx context.Context, project entities.Project, runID entities.RunID,
) ([]store.StoredStream, error) {
	return store.StreamsOf(ctx, s.pool, project, runID)
}

// Tail calls emit with every chunk of a stream from index from on, in order and as they are
// written by whichever process, until the stream is closed and all read. A negative from means that many
// chunks before the end there is now. It waits, as long as the context lets it, for a stream that does not
// exist yet. Emit's error ends it.
func (s *Streams) Tail(
	ctx context.Context, project entities.Project, name entities.StreamName, from int64, emit func(store.Chunk) error,
) error {
	news, cancel := s.hub.Subscribe(StreamTopic(project, name))
	defer cancel()
	for first := true; ; first = false {
		stream, err := s.Info(ctx, project, name)
		if err != nil {
			return err
		}
		if first && from < 0 {
			from = max(0, stream.Chunks+from)
		}
		if from, err = s.emitUpTo(ctx, stream, from, emit); err != nil {
			return err
		}
		if stream.ClosedAt != nil {
			return nil
		}
		if err := waitForNotification(ctx, news, streamPoll); err != nil {
			return err
		}
	}
}

// emitUpTo emits what the stream had when it was looked at, and returns where to go on.
func (s *Streams) emitUpTo(
	ctx context.Context, stream store.Stream, from int64, emit func(store.Chunk) error,
) (int64, error) {
	for from < stream.Chunks {
		chunks, err := store.Chunks(ctx, s.pool, stream.ID, from, tailChunks, tailBytes)
		if err != nil {
			return from, err
		}
		for _, chunk := range chunks {
			if err := emit(chunk); err != nil {
				return from, err
			}
			from = chunk.Idx + 1
		}
		if len(chunks) == 0 {
			return from, fmt.Errorf("stream %s has no chunk %d of %d", stream.Name, from, stream.Chunks)
		}
	}
	return from, nil
}
