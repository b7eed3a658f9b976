package limit

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// perBucket is how many that wait with one key a pass considers, and perPass how many in all.
	perBucket = 500
	perPass   = 2000
	// spare is how many more that wait than there is room for a narrow pass considers with one key.
	spare = 8
	// maxKeys is how many keys of one limit a pass considers.
	maxKeys = 10_000
)

// Granted is what a pass has granted slots to.
type Granted struct {
	RunID entities.RunID
	// MessageID is the message with the step; empty for a run.
	MessageID string
	// Refused is the limit that had no slot for a step; nil if it got all slots.
	Refused *FullError
}

// Passed is the outcome of a pass.
type Passed struct {
	// Granted is how many got slots, Refused how many were refused, and Next how long it is until a rate allows the
	// next one; 0 if none waits for that.
	Granted, Refused int
	Next             time.Duration
}

// Pass grants the slots of a project that can be granted: those of the slots that are named and, of limits with a
// total, those of all keys. It calls admit with what is about to be granted or refused, to queue the statements that
// make it begin or end; the function that admit returns is called after the transaction.
func Pass(
	ctx context.Context, pool *pgxpool.Pool, project entities.Project, buckets []Bucket,
	admit func(*pgx.Batch, []Granted) (ended func(error)),
) (Passed, error) {
	waiting, err := candidates(ctx, pool, project, buckets)
	if err != nil || len(waiting) == 0 {
		return Passed{}, pg.Wrap(err, "read what waits for limits")
	}
	var out Passed
	p := &pass{reading: newReading(project)}
	err = pg.Pipelined{
		First: func(b *pgx.Batch) {
			p = &pass{reading: newReading(project)}
			p.read(b, waiting)
		},
		Then: func(_ context.Context, _ pgx.Tx, last *pgx.Batch) (func(error), error) {
			for _, c := range p.waiting {
				if len(c.Uses) == p.needs[c.Holder] {
					p.Waiting = append(p.Waiting, *c)
				}
			}
			g := Grant(p.Facts, p.now)
			out = Passed{Granted: len(g.Holders), Refused: len(g.Refused)}
			if !g.Next.IsZero() {
				out.Next = g.Next.Sub(p.now)
			}
			p.write(last, g)
			if len(g.Holders)+len(g.Refused) == 0 {
				return nil, nil
			}
			return admit(last, p.granted(g)), nil
		},
	}.Run(ctx, pool)
	return out, pg.Wrap(err, "grant permits")
}

// pass is what one transaction reads and writes.
type pass struct {
	*reading

	holders map[string]Granted
	waiting map[string]*Candidate // by holder
	// needs is how many uses each holder has. One of which a later read shows fewer cannot be judged: the pause of some
	// was over only after the read had passed them.
	needs map[string]int
}

// permit is a row that waits.
type permit struct {
	Holder            string
	Name, Key, Tenant string
	Cost              int
	RunID             entities.RunID
	MessageID         string
	RankAt            time.Time
	Passed            int
	// Paused is set after a pause: a later start, or another attempt.
	Paused bool
	Inside bool
}

func (p permit) use() entities.LimitUse {
	return entities.LimitUse{Name: p.Name, Key: p.Key, Tenant: p.Tenant, Cost: p.Cost}
}

// candidates reads, without locks, what a pass may grant slots to: all that each of them waits for.
//
// Usually all take one slot of one limit. Then those for which there is room, and a few spare ones for what ends
// meanwhile, are enough, however many wait. Otherwise who is next may be far behind.
func candidates(
	ctx context.Context, pool *pgxpool.Pool, project entities.Project, buckets []Bucket,
) ([]permit, error) {
	waiting, err := window(ctx, pool, project, buckets, spare)
	if err != nil || isPlain(waiting) {
		return waiting, err
	}
	return window(ctx, pool, project, buckets, perBucket)
}

// isPlain reports whether each that waits takes one slot of one limit.
func isPlain(waiting []permit) bool {
	seen := map[string]bool{}
	for _, w := range waiting {
		if w.Cost > 1 || seen[w.Holder] {
			return false
		}
		seen[w.Holder] = true
	}
	return true
}

// window reads those that wait first with each key: so many more than there is room for, and no more than perBucket.
// Of fair limits, whose tenants take turns, and of those that reject, it reads perBucket. Limits take turns in the
// window, and so do the keys of one, so that a long queue keeps no other one out. Of a limit with a total, a narrow
// window has no more than could go, and the spare ones; mostly they are among those that came first, and not all keys
// that wait are read.
func window(
	ctx context.Context, pool *pgxpool.Pool, project entities.Project, buckets []Bucket, more int,
) ([]permit, error) {
	names, keys := bucketColumns(buckets)
	return pg.CollectAll[permit](pg.NewPool(pool).Query(ctx, windowOf,
		project, names, keys, perBucket, perPass, maxKeys, more))
}

