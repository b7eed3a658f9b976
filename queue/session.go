package queue

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// session is the loop of a drainer. It takes tickets from River's table itself and detects when it is idle. The drains
// of a process share it.
type session struct {
	*loop

	mu       sync.Mutex
	taking   bool          // it may take tickets
	polling  bool          // it is taking tickets now, and will use them
	underway int           // deliveries and sweeps in progress
	polls    int           // polls started
	idle     int           // the number of the last poll that found nothing to do while nothing was in progress
	change   chan struct{} // closed and replaced when any of this changes
}

// startSession registers the process and starts a session.
func (w *deliverer) startSession(ctx context.Context) (*session, error) {
	l, err := startLoop(ctx, w)
	if err != nil {
		return nil, err
	}
	s := &session{loop: l, change: make(chan struct{})}
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
	s.task("issue", func() { s.run(s.poll) })
	return s, nil
}

// resume makes the session take tickets, and returns how many polls it has started. A later poll is the first that sees
// everything committed before this call.
func (s *session) resume() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taking = true
	poke(s.wake)
	return s.polls
}

// pause makes the session take no more tickets.
func (s *session) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taking = false
}

// changed wakes the callers of until. The caller holds the mutex.
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

// wait waits until the lingering time has passed and a poll that started after number since found nothing to do, or
// until the deadline.
func (s *session) wait(deadline, lingering context.Context, since int) {
	select {
	case <-lingering.Done():
	case <-deadline.Done():
		return
	}
	s.until(deadline, func() bool { return s.idle > since && s.underway == 0 })
}

// finish waits until nothing is in progress, another drain resumes the session, or the grace period has passed.
func (s *session) finish(ctx context.Context, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	s.until(ctx, func() bool { return s.underway == 0 && !s.polling || s.taking })
}

// poll takes tickets and starts to use them. It returns the time after which to poll again.
func (s *session) poll(ctx context.Context) time.Duration {
	steady := s.steady.Load()
	s.mu.Lock()
	s.polls++
	number, room, quiet := s.polls, s.options.Deliveries-s.underway, s.underway == 0
	s.polling = s.taking && room > 0
	polling := s.polling
	s.mu.Unlock()
	if !polling {
		return duePoll
	}
	next, found, err := s.take(context.WithoutCancel(ctx), room)
	nothing := err == nil && !found && quiet && (steady || !s.hasSuspects(ctx))
	if err != nil {
		s.logger.ErrorContext(ctx, "take tickets", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polling = false
	if nothing {
		s.idle = number
	}
	s.changed()
	return min(next, duePoll) // hints of tickets reach only River
}

// take takes up to n tickets and starts to use them. It reports whether there were any, and how long it is until the
// next message is due. It must not be interrupted: a ticket that is taken but not used is lost, and its message waits
// until the loss is detected.
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

// hasSuspects reports whether another process may be dead. This process cannot decide that before its heartbeats are
// steady, so it stays until then.
func (s *session) hasSuspects(ctx context.Context) bool {
	any, err := s.heartbeat.Suspects(ctx)
	if err != nil {
		s.logger.ErrorContext(ctx, "find suspect processes", "error", err)
	}
	return any
}

// use delivers the message of a ticket. If it fails before the delivery, the message gets another ticket later.
func (s *session) use(t tickets.Ticket) {
	defer s.ended()
	if err := s.redeem(s.calls, t); err != nil && s.calls.Err() == nil {
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
	poke(s.wake)
}

// backlogLimit bounds the count of due messages, and with it the cost of counting.
const backlogLimit = 1000

// readBacklog counts the messages to deliver: unused tickets, and due messages without a ticket.
func readBacklog(ctx context.Context, pool *pgxpool.Pool) (b backlog, err error) {
	err = pg.NewPool(pool).QueryRow(ctx, `
		SELECT least($1, (
			SELECT count(*) FROM (
				SELECT FROM (`+tickets.Waiting+`) AS waiting LIMIT $1) AS tickets
			) + (
			SELECT count(*) FROM (
				SELECT FROM messages WHERE `+cluster.Unparked+` AND due_at <= now() LIMIT $1) AS messages)),
			(SELECT due_at FROM messages WHERE `+cluster.Unparked+` ORDER BY due_at LIMIT 1)`,
		backlogLimit).Scan(&b.Due, &b.NextDueAt)
	if b.Due > 0 {
		b.NextDueAt = nil
	}
	return b, pg.Wrap(err, "read backlog")
}
