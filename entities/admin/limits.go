package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// The reasons for which a project may not start a run. See [QuotaError].
var (
	// ErrStartQuota means that the project has started as many runs today as it may.
	ErrStartQuota = errors.New("the project's daily starts are used up")
	// ErrStorageQuota means that the project stores as much as it may.
	ErrStorageQuota = errors.New("the project's storage is used up")
)

// Limits are what an operator allows a project. A limit that is nil does not exist.
type Limits struct {
	// DailyStarts is the most runs started in a day, in UTC; 0 stops the project from starting any.
	DailyStarts *int64
	// StorageBytes is the most bytes of payloads and streams that the project may store and yet start runs.
	StorageBytes *int64
}

// Equal reports whether both are the same limits.
func (l Limits) Equal(other Limits) bool {
	same := func(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }
	return same(l.DailyStarts, other.DailyStarts) && same(l.StorageBytes, other.StorageBytes)
}

// Day returns the beginning of the day of a time, in UTC.
func Day(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }

// QuotaError refuses a new run because a limit of its project is reached. It matches its Reason.
type QuotaError struct {
	// Reason is [ErrStartQuota] or [ErrStorageQuota].
	Reason  error
	Project entities.Project
	// Used is how many starts or bytes are in use; Limit is how many may be.
	Used, Limit int64
	// RetryAfter is how long it is until the day ends; 0 for storage.
	RetryAfter time.Duration
}

// CheckStart returns a *[QuotaError] if the project may not start a run, given how many it has started today.
func (p ListedProject) CheckStart(startsToday int64, now time.Time) error {
	switch {
	case p.StorageBytes != nil && p.StoredBytes != nil && *p.StoredBytes >= *p.StorageBytes:
		return &QuotaError{Reason: ErrStorageQuota, Project: p.Name, Used: *p.StoredBytes, Limit: *p.StorageBytes}
	case p.DailyStarts != nil && startsToday >= *p.DailyStarts:
		return &QuotaError{
			Reason: ErrStartQuota, Project: p.Name, Used: startsToday, Limit: *p.DailyStarts,
			RetryAfter: Day(now).Add(24 * time.Hour).Sub(now),
		}
	default:
		return nil
	}
}

func (e *QuotaError) Error() string {
	if errors.Is(e.Reason, ErrStartQuota) {
		return fmt.Sprintf("project %s has started %d runs today and may start %d: "+
			"wait until midnight UTC, or have an operator raise limits.dailyStarts", e.Project, e.Used, e.Limit)
	}
	return fmt.Sprintf("project %s stores %d bytes and may store %d: "+
		"have an operator shorten its retention, or raise limits.storageBytes", e.Project, e.Used, e.Limit)
}

// Unwrap returns the reason.
func (e *QuotaError) Unwrap() error { return e.Reason }

// Details returns the numbers for clients.
func (e *QuotaError) Details() map[string]any {
	return map[string]any{"used": e.Used, "limit": e.Limit}
}

// LockLimits queues a lock on a project, and a read of its limits.
func LockLimits(b *pgx.Batch, name entities.Project, into **Limits) {
	pg.LoadInto(b, into, `SELECT daily_starts, storage_bytes FROM projects WHERE name = $1 FOR NO KEY UPDATE`, name)
}

// PutLimits queues a change of a project's limits. What is stored is measured again if that had no limit.
func PutLimits(b *pgx.Batch, name entities.Project, l Limits) {
	pg.QueueOne(b, "put limits", `
		UPDATE projects SET daily_starts = $2, storage_bytes = $3, (stored_bytes, stored_at, measure_after) = (
			SELECT stored_bytes, stored_at, measure_after WHERE storage_bytes IS NOT NULL AND $3::bigint IS NOT NULL)
		WHERE name = $1`, name, l.DailyStarts, l.StorageBytes)
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

// Measurement is the turn to measure what a project stores.
type Measurement struct {
	Project entities.Project
	// At is the time of the database at which the turn began.
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
			WHERE storage_bytes IS NOT NULL AND (measure_after IS NULL OR measure_after <= now())
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
