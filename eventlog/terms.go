package eventlog

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
)

// terms are those on which requests are appended together.
type terms interface {
	// before queues what is to be known besides, behind the lock on the run, and returns what tells whether to go on.
	before(*pgx.Batch) (verdict func() error)
	// agree says whether to go on with what was decided.
	agree(judgement) error
	// begins has the run's own work begin, if those who append are at it, and returns the other messages. See [Turn].
	begins(b *pgx.Batch, runID entities.RunID, messages []entities.Message) (
		begun func() *Beginning, others []entities.Message)
	// after is called in the end. See [Turn].
	after(context.Context, pgx.Tx, *pgx.Batch) error
	// alone reports whether the requests are all there is to it: nothing is checked besides, and nothing else is written.
	alone() bool
	// written are the topics of the streams that after writes.
	written() []string
}

// errUnwritten rolls a transaction back that has nothing to commit.
var errUnwritten = errors.New("nothing was written")

// eachByItself appends whatever is not refused.
type eachByItself struct{}

func (eachByItself) before(*pgx.Batch) func() error                  { return agreed }
func (eachByItself) after(context.Context, pgx.Tx, *pgx.Batch) error { return nil }
func (eachByItself) written() []string                               { return nil }

func (eachByItself) alone() bool { return true }

func (eachByItself) begins(
	_ *pgx.Batch, _ entities.RunID, messages []entities.Message,
) (func() *Beginning, []entities.Message) {
	return nil, messages
}

func agreed() error { return nil }

func (eachByItself) agree(j judgement) error {
	if len(j.events) == 0 {
		return errUnwritten
	}
	return nil
}

// Turn is what a caller of [Log.AppendAll] does in the transaction of its events. Each may be nil.
type Turn struct {
	// Check queues what it needs to know, which is read once the run is locked. The verdict that it returns is called
	// when it was, before anything is decided. An error of it rolls all back.
	Check func(*pgx.Batch) (verdict func() error)
	// Begin is called if the server continues the run, and says that it is the turn of the run's own work: what the
	// events ask of that is told here, not enqueued. News says that they want the run invoked at once. What it queues
	// is executed before anything is written; the function that it returns, which may be nil, is called then, and
	// returns the invocation that begins.
	Begin func(b *pgx.Batch, news bool) (begun func() *Beginning)
	// Settle is called in the end, also when nothing was appended. Its error rolls all back. The batch has what was not
	// executed so far and goes with the commit; [SendQueued] executes it before.
	Settle func(context.Context, pgx.Tx, *pgx.Batch) error
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

func (a allOrNone) before(b *pgx.Batch) func() error {
	if a.Check == nil {
		return agreed
	}
	return a.Check(b)
}

func (a allOrNone) alone() bool {
	return a.Check == nil && a.Begin == nil && a.Settle == nil && len(a.Streams) == 0
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
	if len(j.events) == 0 && a.Begin == nil && a.Settle == nil && len(a.Streams) == 0 {
		return errUnwritten
	}
	return nil
}

func (a allOrNone) begins(
	b *pgx.Batch, runID entities.RunID, messages []entities.Message,
) (func() *Beginning, []entities.Message) {
	if a.Begin == nil {
		return nil, messages
	}
	others := slices.DeleteFunc(slices.Clone(messages), func(m entities.Message) bool {
		return m.RunID == runID && m.Work == entities.WorkRun
	})
	return a.Begin(b, invokes(runID, messages)), others
}

func (a allOrNone) after(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	for _, s := range a.Streams {
		entities.AppendChunks(b, a.project, a.runID, s.Name, [][]byte{s.Data}, a.now)
		entities.CloseStream(b, a.project, a.runID, s.Name, a.now)
	}
	if a.Settle == nil {
		return nil
	}
	return a.Settle(ctx, tx, b)
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
