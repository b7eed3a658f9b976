package limit

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// reading collects the facts about the limits of one project.
type reading struct {
	Facts

	project entities.Project
	now     time.Time
}

func newReading(project entities.Project) *reading {
	return &reading{Facts: NewFacts(), project: project}
}

// lock queues a lock on the limits with the names, in one order everywhere, and the read of their settings. The
// condition may leave some out.
//
// FOR NO KEY UPDATE makes Postgres read the newest version of each row, so the settings are those that count now.
func (r *reading) lock(b *pgx.Batch, names []string, condition string) {
	pg.LoadEach(b, func(l Limit) { r.Limits[l.Name] = l }, `
		SELECT `+columns+` FROM limits WHERE project = $1 AND name = ANY ($2)`+condition, r.project, names)
}

const lockSorted = ` ORDER BY name FOR NO KEY UPDATE`

// count queues the reads of what is held and of the clocks, for the slots and tenants of the uses. They must be
// statements after the one that locks: see the package's documentation.
func (r *reading) count(b *pgx.Batch, uses []entities.LimitUse) {
	names, keys, tenants := make([]string, len(uses)), make([]string, len(uses)), make([]string, len(uses))
	for i, u := range uses {
		names[i], keys[i], tenants[i] = u.Name, u.Key, tenantOf(u).Key
	}
	type held struct {
		Name, Key, Tenant string
		Held              int
		RateAt, ServedAt  *time.Time
	}
	pg.LoadEach(b, func(h held) {
		p, t := Bucket{h.Name, h.Key}, Bucket{h.Name, h.Tenant}
		r.Held[p] = h.Held
		if h.RateAt != nil {
			r.Rates[p] = *h.RateAt
		}
		if h.ServedAt != nil {
			r.Served[t] = *h.ServedAt
		}
	}, `
		SELECT u.*, (SELECT coalesce(sum(cost), 0) FROM permits h WHERE h.project = $1 AND h.name = u.name AND h.key = u.key
				AND h.granted_at IS NOT NULL)::integer AS held,
			(SELECT at FROM limit_clocks c WHERE c.project = $1 AND c.name = u.name AND c.kind = 'rate' AND c.key = u.key)
				AS rate_at,
			(SELECT at FROM limit_clocks c WHERE c.project = $1 AND c.name = u.name AND c.kind = 'served' AND c.key = u.tenant)
				AS served_at
		FROM (SELECT DISTINCT * FROM unnest($2::text[], $3::text[], $4::text[]) AS u (name, key, tenant)) AS u`,
		r.project, names, keys, tenants)
	type total struct {
		Name, Tenant string
		Held         int
	}
	pg.LoadEach(b, func(t total) {
		r.Total[t.Name] += t.Held
		r.Tenants[Bucket{t.Name, t.Tenant}] = t.Held
	}, `
		SELECT name, tenant, sum(cost)::integer AS held FROM permits p
		WHERE project = $1 AND granted_at IS NOT NULL AND name IN (
			SELECT name FROM limits WHERE project = $1 AND name = ANY ($2) AND (total > 0 OR fair))
		GROUP BY name, tenant`, r.project, names)
	b.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&r.now) })
}

// DeleteOldClocks deletes the clocks that mean nothing any more.
func DeleteOldClocks(ctx context.Context, q pg.Pool) error {
	_, err := q.Exec(ctx, `DELETE FROM limit_clocks WHERE at < now() - interval '1 hour' AND `+pg.Staying("project"))
	return pg.Wrap(err, "delete old clocks of limits")
}

// writeClocks queues the writes of the clocks that a decision changed.
func (r *reading) writeClocks(b *pgx.Batch, g Grants) {
	var names, kinds, keys []string
	var at []time.Time
	for kind, clocks := range map[string]map[Bucket]time.Time{"rate": g.Rates, "served": g.Served} {
		for p, t := range clocks {
			names, kinds, keys, at = append(names, p.Name), append(kinds, kind), append(keys, p.Key), append(at, t)
		}
	}
	if len(names) == 0 {
		return
	}
	b.Queue(`
		INSERT INTO limit_clocks (project, name, kind, key, at)
		SELECT $1, * FROM unnest($2::text[], $3::text[], $4::text[], $5::timestamptz[])
		ON CONFLICT (project, name, kind, key) DO UPDATE SET at = excluded.at`, r.project, names, kinds, keys, at)
}
