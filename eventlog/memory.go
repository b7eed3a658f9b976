package eventlog

import (
	"context"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/stepwell-dev/stepwell/entities"
)

const (
	// rememberedRuns is how many runs are remembered: those of the last appends.
	rememberedRuns = 1024
	// rememberedEntities is how many steps and waits of one run are remembered at most.
	rememberedEntities = 64
	// rememberedEvents and rememberedBytes are how long a log may be, and how much clients have put into it, to be
	// remembered.
	rememberedEvents = 128
	rememberedBytes  = 16 << 10
	// rememberedFor is how long a run is remembered since its last append. For as long it is not seen that rows were
	// rebuilt from a log that has not grown.
	rememberedFor = 5 * time.Second
)

// memory is what a process believes of runs, because it was the last to append to them as far as it knows. A belief is
// worth nothing by itself: who decides from it has to write by an [entities.Chain], or to look whether it is right. It
// is bounded, and spares most appends the transaction in which they would read what this process has just written.
type memory struct {
	runs *lru.Cache[entities.RunID, *belief]

	mu    sync.Mutex
	turns map[entities.RunID]*turnstile
}

// belief is a run with some of its steps and waits. It is for whoever has the turn at the run.
type belief struct {
	*Snapshot
	// log is the run's, from its beginning to its end; nil when that is not known, or too large. Bytes is its size.
	log   []entities.Event
	bytes int
	at    time.Time
	// shared says that another process was found to append to the run, so that nothing is believed of it for a while.
	shared bool
}

// turnstile lets one append of this process at a time through to a run. Those behind it would wait for each other in
// Postgres otherwise, each with a connection of its own.
type turnstile struct {
	free chan struct{}
	// users are those who are through or wait.
	users int
}

func newMemory() *memory {
	runs, err := lru.New[entities.RunID, *belief](rememberedRuns)
	if err != nil {
		panic(err) // of a size that is not positive
	}
	return &memory{runs: runs, turns: map[entities.RunID]*turnstile{}}
}

// enter waits for the turn to append to a run. Whoever has it must leave.
func (m *memory) enter(ctx context.Context, id entities.RunID) (leave func(), err error) {
	m.mu.Lock()
	turn, ok := m.turns[id]
	if !ok {
		turn = &turnstile{free: make(chan struct{}, 1)}
		m.turns[id] = turn
	}
	turn.users++
	m.mu.Unlock()
	gone := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if turn.users--; turn.users == 0 {
			delete(m.turns, id)
		}
	}
	select {
	case turn.free <- struct{}{}:
		return func() { <-turn.free; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, ctx.Err()
	}
}

// recall is what is believed of all that the decision on requests about one run needs; false when something is missing.
func (m *memory) recall(project entities.Project, requests []Request, now time.Time) (facts, bool) {
	f := facts{Snapshot: NewSnapshot(project)}
	if n := len(requests); n == 0 || n > believedRequests {
		return facts{}, false
	}
	if len(requests) == 1 && requests[0].Type == entities.EventRunCreated {
		return f, true // there is no such run yet, if it is right to ask for it
	}
	b, ok := m.runs.Get(requests[0].RunID)
	if !ok || b.shared || b.Project != project || now.Sub(b.at) > rememberedFor {
		return facts{}, false
	}
	f.Run = b.Run
	var last Request
	for _, r := range requests {
		if !r.claims(last) && !b.recall(r, &f) {
			return facts{}, false
		}
		last = r
	}
	return f, true
}

// recall adds to the facts what is believed of all that the decision on a request needs besides the run's row, and
// reports whether nothing is missing.
func (b *belief) recall(r Request, f *facts) bool {
	switch r.Type {
	case entities.EventRunStarted:
		f.earlier = b.first(entities.EventRunStarted)
		return b.Run.StartedAt == nil || f.earlier != nil
	case entities.EventRunCompleted, entities.EventRunFailed, entities.EventRunCancelled:
		return true
	case entities.EventStepCreated, entities.EventStepStarted, entities.EventStepCompleted, entities.EventStepFailed,
		entities.EventStepRetrying:
		known := pick(b.Steps, f.Steps, entities.StepID(r.CorrelationID))
		return known || r.Type == entities.EventStepCreated || r.createsStep()
	case entities.EventWaitCreated, entities.EventWaitCompleted:
		known := pick(b.Waits, f.Waits, entities.WaitID(r.CorrelationID))
		return known || r.Type == entities.EventWaitCreated
	default: // more is needed than the run and its rows
		return false
	}
}

