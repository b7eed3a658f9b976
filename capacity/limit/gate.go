package limit

import (
	"cmp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// guessedRetry is when a refused start should try again if nothing tells when a slot is free.
const guessedRetry = time.Second

// maxVictims is how many runs one start cancels.
const maxVictims = 100

// Gate decides about runs in the transaction that creates them: whether they begin at once, wait, or are refused.
type Gate struct {
	*reading

	// known has the limits that exist, locked or not; the facts have those that are locked.
	known Settings
	// queued has the slots for which others wait that could go now.
	queued map[Bucket]bool
	// victims has the runs that wait for a slot, or hold one, of a limit that cancels them; first those that came first.
	victims map[Bucket][]victim
	written Grants
}

type victim struct {
	Name, Key string
	RunID     entities.RunID
	Cost      int
	Granted   bool
}

// OpenGate queues the reads that decide about runs with the uses, at the beginning of a transaction. Unless the
// transaction holds other locks, it waits for the limits that refuse or cancel: they need a decision at once.
// Others are locked only if that needs no wait; else the run waits for a pass.
func OpenGate(b *pgx.Batch, project entities.Project, uses []entities.LimitUse, mayWait bool) *Gate {
	g := &Gate{
		reading: newReading(project), known: Settings{}, queued: map[Bucket]bool{}, victims: map[Bucket][]victim{},
		written: Grants{Rates: map[Bucket]time.Time{}, Served: map[Bucket]time.Time{}},
	}
	names, keys := make([]string, len(uses)), make([]string, len(uses))
	for i, u := range uses {
		names[i], keys[i] = u.Name, u.Key
	}
	if mayWait {
		g.lock(b, names, ` AND on_full <> 'wait'`+lockSorted)
	}
	g.lock(b, names, lockSorted+` SKIP LOCKED`)
	pg.LoadEach(b, func(l Limit) { g.known[l.Name] = l },
		`SELECT `+columns+` FROM limits WHERE project = $1 AND name = ANY ($2)`, project, names)
	pg.LoadEach(b, func(p Bucket) { g.queued[p] = true }, `
		SELECT u.name, u.key FROM unnest($2::text[], $3::text[]) AS u (name, key)
			JOIN limits l ON l.project = $1 AND l.name = u.name
		WHERE EXISTS (
			SELECT FROM permits w WHERE w.project = $1 AND w.name = u.name AND (w.key = u.key OR l.total > 0)
				AND w.granted_at IS NULL AND (w.not_before IS NULL OR w.not_before <= clock_timestamp()))`, project, names, keys)
	pg.LoadEach(b, func(v victim) {
		p := Bucket{v.Name, v.Key}
		g.victims[p] = append(g.victims[p], v)
	}, `
		SELECT u.name, u.key, v.run_id, v.cost, v.granted_at IS NOT NULL AS granted
		FROM unnest($2::text[], $3::text[]) AS u (name, key)
			JOIN limits l ON l.project = $1 AND l.name = u.name AND l.on_full IN ('replaceWaiting', 'cancelOldest'), LATERAL (
			(SELECT run_id, cost, granted_at, rank_at, holder FROM permits p
				WHERE p.project = $1 AND p.name = u.name AND p.key = u.key AND p.granted_at IS NOT NULL AND p.holder = p.run_id
					AND l.on_full = 'cancelOldest'
				ORDER BY granted_at, holder LIMIT $4)
			UNION ALL
			(SELECT run_id, cost, granted_at, rank_at, holder FROM permits p
				WHERE p.project = $1 AND p.name = u.name AND p.key = u.key AND p.granted_at IS NULL AND p.holder = p.run_id
					AND (l.on_full = 'replaceWaiting' OR p.not_before IS NULL OR p.not_before <= clock_timestamp())
				ORDER BY rank_at, holder LIMIT $4)
			ORDER BY granted_at, rank_at, holder LIMIT $4) AS v`, project, names, keys, maxVictims)
	g.count(b, uses)
	return g
}

// Known returns the settings of the limits as they are without their locks.
func (g *Gate) Known() Settings { return g.known }

// Admission is the decision about a run.
type Admission struct {
	// Granted says that the run has all of its slots. Otherwise it waits.
	Granted bool
	// Cancel are the runs that are cancelled for it.
	Cancel []entities.RunID
}

// Start is a run that is created.
type Start struct {
	RunID entities.RunID
	Uses  []entities.LimitUse
	// Priority is by how much it goes before those that came with it.
	Priority time.Duration
	// NotBefore is when it may begin; nil for at once.
	NotBefore *time.Time
}

// Admit decides about a run. It fails with a *[FullError] if a limit refuses it. A run that must not be refused, a
// child, waits instead, and has no other cancelled.
func (g *Gate) Admit(s Start, mustStart bool) (Admission, error) {
	var a Admission
	run, uses := s.RunID, s.Uses
	if s.NotBefore != nil && s.NotBefore.After(g.now) {
		return a, nil
	}
	if !slices.ContainsFunc(uses, g.mustQueue) && g.grant(run, uses) {
		a.Granted = true
		return a, nil
	}
	if mustStart {
		return a, nil
	}
	for _, u := range uses {
		switch g.Limits[u.Name].OnFull {
		case Reject:
			if next, ok := g.hasRoom(u); !ok || g.queued[bucketOf(u)] {
				return a, g.full(u, next)
			}
		case ReplaceWaiting:
			for _, v := range g.victims[bucketOf(u)] {
				a.Cancel = append(a.Cancel, v.RunID)
			}
		case CancelOldest:
			a.Cancel = append(a.Cancel, g.oldest(u)...)
		case Wait:
		}
	}
	return a, nil
}

// mustQueue reports whether the use cannot be granted here: somebody else decides about the limit just now, or others
// wait for it.
func (g *Gate) mustQueue(u entities.LimitUse) bool {
	_, locked := g.Limits[u.Name]
	return !locked || g.queued[bucketOf(u)]
}

func (g *Gate) grant(run entities.RunID, uses []entities.LimitUse) bool {
	g.Waiting = []Candidate{{Holder: string(run), Uses: uses}}
	out := Grant(g.Facts, g.now)
	for p, t := range out.Rates {
		g.written.Rates[p] = t
	}
	for p, t := range out.Served {
		g.written.Served[p] = t
	}
	return len(out.Holders) > 0
}

// hasRoom reports whether the limit alone has room for the use; if only its rate has not, next is when it will.
func (g *Gate) hasRoom(u entities.LimitUse) (next time.Time, ok bool) {
	free := granter{Facts: g.Facts, now: g.now, blocked: map[scope]bool{}}
	return free.hasRoom(Candidate{Uses: []entities.LimitUse{u}})
}

func (g *Gate) full(u entities.LimitUse, next time.Time) error { return g.Facts.full(u, next, g.now) }

// full returns the error of something that is refused; the limit may have room at the time next.
func (f Facts) full(u entities.LimitUse, next, now time.Time) *FullError {
	return &FullError{Use: u, Held: f.Held[bucketOf(u)], RetryAfter: cmp.Or(max(0, next.Sub(now)), guessedRetry)}
}

// oldest returns the runs that came first with the key of the use, as many as leave room for it when those that hold
// slots and those that wait have got theirs.
func (g *Gate) oldest(u entities.LimitUse) (runs []entities.RunID) {
	l := g.Limits[u.Name]
	missing := g.Held[bucketOf(u)] + CostOf(u) - l.PerKey
	for _, v := range g.victims[bucketOf(u)] {
		if !v.Granted {
			missing += v.Cost
		}
	}
	for _, v := range g.victims[bucketOf(u)] {
		if missing <= 0 {
			break
		}
		runs, missing = append(runs, v.RunID), missing-v.Cost
	}
	return runs
}

// Insert queues the permits of a run that the transaction creates.
func (g *Gate) Insert(b *pgx.Batch, s Start, a Admission) {
	s.insert(pg.Batch{Batch: b}, g.project, a.Granted, &g.now)
}

// insert adds the permits of the run, which are granted or wait. Nil stands for the time of the statement.
func (s Start) insert(w pg.Writer, project entities.Project, granted bool, now *time.Time) {
	names, keys, tenants, costs := columnsOf(s.Uses)
	w.Add(pg.Write{What: "insert permits of a run", Rows: len(names), SQL: `
		INSERT INTO permits (holder, run_id, project, name, key, tenant, cost, created_at, rank_at, not_before, granted_at)
		SELECT $1::text, $1::text, $2::text, u.*, now.at, coalesce($8::timestamptz, now.at) - $7::interval, $8::timestamptz,
			CASE WHEN $9::boolean THEN now.at END
		FROM unnest($3::text[], $4::text[], $5::text[], $6::integer[]) AS u,
			coalesce($10::timestamptz, clock_timestamp()) AS now (at)
		WHERE true`, Args: []any{s.RunID, project, names, keys, tenants, costs, s.Priority, s.NotBefore, granted, now}})
}

// columnsOf returns the uses as arrays.
func columnsOf(uses []entities.LimitUse) (names, keys, tenants []string, costs []int) {
	for _, u := range uses {
		names, keys = append(names, u.Name), append(keys, u.Key)
		tenants, costs = append(tenants, tenantOf(u).Key), append(costs, CostOf(u))
	}
	return names, keys, tenants, costs
}

// Write queues the clocks that the decisions changed, after the last of them.
func (g *Gate) Write(b *pgx.Batch) { g.writeClocks(b, g.written) }

// Release deletes the permits of a run that ends. Those of its steps go with their messages.
func Release(w pg.Writer, run entities.RunID) {
	w.Add(pg.Write{SQL: `DELETE FROM permits WHERE holder = $1`, Args: []any{run}})
}

// PassOn queues that a run gets the permits of another one, with whose work it goes on.
func PassOn(b *pgx.Batch, from, to entities.RunID) {
	b.Queue(`UPDATE permits SET holder = $2, run_id = $2 WHERE holder = $1`, from, to)
}

// waits is the condition that the run $1 waits for a slot.
const waits = `EXISTS (SELECT FROM permits WHERE holder = $1 AND granted_at IS NULL)`

// RequireGranted makes a conditional statement depend on that the run waits for no slot. What was granted to a run
// stays so until it ends, so the condition locks nothing.
func RequireGranted(c *pg.Conditional, run entities.RunID) { c.Require(`NOT `+waits, run) }

// RequireNoPolicy makes a conditional statement depend on that the workflow, of which it creates a run, has no policy.
// Runs with limits are created under their locks.
func RequireNoPolicy(c *pg.Conditional, project entities.Project, workflow string) {
	c.Require(`NOT EXISTS (SELECT FROM policies WHERE project = $1::text AND workflow = $2::text)`, project, workflow)
}

// LoadWaits queues a read whether the run waits for a slot.
func LoadWaits(b *pgx.Batch, run entities.RunID, into *bool) {
	b.Queue(`SELECT `+waits, run).QueryRow(func(row pgx.Row) error { return row.Scan(into) })
}

// LoadAncestors queues a read of the limits that a run and its ancestors need, whose slots its children share.
func LoadAncestors(b *pgx.Batch, project entities.Project, parent entities.RunID, into *[]entities.LimitUse) {
	type ancestor struct{ Limits []entities.LimitUse }
	pg.LoadEach(b, func(a ancestor) { *into = append(*into, a.Limits...) }, `
		WITH RECURSIVE up AS (
			SELECT id, parent_id, detached, limits, 1 AS n FROM runs WHERE id = $1 AND project IS NOT DISTINCT FROM $2
			UNION ALL
			SELECT r.id, r.parent_id, r.detached, r.limits, n + 1 FROM up JOIN runs r ON r.id = up.parent_id
			WHERE NOT up.detached AND n < 100
		)
		SELECT limits FROM up WHERE limits IS NOT NULL`, parent, project)
}
