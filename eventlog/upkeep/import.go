package upkeep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// An import sends its statements when it has queued this many, or this many bytes.
const (
	importBatch = 500
	importBytes = 8 << 20
)

// Import restores an exported run, with its streams, in one transaction; it derives the rows from the log. Next returns
// the records and then [io.EOF]. It fails with [entities.ErrInvalid] if the records are not one complete run, or if the
// run had not ended, because it would continue in two places. It fails with [entities.ErrConflict] if the run or one of
// its streams exists, and with [atrest.ErrShredded] if the run's own key is destroyed.
func (m *Maintainer) Import(ctx context.Context, next func() (Record, error)) (entities.RunID, error) {
	in := importer{next: next}
	// A retry could not read the records again.
	err := pg.InTxOnce(ctx, m.pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
		in.tx, in.at = tx, m.now()
		return in.importRun(ctx)
	})
	var refused *pgconn.PgError
	switch {
	case !errors.As(err, &refused):
	case refused.ConstraintName == "runs_pkey" || refused.ConstraintName == "streams_name_key":
		err = fmt.Errorf("%w: the run or one of its streams already exists", entities.ErrConflict)
	case isDataError(refused):
		err = entities.Invalid("the database cannot store values of the file: %s", refused.Message)
	}
	if err != nil {
		return "", fmt.Errorf("import run %s: %w", in.run.ID, err)
	}
	return in.run.ID, nil
}

// isDataError reports whether a statement failed because of the values it was given. An import checks few values
// itself, because the constraints of the database repeat the rules.
func isDataError(err *pgconn.PgError) bool {
	class := err.Code[:min(2, len(err.Code))]
	const dataException, integrityViolation, limitExceeded = "22", "23", "54"
	return class == dataException || class == integrityViolation || class == limitExceeded
}

// importer imports one run.
type importer struct {
	tx   pgx.Tx
	at   time.Time
	next func() (Record, error)
	run  RunRecord
	size RunSize // of the records read so far
	// keyed is set once it is known that the run's own key, which has encrypted its payloads, is there.
	keyed bool

	stream     int64 // the row of the current stream
	chunksLeft int64 // the number of its chunks that must follow
	chunk      int64 // the index of the next one

	batch pgx.Batch
	bytes int // of payloads and chunks in batch
}

func (in *importer) importRun(ctx context.Context) error {
	if err := in.readHeader(); err != nil {
		return err
	}
	for ended := false; !ended; {
		r, err := in.next()
		if errors.Is(err, io.EOF) {
			err = entities.Invalid("the file ends before the run does")
		}
		if err != nil {
			return err
		}
		if ended = r.End != nil; ended {
			err = in.checkEnd(*r.End)
		} else {
			err = in.add(ctx, r)
		}
		if err != nil {
			return err
		}
	}
	if err := in.flush(ctx); err != nil {
		return err
	}
	return in.deriveRows(ctx)
}

// readHeader reads the first record. It refuses other versions, whose records could mean something else.
func (in *importer) readHeader() error {
	first, err := in.next()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if first.Run == nil || first.Run.Format != exportFormat {
		return entities.Invalid("this is not an exported run")
	}
	if in.run = *first.Run; in.run.Version != exportVersion {
		return entities.Invalid("this is version %d of the format; this program reads %d", in.run.Version, exportVersion)
	}
	if err := entities.ValidateID("project", string(in.run.Project)); err != nil {
		return err
	}
	return entities.ValidateID("run ID", string(in.run.ID))
}

// checkEnd compares the last record with the records before it. It reads on to the end of the file, where the checksum
// is.
func (in *importer) checkEnd(end RunSize) error {
	if end != in.size || in.chunksLeft > 0 {
		return entities.Invalid("the file announces a run of %+v but contains %+v", end, in.size)
	}
	_, err := in.next()
	if err == nil {
		return entities.Invalid("the file continues after the end of the run")
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// add imports one record between the first and the last.
func (in *importer) add(ctx context.Context, r Record) error {
	switch {
	case r.Event != nil:
		if in.size.LastSeq++; r.Event.Seq != in.size.LastSeq || in.size.Streams > 0 {
			return entities.Invalid("event %d is in the place of event %d", r.Event.Seq, in.size.LastSeq)
		}
		r.Event.RunID = in.run.ID
		if err := in.addEvent(ctx, entities.Event(*r.Event)); err != nil {
			return err
		}
	case r.Stream != nil && in.chunksLeft == 0:
		return in.addStream(ctx, *r.Stream)
	case r.Chunk != nil && in.chunksLeft > 0:
		store.InsertChunk(&in.batch, in.stream, store.Chunk{Idx: in.chunk, Data: r.Chunk.Data})
		in.bytes += len(r.Chunk.Data)
		in.chunk++
		in.chunksLeft--
	default:
		return entities.Invalid("the records of the file are not in order")
	}
	if in.batch.Len() >= importBatch || in.bytes >= importBytes {
		return in.flush(ctx)
	}
	return nil
}

// addEvent queues an event. deriveRows checks that it was legal, once all events are there.
func (in *importer) addEvent(ctx context.Context, e entities.Event) error {
	if e.Seq == 1 {
		if e.Type != entities.EventRunCreated {
			return entities.Invalid("the log begins with %s", e.Type)
		}
		// Events refer to the run's row. deriveRows rewrites it at the end.
		s := eventlog.NewSnapshot(in.run.Project)
		s.Apply(&e)
		store.InsertRun(pg.Batch{Batch: &in.batch}, s.Run)
	}
	if !in.keyed && (encryption.OfRun(e.Payload) || encryption.OfRun(e.Extra)) {
		if err := encryption.RequireSecret(ctx, in.tx, in.run.ID); err != nil {
			return err
		}
		in.keyed = true
	}
	eventlog.QueueImport(&in.batch, in.run.Project, e)
	in.bytes += len(e.Payload) + len(e.Extra)
	return nil
}

// addStream inserts a stream with its final counters, before its chunks. checkEnd and the next record make sure that
// this number of chunks follows.
func (in *importer) addStream(ctx context.Context, r StreamRecord) error {
	if err := entities.ValidateName("stream name", string(r.Name)); err != nil {
		return err
	}
	if r.Chunks < 0 {
		return entities.Invalid("stream %s has %d chunks", r.Name, r.Chunks)
	}
	s := store.StoredStream{CreatedAt: r.CreatedAt}
	s.RunID, s.Name, s.Chunks, s.ClosedAt = in.run.ID, r.Name, r.Chunks, r.ClosedAt
	in.size.add(s.Stream)
	in.chunksLeft, in.chunk = r.Chunks, 0
	store.InsertStream(&in.batch, in.run.Project, s, &in.stream)
	return in.flush(ctx) // chunks need the ID of the stream's row
}

// flush sends the queued statements, so that memory does not grow with the run.
func (in *importer) flush(ctx context.Context) error {
	in.bytes = 0
	return pg.SendQueued(ctx, in.tx, &in.batch)
}

// deriveRows rebuilds the rows from the imported log, which also verifies it. Only then is it known whether the run had
// ended.
func (in *importer) deriveRows(ctx context.Context) error {
	var result RebuildResult
	err := rebuild(ctx, in.tx, in.run.ID, in.at, &result)
	if errors.Is(err, errDamagedLog) || err == nil && len(result.Remaining) > 0 {
		return entities.Invalid("%s", result.Remaining[0])
	}
	if err != nil {
		return err
	}
	run, err := store.RunOfAny(ctx, in.tx, in.run.ID)
	if err == nil && !run.Status.Ended() {
		return entities.Invalid("cannot import a run that has not ended")
	}
	return err
}
