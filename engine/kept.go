package engine

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
)

// maxKept is the most runs of which a server remembers that a process keeps their state.
const maxKept = 16 << 10

// keptRuns remembers what the last answer of a run has said about the process that keeps the run's state, as far as
// this server has applied it. It is only a hint: losing it costs a call with the whole log, and a wrong one a call that
// the function refuses.
type keptRuns struct {
	runs *lru.Cache[entities.RunID, keptRun]
}

// keptRun is a run whose state a process keeps.
type keptRun struct {
	// seq is the position up to which the process knows the log; 0 if no process keeps the run.
	seq int64
	by  string
	// until is when the process forgets the run, and url where it was called.
	until time.Time
	url   string
}

func newKeptRuns() keptRuns {
	runs, err := lru.New[entities.RunID, keptRun](maxKept)
	if err != nil {
		panic(err) // the size is not positive
	}
	return keptRuns{runs}
}

// replace remembers what an answer from the URL says; nil forgets the run.
func (k keptRuns) replace(id entities.RunID, url string, keep *contract.Keep, now time.Time) {
	if keep == nil {
		k.runs.Remove(id)
		return
	}
	k.runs.Add(id, keptRun{seq: keep.Seq, by: keep.By, until: keep.Until(now), url: url})
}

// forget forgets the run.
func (k keptRuns) forget(id entities.RunID) { k.runs.Remove(id) }

// find returns what is remembered of the run. It forgets what has expired, what was said at another URL, and what
// exceeds the run's log.
func (k keptRuns) find(run entities.Run, url string, now time.Time) keptRun {
	kept, ok := k.runs.Get(run.ID)
	if !ok {
		return keptRun{}
	}
	if !now.Before(kept.until) || kept.url != url || kept.seq > run.LastSeq {
		k.runs.Remove(run.ID)
		return keptRun{}
	}
	return kept
}

// seq returns up to which position the log of the run is probably known.
func (k keptRuns) seq(id entities.RunID) int64 {
	kept, _ := k.runs.Peek(id)
	return kept.seq
}
