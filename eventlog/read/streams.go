package read

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// streamPoll is how often a tail reads without a notification.
	streamPoll = 2 * time.Second
	// tailChunks and tailBytes limit what a tail reads at a time.
	tailChunks = 256
	tailBytes  = 256 << 10
	// perStream is how much longer the pause between two reads of a stream is for each other stream that is read.
	perStream = 200 * time.Microsecond
	// chunkBytes is about what a chunk takes in memory without its data.
	chunkBytes = 64
	// MaxOrphans is how many streams of runs that do not exist a project may have.
	MaxOrphans = 10_000
)

// ErrTooManyOrphans means that the project has as many streams of runs that do not exist as it may.
var ErrTooManyOrphans = fmt.Errorf("the project has %d streams of runs that do not exist: start their runs, "+
	"or wait until the streams are removed, a week after they began", MaxOrphans)

// Streams writes and reads streams, which are not part of the log.
type Streams struct {
	pool pg.Pool
	hub  *pg.Hub
	now  func() time.Time

	live  *live
	tails tails[streamKey, int64, store.Chunk]
}

// streamKey identifies a stream.
type streamKey struct {
	project entities.Project
	name    entities.StreamName
}

// NewStreams returns the streams of the database behind pool.
func NewStreams(pool *pgxpool.Pool, hub *pg.Hub, now func() time.Time) *Streams {
	return &Streams{pool: pg.NewPool(pool), hub: hub, now: now, live: newLive(pool)}
}

// Write appends chunks to a stream, and creates it if it does not exist, even without chunks. The run need not exist
// yet, but a new stream fails with [ErrTooManyOrphans] if too many streams of the project have none. Writes to a closed
// stream are ignored.
func (s *Streams) Write(
	ctx context.Context, project entities.Project, runID entities.RunID, name entities.StreamName, chunks [][]byte,
) error {
	return s.update(ctx, project, runID, name, func(b *pgx.Batch, now time.Time) *pgx.QueuedQuery {
		return store.AppendChunks(b, project, runID, name, chunks, now)
	})
}

// Close closes a stream. Its readers see the end once they have read all chunks. Closing it again is not an error.
// It creates the stream as [Streams.Write] does.
func (s *Streams) Close(
	ctx context.Context, project entities.Project, runID entities.RunID, name entities.StreamName,
) error {
	return s.update(ctx, project, runID, name, func(b *pgx.Batch, now time.Time) *pgx.QueuedQuery {
		return store.CloseStream(b, project, runID, name, now)
	})
}

// update executes a statement on a stream in a transaction, and notifies the stream's readers.
func (s *Streams) update(
	ctx context.Context, project entities.Project, runID entities.RunID, name entities.StreamName,
	statement func(*pgx.Batch, time.Time) *pgx.QueuedQuery,
) error {
	if err := entities.ValidateID("run ID", string(runID)); err != nil {
		return err
	}
	if err := entities.ValidateName("stream name", string(name)); err != nil {
		return err
	}
	if _, _, ok := name.OfRun(); ok {
		return entities.Invalid("streams with such names are those that functions write during their calls")
	}
	err := pg.InTx(ctx, s.pool.Pool, func(tx pgx.Tx) error {
		var b pgx.Batch
		orphan := false
		statement(&b, s.now().UTC().Truncate(time.Millisecond)).QueryRow(func(row pgx.Row) error {
			if err := row.Scan(&orphan); !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			return nil
		})
		if err := tx.SendBatch(ctx, &b).Close(); err != nil || !orphan {
			return err
		}
		tooMany, err := store.MoreOrphansThan(ctx, tx, project, MaxOrphans)
		if err == nil && tooMany {
			return ErrTooManyOrphans
		}
		return err
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
	from = max(0, from)
	size, err := store.SizeOfChunks(ctx, s.pool, stream.ID, from, limit, MaxPageBytes)
	if err != nil {
		return nil, stream, err
	}
	if err := TakeMemory(ctx, size); err != nil {
		return nil, stream, err
	}
	chunks, err := store.Chunks(ctx, s.pool, stream.ID, from, limit, MaxPageBytes)
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
// end. Tail waits for a stream that does not exist yet. It fails with the errors of emit and of the context. The tails
// of one stream in this process share what they read; emit must not change it.
func (s *Streams) Tail(
	ctx context.Context, project entities.Project, name entities.StreamName, from int64, emit func(store.Chunk) error,
) error {
	stream, err := withConnection(ctx, s.live, project, func() (store.Stream, error) {
		return s.Info(ctx, project, name)
	})
	if err != nil {
		return err
	}
	if from < 0 {
		from = max(0, stream.Chunks+from)
	}
	source := source[int64, store.Chunk]{ // the position is the index of the next chunk
		project: project, topic: StreamTopic(project, name), pollEvery: streamPoll, perList: perStream,
		compare: cmp.Compare[int64],
		at:      func(ch store.Chunk) int64 { return ch.Idx + 1 },
		size:    func(ch store.Chunk) int { return len(ch.Data) + chunkBytes },
		read: func(ctx context.Context, after int64) (part[int64, store.Chunk], error) {
			return s.readAfter(ctx, project, name, after)
		},
	}
	r := s.tails.join(s.live, s.hub, streamKey{project, name}, source, from, stream.Chunks)
	defer r.quit()
	for !r.ended {
		chunks, err := r.next(ctx, ctx)
		if err != nil {
			return err
		}
		for _, chunk := range chunks {
			if err := emit(chunk); err != nil {
				return err
			}
		}
	}
	return nil
}

// readAfter reads chunks of a stream, starting at an index.
func (s *Streams) readAfter(
	ctx context.Context, project entities.Project, name entities.StreamName, from int64,
) (part[int64, store.Chunk], error) {
	p := part[int64, store.Chunk]{to: from}
	stream, err := s.Info(ctx, project, name)
	if err != nil {
		return p, err
	}
	if from < stream.Chunks {
		p.items, err = store.Chunks(ctx, s.pool, stream.ID, from, tailChunks, tailBytes)
		if err != nil {
			return p, err
		}
		if len(p.items) == 0 {
			return p, fmt.Errorf("stream %s has no chunk %d of %d", name, from, stream.Chunks)
		}
		p.to = p.items[len(p.items)-1].Idx + 1
	}
	p.more = p.to < stream.Chunks
	p.ended = stream.ClosedAt != nil && !p.more
	return p, nil
}
