package eventlog

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/cache"
	"github.com/stepwell-dev/stepwell/entities/kv"
)

const (
	// cacheMemory is how many bytes of memory the cached runs take at most, about: those appended to last. It is enough
	// for some ten thousand small runs, so that a load does not outgrow the cache before it outgrows the server.
	cacheMemory = 64 << 20
	// cachedEntities is the most steps, and also the most waits, that are cached of one run. More are open at once only
	// in wide maps.
	cachedEntities = 256
	// cachedEvents and cachedBytes limit the logs that are cached: in events, and in bytes of payloads and extra data.
	cachedEvents = 128
	cachedBytes  = 16 << 10
	// roomInLog is for how many further events a log that grows takes memory: those of two steps.
	roomInLog = 6
	// cacheTTL is how long a run stays cached after its last append. It bounds how long a rebuild of the run's rows
	// goes unnoticed, which does not change the length of the log.
	cacheTTL = 5 * time.Second
)

// runCache keeps the runs that this process appended to last, so that most appends need not read what the process has
// just written. A cached run can be stale: a decision made from it must be written by a conditional statement, or
// checked against the length of the log. Losing the cache loses nothing.
type runCache struct {
	runs *cache.Cache[entities.RunID, *cachedRun]

	mu     sync.Mutex
	queues map[entities.RunID]*runQueue
}

// cachedRun is a run with some of its steps and waits. Only the goroutine that has acquired the run may use it.
type cachedRun struct {
	*Snapshot
	// log is the run's whole log; nil if it is unknown or too large. Bytes is its size.
	log   []entities.Event
	bytes int
	// at is the time of the last append.
	at time.Time
	// shared is set if another process has appended to the run too: then it is not cached until the TTL is over.
	shared bool
}

// The memory that parts of a cached run take besides their payloads, in bytes, estimated from the sizes of their types.
const (
	runMemory    = 2048
	eventMemory  = 448
	entityMemory = 320
)

// memory returns how many bytes of memory the run takes, about.
func (c *cachedRun) memory() int {
	n := runMemory
	if c.log != nil {
		n += eventMemory*len(c.log) + c.bytes
	}
	if c.Snapshot != nil {
		n += entityMemory * (len(c.Steps) + len(c.Waits) + len(c.Store))
	}
	return n
}

// newRuns returns a cache of as many runs as fit into the limit of memory.
func newRuns(limit int) *cache.Cache[entities.RunID, *cachedRun] {
	return cache.New(limit/runMemory, limit, func(_ entities.RunID, run *cachedRun) int { return run.memory() })
}

// runQueue serializes the appends of this process to a run. In Postgres they would wait for each other too, but each
// with a connection of its own.
type runQueue struct {
	// slot holds one element while an append is at the run.
	slot chan struct{}
	// users counts the appends that are at the run or wait for it.
	users int
	// joined are those that wait for it and may be carried out together.
	joined []*joined
}

func newRunCache() *runCache {
	return &runCache{runs: newRuns(cacheMemory), queues: map[entities.RunID]*runQueue{}}
}