// windowOf reads the window of the project $1 and the buckets $2 and $3, whose size is $7: see [window]. $4, $5 and $6
// are perBucket, perPass and maxKeys.
const windowOf = `
	WITH RECURSIVE named AS MATERIALIZED (
		SELECT name, per_key, fair, paused, on_full = 'reject' AS rejects, CASE WHEN rate > 0 THEN burst END AS burst,
			CASE WHEN total > 0 THEN total - (SELECT coalesce(sum(cost), 0) FROM permits h
				WHERE h.project = $1 AND h.name = l.name AND h.granted_at IS NOT NULL)::integer END AS room
		FROM limits l WHERE project = $1 AND name = ANY ($2)
	), head AS MATERIALIZED (
		SELECT named.name, w.key, count(*) AS waiting FROM named, LATERAL (
			SELECT key FROM permits w
			WHERE w.project = $1 AND w.name = named.name AND num_nulls(w.granted_at) = 1
				AND (w.not_before IS NULL OR w.not_before <= clock_timestamp())
			ORDER BY rank_at, holder LIMIT $4) AS w
		WHERE named.room > 0 AND NOT (paused OR fair OR rejects) AND burst IS NULL AND $7 < $4
		GROUP BY named.name, w.key
	), enough AS (
		SELECT name FROM named
		WHERE room + $7 <= (SELECT sum(CASE WHEN per_key > 0 THEN greatest(0, least(waiting, per_key - (
				SELECT coalesce(sum(cost), 0) FROM permits h WHERE h.project = $1 AND h.name = head.name AND h.key = head.key
					AND h.granted_at IS NOT NULL))) ELSE waiting END)
			FROM head WHERE head.name = named.name)
	), keys (name, key, n) AS (
		SELECT name, (SELECT min(key) FROM permits w WHERE w.project = $1 AND w.name = named.name
			AND granted_at IS NULL), 1 FROM named
		WHERE (room > 0 AND NOT paused OR rejects AND room IS NOT NULL) AND name NOT IN (SELECT name FROM enough)
		UNION ALL
		SELECT name, (SELECT min(key) FROM permits w WHERE w.project = $1 AND w.name = keys.name AND w.key > keys.key
			AND granted_at IS NULL), n + 1 FROM keys WHERE key IS NOT NULL AND n < $6
	), buckets AS (
		SELECT DISTINCT name, key FROM (
			SELECT * FROM unnest($2::text[], $3::text[]) AS asked (name, key) WHERE name NOT IN (SELECT name FROM enough)
			UNION ALL SELECT name, key FROM keys WHERE key IS NOT NULL
			UNION ALL SELECT name, key FROM head) AS p
	), open AS (
		SELECT p.*, CASE WHEN l.fair OR l.rejects THEN $4 ELSE least($4, $7 + least(l.room, k.room, l.burst)) END AS size,
			k.room, CASE WHEN NOT (l.fair OR l.rejects) AND l.burst IS NULL AND $7 < $4 THEN $7 + l.room END AS most
		FROM buckets p LEFT JOIN named l ON l.name = p.name, LATERAL (
			SELECT CASE WHEN l.per_key > 0 THEN l.per_key - (SELECT coalesce(sum(cost), 0) FROM permits h
				WHERE h.project = $1 AND h.name = p.name AND h.key = p.key AND h.granted_at IS NOT NULL)::integer END AS room
		) AS k
		WHERE l.rejects OR (l.paused OR l.room <= 0 OR k.room <= 0) IS NOT TRUE
	), first AS (
		SELECT holder FROM (
			SELECT w.*, row_number() OVER (PARTITION BY name ORDER BY nth > room, rank_at, holder) AS line
			FROM (
				SELECT w.*, open.name, open.room, open.most,
					row_number() OVER (PARTITION BY open.name, open.key ORDER BY rank_at, holder) AS nth
				FROM open, LATERAL (
					SELECT holder, rank_at FROM permits w
					WHERE w.project = $1 AND w.name = open.name AND w.key = open.key AND w.granted_at IS NULL
						AND (w.not_before IS NULL OR w.not_before <= clock_timestamp())
					ORDER BY rank_at, holder LIMIT open.size) AS w) AS w) AS w
		WHERE (line <= most) IS NOT FALSE
		ORDER BY row_number() OVER (PARTITION BY name ORDER BY nth, rank_at, holder), rank_at, holder LIMIT $5
	)
	SELECT ` + permitOf + `, false AS inside FROM permits w
	WHERE holder = ANY (ARRAY (SELECT holder FROM first)) AND ` + ungranted

