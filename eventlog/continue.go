package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/inbox"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/starts/schedule"
)

// Continuation says as which run another one goes on. One transaction ends the run and begins the next, which takes
// over its key, attributes, store, deadline, slots of limits and place in the tree, its inboxes with the messages that
// it has not read, and its parent's step. All else ends as at any end of a run.
type Continuation struct {
	// Next is the run_created: its ID, input and deployment.
	Next Request
	// Read has for hooks of inboxes the position of the last message that the run has read; 0 for none.
	Read map[entities.HookID]int64
}

// The bounds of what a run takes over, which is written in one transaction.
const (
	// MaxMoved is how many unread messages there may be.
	MaxMoved = 10_000
	// MaxMovedBytes is how many bytes their payloads may have.
	MaxMovedBytes = 16 << 20
)

// ErrTooMuchUnread means that a run cannot continue as another one because that would take over too many messages.
var ErrTooMuchUnread = errors.New("too many unread messages")

// moved is what a run takes over from the one that it continues, as far as that is in the log only.
type moved struct {
	// created is the run_created, and inboxes are the hook_created of the inboxes that are open, in order.
	created *entities.Event
	inboxes []entities.Event
	// unread are the hook_received with messages that the run has neither read nor answered, in order: the first ones, up
	// to the limits.
	// Of all there are count.
	unread []entities.Event
	count  int
	store  map[string]json.RawMessage
}

// load queues the reads.
func (m *moved) load(b *pgx.Batch, r *Request) {
	*m = moved{store: map[string]json.RawMessage{}}
	read.LoadEvent(b, &m.created, `run_id = $1 AND seq = 1`, r.RunID)
	const columns = read.EventColumns + `, payload`
	pg.LoadEach(b, func(e entities.Event) { m.inboxes = append(m.inboxes, e) }, `
		SELECT `+columns+` FROM events WHERE run_id = $1 AND seq IN (
			SELECT created_seq FROM hooks WHERE run_id = $1 AND starts_with(id, $2)) ORDER BY seq`,
		r.RunID, inbox.HookID(""))
	// The step of an answer has the ID that inbox.ReplyID returns.
	const unread = `
		SELECT seq, sum(octet_length(payload)) OVER (ORDER BY seq) AS bytes FROM events e
		WHERE run_id = $1 AND type = 'hook_received' AND seq > coalesce(($2::jsonb ->> correlation_id)::bigint, 0)
			AND EXISTS (SELECT FROM hooks h WHERE h.run_id = $1 AND h.id = e.correlation_id AND starts_with(h.id, $3))
			AND NOT EXISTS (SELECT FROM events a WHERE a.run_id = $1 AND a.correlation_id <> ''
				AND a.correlation_id =
					'reply:' || left(encode(sha256(convert_to(e.data ->> 'resumeId', 'UTF8')), 'hex'), 32))`
	pg.LoadEach(b, func(n struct{ Count int }) { m.count = n.Count },
		`SELECT count(*) FROM (`+unread+`) AS unread`, r.RunID, r.Continue.Read, inbox.HookID(""))
	pg.LoadEach(b, func(e entities.Event) { m.unread = append(m.unread, e) }, `
		SELECT `+columns+` FROM events WHERE run_id = $1 AND seq = ANY (ARRAY (
			SELECT seq FROM (`+unread+`) AS unread WHERE bytes <= $4 ORDER BY seq LIMIT $5)) ORDER BY seq`,
		r.RunID, r.Continue.Read, inbox.HookID(""), MaxMovedBytes, MaxMoved)
	store.LoadValues(b, r.RunID, func(v store.RunValue) { m.store[v.Key] = json.RawMessage(v.Value) })
}

// follow adds what the same answer has changed: the reads were before it.
func (m *moved) follow(events []entities.Event) {
	for _, e := range events {
		about := func(other entities.Event) bool { return other.CorrelationID == e.CorrelationID }
		switch {
		case e.Type == entities.EventHookCreated && strings.HasPrefix(e.CorrelationID, string(inbox.HookID(""))):
			m.inboxes = append(m.inboxes, e)
		case e.Type == entities.EventHookDisposed:
			m.inboxes, m.unread = slices.DeleteFunc(m.inboxes, about), slices.DeleteFunc(m.unread, about)
		case e.Type == entities.EventStepCreated && e.Data.StepName == inbox.Reply:
			m.unread = slices.DeleteFunc(m.unread, func(other entities.Event) bool {
				return string(inbox.ReplyID(other.Data.ResumeID)) == e.CorrelationID
			})
		case e.Type == entities.EventStoreSet:
			values, _ := kv.Decode(e.Payload) // it was checked when the event was decided
			for key, value := range values {
				if m.store[key] = value; string(value) == "null" {
					delete(m.store, key)
				}
			}
		}
	}
}

