package admin

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// ErrProjectNotFound means that no such project exists.
var ErrProjectNotFound = errors.New("project not found")

// ListedProject is a row of table projects, with how much of its limits the project has used.
type ListedProject struct {
	Name      entities.Project
	CreatedAt time.Time

	Limits

	// PausedAt is set while nothing of the project starts or is called.
	PausedAt *time.Time
	// StartsToday counts the runs started since midnight UTC; nil without a limit of them.
	StartsToday *int64
	// StoredBytes is the size of what the project stored at StoredAt; nil if there is no limit of it, and until it is
	// measured for the first time.
	StoredBytes *int64
	StoredAt    *time.Time

	Encryption
}

// Encryption is how the payloads of a project are encrypted: see package encryption. Its first field is nil if they are
// not.
type Encryption struct {
	// EncryptedSince is when the first data key was made, and KeyMadeAt when that was which encrypts now.
	EncryptedSince, KeyMadeAt *time.Time
	// RunKeys is set if the key that encrypts now has each run encrypted by a key of its own; nil for no key.
	RunKeys *bool
	// MasterKey is the name of the key that wraps it.
	MasterKey *string
	// DataKeys is how many there are, and DestroyedKeys how many were destroyed.
	DataKeys, DestroyedKeys int
}

// The use of starts is counted over an index, and only for projects with a limit. All statuses are named because the
// index has the status before the time. $1 is midnight UTC.
const projectColumns = `p.name, p.created_at, daily_starts, storage_bytes, max_depth, max_descendants, paused_at,
	stored_bytes, stored_at, k.*,
	CASE WHEN daily_starts IS NOT NULL THEN
		CASE WHEN counted_on = ($1::timestamptz AT TIME ZONE 'UTC')::date THEN deleted_starts ELSE 0 END + (
			SELECT count(*) FROM runs r
			WHERE r.project = p.name AND r.status = ANY ('{pending,running,completed,failed,cancelled}'::text[])
				AND r.created_at >= $1)
	END AS starts_today`

// projectsWithKeys are the projects p with their data keys k.
const projectsWithKeys = ` FROM projects p CROSS JOIN LATERAL (
	SELECT min(created_at) AS encrypted_since, max(created_at) FILTER (WHERE retired_at IS NULL) AS key_made_at,
		max(wrapped_by) FILTER (WHERE retired_at IS NULL) AS master_key,
		bool_or(per_run) FILTER (WHERE retired_at IS NULL) AS run_keys,
		count(*) FILTER (WHERE destroyed_at IS NULL) AS data_keys,
		count(*) FILTER (WHERE destroyed_at IS NOT NULL) AS destroyed_keys
	FROM data_keys WHERE project = p.name) AS k`

// InsertProject queues the creation of a project, and sets *created unless it exists.
func InsertProject(b *pgx.Batch, name entities.Project, now time.Time, created *bool) {
	b.Queue(`INSERT INTO projects (name, created_at) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING RETURNING true`,
		name, now).Query(func(rows pgx.Rows) error {
		*created = rows.Next()
		rows.Close()
		return rows.Err()
	})
}

// ProjectByName reads a project, with the runs that it has started on the day of now. It fails with
// [ErrProjectNotFound].
func ProjectByName(
	ctx context.Context, q pg.Querier, name entities.Project, now time.Time,
) (ListedProject, error) {
	rows, err := q.Query(ctx, `SELECT `+projectColumns+projectsWithKeys+` WHERE name = $2`, Day(now), name)
	p, err := pg.CollectOne[ListedProject](rows, err, ErrProjectNotFound)
	return p, pg.Wrap(err, "read project %s", name)
}

// ProjectExists reports whether the project is in the database. It fails with an *[entities.WrongCellError] if another
// cell has it.
func ProjectExists(ctx context.Context, q pg.Querier, name entities.Project) (exists bool, err error) {
	left, err := pg.CollectAll[Departure](q.Query(ctx, `
		SELECT `+departureOf("projects.name")+` FROM projects WHERE name = $1`, name))
	if err != nil {
		return false, pg.Wrap(err, "look for project %s", name)
	}
	for _, d := range left {
		if d.MovedTo != "" {
			return false, d.Refusal("project " + string(name))
		}
	}
	return len(left) > 0, nil
}

// notMoved is the condition that the project p is not in another cell.
const notMoved = `NOT EXISTS (SELECT FROM departures d WHERE d.project = p.name AND d.moved_at IS NOT NULL)`

// ListProjects reads all projects that are in this cell as [ProjectByName] does, ordered by name.
func ListProjects(ctx context.Context, q pg.Querier, now time.Time) ([]ListedProject, error) {
	list, err := pg.CollectAll[ListedProject](
		q.Query(ctx, `SELECT `+projectColumns+projectsWithKeys+` WHERE `+notMoved+` ORDER BY name`, Day(now)))
	return list, pg.Wrap(err, "list projects")
}

// LockPause queues a lock on a project.
func LockPause(b *pgx.Batch, name entities.Project) {
	b.Queue(`SELECT FROM projects WHERE name = $1 FOR NO KEY UPDATE`, name)
}

// PutPause queues that a project is paused since a time; nil resumes it.
func PutPause(b *pgx.Batch, name entities.Project, at *time.Time) {
	pg.QueueOne(b, "put pause", `UPDATE projects SET paused_at = $2 WHERE name = $1`, name, at)
}

// PausedProjects returns the projects that are paused.
func PausedProjects(ctx context.Context, q pg.Querier) (map[entities.Project]bool, error) {
	names, err := pg.CollectColumn[entities.Project](
		q.Query(ctx, `SELECT name FROM projects WHERE paused_at IS NOT NULL`))
	paused := make(map[entities.Project]bool, len(names))
	for _, name := range names {
		paused[name] = true
	}
	return paused, pg.Wrap(err, "read paused projects")
}
