package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
)

// terms are those on which requests are appended together.
type terms interface {
	// before is called once the run is locked and what is to be known is read.
	before(context.Context, pgx.Tx) error
	// agree says whether to go on with what was decided.
	agree(judgement) error
	// writes reports whether after does anything; only then is it called, in the end.
	writes() bool
	after(context.Context, pgx.Tx) error
	// written are the topics of the streams that after writes.
	written() []string
}

// errUnwritten rolls a transaction back that has nothing to commit.
var errUnwritten = errors.New("nothing was written")

// eachByItself appends whatever is not refused.
type eachByItself struct{}

func (eachByItself) before(context.Context, pgx.Tx) error { return nil }
func (eachByItself) after(context.Context, pgx.Tx) error  { return nil }
func (eachByItself) writes() bool                         { return false }
func (eachByItself) written() []string                    { return nil }

func (eachByItself) agree(j judgement) error {
	if len(j.events) == 0 {
		return errUnwritten
	}
	return nil
}

// Turn is what a caller of [Log.AppendAll] does in the transaction of its events. Either may be nil.
type Turn struct {
	// Check is called once the run is locked and before anything is decided. Its error rolls all back.
	Check func(context.Context, pgx.Tx) error
	// Settle is called in the end, also when nothing was appended. Its error rolls all back.
	Settle func(context.Context, pgx.Tx) error
	// Streams are written just before, each from its beginning to its end. One that is closed stays as it is.
	Streams []WholeStream
}

// WholeStream is a stream that is written at once.
type WholeStream struct {
	Name entities.StreamName
	Data []byte
}

// allOrNone appends all requests or none.
type allOrNone struct {
	Turn

	project entities.Project
	runID   entities.RunID
	now     time.Time
}

func (a allOrNone) before(ctx context.Context, tx pgx.Tx) error {
	if a.Check == nil {
		return nil
	}
	return a.Check(ctx, tx)
}

func (a allOrNone) agree(j judgement) error {
	for i, o := range j.outcomes {
		if o.Err != nil {
			return &RefusedError{i, o.Err}
		}
	}
	if j.after.Run == nil {
		return entities.ErrRunNotFound
	}
	if len(j.events) == 0 && !a.writes() {
		return errUnwritten
	}
	return nil
}

func (a allOrNone) writes() bool { return a.Settle != nil || len(a.Streams) > 0 }

func (a allOrNone) after(ctx context.Context, tx pgx.Tx) error {
	if err := a.writeStreams(ctx, tx); err != nil {
		return err
	}
	if a.Settle == nil {
		return nil
	}
	return a.Settle(ctx, tx)
}

func (a allOrNone) writeStreams(ctx context.Context, tx pgx.Tx) error {
	if len(a.Streams) == 0 {
		return nil
	}
	var b pgx.Batch
	for _, s := range a.Streams {
		entities.AppendChunks(&b, a.project, a.runID, s.Name, [][]byte{s.Data}, a.now)
		entities.CloseStream(&b, a.project, a.runID, s.Name, a.now)
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("write streams: %w", err)
	}
	return nil
}

func (a allOrNone) written() []string {
	topics := make([]string, len(a.Streams))
	for i, s := range a.Streams {
		topics[i] = streamTopic(a.project, s.Name)
	}
	return topics
}

// RefusedError says which of several requests was refused, and with it all of them.
type RefusedError struct {
	// Index is the request's among those that were made.
	Index int
	Err   error
}

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap is why it was refused.
func (e *RefusedError) Unwrap() error { return e.Err }
