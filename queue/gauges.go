package queue

import (
	"context"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// GaugeLimit is how far [Queue.Gauges] counts: a number as high as this says that there are at least so many.
const GaugeLimit = 10_000

// Gauges are how much there is of what, over all projects, each up to [GaugeLimit].
type Gauges struct {
	// StrandedRuns have no way to move, as far as the sweeper has seen (I5).
	StrandedRuns int64
	// WaitingMessages are due, delayed, or wait for their next try. LeasedMessages are with a function or a server.
	WaitingMessages, LeasedMessages int64
	// ParkedMessages wait for someone to retry or discard them.
	ParkedMessages int64
	// OldestDue is for how long that message has been due that has been longest and is not being delivered.
	OldestDue time.Duration
	// OpenRuns are those that have not ended, by status; the limit is for all of them together.
	OpenRuns map[entities.RunStatus]int64
}

// Gauges reads the gauges. What it costs does not depend on how much there is: no part goes through more than
// [GaugeLimit] entries of an index, or twice that where leased messages stand between those that wait.
func (q *Queue) Gauges(ctx context.Context) (Gauges, error) {
	var g Gauges
	var oldest time.Duration
	err := q.pool.QueryRow(ctx, gaugesSQL, GaugeLimit).
		Scan(&g.StrandedRuns, &g.WaitingMessages, &g.LeasedMessages, &g.ParkedMessages, &oldest)
	if err != nil {
		return Gauges{}, wrap("read gauges", err)
	}
	g.WaitingMessages, g.OldestDue = min(g.WaitingMessages, GaugeLimit), oldest
	g.OpenRuns, err = entities.CountOpenRuns(ctx, q.pool, GaugeLimit)
	return g, wrap("read gauges", err)
}

// gaugesSQL is for the limit. Each of its parts is in the order of a partial index.
const gaugesSQL = `
	SELECT (SELECT count(*) FROM (
			SELECT FROM run_wakes WHERE stranded_at IS NOT NULL ORDER BY run_id LIMIT $1) AS s),
		(SELECT count(*) FILTER (WHERE lease = '') FROM (
			SELECT lease FROM messages WHERE parked_at IS NULL ORDER BY due_at DESC LIMIT 2 * $1) AS w),
		(SELECT count(*) FROM (
			SELECT FROM messages WHERE lease > '' ORDER BY project, id LIMIT $1) AS l),
		(SELECT count(*) FROM (
			SELECT FROM messages WHERE parked_at IS NOT NULL ORDER BY project, id LIMIT $1) AS p),
		greatest('0',
			(SELECT clock_timestamp() - due_at FROM messages WHERE parked_at IS NULL ORDER BY due_at LIMIT 1),
			(SELECT clock_timestamp() - scheduled_at FROM (` + tickets.OldestSince + `) AS oldest))`
