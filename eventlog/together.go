package eventlog

import (
	"context"
	"slices"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// Results of steps of one run often come at once, and wait for each other, since appends to a run are serialized. Those
// that wait are appended together: the first one whose turn it is takes them along, as one atomic call. So they share a
// statement, a commit, and what follows from them. Nothing waits for others to come. If the transaction refuses one of
// them, or fails, nothing is written, and each is appended alone, with the outcome that is its own.

// maxTogether is how many calls are appended together, and togetherBytes the payloads with which no more are taken
// along. With what follows from them they are less than a longCall.
const (
	maxTogether   = 48
	togetherBytes = 64 << 10
)

// Mergeable is a companion that can stand for several of its kind, in an append of several calls together.
type Mergeable interface {
	Companion
	// Merge returns the companion of the calls of this one and of others; nil if they are of another kind.
	Merge(others []Companion) Companion
}

// joined is a call that waits for its turn, and may be carried out together with others.
type joined struct {
	call

	// done is closed when another call has taken this one along. Then alone says that it must be carried out alone after
	// all; otherwise it has been, with the decision.
	done     chan struct{}
	alone    bool
	decision decision
}

// joins reports whether the call may be carried out together with others: it has the results of steps, which others did
// not execute as part of an invocation.
func (c call) joins() bool {
	_, mergeable := c.With.(Mergeable)
	adds := len(c.Streams) + len(c.Messages) + len(c.Open)
	return (c.With == nil || mergeable) && c.Await == nil && c.Seen == 0 && adds == 0 && !c.block &&
		len(c.requests) == 1 && c.requests[0].isPlainResult()
}

// isPlainResult reports whether the request is the result of a step and nothing else.
func (r *Request) isPlainResult() bool {
	return (r.Type == entities.EventStepCompleted || r.Type == entities.EventStepFailed) && !r.InBand && !r.Data.Late &&
		!r.Data.Cancelled && !r.isMarked() && len(r.Messages) == 0
}

// fits reports whether two calls can be carried out together.
func (c call) fits(other call) bool {
	return c.project == other.project && c.atomic == other.atomic && (c.With == nil) == (other.With == nil) &&
		(c.Follow == nil) == (other.Follow == nil)
}

// carryOutJoined is [Log.carryOut] for a call that may be carried out together with others.
func (l *Log) carryOutJoined(ctx context.Context, c call) (decision, error) {
	j := &joined{call: c, done: make(chan struct{})}
	release, err := l.cache.join(ctx, j)
	if err != nil {
		return decision{}, err
	}
	switch {
	case release == nil && j.alone:
		return l.carryOutAlone(ctx, c)
	case release == nil:
		return j.decision, nil
	}
	defer release()
	if others := l.cache.takeAlong(j); len(others) > 0 && l.writeTogether(ctx, j, others) {
		return j.decision, nil
	}
	return l.write(ctx, c)
}

// writeTogether carries out a call and others as one, and reports whether that succeeded. The others then have their
// decisions; otherwise they are to be carried out alone. The run must have been acquired.
func (l *Log) writeTogether(ctx context.Context, first *joined, others []*joined) (written bool) {
	defer func() {
		for _, j := range others {
			j.alone = !written
			close(j.done)
		}
	}()
	all := append([]*joined{first}, others...)
	c, ok := merged(all)
	if !ok {
		return false
	}
	// The transaction belongs to the others too: the end of one call's context must not fail it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pg.GroupTimeout)
	defer cancel()
	d, err := l.write(ctx, c)
	if err != nil {
		return false
	}
	d.divide(all)
	return true
}

// merged returns the call that stands for all.
func merged(all []*joined) (call, bool) {
	c := all[0].call
	c.requests, c.atomic, c.consulted = nil, true, &consulted{}
	var companions []Companion
	for _, j := range all {
		c.requests = append(c.requests, j.requests...)
		c.blobs = c.blobs.with(j.blobs)
		companions = append(companions, j.With)
	}
	if m, ok := c.With.(Mergeable); ok {
		c.With = m.Merge(companions[1:])
		return c, c.With != nil
	}
	return c, true
}

// divide gives each call its part of a decision about all. What follows from them, and the starts of work, are the
// first one's.
func (d decision) divide(all []*joined) {
	rest := d.events
	for i, j := range all {
		j.decision = d
		j.decision.outcomes = d.outcomes[i : i+1 : i+1]
		j.decision.events = nil
		if e := d.outcomes[i].Event; e != nil && !d.outcomes[i].Repeated {
			n := 1 + slices.IndexFunc(rest, func(of entities.Event) bool { return of.Seq == e.Seq })
			j.decision.events, rest = rest[:n:n], rest[n:]
		}
	}
	all[0].decision.events = slices.Concat(all[0].decision.events, rest)
}
