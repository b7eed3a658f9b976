package queue

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// steadyBeats is after how many beats a process can tell who is dead: its own have come for longer than the silence of
// others may last.
const steadyBeats = int(silenceLimit/beatInterval) + 2

// session is a time in which a process without River delivers: it is on record, beats, and looks for tickets.
type session struct {
	*deliverer

	calls    context.Context // of deliveries
	breakOff context.CancelCauseFunc
	quit     chan struct{} // closed when it ends
	news     chan struct{} // has an item when there may be tickets
	loops    sync.WaitGroup

	mu       sync.Mutex
	taking   bool          // tickets
	looking  bool          // for tickets, which it will then use
	underway int           // deliveries, and the keeping of order
	looks    int           // begun
	idle     int           // the look that found nothing to do, while nothing was under way
	judged   bool          // that others are dead, if they are
	change   chan struct{} // closed, and another one made, when any of this changes
}

// begin puts the process on record and begins a session.
func (w *deliverer) begin(ctx context.Context) (*session, error) {
	ctx = context.WithoutCancel(ctx)
	if err := w.pulse.turn(ctx); err != nil {
		w.pulse.leave(ctx)
		return nil, err
	}
	s := &session{
		deliverer: w, quit: make(chan struct{}), news: make(chan struct{}, 1), change: make(chan struct{}),
	}
	s.calls, s.breakOff = context.WithCancelCause(ctx)
	s.loops.Go(func() { s.beat(ctx) })
	s.started()
	s.loops.Go(func() { s.keepOrder(ctx) })
	s.loops.Go(func() { s.run(ctx) })
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

// changed tells those who wait. The caller holds the mutex.
func (s *session) changed() {
	close(s.change)
	s.change = make(chan struct{})
}

// wait waits until a look that began after since finds nothing to do, and nobody lingers, or patience ends.
func (s *session) wait(patience, lingering context.Context, since int) {
	select {
	case <-lingering.Done():
	case <-patience.Done():
		return
	}
	for {
		s.mu.Lock()
		idle, change := s.idle > since && s.underway == 0, s.change
		s.mu.Unlock()
		if idle {
			return
		}
		select {
		case <-change:
		case <-patience.Done():
			return
		}
	}
}

// finish waits until nothing is under way, another drain has come, or the grace period is over.
func (s *session) finish(grace time.Duration) {
	over := time.After(grace)
	for {
		s.mu.Lock()
		done, change := s.underway == 0 && !s.looking || s.taking, s.change
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-change:
		case <-over:
			return
		}
	}
}

// end breaks off the calls under way for the cause, sees to their messages, and takes the process off the record.
func (s *session) end(ctx context.Context, cause error) {
	close(s.quit)
	s.breakOff(cause)
	s.loops.Wait()
	s.http.CloseIdleConnections()
	s.pulse.leave(ctx)
}

// beat beats until the session ends. It breaks no beat off: that would cost the connection.
func (s *session) beat(ctx context.Context) {
	ticker := time.NewTicker(beatInterval)
	defer ticker.Stop()
	for beats := 1; ; beats++ {
		select {
		case <-s.quit:
			return
		case <-ticker.C:
		}
		if err := s.pulse.turn(ctx); err != nil {
			s.logger.WarnContext(ctx, "heartbeat", "error", err)
		}
		if beats == steadyBeats {
			s.mu.Lock()
			s.judged = true
			s.mu.Unlock()
			poke(s.news)
		}
	}
}

// keepOrder lets the sweeper have its turns.
func (s *session) keepOrder(ctx context.Context) {
	ticker := time.NewTicker(s.sweeper.interval)
	defer ticker.Stop()
	for {
		if _, err := s.sweeper.turn(s.calls); err != nil && s.calls.Err() == nil {
			s.logger.ErrorContext(ctx, "look for stranded runs", "error", err)
		}
		s.ended()
		select {
		case <-s.quit:
			return
		case <-ticker.C:
		}
		s.started()
	}
}

