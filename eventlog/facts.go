package eventlog

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

// facts are the input of a decision: read under the run's lock, or taken from the cache.
type facts struct {
	*Snapshot
	// log is the run's whole log if it is cached, else nil.
	log []entities.Event
	// history has what the log says of the correlation IDs of the requests; nil if that does not matter.
	history history
	// holders maps the tokens that the requests ask for to the hooks that have them, including expired hooks.
	holders map[string]*entities.Hook
	// earlier is the event that the request may repeat: the run's run_started, or the last cancel_requested if the request
	// ends the run as it was asked to. It is nil if the log has none.
	earlier *entities.Event
	// received has the hook_received in the log with the resume IDs of the requests.
	received map[string]*receipt
	// marked has the events in the log with the marks of the requests, by [Request.markKey].
	marked map[string]*receipt
	// victims are the runs whose hooks have the tokens that requests may take over, as the decision leaves them.
	victims map[entities.RunID]*decision
	// locked has the runs that were locked for takeovers.
	locked map[entities.RunID]bool
	// onEnd has the triggers that wait for the end of the run, if a request ends it. Those of the cache are none: the
	// conditional statement requires it.
	onEnd []trigger.OnEnd
	// moved is what the run that a request continues as takes over.
	moved moved
	// waits is set if the run waits for slots of limits, which is read only for its start.
	waits bool
	// gate decides about the limits of the runs that the requests create, and stepGate about those of the steps. They are
	// nil if no limit does, and in the facts of the cache: there, conditions of the statement stand for them.
	gate     *admission
	stepGate *stepGate
	// admitted is set if the requests have passed the fence together.
	admitted bool
	// missed is set if the answer's function must see an event that arrived during its invocation.
	missed bool
}

// mayHave reports whether the run may have entities of a kind after further events: only the whole log says that it has
// none.
func (f facts) mayHave(kind string, events []entities.Event) bool {
	ofKind := func(e entities.Event) bool { return e.Type.Kind() == kind }
	return f.log == nil || slices.ContainsFunc(f.log, ofKind) || slices.ContainsFunc(events, ofKind)
}

// receipt is an event that a request may repeat: a hook_received with a resume ID, or an event with a mark. The event
// is nil if the log has none.
type receipt struct{ event *entities.Event }

// earlierOf returns the event that the request may repeat, or nil.
func (f facts) earlierOf(r *Request) *entities.Event {
	if found := f.markedBy(r); found != nil {
		return found
	}
	if r.Type != entities.EventHookReceived {
		return f.earlier
	}
	if found := f.received[r.Data.ResumeID]; found != nil {
		return found.event
	}
	return nil
}

// markedBy returns the event in the log that has the request's mark, or nil. Another project's run has none.
func (f facts) markedBy(r *Request) *entities.Event {
	if found := f.marked[r.markKey()]; f.Run != nil && r.isMarked() && found != nil {
		return found.event
	}
	return nil
}

// lockAndRead queues the lock on the run and the reads of all facts that the call needs.
func lockAndRead(b *pgx.Batch, c call) *facts {
	project, runID, requests := c.project, c.runID, c.requests
	f := &facts{
		Snapshot: NewSnapshot(project), history: history{}, holders: map[string]*entities.Hook{},
		received: map[string]*receipt{}, marked: map[string]*receipt{}, locked: map[entities.RunID]bool{},
	}
	steps, waits := c.Await.items()
	c.lockHolders(b, f.locked)
	store.LockRun(b, project, runID, &f.Run)
	for i := range requests {
		r := &requests[i]
		switch r.Type.Kind() {
		case entities.KindStep:
			steps = append(steps, entities.StepID(r.CorrelationID))
		case entities.KindWait:
			waits = append(waits, entities.WaitID(r.CorrelationID))
		case entities.KindHook:
			store.LoadHook(b, runID, entities.HookID(r.CorrelationID), f.Hooks)
		}
		if r.Type == entities.EventStoreSet && f.Store == nil {
			f.Store = map[string]kv.Value{}
			store.LoadSizes(b, runID, f.Store)
		}
	}
	c.Await.loadMissed(b, runID, &f.missed)
	if len(steps) > 0 {
		store.LoadSteps(b, runID, steps, f.Steps)
	}
	if len(waits) > 0 {
		store.LoadWaits(b, runID, waits, f.Waits)
	}
	for _, r := range byToken(requests) {
		f.loadFromLog(b, project, r)
	}
	if anyOf(requests, (*Request).endsRun) {
		trigger.LoadOnEnd(b, project, runID, &f.onEnd)
	}
	return f
}