// acquire waits until no other append of this process is at the run. The caller must call release.
func (c *runCache) acquire(ctx context.Context, id entities.RunID) (release func(), err error) {
	queue, leave := c.enter(id, nil)
	select {
	case queue.slot <- struct{}{}:
		return func() { <-queue.slot; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// enter adds an append to those of the run, which may be one that can be carried out together with others.
func (c *runCache) enter(id entities.RunID, j *joined) (queue *runQueue, leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	queue, ok := c.queues[id]
	if !ok {
		queue = &runQueue{slot: make(chan struct{}, 1)}
		c.queues[id] = queue
	}
	queue.users++
	if j != nil {
		queue.joined = append(queue.joined, j)
	}
	return queue, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if queue.users--; queue.users == 0 {
			delete(c.queues, id)
		}
	}
}

// join is acquire for a call that another one may take along. Then release is nil.
func (c *runCache) join(ctx context.Context, j *joined) (release func(), err error) {
	queue, leave := c.enter(j.runID, j)
	select {
	case queue.slot <- struct{}{}:
		if c.withdraw(queue, j) {
			return func() { <-queue.slot; leave() }, nil
		}
		<-queue.slot
	case <-j.done:
	case <-ctx.Done():
		if c.withdraw(queue, j) {
			leave()
			return nil, ctx.Err()
		}
	}
	<-j.done
	leave()
	return nil, nil
}

// withdraw removes a call from those that may be taken along. It reports false if one has.
func (c *runCache) withdraw(queue *runQueue, j *joined) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(queue.joined, j)
	if i >= 0 {
		queue.joined = slices.Delete(queue.joined, i, i+1)
	}
	return i >= 0
}

// takeAlong takes the calls that can be carried out together with one that has acquired the run.
func (c *runCache) takeAlong(first *joined) (taken []*joined) {
	c.mu.Lock()
	defer c.mu.Unlock()
	queue, bytes := c.queues[first.runID], 0
	queue.joined = slices.DeleteFunc(queue.joined, func(j *joined) bool {
		if len(taken) == maxTogether-1 || bytes >= togetherBytes || !first.fits(j.call) {
			return false
		}
		taken = append(taken, j)
		bytes += len(j.requests[0].Payload)
		return true
	})
	return taken
}

// facts returns all facts that a decision on requests about one run needs. It reports false if one is not cached.
func (c *runCache) facts(project entities.Project, requests []Request, now time.Time) (facts, bool) {
	f := facts{Snapshot: NewSnapshot(project)}
	n := len(requests)
	if n == 0 || n >= longCall || countWrites(requests) > maxOptimistic ||
		anyOf(requests, (*Request).isMarked) {
		return facts{}, false
	}
	if startsAlone(requests) {
		f.received = map[string]*receipt{}
		return f, true // most likely the run does not exist yet; the statement checks that
	}
	run := c.fresh(project, requests[0].RunID, now)
	if run == nil {
		return facts{}, false
	}
	f.Run = run.Run
	if int64(len(run.log)) == run.Run.LastSeq {
		f.log = run.log
	}
	ends := anyOf(requests, (*Request).endsRun)
	last := &Request{}
	for i := range requests {
		r := &requests[i]
		if !r.continuesStepOf(last) && !run.addFacts(r, &f) {
			return facts{}, false
		}
		if _, known := f.Waits[entities.WaitID(r.CorrelationID)]; ends && !known && r.Type == entities.EventWaitCreated {
			return facts{}, false // the end of the run deletes its waits: a second wait with the ID would not be noticed
		}
		if r.Type != entities.EventStoreSet { // what a step writes comes between its creation and its result
			last = r
		}
	}
	return f, true
}

// countWrites counts the requests by the writes of a statement, which writes all steps together.
func countWrites(requests []Request) (n int) {
	steps := 0
	for i := range requests {
		r := &requests[i]
		if r.Type.Kind() == entities.KindStep {
			steps = 1
		} else {
			n++
		}
	}
	return n + steps
}

// fresh returns a run of the project as of the last append of this process, or nil if it is not cached.
func (c *runCache) fresh(project entities.Project, id entities.RunID, now time.Time) *cachedRun {
	run, ok := c.runs.Get(id)
	if !ok || run.shared || run.Project != project || now.Sub(run.at) > cacheTTL {
		return nil
	}
	return run
}

// startsAlone reports whether the requests create a run and need no facts but that it does not exist: it starts with
// inboxes and their first messages at most.
func startsAlone(requests []Request) bool {
	for i := range requests[1:] {
		r := &requests[i+1]
		if r.Type != entities.EventHookReceived && !r.FreshToken {
			return false
		}
	}
	return requests[0].Type == entities.EventRunCreated && len(requests[0].Kept) == 0
}

// addFacts adds the facts that the decision on a request needs besides the run's row. It reports whether all are
// cached.
func (c *cachedRun) addFacts(r *Request, f *facts) bool {
	switch r.Type {
	case entities.EventRunStarted:
		f.earlier = c.first(entities.EventRunStarted)
		return c.Run.StartedAt == nil || f.earlier != nil
	case entities.EventRunCompleted, entities.EventRunFailed, entities.EventRunCancelled:
		return !r.AsAsked && r.Continue == nil
	case entities.EventStepCreated, entities.EventStepStarted, entities.EventStepCompleted, entities.EventStepFailed,
		entities.EventStepRetrying:
		return c.addStep(r, f)
	case entities.EventWaitCreated, entities.EventWaitCompleted, entities.EventWaitCancelled:
		known := copyValue(c.Waits, f.Waits, entities.WaitID(r.CorrelationID))
		return known || r.Type == entities.EventWaitCreated
	case entities.EventStoreSet:
		f.Store = c.Store
		return (c.Run.StoreSeq == 0 || c.Store != nil) && (!r.isStoreCommand() || c.addHistory(r.CorrelationID, f))
	case entities.EventHookReceived:
		return c.addResumption(r, f)
	default: // needs more than the rows of the run, its steps and waits
		return false
	}
}

// addStep adds the step of a request. It reports whether that is cached, or new.
func (c *cachedRun) addStep(r *Request, f *facts) bool {
	if r.Data.Cancelled {
		return false // the log knows whether the step is a child run
	}
	known := copyValue(c.Steps, f.Steps, entities.StepID(r.CorrelationID))
	return known || r.Type == entities.EventStepCreated || r.createsStep()
}

// addResumption adds the facts about the hook that a request resumes. It reports whether the log is cached. The hooks
// of a run that has not ended are the fold of its log.
func (c *cachedRun) addResumption(r *Request, f *facts) bool {
	if c.log == nil || int64(len(c.log)) != c.Run.LastSeq || c.Run.Status.Ended() {
		return false
	}
	if f.received == nil {
		f.received = map[string]*receipt{}
	}
	for i := range c.log {
		e := &c.log[i]
		if e.Type == entities.EventHookReceived && e.Data.ResumeID != "" && e.Data.ResumeID == r.Data.ResumeID {
			return false // a repetition, whose outcome is that of the lock
		}
		if e.CorrelationID == r.CorrelationID {
			f.applyToHook(e)
		}
	}
	return c.addHistory(r.CorrelationID, f)
}

// addHistory adds the history of a correlation ID. It reports whether the log is cached.
func (c *cachedRun) addHistory(id string, f *facts) bool {
	if f.history == nil {
		f.history = history{}
	}
	for _, e := range c.log {
		if e.CorrelationID == id {
			f.history.note(&e)
		}
	}
	return c.log != nil
}

// knowsEntity reports whether the entity that a request is about is cached, or is known not to exist. Without that, the
// creation of an entity can be written, because the insertion fails if the entity exists; but it cannot be refused, for
// the reason is unknown.
func (c *runCache) knowsEntity(r *Request) bool {
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

// first returns the first event of the type in the cached log, without its payload, or nil.
func (c *cachedRun) first(t entities.EventType) *entities.Event {
	for _, e := range c.log {
		if e.Type == t {
			e.Payload = nil
			return &e
		}
	}
	return nil
}

// copyValue copies the key's value from one map to another, if there is one, and reports whether there is.
func copyValue[K comparable, V any](from, to map[K]V, key K) bool {
	v, ok := from[key]
	if ok {
		to[key] = v
	}
	return ok
}

// store caches a run as it is after an append. If another process has appended to it since the last one, the run is
// marked as shared instead.
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
		c.put(id, &cachedRun{at: now, shared: true})
		return
	case !ok || run.shared || d.before.Run == nil || run.Run.LastSeq != d.before.Run.LastSeq:
		run = &cachedRun{Snapshot: NewSnapshot(d.after.Project)}
	}
	run.Run, run.at = d.after.Run, now
	if d.endsRun() {
		clear(run.Waits)
	}
	if d.after.Store != nil {
		run.Store = kv.WithoutJSON(d.after.Store)
	}
	addUpToLimit(run.Steps, d.after.Steps, stepEnded)
	addUpToLimit(run.Waits, d.after.Waits, waitEnded)
	run.appendLog(d)
	c.put(id, run)
}

