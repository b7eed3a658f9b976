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
	// streamPoll is how often a tail reads without a notification.
	streamPoll = 2 * time.Second
	// tailChunks and tailBytes limit what a tail reads at a time.
	tailChunks = 256
	tailBytes  = 1 << 20
)

// Streams writes and reads streams, which are not part of the log.
type Streams struct {
	pool pg.Pool
	hub  *pg.Hub
	now  func() time.Time
}

// NewStreams returns the streams of the database behind pool.
func NewStreams(pool *pgxpool.Pool, hub *pg.Hub, now func() time.Time) *Streams {
	return &Streams{pool: pg.NewPool(pool), hub: hub, now: now}
}

// Write appends chunks to a stream, and creates it if it does not exist, even without chunks. The run need not exist.
// Writes to a closed stream are ignored.
func (s *Streams) Write(
	ctx context.Context, project entities.Project, runID entities.RunID, name entities.StreamName, chunks [][]byte,
) error {
	return s.update(ctx, project, runID, name, func(b *pgx.Batch, now time.Time) {
		store.AppendChunks(b, project, runID, name, chunks, now)
	})
}

// Close closes a stream. Its readers see the end once they have read all chunks. Closing it again is not an error.
func (s *Streams) Close(
	ctx context.Context, project entities.Project, runID entities.RunID, name entities.StreamName,
) error {
	return s.update(ctx, project, runID, name, func(b *pgx.Batch, now time.Time) {
		store.CloseStream(b, project, runID, name, now)
	})
}

// update executes statements on a stream in one transaction, and notifies its readers.
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
	err := pg.InTx(ctx, s.pool.Pool, func(tx pgx.Tx) error {
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

// StreamTopic returns the topic of notifications about a stream.
func StreamTopic(project entities.Project, name entities.StreamName) string {
	return "stream " + string(project) + " " + string(name)
}

// Info reads a stream, without its chunks. A stream that was never written has none.
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

// Chunks reads a page of at most limit chunks, starting at an index; large chunks end it early. It also returns the
// stream as it was just before: if that is closed, it has exactly as many chunks as it counts.
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

// Of reads the rows of a run's streams, in the order of their names.
func (s *Streams) Of(
	ctx context.Context, project entities.Project, runID entities.RunID,
) ([]store.StoredStream, error) {
	return store.StreamsOf(ctx, s.pool, project, runID)
}

// Tail calls emit with each chunk of a stream, starting at an index, in order and as they are written by any process.
// It returns nil once the stream is closed and all its chunks were emitted. A negative index counts from the current
// end. Tail waits for a stream that does not exist yet. It fails with the errors of emit and of the context.
func (s *Streams) Tail(
	ctx context.Context, project entities.Project, name entities.StreamName, from int64, emit func(store.Chunk) error,
) error {
	notifications, cancel := s.hub.Subscribe(StreamTopic(project, name))
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
		if err := waitForNotification(ctx, notifications, streamPoll); err != nil {
			return err
		}
	}
}

// emitUpTo emits the chunks that the stream has, starting at an index, and returns the index of the next one.
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
