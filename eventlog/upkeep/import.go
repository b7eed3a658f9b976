package upkeep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// An import writes when so many statements, or so many bytes, have come together.
const (
	importBatch = 500
	importBytes = 8 << 20
)

// Import writes an exported run, with its streams, back as it was, in one transaction; its rows are the fold
// of its log. Next returns the records and then [io.EOF]. It fails with [entities.ErrInvalid] on records that
// are no whole run, or one that had not ended: it would begin a second life. It fails with
// [entities.ErrConflict] when the run or a stream of that name is there.
func (a *Maintainer) Import(ctx context.Context, next func() (Record, error)) (entities.RunID, error) {
	in := importer{next: next}
	// Once: records cannot be read again.
	err := pg.InTxOnce(ctx, a.pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
		in.tx, in.at = tx, a.now()
		return in.all(ctx)
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

// isDataError reports whether a statement failed because of the values it was given.
func isDataError(err *pgconn.PgError) bool {
	class := err.Code[:min(2, len(err.Code))]
	const dataException, integrityViolation, limitExceeded = "22", "23", "54"
	return class == dataException || class == integrityViolation || class == limitExceeded
}

// reading is an import under way.
type importer struct {
	tx     pgx.Tx
	at     time.Time
	next   func() (Record, error)
	run    RunRecord
	read   RunSize
	stream int64 // the row of the stream under way
	left   int64 // chunks that are still to come of it
	idx    int64 // of the next one
	batch  pgx.Batch
	bytes  int
}

func (in *importer) all(ctx context.Context) error {
	if err := in.header(); err != nil {
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
			err = in.trailer(*r.End)
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
	return in.conclude(ctx)
}

// header reads the first record.
func (in *importer) header() error {
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

// trailer looks whether all came, and reads to the very end, where the file's checksum is.
func (in *importer) trailer(end RunSize) error {
	if end != in.read || in.left > 0 {
		return entities.Invalid("the file says %+v of a run it has %+v of", end, in.read)
	}
	_, err := in.next()
	if err == nil {
		return entities.Invalid("the file goes on after the end of the run")
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// add takes in one record between the first and the last.
func (in *importer) add(ctx context.Context, r Record) error {
	switch {
	case r.Event != nil:
		if in.read.LastSeq++; r.Event.Seq != in.read.LastSeq || in.read.Streams > 0 {
			return entities.Invalid("event %d comes where event %d must", r.Event.Seq, in.read.LastSeq)
		}
		if err := in.addEvent(r.Event.of(in.run.ID)); err != nil {
			return err
		}
	case r.Stream != nil && in.left == 0:
		return in.addStream(ctx, *r.Stream)
	case r.Chunk != nil && in.left > 0:
		store.InsertChunk(&in.batch, in.stream, store.Chunk{Idx: in.idx, Data: r.Chunk.Data})
		in.bytes += len(r.Chunk.Data)
		in.idx++
		in.left--
	default:
		return entities.Invalid("there is a record that has no place there")
	}
	if in.batch.Len() >= importBatch || in.bytes >= importBytes {
		return in.flush(ctx)
	}
	return nil
}

func (in *importer) addEvent(e entities.Event) error {
	if e.Seq == 1 {
		if e.Type != entities.EventRunCreated {
			return entities.Invalid("the log begins with %s", e.Type)
		}
		s := eventlog.NewSnapshot(in.run.Project)
		s.Apply(e)
		store.InsertRun(pg.Batch{Batch: &in.batch}, s.Run)
	}
	eventlog.QueueImport(&in.batch, in.run.Project, e)
	in.bytes += len(e.Payload) + len(e.Extra)
	return nil
}

func (in *importer) addStream(ctx context.Context, r StreamRecord) error {
	if err := entities.ValidateName("stream name", string(r.Name)); err != nil {
		return err
	}
	if r.Chunks < 0 {
		return entities.Invalid("stream %s has %d chunks", r.Name, r.Chunks)
	}
	s := store.StoredStream{CreatedAt: r.CreatedAt}
	s.RunID, s.Name, s.Chunks, s.ClosedAt = in.run.ID, r.Name, r.Chunks, r.ClosedAt
	in.read.add(s.Stream)
	in.left, in.idx = r.Chunks, 0
	store.InsertStream(&in.batch, in.run.Project, s, &in.stream)
	return in.flush(ctx)
}

func (in *importer) flush(ctx context.Context) error {
	b := in.batch
	in.batch, in.bytes = pgx.Batch{}, 0
	return in.tx.SendBatch(ctx, &b).Close()
}

// conclude makes the rows from the log.
func (in *importer) conclude(ctx context.Context) error {
	var result RebuildResult
	err := rebuild(ctx, in.tx, in.run.ID, in.at, &result)
	if errors.Is(err, errUnsound) || err == nil && len(result.Remaining) > 0 {
		return entities.Invalid("%s", result.Remaining[0])
	}
	if err != nil {
		return err
	}
	run, err := store.RunOfAny(ctx, in.tx, in.run.ID)
	if err == nil && !run.Status.Ended() {
		return entities.Invalid("the run had not ended: another life of it cannot begin here")
	}
	return err
}
