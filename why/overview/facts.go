// Package overview says how a project stands: [Reader.Attention] what needs attention, and [Reader.Gauges] what is open
// and in the queue. [Decide] is pure; each statement reads a bounded part of an index.
package overview

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/coalesce"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/live"
	"github.com/stepwell-dev/stepwell/eventlog/stats"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/hold"
)

const (
	// MaxCount is the limit of the counts of [Item].
	MaxCount = 1000
	// MaxGauge is the limit of the counts of [Gauges].
	MaxGauge = 10_000
)

// Reader reads how projects stand.
type Reader struct {
	pool        pg.Pool
	stats       *stats.Reader
	signingKeys *admin.SigningKeys
	now         func() time.Time

	attention *coalesce.Reads[entities.Project, attention]
	gauges    *coalesce.Reads[entities.Project, Gauges]
	versions  *coalesce.Reads[entities.Project, live.Versions]
	needs     *coalesce.Reads[entities.Project, counted]
}

// NewReader returns a reader of the pool's database.
func NewReader(pool *pgxpool.Pool, s *stats.Reader, k *admin.SigningKeys, now func() time.Time) *Reader {
	return &Reader{
		pool: pg.NewPool(pool), stats: s, signingKeys: k,
		attention: coalesce.New[entities.Project, attention](shareFor, now),
		gauges:    coalesce.New[entities.Project, Gauges](sharesGauges, now),
		versions:  coalesce.New[entities.Project, live.Versions](sharesGauges, now),
		needs:     coalesce.New[entities.Project, counted](shareFor, now), now: now,
	}
}

const (
	pausedSQL = `SELECT paused_at FROM projects WHERE name = $1`
	pausesSQL = `SELECT count(*) AS count, min(paused_at) AS since, '' AS run
		FROM pauses WHERE project = $1 AND resumed_at IS NULL`
	parkedSQL = `
		SELECT count(*) AS count, min(parked_at) AS since, '' AS run FROM (
			SELECT parked_at FROM messages WHERE project = $1 AND parked_at IS NOT NULL LIMIT $2) AS m`
	blockedSQL = `
		SELECT count(*) AS count, min(first_failed_at) AS since, coalesce(min(run_id), '') AS run FROM (
			SELECT first_failed_at, run_id, parked_at FROM messages
			WHERE project = $1 AND blocked IS NOT NULL LIMIT $2) AS m
		WHERE parked_at IS NULL`
	// strandedSQL reads the first $2 stranded runs of all projects, for those of project $1 that have been stranded
	// for $3.
	strandedSQL = `
		SELECT count(*) AS count, min(stranded_at) AS since, coalesce(min(run_id), '') AS run
		FROM (
			SELECT run_id, stranded_at FROM run_wakes WHERE stranded_at IS NOT NULL ORDER BY run_id LIMIT $2) AS w
		WHERE stranded_at < now() - $3::interval
			AND (SELECT project = $1 AND completed_at IS NULL FROM runs WHERE id = w.run_id)`
	// unreachedSQL reads the first $2 messages that failed: those that wait for a slot would hide them. It leaves out
	// errors that are not the deployment's: $3. The ORDER BY makes Postgres use the partial index.
	unreachedSQL = `
		SELECT deployment_id AS deployment, count(*) AS messages, max(unreached_count) AS calls,
			EXISTS (SELECT FROM deployments d WHERE d.project = $1 AND d.id = deployment_id) AS registered
		FROM (
			SELECT deployment_id, unreached_count, last_error FROM messages
			WHERE project = $1 AND parked_at IS NULL AND last_error <> '' ORDER BY project, id LIMIT $2) AS m
		WHERE unreached_count > 0 AND last_error <> ALL ($3)
		GROUP BY 1 ORDER BY 2 DESC, 1`
)

// due selects when the messages of project $1 are due that are, the first $2.
var due = message.FirstDue("due_at", `parked_at IS NULL AND due_at <= now()`, "due_at", "$2")

var dueSQL = `SELECT count(*) AS count, min(due_at) AS since, '' AS run FROM (` + due + `) AS m`

// notUnreached are errors of messages that count as unreached although their deployment may be well.
func notUnreached() []string {
	return append([]string{"another copy of this call has written to the log", message.NotReady}, message.ServerErrors...)
}

