package limit

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	columns = `project, name, per_key, total, rate, per, burst, fair, on_full, paused, created_at, updated_at`

	policyColumns = `project, workflow, limits, steps, priority, created_at, updated_at`
)

// Store stores the limits and the policies of projects. Every change is in the audit.
type Store struct {
	pool pg.Pool
	now  func() time.Time
}

// NewStore returns the limits in the database behind pool.
func NewStore(pool *pgxpool.Pool, now func() time.Time) *Store {
	return &Store{pool: pg.NewPool(pool), now: now}
}

// Put creates or changes a limit. The change counts for all that waits, within a second. Put fails with
// [entities.ErrInvalid] and [ErrTooMany], and with [ErrInUse] if something waits for more slots than there would ever
// be, or is a step that may wait for them again: it would wait for ever.
func (s *Store) Put(ctx context.Context, project entities.Project, name string, spec Spec) (Limit, error) {
	spec = spec.WithDefaults()
	if err := entities.ValidateID("limit name", name); err != nil {
		return Limit{}, err
	}
	if err := spec.Validate(); err != nil {
		return Limit{}, err
	}
	var needs int // the most slots that something waits for
	// Those that grant slots lock the row, and then read the settings. Steps wait for their slots again after an
	// attempt that failed, so those that they hold count as well.
	l, err := admin.Change(ctx, s.pool, ErrTooMany, func(b *pgx.Batch, into **Limit) {
		b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended('limits ' || $1::text, 0))`, project)
		b.Queue(`SELECT FROM limits WHERE project = $1 AND name = $2 FOR UPDATE`, project, name)
		b.Queue(`
			SELECT coalesce(max(cost), 0) FROM permits
			WHERE project = $1 AND name = $2 AND (granted_at IS NULL OR message_id IS NOT NULL) AND cost > 1
				AND $3 > 0 AND NOT coalesce((
					SELECT least(nullif(per_key, 0), nullif(total, 0), nullif(burst, 0)) <= $3
					FROM limits WHERE project = $1 AND name = $2), false)`, project, name, spec.Most()).
			QueryRow(func(row pgx.Row) error { return row.Scan(&needs) })
		pg.LoadInto(b, into, `
			INSERT INTO limits (`+columns+`)
			SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11
			WHERE EXISTS (SELECT FROM limits WHERE project = $1 AND name = $2)
				OR (SELECT count(*) FROM limits WHERE project = $1) < $12
			ON CONFLICT (project, name) DO UPDATE SET per_key = excluded.per_key, total = excluded.total,
				rate = excluded.rate, per = excluded.per, burst = excluded.burst, fair = excluded.fair,
				on_full = excluded.on_full, paused = excluded.paused, updated_at = excluded.updated_at
			RETURNING `+columns,
			project, name, spec.PerKey, spec.Total, spec.Rate, spec.Per, spec.Burst, spec.Fair, spec.OnFull, spec.Paused,
			s.clock(), MaxLimits)
		admin.InsertAction(ctx, b, project, admin.ActionLimitPut, name, nil)
	}, func() error {
		if most := spec.Most(); most > 0 && needs > most {
			return fmt.Errorf("%w: something needs %d slots, and would wait for ever with %d: cancel it, or leave as many",
				ErrInUse, needs, most)
		}
		return nil
	})
	return l, pg.Wrap(err, "write limit %s", name)
}

// Delete deletes a limit. It fails with [ErrNotFound], and with [ErrInUse] while a policy names the limit: all starts
// of its workflow would fail. Without force it also fails with [ErrInUse] while something holds or awaits a slot. With
// force, they go on without it.
func (s *Store) Delete(ctx context.Context, project entities.Project, name string, force bool) error {
	var used *struct {
		Held   bool
		Policy string
	}
	_, err := admin.Change(ctx, s.pool, ErrNotFound, func(b *pgx.Batch, into **Limit) {
		used = nil
		b.Queue(`SELECT FROM limits WHERE project = $1 AND name = $2 FOR UPDATE`, project, name)
		pg.LoadInto(b, &used, `
			SELECT EXISTS (SELECT FROM permits WHERE project = $1 AND name = $2) AS held, coalesce((
				SELECT min(workflow) FROM policies
				WHERE project = $1 AND (limits @> jsonb_build_array(jsonb_build_object('name', $2::text))
					OR jsonb_path_exists(steps, '$.*[*] ? (@.name == $name)', jsonb_build_object('name', $2::text)))), '')
				AS policy`,
			project, name)
		pg.LoadInto(b, into, `DELETE FROM limits WHERE project = $1 AND name = $2 RETURNING `+columns, project, name)
		admin.InsertAction(ctx, b, project, admin.ActionLimitRemove, name, map[string]any{"force": force})
	}, func() error {
		switch {
		case used == nil:
			return nil
		case used.Policy != "":
			return fmt.Errorf("%w: the policy of workflow %s names it: change or remove that first", ErrInUse, used.Policy)
		case used.Held && !force:
			return fmt.Errorf("%w: something holds or awaits a slot: force lets that go on without it", ErrInUse)
		default:
			return nil
		}
	})
	return pg.Wrap(err, "delete limit %s", name)
}

// Limit reads a limit. It fails with [ErrNotFound].
func (s *Store) Limit(ctx context.Context, project entities.Project, name string) (Limit, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+columns+` FROM limits WHERE project = $1 AND name = $2`, project, name)
	l, err := pg.CollectOne[Limit](rows, err, ErrNotFound)
	return l, pg.Wrap(err, "read limit %s", name)
}

// List reads a page of the project's limits, ordered by name, and the cursor of the next page; empty after the last.
func (s *Store) List(
	ctx context.Context, project entities.Project, p pg.Page,
) (list []Limit, next string, err error) {
	from := pg.Keyed{Table: "limits", Key: "name", Columns: columns}
	return pg.ListKeyed(ctx, s.pool, from, project, p, func(l Limit) string { return l.Name })
}

// PutPolicy creates or replaces the policy of a workflow. It counts for runs that start from now on. It fails with
// [entities.ErrInvalid], also if a cost is more than its limit ever has room for, with [ErrNotFound] if it names a
// limit that the project does not have, and with [ErrTooMany].
func (s *Store) PutPolicy(ctx context.Context, p Policy) (Policy, error) {
	if err := p.Validate(); err != nil {
		return Policy{}, err
	}
	var found Settings
	list := p.Limits
	if list == nil {
		list = []PolicyUse{}
	}
	put, err := admin.Change(ctx, s.pool, ErrTooMany, func(b *pgx.Batch, into **Policy) {
		b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended('limits ' || $1::text, 0))`, p.Project)
		found = loadSettings(b, p.Project, p.all(), ` FOR SHARE`)
		pg.LoadInto(b, into, `
			INSERT INTO policies (`+policyColumns+`)
			SELECT $1, $2, $3, $7, $4, $5, $5
			WHERE EXISTS (SELECT FROM policies WHERE project = $1 AND workflow = $2)
				OR (SELECT count(*) FROM policies WHERE project = $1) < $6
			ON CONFLICT (project, workflow) DO UPDATE SET limits = excluded.limits, steps = excluded.steps,
				priority = excluded.priority, updated_at = excluded.updated_at
			RETURNING `+policyColumns, p.Project, p.Workflow, list, p.Priority, s.clock(), MaxLimits, p.Steps)
		admin.InsertAction(ctx, b, p.Project, admin.ActionPolicyPut, p.Workflow, nil)
	}, func() error { return found.Check(p.all()) })
	return put, pg.Wrap(err, "write policy of %s", p.Workflow)
}

