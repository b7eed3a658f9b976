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
	// cachedRuns is how many runs are cached: those of the last appends.
	cachedRuns = 1024
	// cachedEntities is the most steps, and the most waits, that are cached of one run.
	cachedEntities = 64
	// cachedEvents and cachedBytes are the longest log that is cached whole, in events and in bytes from clients.
	cachedEvents = 128
	cachedBytes  = 16 << 10
	// cacheTTL is how long a run is cached after its last append. Within it, a rebuild of the run's rows, which leaves
	// the log as long as it is, goes unnoticed.
	cacheTTL = 5 * time.Second
)

// runCache keeps the runs that this process has just appended to, so that most appends need not read what it has just
// written. A cached run can be stale: whoever decides from it must write by a conditional statement, or check that the
// log is still as long. Losing the cache loses nothing.
type runCache struct {
	runs *lru.Cache[entities.RunID, *cachedRun]

	mu     sync.Mutex
	queues map[entities.RunID]*runQueue
}

// cachedRun is a run with some of its steps and waits. Only the goroutine that has entered the run may use it.
type cachedRun struct {
	*Snapshot
	// log is the run's whole log; nil when it is not known, or too large. Bytes is its size.
	log   []entities.Event
	bytes int
	at    time.Time
	// shared says that another process appends to the run too, so that the cache does not help for a while.
	shared bool
}

// runQueue lets one append of this process at a time through to a run. The others would wait for each other in Postgres,
// each with a connection of its own.
type runQueue struct {
	free chan struct{}
	// users counts the appends that are through or wait.
	users int
}

func newRunCache() *runCache {
	runs, err := lru.New[entities.RunID, *cachedRun](cachedRuns)
	if err != nil {
		panic(err) // the size is not positive
	}
	return &runCache{runs: runs, queues: map[entities.RunID]*runQueue{}}
}

// enter waits until no other append of this process is at the run. The caller must call leave.
func (c *runCache) enter(ctx context.Context, id entities.RunID) (leave func(), err error) {
	c.mu.Lock()
	queue, ok := c.queues[id]
	if !ok {
		queue = &runQueue{free: make(chan struct{}, 1)}
		c.queues[id] = queue
	}
	queue.users++
	c.mu.Unlock()
	done := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if queue.users--; queue.users == 0 {
			delete(c.queues, id)
		}
	}
	select {
	case queue.free <- struct{}{}:
		return func() { <-queue.free; done() }, nil
	case <-ctx.Done():
		done()
		return nil, ctx.Err()
	}
}

// facts returns all that the decision on requests about one run needs; false when something is not cached.
func (c *runCache) facts(project entities.Project, requests []Request, now time.Time) (facts, bool) {
	f := facts{Snapshot: NewSnapshot(project)}
	if n := len(requests); n == 0 || n > maxOptimistic {
		return facts{}, false
	}
	if len(requests) == 1 && requests[0].Type == entities.EventRunCreated {
		return f, true // most likely there is no such run yet; the statement checks it
	}
	run, ok := c.runs.Get(requests[0].RunID)
	if !ok || run.shared || run.Project != project || now.Sub(run.at) > cacheTTL {
		return facts{}, false
	}
	f.Run = run.Run
	var last Request
	for _, r := range requests {
		if !r.startsStepOf(last) && !run.addFacts(r, &f) {
			return facts{}, false
		}
		last = r
	}
	return f, true
}

// addFacts adds all that the decision on a request needs besides the run's row, and reports whether it is cached.
func (c *cachedRun) addFacts(r Request, f *facts) bool {
	switch r.Type {
	case entities.EventRunStarted:
		f.earlier = c.first(entities.EventRunStarted)
		return c.Run.StartedAt == nil || f.earlier != nil
	case entities.EventRunCompleted, entities.EventRunFailed, entities.EventRunCancelled:
		return true
	case entities.EventStepCreated, entities.EventStepStarted, entities.EventStepCompleted, entities.EventStepFailed,
		entities.EventStepRetrying:
		known := pick(c.Steps, f.Steps, entities.StepID(r.CorrelationID))
		return known || r.Type == entities.EventStepCreated || r.createsStep()
	case entities.EventWaitCreated, entities.EventWaitCompleted:
		known := pick(c.Waits, f.Waits, entities.WaitID(r.CorrelationID))
		return known || r.Type == entities.EventWaitCreated
	default: // needs more than the run and its rows
		return false
	}
}