// knows reports whether the entity that a request is about is remembered, or surely not there. What is recalled of
// others is enough to write, for the write looks whether they are there, but not to say why it cannot be.
func (m *memory) knows(r Request) bool {
	b, ok := m.runs.Peek(r.RunID)
	if !ok || b.shared {
		return false
	}
	var known bool
	switch entities.KindOf(r.Type) {
	case entities.KindRun:
		known = true
	case entities.KindStep:
		_, known = b.Steps[entities.StepID(r.CorrelationID)]
	case entities.KindWait:
		_, known = b.Waits[entities.WaitID(r.CorrelationID)]
	}
	return known || b.log != nil && !slices.ContainsFunc(b.log, func(e entities.Event) bool {
		return e.CorrelationID == r.CorrelationID
	})
}

// first is the first event of the type in the log that is remembered, without its payload; nil when there is none.
func (b *belief) first(t entities.EventType) *entities.Event {
	for _, e := range b.log {
		if e.Type == t {
			e.Payload = nil
			return &e
		}
	}
	return nil
}

// pick copies an item from one map to another, and reports whether there is one.
func pick[K comparable, V any](from, to map[K]V, key K) bool {
	v, ok := from[key]
	if ok {
		to[key] = v
	}
	return ok
}

// keep remembers a run as it is after an append. If somebody else has appended since this process did, nothing is
// believed of it for a while.
func (m *memory) keep(j judgement, now time.Time) {
	if j.after.Run == nil {
		return
	}
	id := j.after.Run.ID
	b, ok := m.runs.Peek(id)
	fresh := ok && now.Sub(b.at) <= rememberedFor
	switch {
	case fresh && b.shared:
		return
	case fresh && j.before.Run != nil && b.Run.LastSeq != j.before.Run.LastSeq:
		m.runs.Add(id, &belief{at: now, shared: true})
		return
	case !ok || b.shared || j.before.Run == nil || b.Run.LastSeq != j.before.Run.LastSeq:
		b = &belief{Snapshot: NewSnapshot(j.after.Project)}
	}
	b.Run, b.at = j.after.Run, now
	if j.endsRun() {
		clear(b.Waits)
	}
	add(b.Steps, j.after.Steps)
	add(b.Waits, j.after.Waits)
	b.grow(j)
	m.runs.Add(id, b)
}

// grow adds what was appended to the log that is remembered, if all that came before is. What clients have sent is
// copied, for it may be a small part of a large request.
func (b *belief) grow(j judgement) {
	if j.before.Run != nil && int64(len(b.log)) != j.before.Run.LastSeq || len(b.log)+len(j.events) > rememberedEvents {
		b.log = nil
		return
	}
	for _, e := range j.events {
		b.bytes += len(e.Payload) + len(e.Extra)
	}
	if b.bytes > rememberedBytes {
		b.log = nil
		return
	}
	for _, e := range j.events {
		e.Payload, e.Extra = slices.Clone(e.Payload), slices.Clone(e.Extra)
		b.log = append(b.log, e)
	}
}

// logWith is the log of a run with what is decided under its lock; nil if what comes before is not remembered.
func (m *memory) logWith(j *judgement) []entities.Event {
	if j.before.Run == nil {
		return j.events
	}
	if log := m.logOf(j.before.Run); log != nil {
		return slices.Concat(log, j.events)
	}
	return nil
}

// logOf is the log of a run that is as long as the run says, if it is remembered. Nobody changes what is in it.
func (m *memory) logOf(run *entities.Run) []entities.Event {
	if run == nil {
		return nil
	}
	b, ok := m.runs.Peek(run.ID)
	if !ok || int64(len(b.log)) != run.LastSeq {
		return nil
	}
	return slices.Clip(b.log)
}

// add adds items to those that are remembered, as far as there is room.
func add[K comparable, V any](to, items map[K]V) {
	for key, v := range items {
		if _, ok := to[key]; ok || len(to) < rememberedEntities {
			to[key] = v
		}
	}
}

// forget believes nothing of a run any more.
func (m *memory) forget(id entities.RunID) { m.runs.Remove(id) }
