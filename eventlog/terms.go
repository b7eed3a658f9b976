package eventlog

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
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
	// believed has a chain do what before, begins and after do, and returns the messages that are left to send. It
	// reports false if that takes more.
	believed(*pg.Conditional, judgement) (others []entities.Message, ok bool)
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

func (eachByItself) believed(_ *pg.Conditional, j judgement) ([]entities.Message, bool) {
	return j.messages, true
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
	// Believe has a chain do all that Check, Begin and Settle would, or reports that it cannot. Without it, whatever has
	// one of these is decided under the lock.
	Believe func(*pg.Conditional, Outlook) bool
	// Streams are written just before, each from its beginning to its end. One that is closed stays as it is.
	Streams []WholeStream
}

// Outlook is how a run goes on after a turn.
type Outlook struct {
	// Ended says that it does not.
	Ended bool
	// Open says that there is a step, or a hook, whose end will have it invoked.
	Open bool
}

// outlook tells what the judgement knows for certain.
func (j judgement) outlook() Outlook {
	open := len(j.after.Hooks) > 0
	for _, s := range j.after.Steps {
		open = open || s.CompletedAt == nil
	}
	return Outlook{Ended: j.after.Run.Status.Ended(), Open: open}
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
	return a.Begin(b, invokes(runID, messages)), withoutOwn(runID, messages)
}

// withoutOwn are the messages but for those that have the run itself invoked.
func withoutOwn(runID entities.RunID, messages []entities.Message) []entities.Message {
	return slices.DeleteFunc(slices.Clone(messages), func(m entities.Message) bool {
		return m.RunID == runID && m.Work == entities.WorkRun
	})
}

// believed leaves it to the lock when the run's own work is to go on.
func (a allOrNone) believed(c *pg.Conditional, j judgement) ([]entities.Message, bool) {
	switch {
	case a.alone():
		return j.messages, true
	case a.Believe == nil || len(a.Streams) > 0:
		return nil, false
	case a.Begin != nil && len(withoutOwn(a.runID, j.messages)) < len(j.messages):
		return nil, false
	default:
		return j.messages, a.Believe(c, j.outlook())
	}
}

func (a allOrNone) after(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	for _, s := range a.Streams {
		store.AppendChunks(b, a.project, a.runID, s.Name, [][]byte{s.Data}, a.now)
		store.CloseStream(b, a.project, a.runID, s.Name, a.now)
	}
	if a.Settle == nil {
		return nil
	}
	return a.Settle(ctx, tx, b)
}

func (a allOrNone) written() []string {
	topics := make([]string, len(a.Streams))
	for i, s := range a.Streams {
		topics[i] = read.StreamTopic(a.project, s.Name)
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
