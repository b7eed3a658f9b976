package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// The format of exported runs that this version writes, and the only one it reads.
const (
	exportFormat  = "stepwell run"
	exportVersion = 1
)

// ErrUnreadable says that a run cannot be read, or that there is less of it than its rows say.
var ErrUnreadable = errors.New("the run cannot be read")

// Record is one item of an exported run; exactly one field is set. First comes the run; then its events in
// their order; then each stream, followed by its chunks in theirs; in the end, the end.
type Record struct {
	Run    *RunRecord    `json:"run,omitempty"`
	Event  *EventRecord  `json:"event,omitempty"`
	Stream *StreamRecord `json:"stream,omitempty"`
	Chunk  *ChunkRecord  `json:"chunk,omitempty"`
	End    *RunSize      `json:"end,omitempty"`
}

// RunRecord is what no event of the run says.
type RunRecord struct {
	Format  string           `json:"format"`
	Version int              `json:"version"`
	ID      entities.RunID   `json:"id"`
	Project entities.Project `json:"project"`
}

// EventRecord is an [entities.Event] of the run.
type EventRecord struct {
	Seq           int64              `json:"seq"`
	Type          entities.EventType `json:"type"`
	CorrelationID string             `json:"correlationId,omitempty"`
	SpecVersion   int                `json:"specVersion"`
	CreatedAt     time.Time          `json:"createdAt"`
	OccurredAt    *time.Time         `json:"occurredAt,omitempty"`
	Data          entities.EventData `json:"data"`
	// Extra and Payload are base64, or null where there was nothing.
	Extra   []byte `json:"extra"`
	Payload []byte `json:"payload"`
}

// StreamRecord is a stream of the run.
type StreamRecord struct {
	Name      entities.StreamName `json:"name"`
	Chunks    int64               `json:"chunks"`
	CreatedAt time.Time           `json:"createdAt"`
	ClosedAt  *time.Time          `json:"closedAt,omitempty"`
}

// ChunkRecord is the next chunk of the stream before it.
type ChunkRecord struct {
	Data []byte `json:"data"`
}

func (e EventRecord) of(id entities.RunID) entities.Event {
	return entities.Event{
		RunID: id, Seq: e.Seq, Type: e.Type, CorrelationID: e.CorrelationID, SpecVersion: e.SpecVersion,
		CreatedAt: e.CreatedAt, OccurredAt: e.OccurredAt, Data: e.Data, Extra: e.Extra, Payload: e.Payload,
	}
}

// Export emits all records of a run, as it is when the export begins, and says how much that was. It holds
// neither a lock nor a transaction open, and no more than a page in memory. It fails with
// [entities.ErrRunNotFound], with [ErrUnreadable], and with what emit fails with.
func (a *Maintainer) Export(ctx context.Context, id entities.RunID, emit func(Record) error) (RunSize, error) {
	var refused error
	x := exporter{pool: a.pool, emit: func(r Record) error {
		refused = emit(r)
		return refused
	}}
	if err := x.all(ctx, id); err != nil {
		if refused == nil && !errors.Is(err, entities.ErrRunNotFound) {
			err = fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		return RunSize{}, fmt.Errorf("export run %s: %w", id, err)
	}
	return x.extent, nil
}

type exporter struct {
	pool   *pgxpool.Pool
	emit   func(Record) error
	extent RunSize
}

func (x *exporter) all(ctx context.Context, id entities.RunID) error {
	var run entities.Run
	var streams []store.StoredStream
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
	x.extent.LastSeq = run.LastSeq
	header := RunRecord{Format: exportFormat, Version: exportVersion, ID: id, Project: run.Project}
	if err := x.emit(Record{Run: &header}); err != nil {
		return err
	}
	if err := x.events(ctx, id); err != nil {
		return err
	}
	for _, s := range streams {
		if err := x.stream(ctx, s); err != nil {
			return err
		}
	}
	return x.emit(Record{End: &x.extent})
}

// events emits the log up to where it was at the beginning.
func (x *exporter) events(ctx context.Context, id entities.RunID) error {
	log := read.New(x.pool, nil, nil)
	page := pg.Page{Limit: pg.MaxPage}
	for seq := int64(0); seq < x.extent.LastSeq; {
		got, err := log.Prefix(ctx, id, x.extent.LastSeq, page)
		if err != nil {
			return err
		}
		for _, e := range got.Events {
			if seq++; e.Seq != seq {
				return fmt.Errorf("event %d is missing", seq)
			}
			record := EventRecord{
				Seq: e.Seq, Type: e.Type, CorrelationID: e.CorrelationID, SpecVersion: e.SpecVersion, CreatedAt: e.CreatedAt,
				OccurredAt: e.OccurredAt, Data: e.Data, Extra: e.Extra, Payload: e.Payload,
			}
			if err := x.emit(Record{Event: &record}); err != nil {
				return err
			}
		}
		if len(got.Events) == 0 {
			return fmt.Errorf("event %d is missing", seq+1)
		}
		page.Cursor = read.EventCursor(got.Events[len(got.Events)-1])
	}
	return nil
}

// exportChunks is how many chunks of a stream an export reads at once.
const exportChunks = 256

func (x *exporter) stream(ctx context.Context, s store.StoredStream) error {
	x.extent.add(s.Stream)
	record := StreamRecord{Name: s.Name, Chunks: s.Chunks, CreatedAt: s.CreatedAt, ClosedAt: s.ClosedAt}
	if err := x.emit(Record{Stream: &record}); err != nil {
		return err
	}
	for idx := int64(0); idx < s.Chunks; {
		chunks, err := store.Chunks(ctx, x.pool, s.ID, idx, int(min(s.Chunks-idx, exportChunks)), read.MaxPageBytes)
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
