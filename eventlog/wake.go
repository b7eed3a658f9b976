package eventlog

import (
	"context"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
)

// Wake has a run invoked by the message, and ends its waits that are over at the time, by one statement if this process
// knows the run's whole log. It reports false if it knows that none is over. By the database's clock, the time must
// have come. The companion says what the append depends on. Wake fails as [Log.AppendAll] does.
func (l *Log) Wake(ctx context.Context, m message.Message, at time.Time, with Companion) (bool, error) {
	project, runID := m.Project, m.RunID
	release, err := l.cache.acquire(ctx, runID)
	if err != nil {
		return false, err
	}
	defer release()
	c := call{
		project: project, runID: runID, atomic: true, wakes: true, now: l.Now(), source: admin.SourceOf(ctx),
		consulted: &consulted{}, AppendOptions: AppendOptions{With: with},
	}
	run := l.cache.fresh(project, runID, c.now)
	if run == nil || int64(len(run.log)) != run.Run.LastSeq { // the waits that are over are found under the lock
		c.requests = []Request{{RunID: runID, Type: entities.EventRunStarted, SpecVersion: entities.SpecDriven, Once: true}}
	} else if c.requests = endOf(run.dueWaits(at)); len(c.requests) == 0 {
		return false, nil
	}
	c.Messages = []message.Message{m}
	if _, err = l.write(ctx, c); err != nil {
		return false, fmt.Errorf("wake %s: %w", runID, err)
	}
	return true, nil
}

// endOf returns the requests that end waits.
func endOf(waits []entities.Wait) []Request {
	requests := make([]Request, len(waits))
	for i, w := range waits {
		requests[i] = Request{
			RunID: w.RunID, Type: entities.EventWaitCompleted, CorrelationID: string(w.ID),
			SpecVersion: entities.SpecDriven, Once: true,
		}
	}
	return requests
}