// put keeps a run as of its last append. The cache shrinks with the load: the runs that have expired go.
func (c *runCache) put(id entities.RunID, run *cachedRun) {
	c.runs.PutAt(id, run, run.at, run.at.Add(-cacheTTL))
}

// appendLog adds the appended events to the cached log, or drops the log if it is incomplete or too large. Payloads are
// copied, because they may be small parts of a large request, which would stay in memory.
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
	if n := len(c.log) + len(d.events); n > cap(c.log) { // events are large: room for a few more, unless the run has ended
		if !d.endsRun() {
			n += roomInLog
		}
		c.log = append(make([]entities.Event, 0, n), c.log...)
	}
	for _, e := range d.events {
		e.Payload, e.Extra = slices.Clone(e.Payload), slices.Clone(e.Extra)
		c.log = append(c.log, e)
	}
}

// logWith returns the run's log including the events of a decision, or nil if the log before them is not cached.
func (c *runCache) logWith(d *decision) []entities.Event {
	if d.before.Run == nil {
		return d.events
	}
	if log := c.logOf(d.before.Run); log != nil {
		return slices.Concat(log, d.events)
	}
	return nil
}

// logOf returns the log of a run if it is cached up to the run's last event, else nil. It must not be modified.
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

func stepEnded(s entities.Step) bool { return s.CompletedAt != nil }
func waitEnded(w entities.Wait) bool { return w.CompletedAt != nil }

// addUpToLimit adds items to the cached ones. Beyond cachedEntities, those that have ended go first, because requests
// are rarely about them, and then those that were to be added.
func addUpToLimit[K comparable, V any](to, items map[K]V, ended func(V) bool) {
	for key, v := range items {
		if _, ok := to[key]; !ok && len(to) >= cachedEntities {
			maps.DeleteFunc(to, func(_ K, v V) bool { return ended(v) })
			if len(to) >= cachedEntities {
				continue
			}
		}
		to[key] = v
	}
}