// readMore reads, in the transaction that holds the lock on the run, the facts that depend on those which were read
// with the lock. It completes the requests by them.
func (l *Log) readMore(ctx context.Context, tx pgx.Tx, c *call, f *facts) (err error) {
	if f.gate, err = l.openGate(ctx, tx, c, f); err != nil {
		return err
	}
	if f.stepGate, err = c.openStepGate(ctx, tx, f); err != nil {
		return err
	}
	return c.readVictims(ctx, tx, f)
}

// byToken returns the requests ordered by token: transactions that lock several tokens must take them in one order.
func byToken(requests []Request) []*Request {
	list := make([]*Request, len(requests))
	for i := range requests {
		list[i] = &requests[i]
	}
	slices.SortStableFunc(list, func(a, b *Request) int { return cmp.Compare(a.Data.Token, b.Data.Token) })
	return list
}

// loadMarked queues the read of the event that has the request's mark.
func (f *facts) loadMarked(b *pgx.Batch, r *Request) {
	earlier := &receipt{}
	f.marked[r.markKey()] = earlier
	where := `run_id = $1 AND correlation_id = $2`
	if r.CorrelationID != "" {
		where = ofEntity
	}
	read.LoadEvent(b, &earlier.event, where+` AND (
		`+store.OfType+` = $3 AND position($4::bytea IN extra) > 0
			OR `+store.OfType+` = 'hook_conflict' AND $3 = 'hook_created')
		ORDER BY `+store.BySeq+` LIMIT 1`, r.RunID, r.CorrelationID, r.Type, r.Mark)
}

// loadFromLog queues reads of facts that the run's rows do not have: from the log, and about hook tokens.
func (f *facts) loadFromLog(b *pgx.Batch, project entities.Project, r *Request) {
	if r.isMarked() {
		f.loadMarked(b, r)
	}
	f.loadForEnd(b, r)
	if r.needsHistory() {
		f.history.load(b, r.RunID, r.CorrelationID)
	}
	switch r.Type {
	case entities.EventRunCreated:
		for _, token := range r.keptTokens() {
			store.LockToken(b, project, token, f.holders)
		}
	case entities.EventHookCreated:
		if !r.FreshToken {
			store.LockToken(b, project, r.Data.Token, f.holders)
		}
	case entities.EventRunStarted:
		// The event is near the beginning of the log, so the scan is short.
		read.LoadEvent(b, &f.earlier, `run_id = $1 AND type = 'run_started' ORDER BY seq LIMIT 1`, r.RunID)
	case entities.EventHookReceived:
		if r.Data.ResumeID != "" {
			earlier := &receipt{}
			f.received[r.Data.ResumeID] = earlier
			read.LoadEvent(b, &earlier.event, `
				run_id = $1 AND type = 'hook_received' AND (data ->> 'resumeId') COLLATE "C" = $2`,
				r.RunID, r.Data.ResumeID)
		}
	default: // the run's rows are enough
	}
}

// loadForEnd queues reads of what the end of a run depends on, if others have asked for it, or another run goes on.
func (f *facts) loadForEnd(b *pgx.Batch, r *Request) {
	if r.Continue != nil {
		f.moved.load(b, r)
	}
	if r.AsAsked || r.Continue != nil { // the event is near the end of the log, since the run ends soon after it
		read.LoadEvent(b, &f.earlier, `run_id = $1 AND type = 'cancel_requested' ORDER BY seq DESC LIMIT 1`, r.RunID)
	}
}

// ofEntity is the condition for the events of the run $1 that have the correlation ID $2.
const ofEntity = `correlation_id = $2 AND correlation_id <> '' AND run_id = $1`

// isStoreCommand reports whether the request is a command that writes to the store. A step that writes with its result
// is named; its own status tells whether it has one.
func (r *Request) isStoreCommand() bool {
	return r.Type == entities.EventStoreSet && r.Data.StepName == ""
}
