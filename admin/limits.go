package admin

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// Limits are what an operator allows a project. A limit that is nil does not exist.
type Limits struct {
	// DailyStarts is the most runs started in a day, in UTC; 0 stops the project from starting any.
	DailyStarts *int64
	// StorageBytes is the most bytes of payloads and streams that the project may store and yet start runs.
	StorageBytes *int64
	// MaxDepth is the most runs one below the other that may lead to a run, and MaxDescendants the most open runs to
	// which one run may have led. If they are nil, the defaults count.
	MaxDepth, MaxDescendants *int64
}

// The bounds of trees of runs, unless an operator sets others, and the highest that an operator may set. Open
// descendants are counted up to their bound.
const (
	DefaultMaxDepth       = 32
	DefaultMaxDescendants = 10_000
	HighestDepth          = 10_000
	HighestDescendants    = 1_000_000
)

// Depth returns the most runs that may lead to a run.
func (l Limits) Depth() int64 { return *cmp.Or(l.MaxDepth, new(int64(DefaultMaxDepth))) }

// Descendants returns the most open runs to which one run may have led.
func (l Limits) Descendants() int64 {
	return *cmp.Or(l.MaxDescendants, new(int64(DefaultMaxDescendants)))
}

// Validate checks the bounds of trees. It fails with an *[entities.FieldError].
func (l Limits) Validate() error {
	switch {
	case l.Depth() > HighestDepth:
		return &entities.FieldError{Field: "limits.maxDepth", Err: entities.Invalid("it is more than %d", HighestDepth)}
	case l.Descendants() > HighestDescendants:
		return &entities.FieldError{
			Field: "limits.maxDescendants", Err: entities.Invalid("it is more than %d", HighestDescendants),
		}
	default:
		return nil
	}
}

// Equal reports whether both are the same limits.
func (l Limits) Equal(other Limits) bool {
	same := func(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }
	return same(l.DailyStarts, other.DailyStarts) && same(l.StorageBytes, other.StorageBytes) &&
		same(l.MaxDepth, other.MaxDepth) && same(l.MaxDescendants, other.MaxDescendants)
}

// Day returns the beginning of the day of a time, in UTC.
func Day(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }

// LockLimits queues a lock on a project, and a read of its limits.
func LockLimits(b *pgx.Batch, name entities.Project, into **Limits) {
	pg.LoadInto(b, into, `
		SELECT daily_starts, storage_bytes, max_depth, max_descendants FROM projects WHERE name = $1
		FOR NO KEY UPDATE`, name)
}

// PutLimits queues a change of a project's limits. What is stored is measured again if that had no limit.
func PutLimits(b *pgx.Batch, name entities.Project, l Limits) {
	pg.QueueOne(b, "put limits", `
		UPDATE projects SET daily_starts = $2, storage_bytes = $3, max_depth = $4, max_descendants = $5,
			(stored_bytes, stored_at, measure_after) = (
			SELECT stored_bytes, stored_at, measure_after WHERE storage_bytes IS NOT NULL AND $3::bigint IS NOT NULL)
		WHERE name = $1`, name, l.DailyStarts, l.StorageBytes, l.MaxDepth, l.MaxDescendants)
}

// CountDeletedStarts queues a note that these runs of a project are about to be deleted: those started today still
// count as starts. It does nothing for a project whose starts are not limited.
func CountDeletedStarts(b *pgx.Batch, name entities.Project, runs []entities.RunID) {
	b.Queue(`
		UPDATE projects p SET counted_on = d.today,
			deleted_starts = CASE WHEN p.counted_on = d.today THEN p.deleted_starts ELSE 0 END + d.n
		FROM (
			SELECT (now() AT TIME ZONE 'UTC')::date AS today, count(*) AS n FROM runs
			WHERE id = ANY ($2) AND created_at >= date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
		) d
		WHERE p.name = $1 AND p.daily_starts IS NOT NULL AND d.n > 0`, name, runs)
}

// Measurement is the right to measure what a project stores.
type Measurement struct {
	Project entities.Project
	// At is the time of the database at which it began.
	At time.Time
}

// MeasureLimit is how long a measurement may take. If the process dies, another one measures after that time.
const MeasureLimit = 10 * time.Minute

// TakeMeasurement returns the next measurement that is due, or nil. No other process gets the same one.
func TakeMeasurement(ctx context.Context, q pg.Querier) (*Measurement, error) {
	list, err := pg.CollectAll[Measurement](q.Query(ctx, `
		UPDATE projects SET measure_after = now() + $1::interval
		WHERE name = (
			SELECT name FROM projects
			WHERE storage_bytes IS NOT NULL AND (measure_after IS NULL OR measure_after <= now()) AND `+pg.Staying("name")+`
			ORDER BY measure_after NULLS FIRST, name LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
		RETURNING name AS project, now() AS at`, MeasureLimit))
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// Record stores the result. The next measurement is due in a minute, or in 100 times as long as this one took, so that
// measuring takes at most a hundredth of the time.
func (m Measurement) Record(ctx context.Context, q pg.Pool, bytes int64) error {
	_, err := q.Exec(ctx, `
		UPDATE projects SET stored_bytes = $2, stored_at = $3,
			measure_after = now() + greatest(interval '1 minute', 100 * (now() - $3))
		WHERE name = $1 AND storage_bytes IS NOT NULL`, m.Project, bytes, m.At)
	return err
}
