package queue

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

const (
	// issueBatch is how many tickets one transaction issues.
	issueBatch = 500
	// maxTickets is how many tickets of one project may wait to be used. River uses tickets in the order in which they
	// were issued, so this bounds what can be ahead of another project's ticket. More are issued as these are used.
	maxTickets = 100
	// backlogPoll is the longest pause between two attempts to issue tickets while messages are due that get none. Uses
	// and ends of deliveries in this process lead to an attempt at once, those in other processes do not.
	backlogPoll = 100 * time.Millisecond
)

// demand is what a project asks for.
type demand struct {
	Project entities.Project
	// Wait is how long it is until the first of the project's messages is due; negative if it is overdue.
	Wait time.Duration
	// Tickets is how many tickets of the project wait to be used.
	Tickets int
}

// ration is how many tickets a project gets at once.
type ration struct {
	project entities.Project
	tickets int
}

// divide decides how many tickets the projects get. Room returns how many slots a project may take in this process. It
// also returns how long it is until a further project has a due message.
func divide(all []demand, room func(entities.Project) int) (rations []ration, next time.Duration) {
	next = time.Hour
	var due []demand
	for _, d := range all {
		if d.Wait > 0 {
			next = min(next, d.Wait)
			continue
		}
		if n := min(room(d.Project), maxTickets) - d.Tickets; n > 0 {
			due = append(due, d)
			rations = append(rations, ration{d.Project, n})
		}
	}
	if len(rations) > issueBatch { // those that have waited longest
		slices.SortFunc(due, func(a, b demand) int { return int(a.Wait - b.Wait) })
		rations = rations[:0]
		for _, d := range due[:issueBatch] {
			rations = append(rations, ration{d.Project, 1})
		}
	}
	for i := range rations {
		rations[i].tickets = min(rations[i].tickets, max(1, issueBatch/len(rations)))
	}
	return rations, next
}

// issueDue issues tickets for due messages, as far as there are slots for them, and returns how long it is until the
// next message is due.
func (w *deliverer) issueDue(ctx context.Context) (time.Duration, error) {
	for {
		next, err := cluster.UntilDue(ctx, w.queue.pool)
		if err != nil {
			return 0, err
		}
		w.backlog.Store(next <= 0)
		if next > 0 {
			return next, nil
		}
		all, err := readDemands(ctx, w.queue.pool)
		if err != nil {
			return 0, err
		}
		rations, next := divide(all, func(p entities.Project) int {
			return int(w.slots.Room(string(p), shareFactor))
		})
		if len(rations) == 0 {
			pause(ctx, dueRetry) // bounds how often deliveries that end lead to this
			return min(next, backlogPoll), nil
		}
		issued, err := w.issue(ctx, rations)
		if err != nil {
			return 0, err
		}
		if issued == 0 { // another process has locked the due messages to issue their tickets
			return dueRetry, nil
		}
		w.queue.hub.Send(w.queue.issuer.Hint)
	}
}

// issueMore makes the loop issue more tickets if messages are due that got none: a ticket was used or a slot is free.
func (w *deliverer) issueMore() {
	if w.backlog.Load() {
		poke(w.wake)
	}
}

// issue issues tickets in one transaction, and returns how many.
func (w *deliverer) issue(ctx context.Context, rations []ration) (n int, err error) {
	err = pg.InTx(ctx, w.queue.pool, func(tx pgx.Tx) error {
		issued, err := takeDue(ctx, tx, rations, parking{w.options.MaxDeliveries, w.options.FailureWindow})
		n = len(issued)
		if err != nil || n == 0 {
			return err
		}
		return w.queue.issuer.Issue(ctx, tx, issued)
	})
	return n, err
}

// readDemands reads the first due time of each project that has messages. It jumps in the index from those of a project
// whose runs have begun to the others, and to the next project, so that its cost does not depend on the number of
// messages.
func readDemands(ctx context.Context, pool *pgxpool.Pool) ([]demand, error) {
	all, err := pg.CollectAll[demand](pg.NewPool(pool).Query(ctx, demandsSQL))
	return all, pg.Wrap(err, "read due projects")
}

var demandsSQL = `
	WITH RECURSIVE firsts AS (
		(SELECT project, begins_run, due_at FROM messages
		WHERE parked_at IS NULL ORDER BY project, begins_run, due_at LIMIT 1)
		UNION ALL
		SELECT next.* FROM firsts, LATERAL (
			SELECT project, begins_run, due_at FROM messages m
			WHERE parked_at IS NULL AND (m.project, m.begins_run) > (firsts.project, firsts.begins_run)
			ORDER BY project, begins_run, due_at LIMIT 1) AS next
	), waiting AS (
		SELECT project, count(*) AS tickets FROM (` + tickets.Waiting + `) AS ticket GROUP BY project
	)
	SELECT project, min(due_at) - clock_timestamp() AS wait, coalesce(max(tickets), 0) AS tickets
	FROM firsts LEFT JOIN waiting USING (project) WHERE ` + pg.Staying("project") + ` GROUP BY project`
