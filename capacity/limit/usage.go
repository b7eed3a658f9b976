package limit

import (
	"context"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// maxCount bounds the counts that are only for people, and so their cost.
const maxCount = 10_000

// KeyUsage is what holds or awaits the slots of a limit with one key.
type KeyUsage struct {
	Key string
	// Held is how many slots are taken, and Waiting how many wait, up to 10,000.
	Held, Waiting int
	// OldestWait is since when the first of them waits; nil if none does.
	OldestWait *time.Time
}

// Usage reads a page of the keys of a limit that something holds or awaits, ordered by key, and the cursor of the next
// page; empty after the last. One key may be empty, so cursors are keys with a prefix.
func (s *Store) Usage(
	ctx context.Context, project entities.Project, name string, p pg.Page,
) (list []KeyUsage, next string, err error) {
	const prefix = "key:"
	if p.Cursor != "" && len(p.Cursor) < len(prefix) {
		return nil, "", pg.BadCursor(p.Cursor)
	}
	after, first := "", true
	if p.Cursor != "" {
		after, first = p.Cursor[len(prefix):], false
	}
	rows, err := s.pool.Query(ctx, `
		WITH RECURSIVE keys (key, n) AS (
			(SELECT min(key), 1 FROM permits WHERE project = $1 AND name = $2 AND ($4 OR key > $3))
			UNION ALL
			SELECT (SELECT min(key) FROM permits p WHERE project = $1 AND name = $2 AND p.key > keys.key), n + 1
			FROM keys WHERE key IS NOT NULL AND n < $5
		)
		SELECT key, `+usageColumns+` FROM keys WHERE key IS NOT NULL ORDER BY key`,
		project, name, after, first, p.Limit+1, maxCount)
	list, next, err = pg.CollectPage(rows, err, p.Limit, func(u KeyUsage) string { return prefix + u.Key })
	return list, next, pg.Wrap(err, "read use of limit %s", name)
}

// usageColumns are the columns of a [KeyUsage] except the key: of limit $2 of project $1, with counts up to $6.
const usageColumns = `
	(SELECT coalesce(sum(cost), 0) FROM permits h
		WHERE h.project = $1 AND h.name = $2 AND h.key = keys.key AND granted_at IS NOT NULL)::integer AS held,
	(SELECT count(*) FROM (SELECT FROM permits w
		WHERE w.project = $1 AND w.name = $2 AND w.key = keys.key AND granted_at IS NULL LIMIT $6) AS counted)::integer
		AS waiting,
	(SELECT created_at FROM permits w WHERE w.project = $1 AND w.name = $2 AND w.key = keys.key AND granted_at IS NULL
		ORDER BY rank_at, holder LIMIT 1) AS oldest_wait`

// Permit is what holds or awaits a slot of a limit.
type Permit struct {
	Name, Key, Tenant string
	Cost              int
	RunID             entities.RunID
	// MessageID is the message with the step that holds or awaits the slot, and Subject the step; both are empty if the
	// run does.
	MessageID, Subject string
	CreatedAt          time.Time
	// NotBefore is when it may go at the earliest, if that is later than when it came.
	NotBefore *time.Time
	// Passed is how many went before it while another limit kept it from going.
	Passed int
	// GrantedAt is when it got the slot; nil while it waits.
	GrantedAt *time.Time
}

const permitColumns = `p.name, p.key, p.tenant, p.cost, p.run_id, coalesce(p.message_id, '') AS message_id,
	coalesce((SELECT subject FROM messages m WHERE m.id = p.message_id), '') AS subject, p.created_at, p.not_before,
	p.passed, p.granted_at`

// readPermits reads at most n permits of a limit, which meet a condition and are ordered as it says.
func readPermits(
	ctx context.Context, q pg.Querier, condition string, n int, project entities.Project, name string, args ...any,
) ([]Permit, error) {
	list, err := pg.CollectAll[Permit](q.Query(ctx, `
		SELECT `+permitColumns+` FROM permits p WHERE project = $1 AND name = $2 AND `+condition+`, holder LIMIT $3`,
		append([]any{project, name, n}, args...)...))
	return list, pg.Wrap(err, "read permits of limit %s", name)
}

// Holders reads what holds a slot of the limit with the key, longest first; at most n.
func (s *Store) Holders(ctx context.Context, project entities.Project, name, key string, n int) ([]Permit, error) {
	return readPermits(ctx, s.pool, `key = $4 AND granted_at IS NOT NULL ORDER BY granted_at`, n, project, name, key)
}

// HoldersOf reads what holds slots that the run waits for, longest first; at most n. With inAll, those with any key.
func HoldersOf(ctx context.Context, q pg.Querier, a Awaited, inAll bool, n int) ([]Permit, error) {
	return readPermits(ctx, q, `($5 OR key = $4) AND granted_at IS NOT NULL ORDER BY granted_at`, n,
		a.Limit.Project, a.Name, a.Key, inAll)
}

// Waiting reads what waits for a slot of the limit with the key, in the order of its rank; at most n.
func (s *Store) Waiting(ctx context.Context, project entities.Project, name, key string, n int) ([]Permit, error) {
	return readPermits(ctx, s.pool, `key = $4 AND granted_at IS NULL ORDER BY rank_at`, n, project, name, key)
}

// Awaited is a slot that a run, or one of its steps, waits for.
type Awaited struct {
	Permit

	// Limit has the settings; its fields are zero if the limit was deleted.
	Limit Limit
	// Ahead is how many that wait with the same key have a better rank, up to 10,000. With a fair limit, others may
	// nevertheless go first.
	Ahead int
	// Held and HeldInAll are how many slots are taken with the key, and with all keys.
	Held, HeldInAll int
	// RateAt is when the rate allows the next start with the key; nil if it does so now.
	RateAt *time.Time
}

// HasRoom reports whether the limit has a slot for it. It then waits for another limit, a rate, or the end of a pause.
func (a Awaited) HasRoom() bool {
	l := a.Limit
	return (l.PerKey == 0 || a.Held+a.Cost <= l.PerKey) && (l.Total == 0 || a.HeldInAll+a.Cost <= l.Total)
}

// AwaitedBy reads the slots that runs of the project and their steps wait for, at most n of each run, with the limits'
// state. Those ahead are counted up to a number.
func AwaitedBy(
	ctx context.Context, q pg.Querier, project entities.Project, runs []string, n, ahead int,
) ([]Awaited, error) {
	rows, err := q.Query(ctx, awaitedBySQL, project, runs, n, ahead)
	if err != nil {
		return nil, pg.Wrap(err, "read what runs wait for")
	}
	defer rows.Close()
	var list []Awaited
	for rows.Next() {
		var a Awaited
		var rate *time.Time
		var now time.Time
		l := &a.Limit
		err := rows.Scan(&a.Name, &a.Key, &a.Tenant, &a.Cost, &a.RunID, &a.MessageID, &a.Subject, &a.CreatedAt,
			&a.NotBefore, &a.Passed, &a.GrantedAt, &l.PerKey, &l.Total, &l.Rate, &l.Per, &l.Burst, &l.Fair, &l.OnFull,
			&l.Paused, &a.Ahead, &a.Held, &a.HeldInAll, &rate, &now)
		if err != nil {
			return nil, pg.Wrap(err, "read what runs wait for")
		}
		l.Project, l.Name = project, a.Name
		a.RateAt = l.nextStart(rate, a.Cost, now)
		list = append(list, a)
	}
	return list, pg.Wrap(rows.Err(), "read what runs wait for")
}

// awaitedBySQL counts what is taken once for each limit and key, however many of the runs wait for it.
const awaitedBySQL = `
	WITH awaited AS MATERIALIZED (
		SELECT p.* FROM unnest($2::text[]) AS r (id), LATERAL (
			SELECT * FROM permits
			WHERE run_id = r.id AND project IS NOT DISTINCT FROM $1 AND granted_at IS NULL
			ORDER BY holder, name LIMIT $3) AS p
	), keys AS MATERIALIZED (
		SELECT name, key, (SELECT coalesce(sum(cost), 0) FROM permits h
			WHERE h.project = $1 AND h.name = k.name AND h.key = k.key AND h.granted_at IS NOT NULL) AS held
		FROM (SELECT DISTINCT name, key FROM awaited) AS k
	), names AS MATERIALIZED (
		SELECT name, (SELECT coalesce(sum(cost), 0) FROM permits h
			WHERE h.project = $1 AND h.name = k.name AND h.granted_at IS NOT NULL) AS held
		FROM (SELECT DISTINCT name FROM awaited) AS k
	)
	SELECT ` + permitColumns + `,
		coalesce(l.per_key, 0), coalesce(l.total, 0), coalesce(l.rate, 0), coalesce(l.per, '0'), coalesce(l.burst, 0),
		coalesce(l.fair, false), coalesce(l.on_full, ''), coalesce(l.paused, false),
		(SELECT count(*) FROM (SELECT FROM permits a WHERE a.project = p.project AND a.name = p.name AND a.key = p.key
			AND a.granted_at IS NULL AND (a.rank_at, a.holder) < (p.rank_at, p.holder) LIMIT $4) AS counted),
		(SELECT held FROM keys k WHERE k.name = p.name AND k.key = p.key),
		(SELECT held FROM names k WHERE k.name = p.name),
		(SELECT at FROM limit_clocks c
			WHERE c.project = p.project AND c.name = p.name AND c.kind = 'rate' AND c.key = p.key AND l.rate > 0),
		clock_timestamp()
	FROM awaited p LEFT JOIN limits l ON l.project = p.project AND l.name = p.name
	ORDER BY p.run_id, p.holder, p.name`

// nextStart returns when the rate allows the next start with a key that has the clock, or nil if it does so now.
func (s Spec) nextStart(clock *time.Time, cost int, now time.Time) *time.Time {
	if clock == nil || s.Rate == 0 {
		return nil
	}
	at := clock.Add(time.Duration(cost-s.Burst) * s.Interval())
	if !at.After(now) {
		return nil
	}
	return &at
}

// Count is how many slots of a limit are taken, and how many wait for one, up to 10,000.
type Count struct{ Held, Waiting int }

// Counts counts what holds and awaits slots of the limits, with all keys.
func (s *Store) Counts(ctx context.Context, project entities.Project, names []string) (map[string]Count, error) {
	counts := map[string]Count{}
	rows, err := s.pool.Query(ctx, `
		SELECT name,
			(SELECT coalesce(sum(cost), 0) FROM permits h
				WHERE h.project = $1 AND h.name = names.name AND h.granted_at IS NOT NULL)::integer AS held,
			(SELECT count(*) FROM (SELECT FROM permits w
				WHERE w.project = $1 AND w.name = names.name AND w.granted_at IS NULL LIMIT $3) AS counted)::integer AS waiting
		FROM unnest($2::text[]) AS names (name)`, project, names, maxCount)
	list, err := pg.CollectAll[struct {
		Name          string
		Held, Waiting int
	}](rows, err)
	for _, c := range list {
		counts[c.Name] = Count{c.Held, c.Waiting}
	}
	return counts, pg.Wrap(err, "count use of limits")
}
