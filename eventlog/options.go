package eventlog

import (
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/await"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// AppendOptions are what a caller of [Log.AppendAll] adds to the transaction of its events. Each field may be nil.
type AppendOptions struct {
	// With is what else the transaction does.
	With Companion
	// Await is what the answer of the run's own invocation says about the next one; nil if each new event has the run
	// invoked. It counts only together with an [Invocation]. What the answer itself records is then not new.
	Await *Awaiting
	// Seen is the position of the last event that the caller says to know. The append fails with [entities.ErrInvalid] if
	// the log is shorter.
	Seen int64
	// Streams are written and closed. A stream that is already closed stays as it is.
	Streams []WholeStream
	// Messages are sent, whatever the outcomes of the requests.
	Messages []message.Message
	// Open is stored as data of the first event of the requests that is appended: see [entities.EventData].
	Open []entities.StepID
	// Follow says what follows from the events, which is then written with them if the run is cached.
	Follow Follow
}

// Companion is what an append's transaction does besides: it ends a delivery or moves a schedule on, for example.
type Companion interface {
	// Lock is called if the append locks the run, perhaps several times. It queues locks and reads, which are executed
	// after the run is locked. The check that it returns is called next, before anything is decided. It may fill in data
	// and payloads of the requests, but must not change what they are about. Its error rolls the transaction back.
	Lock(b *pgx.Batch) (check func([]Request) error)
	// AddTo adds what the companion writes to the statement that writes the append, even if nothing is appended. It adds
	// the conditions that the check would have checked, too. What needs the lock it adds by [pg.Conditional.UnderLock].
	AddTo(s *pg.Conditional, o Outlook)
}

// Invocation is the companion of an append by the run's own invocation: it decides on the next invocation in place of
// the queue.
type Invocation interface {
	Companion
	// StartNext is called between Lock and AddTo if the server continues the run. NewEvents is set if the events call for
	// an invocation at once. The statements that it queues are executed before anything is written. Then the function that
	// it returns, which may be nil, is called; it returns the invocation that starts.
	StartNext(b *pgx.Batch, newEvents bool) (started func() *InlineStart)
}

// UnderLock is a companion that needs the run's lock. Its functions may be nil.
type UnderLock struct {
	// Guard is [Companion.Lock].
	Guard func(b *pgx.Batch) (check func([]Request) error)
	// Write queues statements that are executed after the events and rows are written, before the commit.
	Write func(b *pgx.Batch)
}

// Lock implements [Companion].
func (u UnderLock) Lock(b *pgx.Batch) (check func([]Request) error) {
	if u.Guard == nil {
		return func([]Request) error { return nil }
	}
	return u.Guard(b)
}

// AddTo implements [Companion].
func (u UnderLock) AddTo(s *pg.Conditional, _ Outlook) {
	s.UnderLock(func(b *pgx.Batch) {
		if u.Write != nil {
			u.Write(b)
		}
	})
}

// Outlook is what an append knows about how its run goes on.
type Outlook struct {
	// Events is how many events the log has after the append.
	Events int64
	// Ended is set if the run has ended.
	Ended bool
	// Open is set if a step or a hook is known to be open. When it ends, or receives something, the run is invoked, or is
	// nearer to that.
	Open bool
	// Wakes is set if an event of the append calls for an invocation at once, and Next if one does at once or later. Both
	// are only set for an [Invocation].
	Wakes, Next bool
	// Until is when the first wait ends that the append creates or awaits, and Over are waits that it ends.
	Until *time.Time
	Over  []string
	// Await is what the run awaits; nil if each new event has it invoked.
	Await *await.Pending
	// Follows is set if what follows from the events is written with them: see [Follow]. That must only happen while the
	// run is not being invoked.
	Follows bool
}

// WholeStream is a stream that is written and closed in one go.
type WholeStream struct {
	Name entities.StreamName
	Data []byte
}

// RefusedError identifies the refused request among several, because of which none was appended.
type RefusedError struct {
	// Index is the position of the refused request, from 0.
	Index int
	Err   error
}

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason of the refusal.
func (e *RefusedError) Unwrap() error { return e.Err }

// errUnwritten rolls back a transaction that has nothing to commit. Callers of the package never see it.
var errUnwritten = errors.New("nothing was written")

// call is one call of Append, AppendAll or AppendBatch.
type call struct {
	AppendOptions

	project  entities.Project
	runID    entities.RunID
	requests []Request
	// atomic makes nothing be appended if a request is refused. Otherwise each is appended or refused on its own.
	atomic bool
	// late makes conflicts outcomes of their own, although the call is atomic: see [Log.AppendEach].
	late bool
	// block makes the requests share one fence: see [Log.AppendBatch].
	block  bool
	now    time.Time
	source admin.Source
	// start is set if the call may start a run.
	start *newStart
	// consulted has what was said to follow, and follows is set if the requests include that.
	consulted *consulted
	follows   bool
	// wakes is set if the run is invoked whatever it awaits.
	wakes bool
	// blobs has what is kept outside of the database of the payloads.
	blobs blobs
}

// validate checks the requests as far as that needs no database, and truncates their times to milliseconds.
func (c call) validate() error {
	for i := range c.requests {
		r := &c.requests[i]
		r.truncate()
		if err := r.validate(c.now); err != nil {
			return &RefusedError{i, err}
		}
	}
	return nil
}

// events returns how many events the call appends, about.
func (c call) events() int {
	n := len(c.requests)
	for i := range c.requests {
		r := &c.requests[i]
		n += len(r.Kept)
	}
	return n
}

// invocation returns the companion if the caller is the run's own invocation, else nil.
func (c call) invocation() Invocation {
	i, _ := c.With.(Invocation)
	return i
}

// decide decides on the requests. It is pure, except that it sets [Awaiting.Left].
func (c call) decide(f facts) decision {
	d := c.decideNext(f)
	d.source = c.source
	if len(c.requests) > 0 {
		d.rerunOf = c.requests[0].RerunOf
	}
	if d.after.Run != nil && d.endsRun() {
		// There is nothing left to do for the run but to end its work.
		d.messages = slices.DeleteFunc(d.messages, func(m message.Message) bool {
			return m.RunID == d.after.Run.ID && m.Work != message.WorkNone && m.Work != message.WorkEnd
		})
		d.endWait()
	}
	d.messages = append(d.messages, c.Messages...)
	if len(d.events) > 0 && len(c.Open) > 0 {
		d.events[0].Data.Open = c.Open
	}
	d.keep(c.blobs)
	return d
}

// hasOptions reports whether the call adds anything to its requests.
func (c call) hasOptions() bool {
	return c.With != nil || len(c.Streams) > 0 || len(c.Messages) > 0
}

// exceeds reports whether the caller says to know more than the log has.
func (c call) exceeds(before *Snapshot) bool { return before.Run != nil && c.Seen > before.Run.LastSeq }

// accept reports, by a nil error, that the decision is to be committed. It fails with errUnwritten if the transaction
// has nothing to commit.
func (c call) accept(d decision) error {
	if d.refused != nil {
		return d.refused
	}
	if c.atomic {
		for i, o := range d.outcomes {
			if o.Err != nil && (!c.late || !isLate(o.Err)) {
				return &RefusedError{i, o.Err}
			}
		}
		if d.after.Run == nil {
			return entities.ErrRunNotFound
		}
	}
	if c.exceeds(d.before) {
		return entities.Invalid("seen %d: the log has only %d events", c.Seen, d.before.Run.LastSeq)
	}
	nothing := len(d.events) == 0 && len(d.messages) == 0
	if nothing && (!c.atomic || c.With == nil && len(c.Streams) == 0) {
		return errUnwritten
	}
	return nil
}

// isLate reports whether a request was refused because the run or an entity has gone on: somebody has done what it asks
// for, or it can no longer be done.
func isLate(err error) bool {
	return errors.Is(err, entities.ErrConflict) || errors.Is(err, entities.ErrRunEnded)
}

// withoutInvocation returns the messages without invocations of the run.
func withoutInvocation(runID entities.RunID, messages []message.Message) []message.Message {
	return slices.DeleteFunc(slices.Clone(messages), func(m message.Message) bool {
		return m.RunID == runID && m.Work == message.WorkRun
	})
}

// toEnqueue returns the messages that the queue gets: all, except that the companion decides on the invocation that
// follows its own.
func (c call) toEnqueue(d decision) []message.Message {
	if c.invocation() == nil {
		return d.messages
	}
	return withoutInvocation(c.runID, d.messages)
}

// addTo adds to the append's statement what the options ask for.
func (c call) addTo(s *pg.Conditional, d decision) {
	if len(c.Streams) > 0 {
		s.UnderLock(c.writeStreams)
	}
	if c.With == nil {
		return
	}
	o := d.outlook()
	if c.invocation() != nil {
		o.Wakes, o.Next = wantsInvocation(c.runID, d.messages), len(c.toEnqueue(d)) < len(d.messages)
	}
	c.With.AddTo(s, o)
}

// writeStreams queues the writes of the call's streams.
func (c call) writeStreams(b *pgx.Batch) {
	for _, s := range c.Streams {
		store.AppendChunks(b, c.project, c.runID, s.Name, [][]byte{s.Data}, c.now)
		store.CloseStream(b, c.project, c.runID, s.Name, c.now)
	}
}
