package queue

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// session is the loop of a process without River, which lasts until there is nothing left to do. It fetches tickets
// itself, and knows when it is idle.
type session struct {
	*loop

	mu       sync.Mutex
	taking   bool          // tickets
	looking  bool          // for tickets, which it will then use
	underway int           // deliveries, and turns of the sweeper
	looks    int           // begun
	idle     int           // the last look that found nothing to do, while nothing was under way
	change   chan struct{} // closed and replaced when any of this changes
}

// begin puts the process on record and begins a session.
func (w *deliverer) begin(ctx context.Context) (*session, error) {
	l, err := w.signOn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{loop: l, change: make(chan struct{})}
	issued, cancel := w.queue.Issued()
	s.started()
	s.tasks.Go(func() {
		s.sweep(s.calls)
		s.ended()
		s.every(s.sweeper.Interval, func(context.Context) {
			s.started()
			defer s.ended()
			s.sweep(s.calls)
		})
	})
	s.tasks.Go(func() {
		defer cancel()
		s.run(issued, s.look)
	})
	return s, nil
}

// resume has the session take tickets, and returns how many looks it has begun.
func (s *session) resume() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taking = true
	poke(s.news)
	return s.looks
}

// pause has the session take no more tickets.
func (s *session) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taking = false
}

// changed wakes the waiting. The caller holds the mutex.
func (s *session) changed() {
	close(s.change)
	s.change = make(chan struct{})
}

// until waits until the condition is true or the context ends. The condition is evaluated under the mutex.
func (s *session) until(ctx context.Context, condition func() bool) {
	for {
		s.mu.Lock()
		ok, change := condition(), s.change
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-change:
		case <-ctx.Done():
			return
		}
	}
}

// wait waits until the lingering is over and a look that began after since found nothing to do, or for the deadline.
func (s *session) wait(deadline, lingering context.Context, since int) {
	select {
	case <-lingering.Done():
	case <-deadline.Done():
		return
	}
	s.until(deadline, func() bool { return s.idle > since && s.underway == 0 })
}

// finish waits until nothing is under way, another drain has come, or the grace period is over.
func (s *session) finish(ctx context.Context, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	s.until(ctx, func() bool { return s.underway == 0 && !s.looking || s.taking })
}

// look takes tickets and starts to use them, and returns when to look again.
func (s *session) look(ctx context.Context) time.Duration {
	steady := s.steady.Load()
	s.mu.Lock()
	s.looks++
	number, room, quiet := s.looks, s.options.Deliveries-s.underway, s.underway == 0
	s.looking = s.taking && room > 0
	looking := s.looking
	s.mu.Unlock()
	if !looking {
		return duePoll
	}
	next, found, err := s.take(context.WithoutCancel(ctx), room)
	nothing := err == nil && !found && quiet && (steady || !s.suspicious(ctx))
	if err != nil {
		s.logger.ErrorContext(ctx, "look for tickets", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looking = false
	if nothing {
		s.idle = number
	}
	s.changed()
	return next
}

// take takes up to n tickets and starts to use them. It reports whether there were any, and how long it is until the
// next message is due. It must not be broken off: a ticket that was taken and is not used is lost.
func (s *session) take(ctx context.Context, n int) (next time.Duration, found bool, err error) {
	next, err = s.issueDue(ctx)
	if err != nil {
		return duePoll, false, err
	}
	taken, err := tickets.Take(ctx, s.queue.pool, n)
	if err != nil {
		return duePoll, false, err
	}
	for _, t := range taken {
		s.started()
		s.deliveries.Go(func() { s.use(t) })
	}
	return next, len(taken) > 0, nil
}

// suspicious reports whether a process may be dead, which this one cannot tell before its beats are steady.
func (s *session) suspicious(ctx context.Context) bool {
	any, err := s.heartbeat.Suspects(ctx, s.queue.pool)
	if err != nil {
		s.logger.ErrorContext(ctx, "look for processes", "error", err)
	}
	return any
}

// use delivers the message of a ticket. If it fails before the delivery, the message gets another ticket.
func (s *session) use(t tickets.Taken) {
	defer s.ended()
	if err := s.redeem(s.calls, t.Ticket, t.ScheduledAt); err != nil && s.calls.Err() == nil {
		s.logger.ErrorContext(s.calls, "use ticket", "message", t.MessageID, "error", err)
	}
}

func (s *session) started() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underway++
	s.changed()
}

func (s *session) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underway--
	s.changed()
	poke(s.news)
}

// backlogLimit is how far due messages are counted.
const backlogLimit = 1000

// readBacklog counts what there is to deliver: unused tickets, and due messages without one.
func readBacklog(ctx context.Context, pool *pgxpool.Pool) (b backlog, err error) {
	err = pool.QueryRow(ctx, `
		SELECT least($1, (
			SELECT count(*) FROM (
				`+tickets.Usable+` LIMIT $1) AS tickets
			) + (
			SELECT count(*) FROM (
				SELECT FROM messages WHERE parked_at IS NULL AND due_at <= now() LIMIT $1) AS messages)),
			(SELECT due_at FROM messages WHERE parked_at IS NULL ORDER BY due_at LIMIT 1)`,
		backlogLimit).Scan(&b.Due, &b.NextDueAt)
	if b.Due > 0 {
		b.NextDueAt = nil
	}
	return b, wrap("read backlog", err)
}