// run looks for tickets until the session ends.
func (s *session) run(ctx context.Context) {
	issued, cancelIssued := s.queue.Issued()
	defer cancelIssued()
	sooner, cancelSooner := s.queue.hub.Subscribe(timerTopic)
	defer cancelSooner()
	for {
		next := s.look(ctx)
		clock := time.NewTimer(min(max(next, fetchCooldown), timerPoll))
		select {
		case <-s.quit:
			clock.Stop()
			return
		case <-s.news:
		case <-issued:
		case <-sooner:
		case <-clock.C:
		}
		clock.Stop()
	}
}

// look takes the tickets there are and has them used, and returns when to look again.
func (s *session) look(ctx context.Context) time.Duration {
	s.mu.Lock()
	s.looks++
	number, room, quiet, judged := s.looks, s.options.Deliveries-s.underway, s.underway == 0, s.judged
	s.looking = s.taking && room > 0
	looking := s.looking
	s.mu.Unlock()
	if !looking {
		return timerPoll
	}
	next, found, err := s.take(ctx, room)
	nothing := err == nil && !found && quiet && !s.suspicious(ctx, judged)
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

// take takes up to n tickets and has them used, and reports whether there were any, and how long it is until something
// is due.
func (s *session) take(ctx context.Context, n int) (next time.Duration, found bool, err error) {
	next, err = s.handOut(ctx)
	if err != nil {
		return timerPoll, false, err
	}
	tickets, err := takeTickets(ctx, s.queue.pool, n)
	if err != nil {
		return timerPoll, false, err
	}
	for _, t := range tickets {
		s.started()
		s.loops.Go(func() { s.use(t) })
	}
	return next, len(tickets) > 0, nil
}

// suspicious reports whether a process may be dead, and it is too early to tell.
func (s *session) suspicious(ctx context.Context, judged bool) bool {
	if judged {
		return false
	}
	any, err := s.pulse.suspects(ctx, s.queue.pool)
	if err != nil {
		s.logger.ErrorContext(ctx, "look for processes", "error", err)
	}
	return any
}

// use delivers what a ticket is for. If that does not come to it, the message gets another one.
func (s *session) use(t taken) {
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

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// taken is a ticket off River's table.
type taken struct {
	Ticket

	ScheduledAt time.Time
}

// takeTickets takes up to n tickets off River's table: whoever does must use them. Those that are lost with the process
// are replaced like all that are not used in time.
func takeTickets(ctx context.Context, pool *pgxpool.Pool, n int) ([]taken, error) {
	rows, err := pool.Query(ctx, `
		WITH taken AS (
			DELETE FROM river_job WHERE id = ANY (ARRAY(
				SELECT id FROM river_job WHERE state = 'available' AND queue = $1 AND scheduled_at <= now()
				ORDER BY priority, scheduled_at, id LIMIT $2
				FOR UPDATE SKIP LOCKED))
			RETURNING args, scheduled_at
		)
		SELECT args->>'message' AS message_id, (args->>'ticket')::integer AS number,
			coalesce((args->>'size')::bigint, 0) AS size, scheduled_at
		FROM taken`, riverQueue, n)
	if err != nil {
		return nil, wrap("take tickets", err)
	}
	tickets, err := pgx.CollectRows(rows, pgx.RowToStructByName[taken])
	return tickets, wrap("take tickets", err)
}

// backlogLimit is up to how many are counted of what is due.
const backlogLimit = 1000

// backlog reads what there is to deliver: tickets that wait to be used, and messages that wait for theirs.
func backlog(ctx context.Context, pool *pgxpool.Pool) (b Backlog, err error) {
	err = pool.QueryRow(ctx, `
		SELECT least($2, (
			SELECT count(*) FROM (
				SELECT FROM river_job WHERE state = 'available' AND queue = $1 AND scheduled_at <= now() LIMIT $2) AS tickets
			) + (
			SELECT count(*) FROM (
				SELECT FROM messages WHERE parked_at IS NULL AND due_at <= now() LIMIT $2) AS messages)),
			(SELECT due_at FROM messages WHERE parked_at IS NULL ORDER BY due_at LIMIT 1)`,
		riverQueue, backlogLimit).Scan(&b.Due, &b.NextDueAt)
	if b.Due > 0 {
		b.NextDueAt = nil
	}
	return b, wrap("look what is due", err)
}
