package queue

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/rescue"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// Observer observes deliveries, for metrics and traces. Its methods are called concurrently and must return quickly.
type Observer interface {
	// Deliver is called when a message has been claimed that was ready for the time waited. The delivery continues with
	// the returned context, and calls the returned function once when it ends.
	Deliver(_ context.Context, _ Delivery, waited time.Duration) (context.Context, func(Delivered))
	// Call is called before each request to a function, and may add headers to the request.
	Call(context.Context, http.Header)
}

// Delivered describes how a delivery ended.
type Delivered struct {
	Outcome Outcome
	// Why is the reason if it failed. It contains no text from a function.
	Why string
}

// Outcome is how a delivery ends.
type Outcome string

// The outcomes of deliveries.
const (
	// OutcomeDone: the function answered, or the work was done, which includes recording a failed result.
	OutcomeDone Outcome = "done"
	// OutcomeFailed: the function failed, or its answer could not be applied. The message is retried.
	OutcomeFailed Outcome = "failed"
	// OutcomeUnreached: the function could not be reached, its deployment is not registered, or it was not called for
	// lack of memory or time. The message is retried.
	OutcomeUnreached Outcome = "unreached"
	// OutcomeDropped: nothing was left to do, or another process does it.
	OutcomeDropped Outcome = "dropped"
	// OutcomeStopped: the server stopped first.
	OutcomeStopped Outcome = "stopped"
	// OutcomeLost: the result could not be stored. The message is retried.
	OutcomeLost Outcome = "lost"
)

// noObserver is the observer of a worker that is configured without one.
type noObserver struct{}

func (noObserver) Deliver(ctx context.Context, _ Delivery, _ time.Duration) (context.Context, func(Delivered)) {
	return ctx, func(Delivered) {}
}

func (noObserver) Call(context.Context, http.Header) {}

// observed delivers a message and reports the delivery to the observer. Waited is how long the message was ready.
func (w *deliverer) observed(ctx context.Context, d Delivery, waited time.Duration, free func()) error {
	ctx, done := w.options.Observer.Deliver(ctx, d, max(0, waited))
	end, err := w.rescued(ctx, d, free)
	if err := w.queue.bounds.Freed(ctx, d.Project, d.DeploymentID); err != nil { // the next check makes up for it
		w.logger.WarnContext(ctx, "select callable deployments", "deployment", d.DeploymentID, "error", err)
	}
	if err := w.queue.noteFreed(ctx, d); err != nil { // so it does for limits
		w.logger.WarnContext(ctx, "grant permits of a step", "run", d.RunID, "error", err)
	}
	if err != nil {
		end = Delivered{OutcomeLost, redact(err)}
	}
	w.tally.add(end.Outcome)
	done(end)
	return err
}

// rescued delivers a message, and parks it if that panics: it would do so again.
func (w *deliverer) rescued(ctx context.Context, d Delivery, free func()) (end Delivered, err error) {
	err = rescue.Do(ctx, cmp.Or(string(d.Work), "message"), func() (err error) {
		end, err = w.deliver(ctx, d, free)
		return err
	})
	if rescue.IsPanic(err) {
		return w.retryLater(ctx, d, err)
	}
	return end, err
}

// tally counts the deliveries of a process.
type tally struct {
	delivered atomic.Int64
	failed    atomic.Int64 // those that will be retried
}

func (t *tally) add(o Outcome) {
	t.delivered.Add(1)
	if o == OutcomeFailed || o == OutcomeUnreached || o == OutcomeLost {
		t.failed.Add(1)
	}
}

// Blocked returns which of the project's runs are blocked, and why.
func (q *Queue) Blocked(
	ctx context.Context, project entities.Project, runs []entities.RunID,
) (map[entities.RunID]message.Blocked, error) {
	blocked := map[entities.RunID]message.Blocked{}
	if len(runs) == 0 {
		return blocked, nil
	}
	type invocation struct {
		RunID    entities.RunID
		Blocked  *message.Blocked
		Since    time.Time
		Attempts int
	}
	list, err := pg.CollectAll[invocation](pg.NewPool(q.pool).Query(ctx, `
		SELECT run_id, blocked, coalesce(first_failed_at, created_at) AS since,
			greatest(1, delivery_count - disconnect_count) AS attempts
		FROM messages
		WHERE run_id = ANY ($1) AND work = 'run' AND subject = '' AND project IS NOT DISTINCT FROM $2`, runs, project))
	for _, i := range list {
		if i.Blocked != nil {
			i.Blocked.Since, i.Blocked.Attempts = i.Since, i.Attempts
			blocked[i.RunID] = *i.Blocked
		}
	}
	return blocked, pg.Wrap(err, "read blocked runs")
}

