package eventlog

import (
	"context"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// appendBelieved decides on what this process believes of the run, and writes that in one statement if the belief is
// right. It reports false, and nothing was written, when it is not, or when there is more to it: then the run must be
// locked. What it does write is what would have been written under the lock.
//
// Where nothing is to be written, because it is so already or refused, a look tells whether the belief is right.
func (l *Log) appendBelieved(
	ctx context.Context, project entities.Project, runID entities.RunID, requests []Request, t terms, now time.Time,
) (judgement, bool, error) {
	if len(requests) != 1 || !t.alone() {
		return judgement{}, false, nil
	}
	f, ok := l.memory.recall(project, requests[0], now)
	if !ok {
		return judgement{}, false, nil
	}
	j := judge(f, requests, now)
	if len(j.messages) > 0 || len(j.children) > 0 {
		return judgement{}, false, nil
	}
	if len(j.events) == 0 {
		if !l.memory.knows(requests[0]) {
			return judgement{}, false, nil
		}
		return l.nothingToWrite(ctx, j, t, now)
	}
	c := entities.NewChain(f.Run, j.after.Run)
	writeEvents(c, xidOfNow, f, j)
	written, err := l.group.execute(ctx, runID, c)
	if worthRetrying(err) {
		written, err = false, nil
	}
	if err == nil && !written && f.Run != nil {
		l.memory.doubt(runID, now)
	}
	return j, written, err
}

// nothingToWrite makes sure of the belief by which a judgement writes nothing.
func (l *Log) nothingToWrite(ctx context.Context, j judgement, t terms, now time.Time) (judgement, bool, error) {
	right, err := entities.IsAsLong(ctx, l.pool, j.before.Run)
	if err != nil {
		return judgement{}, false, err
	}
	if !right {
		l.memory.doubt(j.before.Run.ID, now)
		return judgement{}, false, nil
	}
	if err := t.agree(j); err != nil {
		return j, true, err
	}
	return j, true, errUnwritten
}
