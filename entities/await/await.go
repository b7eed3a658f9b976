// Package await decides when a run is invoked whose function has said what it waits for.
//
// It imports no other package of this module.
package await

import (
	"slices"
	"time"
)

// Ref names a step, which may be a child run, or a wait of the run. One of the fields is empty.
type Ref struct {
	Step, Wait string
}

// Terms is what a function waits for: the end of one item of Any, or of all items of one list of All. Other news, like
// payloads of hooks, counts in any case.
type Terms struct {
	Any []Ref
	All [][]Ref
}

// Set is what is left of the terms: their steps that are open, and times in place of their waits. A set is never
// changed, so it may be shared. It is stored with the run as JSON; package queue/cluster reads that in SQL.
type Set struct {
	// Seq is the length of the run's log when the set was stored. It follows every event that is appended. If the log is
	// longer, a server that does not know await sets has appended to it, and may have invoked the run: then the set does
	// not count.
	Seq int64 `json:"seq"`
	// Any are the steps of which each one's end is waited for.
	Any []string `json:"any,omitempty"`
	// All are the lists that still have an open step.
	All []List `json:"all,omitempty"`
	// At is when the terms hold without any further event; nil if time alone does not make them hold.
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

// Open returns what is left of the terms at the given length of the log. Holds is set if they hold already: something
// that is not open, because it has ended, was cancelled or never existed, counts as ended.
func (t Terms) Open(f Facts, seq int64) (s Set, holds bool) {
	s.Seq = seq
	for _, ref := range t.Any {
		one := f.list([]Ref{ref})
		switch {
		case one.ended():
			return Set{}, true
		case len(one.Steps) > 0:
			s.Any = append(s.Any, ref.Step)
		default:
			s.At = earlier(s.At, one.At)
		}
	}
	for _, refs := range t.All {
		list := f.list(refs)
		if list.ended() {
			return Set{}, true
		}
		s = s.with(list)
	}
	return s, false
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

// Ended returns what is left once a step has ended, as the run's event with the given position. Holds is set if the
// terms hold then.
func (s Set) Ended(step string, seq int64) (left Set, holds bool) {
	if slices.Contains(s.Any, step) {
		return Set{}, true
	}
	left = Set{Seq: seq, Any: s.Any, At: s.At}
	for _, list := range s.All {
		list.Steps = slices.DeleteFunc(slices.Clone(list.Steps), func(id string) bool { return id == step })
		if list.ended() {
			return Set{}, true
		}
		left = left.with(list)
	}
	return left, false
}

// After returns the same set after an event that it does not depend on.
func (s Set) After(seq int64) Set {
	s.Seq = seq
	return s
}

// HasSteps reports whether the end of a step can make the terms hold.
func (s Set) HasSteps() bool { return len(s.Any) > 0 || len(s.All) > 0 }

// with adds a list that has not ended. One without open steps is over when its last wait is.
func (s Set) with(list List) Set {
	if len(list.Steps) == 0 {
		s.At = earlier(s.At, list.At)
	} else {
		s.All = append(s.All, list)
	}
	return s
}

func (l List) ended() bool { return len(l.Steps) == 0 && l.At == nil }

// earlier returns the earlier of two times, of which nil is the latest.
func earlier(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}
