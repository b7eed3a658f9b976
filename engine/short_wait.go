package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

const (
	// longestShortWait is the longest wait after which the process that wrote it wakes the run by itself: as long as it is
	// sure to know the run's log.
	longestShortWait = 4 * time.Second
	// shortWaitGrace is how much later than the wait's end the message is due, so that it gets no ticket meanwhile. A run
	// is that late if its process had no slot, and up to about a second if the process died: others look at due messages
	// with their heartbeats.
	shortWaitGrace = 100 * time.Millisecond
	// maxShortWaits is how many runs a process wakes by itself; the others get tickets. Each may ask for a slot when it
	// wakes.
	maxShortWaits = 256
	// shortWaitsFactor is how many times the free ones a project may have.
	shortWaitsFactor = 4
	// wakeTimeout is how long a process tries to wake a run.
	wakeTimeout = 10 * time.Second
)

// A shortWait is a wait of a run for a few seconds. The process that recorded it keeps it in memory, and wakes the run
// when it is over, by one statement. That depends on the message being as it was left, so of this, of tickets, and of
// events one wins.
type shortWait struct {
	// grace is how much later than the wait's end the message is due; 0 if the run does not wait shortly.
	grace time.Duration
	// due is when the message is due, and wait how long that is after the statement.
	due  time.Time
	wait time.Duration
}

// over returns when the wait ends, by the database's clock.
func (w shortWait) over() time.Time { return w.due.Add(-w.grace) }

// shortWaits are the runs that this process wakes.
type shortWaits struct {
	// now is the time of the database.
	now   func() time.Time
	wake  func(queue.Delivery, shortWait)
	slots *share.Pool

	mu     sync.Mutex
	timers map[entities.RunID]*time.Timer
}

func newShortWaits(now func() time.Time, wake func(queue.Delivery, shortWait)) *shortWaits {
	return &shortWaits{
		now: now, wake: wake, slots: share.NewPool(maxShortWaits), timers: map[entities.RunID]*time.Timer{},
	}
}

// grace returns the grace of a short wait until the time; 0 if that is too late for one.
func (s *shortWaits) grace(until time.Time) time.Duration {
	if until.Sub(s.now()) > longestShortWait {
		return 0
	}
	return shortWaitGrace
}

// begin has the delivery's run woken when its wait is over. It reports false if the process or the project has too
// many.
func (s *shortWaits) begin(d queue.Delivery, of shortWait) bool {
	if !s.slots.Try(string(d.Project), 1, shortWaitsFactor) {
		return false
	}
	d.Inline, d.Body = nil, nil // which may be large
	s.mu.Lock()
	defer s.mu.Unlock()
	var t *time.Timer
	t = time.AfterFunc(of.wait-of.grace, func() {
		defer s.slots.Release(string(d.Project), 1)
		s.mu.Lock()
		current := s.timers[d.RunID] == t
		if current {
			delete(s.timers, d.RunID)
		}
		s.mu.Unlock()
		if current {
			s.wake(d, of)
		}
	})
	s.timers[d.RunID] = t
	return true
}

// end forgets the short wait of a run that has been invoked meanwhile.
func (s *shortWaits) end(d queue.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.timers[d.RunID]
	delete(s.timers, d.RunID)
	if t != nil && t.Stop() {
		s.slots.Release(string(d.Project), 1)
	}
}

// wake has a run invoked whose short wait is over. If that is not possible here, the message gets a ticket when it is
// due.
func (e *Engine) wake(d queue.Delivery, of shortWait) {
	ctx, cancel := context.WithTimeout(share.For(context.Background(), string(d.Project)), wakeTimeout)
	defer cancel()
	woken := false
	err := rescue.Do(ctx, "wake", func() (err error) {
		if e.queue.Reserve(d.Project, d.DeploymentID).Made() {
			woken, err = e.log.Wake(ctx, message.Message{
				Project: d.Project, DeploymentID: d.DeploymentID, RunID: d.RunID, Topic: d.Topic, Work: message.WorkRun,
			}, of.over(), shortWaitOver{d, of})
		}
		return err
	})
	if err != nil && !errors.Is(err, message.ErrStale) {
		d.Logger().WarnContext(ctx, "wake run", "run", d.RunID, "error", err)
	}
	if !woken {
		e.queue.WakeTimer(nil)
	}
}

// shortWaitOver makes an append depend on the run's message being as it was when the wait began, and on the wait being
// over.
type shortWaitOver struct {
	queue.Delivery
	shortWait
}

// isWaiting finds the message if it is as the wait left it. Who leases or holds it changes when it is due, who parks it
// does not.
const isWaiting = ` FROM messages
	WHERE run_id = $1 AND work = 'run' AND subject = '' AND parked_at IS NULL AND due_at = $2 AND $3::timestamptz <= now()
	FOR UPDATE`

// Lock checks the condition under the run's lock.
func (w shortWaitOver) Lock(b *pgx.Batch) func([]eventlog.Request) error {
	found := false
	b.Queue(`SELECT true`+isWaiting, w.RunID, w.due, w.over()).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(&found); !errors.Is(err, pgx.ErrNoRows) {
			return pg.Wrap(err, "check short wait")
		}
		return nil
	})
	return func([]eventlog.Request) error {
		if !found {
			return fmt.Errorf("%w: the run has been invoked", message.ErrStale)
		}
		return nil
	}
}

// AddTo adds the condition to the statement.
func (w shortWaitOver) AddTo(s *pg.Conditional, _ eventlog.Outlook) {
	s.Require(`EXISTS (SELECT`+isWaiting+`)`, w.RunID, w.due, w.over())
}