// DeletePolicy deletes the policy of a workflow. Runs that have started keep their limits. It fails with
// [ErrPolicyNotFound].
func (s *Store) DeletePolicy(ctx context.Context, project entities.Project, workflow string) error {
	_, err := admin.Change(ctx, s.pool, ErrPolicyNotFound, func(b *pgx.Batch, into **Policy) {
		pg.LoadInto(b, into, `
			DELETE FROM policies WHERE project = $1 AND workflow = $2 RETURNING `+policyColumns, project, workflow)
		admin.InsertAction(ctx, b, project, admin.ActionPolicyRemove, workflow, nil)
	})
	return pg.Wrap(err, "delete policy of %s", workflow)
}

// Policy reads the policy of a workflow. It fails with [ErrPolicyNotFound].
func (s *Store) Policy(ctx context.Context, project entities.Project, workflow string) (Policy, error) {
	rows, err := s.pool.Query(ctx,
		`SELECT `+policyColumns+` FROM policies WHERE project = $1 AND workflow = $2`, project, workflow)
	p, err := pg.CollectOne[Policy](rows, err, ErrPolicyNotFound)
	return p, pg.Wrap(err, "read policy of %s", workflow)
}

// LoadPolicy queues a read of the policy of a workflow; without one, into stays as it is.
func LoadPolicy(b *pgx.Batch, project entities.Project, workflow string, into *Policy) {
	pg.LoadEach(b, func(p Policy) { *into = p },
		`SELECT `+policyColumns+` FROM policies WHERE project = $1 AND workflow = $2`, project, workflow)
}

// Policies reads a page of the project's policies, ordered by workflow, and the cursor of the next page; empty after
// the last.
func (s *Store) Policies(
	ctx context.Context, project entities.Project, p pg.Page,
) (list []Policy, next string, err error) {
	from := pg.Keyed{Table: "policies", Key: "workflow", Columns: policyColumns}
	return pg.ListKeyed(ctx, s.pool, from, project, p, func(p Policy) string { return p.Workflow })
}

func (s *Store) clock() time.Time { return s.now().UTC().Truncate(time.Millisecond) }