// knows reports whether the entity that a request is about is cached, or certainly does not exist. The facts are enough
// to write without it, because the insertion fails if the entity exists, but not to explain a refusal.
func (c *runCache) knows(r Request) bool {
	run, ok := c.runs.Peek(r.RunID)
	if !ok || run.shared {
		return false
	}
	var known bool
	switch r.Type.Kind() {
	case entities.KindRun:
		known = true
	case entities.KindStep:
		_, known = run.Steps[entities.StepID(r.CorrelationID)]
	case entities.KindWait:
		_, known = run.Waits[entities.WaitID(r.CorrelationID)]
	}
	return known || run.log != nil && !slices.ContainsFunc(run.log, func(e entities.Event) bool {
		return e.CorrelationID == r.CorrelationID
	})
}

// first returns the first event of the type in the cached log, without its payload; nil when there is none.
func (c *cachedRun) first(t entities.EventType) *entities.Event {
	for _, e := range c.log {
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

// store caches a run as it is after an append. If another process has appended to it meanwhile, nothing is cached of it
// for a while.
func (c *runCache) store(d decision, now time.Time) {
	if d.after.Run == nil {
		return
	}
	id := d.after.Run.ID
	run, ok := c.runs.Peek(id)
	fresh := ok && now.Sub(run.at) <= cacheTTL
	switch {
	case fresh && run.shared:
		return
	case fresh && d.before.Run != nil && run.Run.LastSeq != d.before.Run.LastSeq:
		c.runs.Add(id, &cachedRun{at: now, shared: true})
		return
	case !ok || run.shared || d.before.Run == nil || run.Run.LastSeq != d.before.Run.LastSeq:
		run = &cachedRun{Snapshot: NewSnapshot(d.after.Project)}
	}
	run.Run, run.at = d.after.Run, now
	if d.endsRun() {
		clear(run.Waits)
	}
	addUpToLimit(run.Steps, d.after.Steps)
	addUpToLimit(run.Waits, d.after.Waits)
	run.appendLog(d)
	c.runs.Add(id, run)
}

// appendLog adds the appended events to the cached log, if that is complete. Payloads are copied, for they may be small
// parts of a large request.
func (c *cachedRun) appendLog(d decision) {
	if d.before.Run != nil && int64(len(c.log)) != d.before.Run.LastSeq || len(c.log)+len(d.events) > cachedEvents {
		c.log = nil
		return
	}
	for _, e := range d.events {
		c.bytes += len(e.Payload) + len(e.Extra)
	}
	if c.bytes > cachedBytes {
		c.log = nil
		return
	}
	for _, e := range d.events {
		e.Payload, e.Extra = slices.Clone(e.Payload), slices.Clone(e.Extra)
		c.log = append(c.log, e)
	}
}

// logWith is the run's log with the events of a decision; nil if what comes before is not cached.
func (c *runCache) logWith(d *decision) []entities.Event {
	if d.before.Run == nil {
		return d.events
	}
	if log := c.logOf(d.before.Run); log != nil {
		return slices.Concat(log, d.events)
	}
	return nil
}

// logOf is the log of a run, if the cached one is as long as the run says. It must not be changed.
func (c *runCache) logOf(run *entities.Run) []entities.Event {
	if run == nil {
		return nil
	}
	cached, ok := c.runs.Peek(run.ID)
	if !ok || int64(len(cached.log)) != run.LastSeq {
		return nil
	}
	return slices.Clip(cached.log)
}

// addUpToLimit adds items to those that are cached, and replaces those that are.
func addUpToLimit[K comparable, V any](to, items map[K]V) {
	for key, v := range items {
		if _, ok := to[key]; ok || len(to) < cachedEntities {
			to[key] = v
		}
	}
}

// evict forgets a run.
func (c *runCache) evict(id entities.RunID) { c.runs.Remove(id) }
