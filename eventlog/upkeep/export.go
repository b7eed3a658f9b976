package upkeep

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// ErrUnreadable is returned for a run that cannot be read, or that has fewer events or chunks than its rows count.
var ErrUnreadable = errors.New("the run cannot be read")

// Export emits all records of a run as it is when the export starts, and returns its size. It holds no lock and no open
// transaction, since emit may be slow, and no more than a page in memory. It fails with [entities.ErrRunNotFound], with
// [ErrUnreadable], and with the errors of emit.
func (m *Maintainer) Export(ctx context.Context, id entities.RunID, emit func(Record) error) (RunSize, error) {
	var emitErr error
	x := exporter{pool: m.pool, emit: func(r Record) error {
		emitErr = emit(r)
		return emitErr
	}}
	if err := x.export(ctx, id); err != nil {
		// Retention counts errors of emit against the archive, and [ErrUnreadable] against the run.
		if emitErr == nil && !errors.Is(err, entities.ErrRunNotFound) {
			err = fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		return RunSize{}, fmt.Errorf("export run %s: %w", id, err)
	}
	return x.size, nil
}

// exporter exports one run. Reading in several transactions is consistent because it reads no further than size, and
// events and chunks never change.
type exporter struct {
	pool *pgxpool.Pool
	emit func(Record) error
	size RunSize
}

func (x *exporter) export(ctx context.Context, id entities.RunID) error {
	var run entities.Run
	var streams []store.StoredStream
	// One snapshot fixes the size: the log and the streams may grow while they are exported.
	err := pg.InSnapshot(ctx, x.pool, func(tx pgx.Tx) (err error) {
		if run, err = store.RunOfAny(ctx, tx, id); err != nil {
			return err
		}
		streams, err = store.StreamsOf(ctx, tx, run.Project, id)
		return err
	})
	if err != nil {
		return err
	}
	x.size.LastSeq = run.LastSeq
	header := RunRecord{Format: exportFormat, Version: exportVersion, ID: id, Project: run.Project}
	if err := x.emit(Record{Run: &header}); err != nil {
		return err
	}
	if err := x.exportEvents(ctx, id); err != nil {
		return err
	}
	for _, s := range streams {
		if err := x.exportStream(ctx, s); err != nil {
			return err
		}
	}
	return x.emit(Record{End: &x.size})
}

// exportEvents emits the log up to the size, page by page. It checks positions so that a damaged run is never archived
// as if it were complete, and then deleted.
func (x *exporter) exportEvents(ctx context.Context, id entities.RunID) error {
	log := read.New(x.pool, nil, nil)
	for seq := int64(0); seq < x.size.LastSeq; {
		got, err := log.Portable(ctx, id, seq, x.size.LastSeq)
		if err != nil {
			return err
		}
		for _, e := range got {
			if seq++; e.Seq != seq {
				return fmt.Errorf("event %d is missing", seq)
			}
			if err := x.emit(Record{Event: (*EventRecord)(&e)}); err != nil {
				return err
			}
		}
		if len(got) == 0 {
			return fmt.Errorf("event %d is missing", seq+1)
		}
	}
	return nil
}

// maxChunks is the number of chunks of a stream that an export reads at once.
const maxChunks = 256

// exportStream emits a stream and the chunks that it counted when the export started. It checks them as exportEvents
// does.
func (x *exporter) exportStream(ctx context.Context, s store.StoredStream) error {
	x.size.add(s.Stream)
	record := StreamRecord{Name: s.Name, Chunks: s.Chunks, CreatedAt: s.CreatedAt, ClosedAt: s.ClosedAt}
	if err := x.emit(Record{Stream: &record}); err != nil {
		return err
	}
	for idx := int64(0); idx < s.Chunks; {
		chunks, err := store.StoredChunks(ctx, x.pool, s.ID, idx, int(min(s.Chunks-idx, maxChunks)), read.MaxPageBytes)
		if err != nil {
			return err
		}
		for _, c := range chunks {
			if c.Idx != idx {
				return fmt.Errorf("stream %s has no chunk %d", s.Name, idx)
			}
			idx++
			if err := x.emit(Record{Chunk: &ChunkRecord{Data: c.Data}}); err != nil {
				return err
			}
		}
		if len(chunks) == 0 {
			return fmt.Errorf("stream %s has no chunk %d", s.Name, idx)
		}
	}
	return nil
}