// facts reads the facts. Those of the queue are of one moment.
func (r *Reader) facts(ctx context.Context, project entities.Project) (f Facts, err error) {
	err = r.pool.Snapshot(ctx, func(tx pgx.Tx) error {
		f = Facts{}
		var b pgx.Batch
		b.Queue(`SELECT now()`).QueryRow(func(row pgx.Row) error { return row.Scan(&f.Now) })
		b.Queue(pausedSQL, project).QueryRow(func(row pgx.Row) error { return row.Scan(&f.PausedAt) })
		into := func(t *Tally) func(Tally) { return func(found Tally) { *t = found } }
		pg.LoadEach(&b, into(&f.Pauses), pausesSQL, project)
		pg.LoadEach(&b, into(&f.Parked), parkedSQL, project, MaxCount)
		pg.LoadEach(&b, into(&f.Blocked), blockedSQL, project, MaxCount)
		pg.LoadEach(&b, into(&f.Stranded), strandedSQL, project, MaxCount, strandedFor)
		pg.LoadEach(&b, func(u Unreached) {
			u.Messages = min(u.Messages, MaxCount)
			f.Unreached = append(f.Unreached, u)
		}, unreachedSQL, project, MaxGauge, notUnreached())
		pg.LoadEach(&b, into(&f.Due), dueSQL, project, MaxCount)
		return pg.SendQueued(ctx, tx, &b)
	})
	if err != nil {
		return Facts{}, err
	}
	if f.Failures, err = r.stats.RecentFailures(ctx, project); err != nil {
		return Facts{}, err
	}
	// The newest keys: one that is about to expire and has a thousand successors is not missed.
	f.Keys, _, err = admin.ListKeys(ctx, r.pool, project, pg.Page{Limit: MaxCount, Descending: true})
	if err != nil {
		return Facts{}, err
	}
	f.SigningKeys, err = r.signingKeys.List(ctx, project)
	return f, err
}

// Gauges are counts of a project at one moment, each up to [MaxGauge].
type Gauges struct {
	At time.Time
	// Pending and Running are runs that have not ended.
	Pending, Running int64
	// Due messages wait for a slot, and Leased are being delivered. Delayed messages are for later, and Retrying wait
	// for their next delivery after a failure. Parked wait for a person.
	Due, Leased, Delayed, Retrying, Parked int64
	// Capped says that counting stopped at the limit: then there may be more of each.
	Capped bool
	// OldestDue is when the message that has waited longest was due; nil if none is.
	OldestDue *time.Time
}

// notYetDue is the condition on messages that are for later, and that no pause holds.
const notYetDue = `parked_at IS NULL AND due_at > now() AND due_at < ` + hold.Until

// A message that has had a ticket, has not failed and is not being delivered has a ticket that waits: it is due.
var gaugesSQL = `
	WITH waiting AS MATERIALIZED (
		` + message.FirstDue("lease, last_error, ticket, due_at", notYetDue, "due_at", "$2") + `
	), due AS MATERIALIZED (` + due + `)
	SELECT now() AS at,
		(SELECT count(*) FROM (SELECT FROM runs WHERE project = $1 AND status = 'pending' LIMIT $2) AS r) AS pending,
		(SELECT count(*) FROM (SELECT FROM runs WHERE project = $1 AND status = 'running' LIMIT $2) AS r) AS running,
		(SELECT count(*) FROM due)
			+ (SELECT count(*) FROM waiting WHERE lease = '' AND last_error = '' AND ticket > 0) AS due,
		(SELECT count(*) FROM waiting WHERE lease > '') AS leased,
		(SELECT count(*) FROM waiting WHERE lease = '' AND last_error = '' AND ticket = 0) AS delayed,
		(SELECT count(*) FROM waiting WHERE lease = '' AND last_error <> '') AS retrying,
		(SELECT count(*) FROM (SELECT FROM messages WHERE project = $1 AND parked_at IS NOT NULL LIMIT $2) AS m) AS parked,
		(SELECT count(*) FROM waiting) = $2 AS capped,
		(SELECT min(due_at) FROM due) AS oldest_due`

// Gauges reads the gauges of the project, up to a second ago.
func (r *Reader) Gauges(ctx context.Context, project entities.Project) (Gauges, error) {
	return r.gauges.Get(ctx, project, func() (Gauges, error) { return r.readGauges(ctx, project) })
}

func (r *Reader) readGauges(ctx context.Context, project entities.Project) (Gauges, error) {
	rows, err := r.pool.Query(ctx, gaugesSQL, project, MaxGauge)
	g, err := pg.CollectOne[Gauges](rows, err, pgx.ErrNoRows)
	if err != nil {
		return Gauges{}, fmt.Errorf("read gauges: %w", err)
	}
	g.Capped = g.Capped || max(g.Pending, g.Running, g.Due, g.Parked) >= MaxGauge
	g.Due = min(g.Due, MaxGauge)
	return g, nil
}

// shareFor is how long an answer of [Reader.Attention] is shared, and sharesGauges those of [Reader.Gauges] and
// [Reader.Versions]: who is sent a topic waits for longer before it reads.
const (
	shareFor     = 5 * time.Second
	sharesGauges = time.Second
)

// attention is what needed attention at a time, by the database.
type attention struct {
	items []Item
	at    time.Time
}

// Attention returns what needs attention in the project, and the time at which that was read, up to 5 s ago. The caller
// must not change the items.
func (r *Reader) Attention(ctx context.Context, project entities.Project) ([]Item, time.Time, error) {
	a, err := r.attention.Get(ctx, project, func() (attention, error) {
		f, err := r.facts(ctx, project)
		return attention{Decide(f), f.Now}, err
	})
	return a.items, a.at, pg.Wrap(err, "read what needs attention")
}
