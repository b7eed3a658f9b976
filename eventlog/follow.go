package eventlog

import (
	"context"
	"slices"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// The function of some runs is in this process, and says at once what follows from new events. Then what follows is
// written with the events, by the same conditional statement, and the run is not invoked. The statement applies only if
// the log is still as long as it was when the function decided. Otherwise nothing is written, and the append starts
// over with the run locked: it leaves the message that has the run invoked, as any other append does. So does an append
// of which not all facts are cached.

// NewEvents are what an append is about to add to the log of a run.
type NewEvents struct {
	// Run is the run with the events.
	Run entities.Run
	// Log is the whole log before them if it is cached, else nil. It must not be modified.
	Log    []entities.Event
	Events []entities.Event
}

// Follow says what follows from new events in a run that the server continues; nil if that is not known here, so that
// the run has to be invoked. It is called before anything is written, in no transaction, and by one goroutine at a time
// for a run.
type Follow func(context.Context, NewEvents) *Following

// Following is what follows from new events.
type Following struct {
	// Known is set if the requests are all that follows. Else the run is invoked.
	Known    bool
	Requests []Request
	// Ended is called when the append has ended, with the events that it has written: none if it failed, or may have.
	// Followed reports whether they include those of the requests.
	Ended func(written []entities.Event, followed bool)
}

// FollowStarts sets what says what follows from the creation of a run.
func (l *Log) FollowStarts(f Follow) { l.starts.Store(&f) }

// consulted has what was said to follow from the events of a call; nothing if nobody was asked.
type consulted struct{ *Following }

// end reports the end of the append to who was asked.
func (a *consulted) end(d decision, err error) {
	switch {
	case a.Following == nil:
	case err != nil:
		a.Ended(nil, false)
	default:
		a.Ended(d.events, d.follows)
	}
}

// follow adds what follows from a decision, if that has the run invoked: it returns the call, the facts and the
// decision with it. It returns them as they are if the run has to be invoked.
func (l *Log) follow(ctx context.Context, c call, f facts, d decision) (call, facts, decision) {
	follow := c.Follow
	if starts := l.starts.Load(); d.before.Run == nil && starts != nil {
		follow = *starts
	}
	if follow == nil || !d.serverDriven() || !wantsInvocation(d.after.Run.ID, d.messages) {
		return c, f, d
	}
	c.consulted.Following = follow(ctx, NewEvents{Run: *d.after.Run, Log: l.cache.logOf(d.before.Run), Events: d.events})
	if c.consulted.Following == nil || !c.consulted.Known {
		return c, f, d
	}
	all := c.with(c.consulted.Requests, d.before.Run == nil)
	facts, ok := l.followingFacts(all, len(c.requests), d.before.Run == nil)
	if !ok || all.validate() != nil || facts.mustGateSteps(all.requests) {
		return c, f, d
	}
	if l.putBlobs(ctx, &all, all.requests[len(c.requests):]) != nil {
		return c, f, d
	}
	both := all.decide(facts)
	if !both.canFollow() {
		return c, f, d
	}
	both.outcomes = both.outcomes[:len(c.requests)]
	both.begin(d)
	both.joinInvocations()
	return all, facts, both
}

// with returns the call with the requests that follow. A new run has to start first.
func (c call) with(following []Request, creates bool) call {
	requests := slices.Clone(c.requests)
	if creates {
		requests = append(requests, Request{Type: entities.EventRunStarted, SpecVersion: entities.SpecDriven})
	}
	c.requests, c.follows = aboutRun(c.runID, append(requests, following...)), true
	return c
}

// followingFacts returns the facts about the requests of a call that includes what follows from its first ones. It
// reports false if one is not cached. Of a run that does not exist, all is known but who has a token, and what limits
// its steps find.
func (l *Log) followingFacts(all call, first int, creates bool) (facts, bool) {
	if !creates {
		return l.cache.facts(all.project, all.requests, all.now)
	}
	f, ok := l.cache.facts(all.project, all.requests[:first], all.now)
	following := all.requests[first:]
	few := len(following) < longCall && countWrites(following) <= maxOptimistic
	return f, ok && few && !anyOf(following, (*Request).needsFacts)
}

// needsFacts reports whether more has to be known for a request than that its run is new.
func (r *Request) needsFacts() bool {
	switch r.Type {
	case entities.EventStepCreated:
		return r.Data.Step != nil && len(r.Data.Step.Limits) > 0
	case entities.EventRunStarted, entities.EventStepCompleted, entities.EventStepFailed, entities.EventWaitCreated,
		entities.EventRunCompleted, entities.EventRunFailed:
		return r.AsAsked || r.Continue != nil
	default:
		return true
	}
}

// canFollow reports whether a decision that includes what follows can be written by one statement.
func (d decision) canFollow() bool {
	switch {
	case slices.ContainsFunc(d.outcomes, Outcome.refused) || len(d.children) > 0:
		return false
	case d.endsRun():
		return d.before.Run != nil && d.after.Run.ParentStep == "" // work of the parent would follow
	default:
		return !wantsInvocation(d.after.Run.ID, d.messages)
	}
}

// begin gives the first steps of a run the place in the queue of the invocation that they stand for.
func (d *decision) begin(plain decision) {
	first := slices.IndexFunc(plain.messages, func(m message.Message) bool { return m.BeginsRun })
	for i := range d.messages {
		if m := &d.messages[i]; first >= 0 && m.Work == message.WorkStep && !m.Gated {
			m.BeginsRun = true
		}
	}
}

// joinInvocations leaves one invocation: at the end of the first of the waits that begin.
func (d *decision) joinInvocations() {
	var first *message.Message
	d.messages = slices.DeleteFunc(d.messages, func(m message.Message) bool {
		if m.RunID != d.after.Run.ID || m.Work != message.WorkRun {
			return false
		}
		if first == nil || m.Delay < first.Delay {
			first = &m
		}
		return true
	})
	if first != nil {
		d.messages = append(d.messages, *first)
	}
}

// unfollowed returns the work after an event without invocations, if the decision includes what follows. The end of a
// wait follows later.
func (d *decision) unfollowed(e *entities.Event, work []message.Message) []message.Message {
	if !d.follows || e.Type == entities.EventWaitCreated {
		return work
	}
	return withoutInvocation(d.after.Run.ID, work)
}

// hasWait reports whether the snapshot has a wait that is not over.
func (s *Snapshot) hasWait() bool {
	for _, w := range s.Waits {
		if w.Status == entities.WaitWaiting {
			return true
		}
	}
	return false
}

// requireMovement makes a statement that includes what follows depend on that something is under way for the run
// afterwards (I5). That the log is as long as it was does not say so: who was asked may have been wrong. The run is
// then invoked, and an answer that leaves nothing is refused where people see it.
func (d decision) requireMovement(s *pg.Conditional) {
	if !d.follows || d.endsRun() || d.outlook().Open || d.after.hasWait() {
		return
	}
	var ended []string
	for id, step := range d.after.Steps {
		if step.CompletedAt != nil {
			ended = append(ended, string(id))
		}
	}
	store.RequireMoving(s, d.after.Run.ID, ended)
}