// continueAs decides on the run that goes on when the run has ended.
func (d *decision) continueAs(f facts, r *Request, now time.Time) error {
	for id, seq := range r.Continue.Read {
		if _, ok := inbox.Name(id); !ok || seq < 0 || seq > d.before.Run.LastSeq {
			return entities.Invalid("read: %s at %d is no message of an inbox: the log has %d events",
				id, seq, d.before.Run.LastSeq)
		}
	}
	if n := len(f.moved.unread); n < f.moved.count {
		return fmt.Errorf("%w: %d, of which %d fit; a run takes over at most %d with %d MiB: "+
			"read more of them before the run continues", ErrTooMuchUnread, f.moved.count, n, MaxMoved, MaxMovedBytes>>20)
	}
	f.moved.follow(d.events)
	requests, err := f.moved.requests(d.after, *r.Continue)
	if err != nil {
		return err
	}
	next := decideAll(facts{Snapshot: NewSnapshot(f.Project)}, requests, f.eventTime(now))
	if i := slices.IndexFunc(next.outcomes, Outcome.refused); i >= 0 {
		return next.outcomes[i].Err
	}
	d.next, d.messages = &next, append(d.messages, next.messages...)
	return nil
}

// requests returns the requests that begin the next run. Last is the run as it has ended.
func (m moved) requests(last *Snapshot, c Continuation) ([]Request, error) {
	run, first := last.Run, m.created.Data
	created := c.Next
	data := &created.Data
	if len(run.Attributes) > 0 {
		data.Attributes, data.AllowReserved = maps.Clone(run.Attributes), true
	}
	data.UniqueKey, data.ContinuedFrom = run.UniqueKey, run.ID
	data.ParentID, data.ParentStep, data.Detached = run.ParentID, run.ParentStep, run.Detached
	data.RootID, data.Depth = run.RootID, run.Depth
	data.Deadline, data.TimeoutGraceMS = run.Deadline, first.TimeoutGraceMS
	data.Limits, data.StepLimits, data.PriorityMS = run.Limits, run.StepLimits, first.PriorityMS
	requests := []Request{created}
	for _, e := range slices.Concat(m.inboxes, m.unread) {
		requests = append(requests, Request{
			RunID: created.RunID, Type: e.Type, CorrelationID: e.CorrelationID, SpecVersion: e.SpecVersion,
			Data: e.Data, Payload: e.Payload, FreshToken: true,
		})
	}
	if len(m.store) == 0 {
		return requests, nil
	}
	values, err := kv.Encode(m.store)
	// The ID is none that a command of the function has by chance.
	return append(requests, Request{
		RunID: created.RunID, Type: entities.EventStoreSet, CorrelationID: string(run.ID), SpecVersion: entities.SpecDriven,
		Payload: values,
	}), err
}

// Send appends a message to an inbox: a hook_received. If the run has continued as others, it goes to the last of
// these, unless one of them has received it already. It fails as [Log.Append] does.
func (l *Log) Send(ctx context.Context, project entities.Project, r Request) (Result, error) {
	for {
		result, err := l.Append(ctx, project, r)
		if !errors.Is(err, entities.ErrHookNotFound) {
			return result, err
		}
		id, failed := store.InChain(ctx, pg.NewPool(l.pool), project, r.RunID, r.Data.ResumeID)
		if failed != nil || id == r.RunID {
			return result, err
		}
		r.RunID = id
	}
}

// queueNext queues the writes of the run that goes on. They come after those of the run that has ended, which free its
// key, tokens and slots.
func (d *decision) queueNext(b *pgx.Batch) {
	if d.next == nil {
		return
	}
	d.next.queueAlone(b)
	run := d.next.after.Run
	if len(run.Limits) > 0 {
		limit.PassOn(b, run.ContinuedFrom, run.ID)
	}
	if name := run.Attributes[schedule.AttributeName]; name != "" {
		schedule.PassOn(b, run.Project, name, run.ContinuedFrom, run.ID)
	}
}