// ungranted is the condition that a permit waits, for statements that look up the permits of holders. It is written so
// that Postgres does not use permits_waiting_idx: while statistics are old, it would read all that wait with it.
const ungranted = `coalesce(granted_at, 'infinity') = 'infinity'`

// permitOf are the columns of a [permit].
const permitOf = `holder, name, key, tenant, cost, run_id, coalesce(message_id, '') AS message_id, rank_at, passed,
	not_before IS NOT NULL AS paused`

// read queues the locks and the reads of the pass.
func (p *pass) read(b *pgx.Batch, waiting []permit) {
	p.holders, p.waiting, p.needs = map[string]Granted{}, map[string]*Candidate{}, map[string]int{}
	var uses []entities.LimitUse
	var names, holders, messages []string
	mayBar := false // a barrier that comes up during this pass counts in the next one
	for _, w := range waiting {
		p.needs[w.Holder]++
		mayBar = mayBar || w.Passed > 0
		uses, names, holders = append(uses, w.use()), append(names, w.Name), append(holders, w.Holder)
		if w.MessageID != "" {
			messages = append(messages, w.MessageID)
		}
	}
	slices.Sort(names)
	p.lock(b, slices.Compact(names), lockSorted)
	locked := lockMessages(b, messages)
	pg.LoadEach(b, func(w permit) {
		if w.MessageID != "" && !locked[w.MessageID] {
			return
		}
		c := p.waiting[w.Holder]
		if c == nil {
			c = &Candidate{
				Holder: w.Holder, Rank: w.RankAt, Passed: w.Passed, MayRefuse: w.MessageID != "" && !w.Paused,
				Inside: w.Inside,
			}
			p.waiting[w.Holder] = c
			p.holders[w.Holder] = Granted{RunID: w.RunID, MessageID: w.MessageID}
		}
		c.Uses = append(c.Uses, w.use())
	}, waitingPermits, holders, mayBar)
	p.count(b, uses)
}

const (
	// waitingPermits reads the permits of the holders $1 that may go now and, if $2 is set, whether they are inside.
	waitingPermits = `SELECT ` + permitOf + `, $2 AND ` + inside + ` AS inside FROM permits w
		WHERE holder = ANY ($1) AND ` + ungranted + ` AND (not_before IS NULL OR not_before <= clock_timestamp())`
	// grantPermits grants all that the holders $1 wait for at the time $2.
	grantPermits = `UPDATE permits SET granted_at = $2, not_before = NULL WHERE holder = ANY ($1) AND ` + ungranted
)

// inside is the condition that the run of the permit w, or an ancestor that waits for that, holds slots.
const inside = `EXISTS (
	WITH RECURSIVE up AS (
		SELECT id, parent_id, detached, 1 AS n FROM runs WHERE id = w.run_id
		UNION ALL
		SELECT r.id, r.parent_id, r.detached, n + 1 FROM up JOIN runs r ON r.id = up.parent_id
		WHERE NOT up.detached AND n < 100
	)
	SELECT FROM up JOIN permits h ON h.holder = up.id AND h.granted_at IS NOT NULL)`

// lockMessages queues a lock on the messages of steps. A transaction that deletes or releases a message locks it before
// its permits, and so does a pass. Messages that another transaction has locked are left for the next pass.
func lockMessages(b *pgx.Batch, ids []string) (locked map[string]bool) {
	locked = map[string]bool{}
	if len(ids) == 0 {
		return locked
	}
	type found struct{ ID string }
	pg.LoadEach(b, func(m found) { locked[m.ID] = true },
		`SELECT id FROM messages WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED`, ids)
	return locked
}

// write queues the grants.
func (p *pass) write(b *pgx.Batch, g Grants) {
	holders := slices.Sorted(slices.Values(g.Holders))
	if len(holders) > 0 {
		b.Queue(grantPermits, holders, p.now)
	}
	if len(g.Refused) > 0 {
		b.Queue(`DELETE FROM permits WHERE holder = ANY ($1)`, slices.Sorted(maps.Keys(g.Refused)))
	}
	for holder, n := range g.Passed {
		if !slices.Contains(g.Holders, holder) {
			b.Queue(`UPDATE permits SET passed = $2 WHERE holder = $1 AND `+ungranted, holder, n)
		}
	}
	p.writeClocks(b, g)
}

func (p *pass) granted(g Grants) []Granted {
	list := make([]Granted, 0, len(g.Holders)+len(g.Refused))
	for _, h := range g.Holders {
		list = append(list, p.holders[h])
	}
	for h, full := range g.Refused {
		refused := p.holders[h]
		refused.Refused = full
		list = append(list, refused)
	}
	slices.SortFunc(list, func(a, b Granted) int { return strings.Compare(string(a.RunID), string(b.RunID)) })
	return list
}
