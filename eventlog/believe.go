package eventlog

import (
	"context"
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
)

// believedRequests is how many requests are decided on from belief at most: the statement for many would be long, and
// planned for them alone.
const believedRequests = 4

// appendBelieved decides on what this process believes of the run, and writes that in one statement if the belief is
// right. It reports false, and nothing was written, when it is not, or when there is more to it: then the run must be
// locked. What it does write is what would have been written under the lock.
//
// Where nothing is to be written, because it is so already or refused, a look tells whether the belief is right.
func (l *Log) appendBelieved(
	ctx context.Context, project entities.Project, requests []Request, t terms, now time.Time,
) (judgement, bool, error) {
	f, ok := l.memory.recall(project, requests, now)
	if !ok {
		return judgement{}, false, nil
	}
	j := judge(f, requests, now)
	switch {
	case len(j.events) == 0 && len(requests) == 1 && t.alone() && l.memory.knows(requests[0]):
		return l.nothingToWrite(ctx, j, t)
	case len(j.events) == 0 || len(j.children) > 0 || slices.ContainsFunc(j.outcomes, Outcome.refused):
		return judgement{}, false, nil
	}
	var c pg.Conditional
	ended, ok := l.enqueueBelieved(&c, &j, now, t)
	if !ok {
		return judgement{}, false, nil
	}
	store.WriteRun(&c, f.Run, j.after.Run)
	writeEvents(&c, xidOfNow, f, j)
	written, err := l.group.ExecuteConditional(ctx, j.after.Run.ID, &c)
	if pg.Retryable(err) {
		written, err = false, nil
	}
	if written || err != nil {
		ended(err)
	}
	return j, written, err
}

// refused reports whether the request came to nothing.
func (o Outcome) refused() bool { return o.Err != nil }

// nothingToWrite makes sure of the belief by which a judgement writes nothing.
func (l *Log) nothingToWrite(ctx context.Context, j judgement, t terms) (judgement, bool, error) {
	right, err := store.IsUnchanged(ctx, l.pool, j.before.Run)
	if err != nil || !right {
		return judgement{}, false, err
	}
	if err := t.agree(j); err != nil {
		return j, true, err
	}
	return j, true, errUnwritten
}

// enqueueBelieved is [Log.enqueue] by a chain: it has what the terms say and the messages written by it, and decides
// what begins with them. It reports false if more is needed than a chain. What the next invocation is to know besides
// must be remembered, and no wait be over.
func (l *Log) enqueueBelieved(
	c *pg.Conditional, j *judgement, now time.Time, t terms,
) (ended func(error), ok bool) {
	messages, ok := t.believed(c, *j)
	if !ok {
		return nil, false
	}
	if len(messages) == 0 {
		return func(error) {}, true
	}
	begins, ended, ok := l.enqueuer.EnqueueBelieved(c, messages)
	if !ok {
		return nil, false
	}
	for _, b := range begins {
		if b.Work == entities.WorkRun && j.before.Run != nil {
			if j.before.Run.StartedAt == nil || len(j.after.Waits) > 0 {
				return nil, false // whether it starts now depends on whether it is invoked, and what is over on the time
			}
			store.RequireNoDueWait(c, b.RunID)
		}
		j.begin(b, now)
	}
	for _, b := range begins {
		if b.Run != nil && b.Work == entities.WorkRun && !l.bringLog(b, j.of(b.RunID)) {
			return nil, false
		}
	}
	return ended, true
}
