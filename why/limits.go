package why

import (
	"cmp"
	"context"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// maxHolders is how many of those that hold slots a reason names.
const maxHolders = 3

// LimitFact is a slot of a limit that the run, or one of its steps, waits for.
type LimitFact struct {
	limit.Awaited

	// Holders are some that hold slots of the limit, longest first: those of the key unless all keys together are at the
	// bound.
	Holders []limit.Permit
	// Circle are the runs that wait for each other, if the slot is never free unless one of them is ended: the first one
	// holds the slot.
	Circle []entities.RunID
}

// InAll reports whether the bound of all keys together keeps the slot from being granted.
func (f LimitFact) inAll() bool {
	l := f.Limit
	return l.Total > 0 && f.HeldInAll+f.Cost > l.Total && (l.PerKey == 0 || f.Held+f.Cost <= l.PerKey)
}

// Holder is a run, or a step of it, that holds a slot of a limit.
type Holder struct {
	RunID  entities.RunID
	StepID entities.StepID
	Since  time.Time
}

// readLimits reads the slots that the runs and their steps wait for, and who holds them.
func (f *findings) readLimits(ctx context.Context, q pg.Querier) error {
	awaited, err := limit.AwaitedBy(ctx, q, f.project, f.ids, f.parts, f.waiting)
	if err != nil {
		return err
	}
	var deadlocks *limit.Deadlocks
	for _, a := range awaited {
		fact := LimitFact{Awaited: a}
		if !a.HasRoom() {
			if f.holders > 0 {
				if fact.Holders, err = limit.HoldersOf(ctx, q, a, fact.inAll(), f.holders); err != nil {
					return err
				}
			}
			if deadlocks == nil {
				found, err := limit.ReadDeadlocks(ctx, q, f.project)
				if err != nil {
					return err
				}
				deadlocks = &found
			}
			fact.Circle = deadlocks.Circle(cmp.Or(a.MessageID, string(a.RunID)))
		}
		f.of[a.RunID].Limits = append(f.of[a.RunID].Limits, fact)
	}
	return nil
}

// addLimits adds the reasons of the slots that the run itself waits for, or its step with the message.
func (x *explainer) addLimits(messageID string, about Reason) {
	before := len(x.reasons)
	for _, f := range x.Limits {
		if f.MessageID == messageID && !isAfter(f.NotBefore, x.Now) {
			x.addLimit(f, about)
		}
	}
	if len(x.reasons) > before || !x.waits(messageID) {
		return
	}
	// All limits have a slot: it is granted within a second.
	about.Kind = Queued
	if about.StepID != "" {
		about.Kind = StepQueued
	}
	x.add(about)
}

// waits reports whether the run itself waits for a slot, or its step with the message.
func (x *explainer) waits(messageID string) bool {
	for _, f := range x.Limits {
		if f.MessageID == messageID {
			return true
		}
	}
	return false
}

// waitsNow reports whether the step with the message waits for a slot, and not for the end of a pause.
func (x *explainer) waitsNow(messageID string) bool {
	for _, f := range x.Limits {
		if f.MessageID == messageID {
			return !isAfter(f.NotBefore, x.Now)
		}
	}
	return false
}

// addLimit adds the reason why a slot is not granted, unless it is another one's.
func (x *explainer) addLimit(f LimitFact, r Reason) {
	l := f.Limit
	r.Limit, r.Key, r.Ahead, r.Since, r.MessageID = f.Name, f.Key, f.Ahead, &f.CreatedAt, f.MessageID
	r.Remedies = []Remedy{PutLimit}
	switch {
	case l.Paused:
		r.Kind = LimitPaused
	case !f.HasRoom():
		if r.Kind = LimitFull; len(f.Circle) > 0 {
			r.Kind, r.Circle, r.Remedies = LimitDeadlock, f.Circle, []Remedy{CancelRun, PutLimit}
		}
		r.Held, r.Slots = f.Held, l.PerKey
		if f.inAll() {
			r.Held, r.Slots, r.InAll = f.HeldInAll, l.Total, true
		}
		for _, p := range f.Holders {
			r.Holders = append(r.Holders, Holder{p.RunID, entities.StepID(p.Subject), *p.GrantedAt})
		}
	case f.RateAt != nil:
		// Those before it each move the clock of the key on by an interval.
		at := f.RateAt.Add(time.Duration(f.Ahead) * l.Interval())
		r.Kind, r.At = Rate, &at
	default:
		return
	}
	x.add(r)
}