// maxBlockedRuns limits the runs that [Queue.BlockedRuns] returns.
const maxBlockedRuns = 200

// BlockedRuns returns up to 200 runs of the project that are blocked, each with how many calls have failed.
func (q *Queue) BlockedRuns(ctx context.Context, project entities.Project) (map[entities.RunID]int, error) {
	rows, err := pg.NewPool(q.pool).Query(ctx, `
		SELECT run_id, delivery_count FROM messages WHERE project = $1 AND blocked IS NOT NULL AND work = 'run'
		ORDER BY project, id LIMIT $2`, project, maxBlockedRuns)
	if err != nil {
		return nil, pg.Wrap(err, "list blocked runs")
	}
	blocked := map[entities.RunID]int{}
	var id entities.RunID
	var calls int
	_, err = pgx.ForEachRow(rows, []any{&id, &calls}, func() error {
		blocked[id] = calls
		return nil
	})
	return blocked, pg.Wrap(err, "list blocked runs")
}

// blockedCodes are the codes by which [Gauges] counts blocked runs. They are those of SDKs and of the server:
// other codes could be anything.
var blockedCodes = []string{message.CodeDiverged, "panic", "encode", rescue.Code}

// blockedSQL counts the runs that are blocked, up to the limit $2, by the codes $1. The ORDER BY makes Postgres use the
// partial index.
const blockedSQL = `
	SELECT code, count(*) FROM (
		SELECT CASE WHEN blocked->>'code' = ANY ($1) THEN blocked->>'code' ELSE 'other' END AS code
		FROM messages WHERE blocked IS NOT NULL ORDER BY project, id LIMIT $2) AS b GROUP BY code`

// countBlocked counts the runs that are blocked, by their code, or "other".
func (q *Queue) countBlocked(ctx context.Context) (map[string]int64, error) {
	counts := map[string]int64{"other": 0}
	for _, code := range blockedCodes {
		counts[code] = 0
	}
	rows, err := pg.NewPool(q.pool).Query(ctx, blockedSQL, blockedCodes, gaugeLimit)
	if err != nil {
		return nil, err
	}
	var code string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&code, &n}, func() error {
		counts[code] = n
		return nil
	})
	return counts, err
}

// gaugeLimit bounds the counts of [Queue.Gauges]: a gauge at the limit means that many or more.
const gaugeLimit = 10_000

// Gauges are counts over all projects, each up to 10,000.
type Gauges struct {
	// StrandedRuns counts the runs that the sweeper found unable to make progress (I5).
	StrandedRuns int64
	// WaitingMessages counts messages that are due, delayed, or in backoff, LeasedMessages those being delivered or
	// processed.
	WaitingMessages, LeasedMessages int64
	// ParkedMessages counts messages that wait for an operator to retry or discard them.
	ParkedMessages int64
	// OldestDue is how long the oldest due message has waited for its delivery.
	OldestDue time.Duration
	// OpenRuns counts the runs that have not ended, by status; the limit applies to their sum.
	OpenRuns map[entities.RunStatus]int64
	// BlockedRuns counts the runs whose function refuses to go on, by the code that it gives; codes that are not known are
	// counted as "other". The limit applies to their sum.
	BlockedRuns map[string]int64
	// DeadlockedRuns counts the runs that wait for slots of limits, or hold them, and can never go on: see
	// [limit.FindDeadlocks]. Those of a project with more than 10,000 such runs or steps are not known, and not counted.
	DeadlockedRuns int64
}

// Gauges reads the gauges. Its cost is bounded: no part reads more than 10,000 entries of an index, or 20,000 where
// leased messages are mixed with waiting ones. The search for deadlocks reads so many of each kind for each project.
func (q *Queue) Gauges(ctx context.Context) (Gauges, error) {
	var g Gauges
	err := pg.NewPool(q.pool).QueryRow(ctx, gaugesSQL, gaugeLimit).
		Scan(&g.StrandedRuns, &g.WaitingMessages, &g.LeasedMessages, &g.ParkedMessages, &g.OldestDue)
	if err != nil {
		return Gauges{}, pg.Wrap(err, "read gauges")
	}
	g.WaitingMessages = min(g.WaitingMessages, gaugeLimit)
	if g.BlockedRuns, err = q.countBlocked(ctx); err != nil {
		return Gauges{}, pg.Wrap(err, "read gauges")
	}
	if g.DeadlockedRuns, err = q.countDeadlocked(ctx); err != nil {
		return Gauges{}, pg.Wrap(err, "read gauges")
	}
	g.OpenRuns, err = store.CountOpenRuns(ctx, pg.NewPool(q.pool), gaugeLimit)
	return g, pg.Wrap(err, "read gauges")
}

