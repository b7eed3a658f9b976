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

// AppendOptions is what a caller of [Log.AppendAll] adds to the transaction of its events. Each field may be nil.
//
// Guard, StartNext and Finish are for a transaction that holds the run's lock. Optimistic says the same to a conditional
// statement, which can ask the database nothing before it decides.
type AppendOptions struct {
	// Guard queues reads behind the lock on the run. The check that it returns is called once they were executed, before
	// anything is decided; its error rolls the transaction back.
	Guard func(*pgx.Batch) (check func() error)
	// StartNext is called if the server continues the run and the caller is the run's own invocation: the caller decides
	// on the next invocation, which is then not enqueued. News says that the events want one at once. Queued statements
	// are executed before anything is written; then the function that is returned, which may be nil, returns the
	// invocation that starts.
	StartNext func(b *pgx.Batch, news bool) (started func() *InlineStart)
	// Finish is called last, also when nothing was appended. Its error rolls the transaction back. The batch has the
	// statements that go with the commit; [pg.SendQueued] executes them before.
	Finish func(context.Context, pgx.Tx, *pgx.Batch) error
	// Optimistic makes a conditional statement do what Guard, StartNext and Finish would, or reports that it cannot.
	// Without it, an append with one of these always takes the lock.
	Optimistic func(*pg.Conditional, Outlook) bool
	// Streams are written whole, from beginning to end, before Finish. A closed stream stays as it is.
	Streams []WholeStream
}

// Outlook is how a run goes on after an append, as far as the append knows.
type Outlook struct {
	// Ended says that the run has ended.
	Ended bool
	// Open says that a step or a hook is open whose end will have the run invoked.
	Open bool
}

// WholeStream is a stream that is written at once.
type WholeStream struct {
	Name entities.StreamName
	Data []byte
}

// RefusedError says which of several requests was refused, so that none was appended.
type RefusedError struct {
	// Index is the position of the request among those that were made.
	Index int
	Err   error
}

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap is why the request was refused.
func (e *RefusedError) Unwrap() error { return e.Err }

// errUnwritten rolls back a transaction that has nothing to commit.
var errUnwritten = errors.New("nothing was written")

// appendMode says what a refused request means for the others of its call.
type appendMode int

const (
	independent  appendMode = iota // nothing: each is appended or refused by itself
	allOrNothing                   // none is appended
)

// call is a call that appends.
type call struct {
	AppendOptions

	project  entities.Project
	runID    entities.RunID
	requests []Request
	mode     appendMode
	now      time.Time
}

// validate checks what needs no database, and cuts the requests' times to milliseconds.
func (c call) validate() error {
	for i, r := range c.requests {
		c.requests[i] = r.exact()
		if err := c.requests[i].validate(c.now); err != nil {
			return &RefusedError{i, err}
		}
	}
	return nil
}

// hasOptions reports whether there is more to the call than its requests.
func (c call) hasOptions() bool {
	return c.Guard != nil || c.StartNext != nil || c.Finish != nil || len(c.Streams) > 0
}

// guard queues the reads of the call's guard, and returns its check.
func (c call) guard(b *pgx.Batch) func() error {
	if c.Guard == nil {
		return func() error { return nil }
	}
	return c.Guard(b)
}

// accept decides whether to commit the decision: it fails with errUnwritten if there is nothing to commit.
func (c call) accept(d decision) error {
	if c.mode == allOrNothing {
		for i, o := range d.outcomes {
			if o.Err != nil {
				return &RefusedError{i, o.Err}
			}
		}
		if d.after.Run == nil {
			return entities.ErrRunNotFound
		}
	}
	if len(d.events) == 0 && (c.mode == independent || c.StartNext == nil && c.Finish == nil && len(c.Streams) == 0) {
		return errUnwritten
	}
	return nil
}

// startNext lets the caller decide on the run's next invocation, and returns the other messages to send.
func (c call) startNext(b *pgx.Batch, messages []entities.Message) (func() *InlineStart, []entities.Message) {
	if c.StartNext == nil {
		return nil, messages
	}
	return c.StartNext(b, wantsInvocation(c.runID, messages)), withoutInvocation(c.runID, messages)
}

// withoutInvocation returns the messages except those that have the run itself invoked.
func withoutInvocation(runID entities.RunID, messages []entities.Message) []entities.Message {
	return slices.DeleteFunc(slices.Clone(messages), func(m entities.Message) bool {
		return m.RunID == runID && m.Work == entities.WorkRun
	})
}

// addTo makes a conditional statement do what the options ask for, and returns the messages that are left to send. It
// reports false if that takes the lock; so does the next invocation of the run.
func (c call) addTo(s *pg.Conditional, d decision) ([]entities.Message, bool) {
	switch {
	case !c.hasOptions():
		return d.messages, true
	case c.Optimistic == nil || len(c.Streams) > 0:
		return nil, false
	case c.StartNext != nil && len(withoutInvocation(c.runID, d.messages)) < len(d.messages):
		return nil, false
	default:
		return d.messages, c.Optimistic(s, d.outlook())
	}
}

// finish writes the call's streams, and lets the caller add to the transaction.
func (c call) finish(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	for _, s := range c.Streams {
		store.AppendChunks(b, c.project, c.runID, s.Name, [][]byte{s.Data}, c.now)
		store.CloseStream(b, c.project, c.runID, s.Name, c.now)
	}
	if c.Finish == nil {
		return nil
	}
	return c.Finish(ctx, tx, b)
}

// announceStreams wakes the readers of the streams that were written.
func (c call) announceStreams(hub *pg.Hub) {
	for _, s := range c.Streams {
		hub.Publish(read.StreamTopic(c.project, s.Name))
	}
}
