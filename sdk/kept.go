package stepwell

import (
	"container/list"
	"sync"
	"time"
)

// KeepRuns limits what stays in memory between the calls of runs: the number of runs, their size in bytes together, and for
// how long a run is kept after a call. A call of a run that is kept brings only new events, and does not repeat the
// workflow from its beginning. By default, 1,000 runs of 64 MiB are kept for a minute; no runs keep nothing.
func KeepRuns(runs, bytes int, age time.Duration) AppOption {
	return func(a *App) { a.serving.kept.runs, a.serving.kept.bytes, a.serving.kept.age = runs, bytes, age }
}

// keptRuns has the executions of runs that wait for their next call, those that were used last at the front.
type keptRuns struct {
	runs, bytes int
	age         time.Duration
	now         func() time.Time

	mu    sync.Mutex
	byRun map[string]*list.Element
	order *list.List // of *keptRun
	size  int
	sweep *time.Timer // set while something is kept
}

type keptRun struct {
	id    string
	x     *execution
	bytes int
	until time.Time
}

// take removes an execution and returns it; nil if the run is not kept.
func (k *keptRuns) take(runID string) *execution {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, ok := k.byRun[runID]
	if !ok {
		return nil
	}
	return k.remove(e).x
}

func (k *keptRuns) remove(e *list.Element) *keptRun {
	run := k.order.Remove(e).(*keptRun)
	delete(k.byRun, run.id)
	k.size -= run.bytes
	return run
}

// put keeps an execution. It ends others that are too many, too large or too old.
func (k *keptRuns) put(runID string, x *execution) {
	run := &keptRun{runID, x, x.turn.engine.Bytes() + coroutineBytes, k.now().Add(k.age)}
	k.mu.Lock()
	var over []*keptRun
	if e, ok := k.byRun[runID]; ok {
		over = append(over, k.remove(e))
	}
	k.byRun[runID] = k.order.PushFront(run)
	k.size += run.bytes
	over = append(over, k.excess()...)
	if k.sweep == nil {
		k.sweep = time.AfterFunc(k.age, k.sweepOld)
	}
	k.mu.Unlock()
	end(over)
}

// coroutineBytes is about how much memory the coroutines of a run take.
const coroutineBytes = 16 << 10

// excess removes what is too much or too old, the oldest first.
func (k *keptRuns) excess() (over []*keptRun) {
	for e := k.order.Back(); e != nil; e = k.order.Back() {
		if k.order.Len() <= k.runs && k.size <= k.bytes && k.now().Before(e.Value.(*keptRun).until) {
			break
		}
		over = append(over, k.remove(e))
	}
	return over
}

// sweepOld ends executions that nobody has used for long.
func (k *keptRuns) sweepOld() {
	k.mu.Lock()
	over := k.excess()
	k.sweep = nil
	if k.order.Len() > 0 {
		k.sweep = time.AfterFunc(k.age, k.sweepOld)
	}
	k.mu.Unlock()
	end(over)
}

// drop ends all executions.
func (k *keptRuns) drop() {
	k.mu.Lock()
	var all []*keptRun
	for e := k.order.Back(); e != nil; e = k.order.Back() {
		all = append(all, k.remove(e))
	}
	if k.sweep != nil {
		k.sweep.Stop()
		k.sweep = nil
	}
	k.mu.Unlock()
	end(all)
}

func end(runs []*keptRun) {
	for _, run := range runs {
		run.x.turn.engine.Close()
	}
}