// countDeadlocked counts the runs of all projects that are in deadlocks over limits.
func (q *Queue) countDeadlocked(ctx context.Context) (n int64, err error) {
	projects, err := limit.AwaitingProjects(ctx, q.pool)
	for _, project := range projects {
		d, err := limit.ReadDeadlocks(ctx, pg.NewPool(q.pool), project)
		if err != nil {
			return 0, err
		}
		if n += int64(len(d.DeadRuns())); n >= gaugeLimit {
			return gaugeLimit, nil
		}
	}
	return n, err
}

// gaugesSQL reads the gauges up to the limit $1. The ORDER BY of each part makes Postgres use a partial index.
const gaugesSQL = `
	SELECT (SELECT count(*) FROM (
			SELECT FROM run_wakes WHERE stranded_at IS NOT NULL ORDER BY run_id LIMIT $1) AS s),
		(SELECT count(*) FILTER (WHERE lease = '') FROM (
			SELECT lease FROM messages WHERE ` + cluster.Unparked + ` ORDER BY due_at DESC LIMIT 2 * $1) AS w),
		(SELECT count(*) FROM (
			SELECT FROM messages WHERE lease LIKE '_%' ORDER BY project, id LIMIT $1) AS l),
		(SELECT count(*) FROM (
			SELECT FROM messages WHERE parked_at IS NOT NULL ORDER BY project, id LIMIT $1) AS p),
		greatest('0',
			(SELECT clock_timestamp() - due_at FROM messages WHERE ` + cluster.Unparked + ` ORDER BY due_at LIMIT 1),
			(SELECT clock_timestamp() - scheduled_at FROM (` + tickets.OldestSince + `) AS oldest))`

// Number is a number of messages.
type Number struct {
	Count int
	// More says that there may be more.
	More bool
}

// Counts are numbers of a project's messages.
type Counts struct {
	Parked, Retrying, Leased, Due, Delayed Number
	// OldestDue is when the first of the due messages was due; nil if there is none.
	OldestDue *time.Time
}

// countLimit is up to where [Queue.Counts] counts the messages of a state.
const countLimit = 1000

// Counts counts the project's messages by their state, up to 1,000 of each. It reads up to 10,000 messages for each
// state.
func (q *Queue) Counts(ctx context.Context, project entities.Project) (c Counts, err error) {
	into := map[State]*Number{
		StateParked: &c.Parked, StateRetrying: &c.Retrying, StateLeased: &c.Leased, StateDue: &c.Due,
		StateDelayed: &c.Delayed,
	}
	rows, err := pg.NewPool(q.pool).Query(ctx, countsSQL, project, scanLimit, countLimit+1)
	if err != nil {
		return c, pg.Wrap(err, "count messages")
	}
	var s State
	var n int
	var stopped bool
	var first *time.Time
	_, err = pgx.ForEachRow(rows, []any{&s, &n, &stopped, &first}, func() error {
		*into[s] = Number{min(n, countLimit), stopped || n > countLimit}
		if s == StateDue {
			c.OldestDue = first
		}
		return nil
	})
	return c, pg.Wrap(err, "count messages")
}

// countsSQL counts the messages of project $1 by state, up to $3 of each, of which it reads $2.
var countsSQL = func() string {
	var parts []string
	for _, state := range []State{StateParked, StateRetrying, StateLeased, StateDue, StateDelayed} {
		s := selections[state]
		parts = append(parts, `
			SELECT '`+string(state)+`', count(*) FILTER (WHERE matches), coalesce(bool_or(last), false),
				min(due_at) FILTER (WHERE matches)
			FROM (SELECT * FROM (
				SELECT due_at, `+s.rest+` AS matches, row_number() OVER (ORDER BY `+s.order+`) = $2 AS last
				FROM `+s.first(s.index, s.order, "$2")+` AS m ORDER BY `+s.order+`) AS scanned
			WHERE matches OR last LIMIT $3) AS found`)
	}
	return strings.Join(parts, " UNION ALL ")
}()
