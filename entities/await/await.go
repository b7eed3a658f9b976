// Package await decides when a run is invoked whose function has said what it waits for.
package await

import (
	"slices"
	"time"
)

// Ref names a step, which may be a child run, or a wait of the run. One of the fields is empty.
type Ref struct {
	Step, Wait string
}

// Condition is what a function waits for: the end of one item of Any, or of all items of one list of All. Other events,
// like payloads of hooks, have the run invoked in any case.
type Condition struct {
	Any []Ref
	All [][]Ref
}

// Pending is what a run still waits for: the open steps of its condition, and times in place of its waits. It is never
// changed, so it may be shared. It is stored with the run as JSON; package queue/cluster reads that in SQL.
type Pending struct {
	// Seq is the length of the run's log when this was stored. It follows every event that is appended. If the log is
	// longer, a server that does not know this column has appended to it, and may have invoked the run: then all of
	// this is void.
	Seq int64 `json:"seq"`
	// Any are the steps of which each one's end is waited for.
	Any []string `json:"any,omitempty"`
	// All are the lists that still have an open step.
	All []List `json:"all,omitempty"`
	// At is when the condition is met without any further event; nil if time alone does not meet it.
	At *time.Time `json:"at,omitempty"`
}

// List is a list of items that must all have ended.
type List struct {
	Steps []string `json:"steps"`
	// At is when the last wait of the list is over; nil if it has none.
	At *time.Time `json:"at,omitempty"`
}

// Facts says which items are open.
type Facts struct {
	// Step reports whether a step is open.
	Step func(id string) bool
	// Wait returns when a wait is over, or nil if it is not open.
	Wait func(id string) *time.Time
}

// Pending returns what is left of the condition at the given length of the log, or that it is met already: something
// that is not open, because it has ended, was cancelled or never existed, counts as ended.
func (c Condition) Pending(f Facts, seq int64) (p Pending, met bool) {
	p.Seq = seq
	for _, ref := range c.Any {
		one := f.list([]Ref{ref})
		switch {
		case one.ended():
			return Pending{}, true
		case len(one.Steps) > 0:
			p.Any = append(p.Any, ref.Step)
		default:
			p.At = earlier(p.At, one.At)
		}
	}
	for _, refs := range c.All {
		list := f.list(refs)
		if list.ended() {
			return Pending{}, true
		}
		p = p.with(list)
	}
	return p, false
}

// list returns the items that are open.
func (f Facts) list(refs []Ref) List {
	var list List
	for _, ref := range refs {
		if ref.Step != "" {
			if f.Step(ref.Step) && !slices.Contains(list.Steps, ref.Step) {
				list.Steps = append(list.Steps, ref.Step)
			}
		} else if at := f.Wait(ref.Wait); at != nil && (list.At == nil || at.After(*list.At)) {
			utc := at.UTC()
			list.At = &utc
		}
	}
	return list
}

// StepEnded returns what is left once a step has ended, as the run's event with the given position, or that the
// condition is met then.
func (p Pending) StepEnded(step string, seq int64) (left Pending, met bool) {
	if slices.Contains(p.Any, step) {
		return Pending{}, true
	}
	left = Pending{Seq: seq, Any: p.Any, At: p.At}
	for _, list := range p.All {
		list.Steps = slices.DeleteFunc(slices.Clone(list.Steps), func(id string) bool { return id == step })
		if list.ended() {
			return Pending{}, true
		}
		left = left.with(list)
	}
	return left, false
}

// Advance returns the same after an event that it does not depend on.
func (p Pending) Advance(seq int64) Pending {
	p.Seq = seq
	return p
}

// HasSteps reports whether the end of a step can meet the condition.
func (p Pending) HasSteps() bool { return len(p.Any) > 0 || len(p.All) > 0 }

// with adds a list that has not ended. One without open steps is over when its last wait is.
func (p Pending) with(list List) Pending {
	if len(list.Steps) == 0 {
		p.At = earlier(p.At, list.At)
	} else {
		p.All = append(p.All, list)
	}
	return p
}

func (l List) ended() bool { return len(l.Steps) == 0 && l.At == nil }

// earlier returns the earlier of two times, of which nil is the latest.
func earlier(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}
