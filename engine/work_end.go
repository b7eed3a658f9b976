package engine

import (
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// endWith returns options that end work in the append's transaction. What follows from its events is written with them
// if the run is that of a flow.
func (e *Engine) endWith(d queue.Delivery) eventlog.AppendOptions {
	return eventlog.AppendOptions{With: workEnd{d}, Follow: e.follows}
}

// workEnd is work that ends.
type workEnd struct{ queue.Delivery }

// Lock checks the lease.
func (w workEnd) Lock(b *pgx.Batch) func([]eventlog.Request) error { return checkLease(w.Delivery)(b) }

// AddTo deletes the work. That of a run which ends is deleted with the run.
func (w workEnd) AddTo(s *pg.Conditional, o eventlog.Outlook) {
	if o.Follows {
		w.RequireNoInvocation(s)
	}
	if o.Follows && o.Ended {
		w.RequireLease(s, "", nil)
	} else {
		w.EndIf(s, "", nil)
	}
}

// Merge implements [eventlog.Mergeable]: results of several steps of a run end the work of each.
func (w workEnd) Merge(others []eventlog.Companion) eventlog.Companion {
	all := workEnds{w}
	for _, o := range others {
		other, ok := o.(workEnd)
		if !ok || other.Work != w.Work {
			return nil
		}
		all = append(all, other)
	}
	return all
}

// workEnds are several pieces of work of one kind on a run that end.
type workEnds []workEnd

// Lock checks the leases.
func (w workEnds) Lock(b *pgx.Batch) func([]eventlog.Request) error {
	checks := make([]func([]eventlog.Request) error, len(w))
	for i, end := range w {
		checks[i] = end.Lock(b)
	}
	return func(requests []eventlog.Request) error {
		for _, check := range checks {
			if err := check(requests); err != nil {
				return err
			}
		}
		return nil
	}
}

// AddTo deletes the work. That of a run which ends is deleted with the run.
func (w workEnds) AddTo(s *pg.Conditional, o eventlog.Outlook) {
	deliveries := make([]queue.Delivery, len(w))
	for i, end := range w {
		deliveries[i] = end.Delivery
	}
	if o.Follows {
		w[0].RequireNoInvocation(s)
	}
	if queue.RequireLeases(s, deliveries); !o.Follows || !o.Ended {
		queue.EndAll(s, deliveries)
	}
}
