package move

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// pageRuns and pageCost bound what one transaction copies ahead: so many runs, and about so many events and chunks. A
	// part of an archived run's file, of up to 1 MiB, costs as much as 40 of them.
	pageRuns, pageCost = 500, 20_000
	// followRuns is how many runs that have changed one transaction copies, and how few of them are left to the fence.
	followRuns = 100
	// followRounds bounds how often changes are followed before the fence. Each round is as long as it took to copy what
	// changed in the one before.
	followRounds = 10
)

// copyAhead copies the ended runs while the project is used, and then what has changed of them meanwhile, until little
// is left. The changes are noted before the first run is read.
func (m *Mover) copyAhead(ctx context.Context, d departure) (arrival, error) {
	began, err := m.note(ctx, d)
	if err != nil {
		return arrival{}, err
	}
	a, err := m.prepare(ctx, d, began)
	for err == nil && a.Pass != following {
		err = m.copyPage(ctx, d, &a)
	}
	for n, round := followRuns+1, 0; err == nil && n > followRuns && round < followRounds; round++ {
		n, err = m.follow(ctx, d, &a)
	}
	return a, err
}

// note has changes of ended runs noted from now on, and returns since when they are.
func (m *Mover) note(ctx context.Context, d departure) (began time.Time, err error) {
	_, err = m.From.Exec(ctx, `
		INSERT INTO leaving (project, cell) VALUES ($1, $2) ON CONFLICT (project) DO NOTHING`, d.Project, d.Cell)
	if err == nil {
		began, err = pg.CollectValue[time.Time](m.From.Query(ctx, `
			SELECT began_at FROM leaving WHERE project = $1 AND cell = $2`, d.Project, d.Cell))
	}
	if err == nil {
		err = noteChanges(ctx, m.From)
	}
	return began, pg.Wrap(err, "note changes")
}

// pages select the next runs of each pass ($1 is the project, and $2 and $3 are the place of the last run), with their
// places and costs. They leave those out that have changed since changes are noted, which [Mover.follow] copies. So all
// runs of these pages were there at once, and no two of them have the same key.
var pages = map[pass]string{
	runs: `
		SELECT id, completed_at AS at, last_seq + coalesce((
			SELECT sum(chunks) FROM streams s WHERE s.project = t.project AND s.run_id = t.id), 0) AS cost
		FROM runs t
		WHERE project = $1 AND completed_at IS NOT NULL AND (completed_at, id) > ($2, $3) AND ` + unchanged("id") + `
		ORDER BY completed_at, id`,
	archivedRuns: `
		SELECT id, created_at AS at, 1 + 40 * (SELECT count(*) FROM archive_files f WHERE f.run_id = t.id) AS cost
		FROM archived_runs t
		WHERE project = $1 AND (created_at, id) > ($2, $3) AND ` + unchanged("id") + ` AND ` + notIn("runs", "id") + `
		ORDER BY created_at, id`,
	runKeys: `
		SELECT run_id AS id, $2::timestamptz AS at, 1 AS cost FROM run_keys t
		WHERE project = $1 AND run_id > $3 AND ` + unchanged("run_id") + ` AND ` + notIn("runs", "run_id") + `
			AND ` + notIn("archived_runs", "run_id") + `
		ORDER BY run_id`,
}

func unchanged(id string) string {
	return `NOT EXISTS (SELECT FROM leaving_changes c WHERE c.project = $1 AND c.run_id = t.` + id + `)`
}

// notIn is the condition that another pass does not copy the run.
func notIn(table, id string) string {
	return `NOT EXISTS (SELECT FROM ` + table + ` r WHERE r.id = t.` + id + ` AND r.project = $1)`
}

// copyPage copies the next runs of a pass in one transaction of the target, or goes on to the next pass.
func (m *Mover) copyPage(ctx context.Context, d departure, a *arrival) error {
	return pg.InSnapshot(ctx, m.From, func(from pgx.Tx) error {
		type place struct {
			ID entities.RunID
			At time.Time
		}
		page, err := pg.CollectAll[place](from.Query(ctx, `
			SELECT id, at FROM (
				SELECT id, at, sum(cost) OVER (ORDER BY at, id) - cost AS before FROM (`+pages[a.Pass]+` LIMIT $4) page
			) sized
			WHERE before < $5 ORDER BY at, id`, d.Project, a.At, a.RunID, pageRuns, pageCost))
		if err != nil {
			return pg.Wrap(err, "look for %s", a.Pass)
		}
		next, err := a.readAt(ctx, from)
		if err != nil {
			return err
		}
		ids := make([]entities.RunID, len(page))
		for i, p := range page {
			ids[i], next.At, next.RunID = p.ID, p.At, p.ID
		}
		if len(page) == 0 {
			next.Pass, next.At, next.RunID = passes[slices.Index(passes, a.Pass)+1], time.Time{}, ""
		}
		err = m.step(ctx, a, next, func(to pgx.Tx) error { return m.copyRuns(ctx, from, to, d, ids) })
		if err == nil {
			m.progress(ctx, copying, "project", d.Project, "runs", m.copiedRuns, "rows", m.copiedRows, "ended until", a.At)
		}
		return err
	})
}

// follow copies the runs again that have changed since the last time, or deletes them, and returns how many. All of
// them are deleted first: one that is gone may have the key of one that is new.
func (m *Mover) follow(ctx context.Context, d departure, a *arrival) (int, error) {
	var followed string
	var changed []entities.RunID
	err := pg.InSnapshot(ctx, m.From, func(from pgx.Tx) (err error) {
		if err = from.QueryRow(ctx, `SELECT pg_snapshot_xmin(pg_current_snapshot())::text`).Scan(&followed); err == nil {
			changed, err = pg.CollectColumn[entities.RunID](from.Query(ctx, `
				SELECT DISTINCT run_id FROM leaving_changes WHERE project = $1 AND xid >= $2::text::xid8`,
				d.Project, a.Followed))
		}
		return err
	})
	if err != nil {
		return 0, pg.Wrap(err, "look for changes")
	}
	for some := range slices.Chunk(changed, followRuns) {
		if err := m.step(ctx, a, *a, func(to pgx.Tx) error { return m.erase(ctx, to, d, some) }); err != nil {
			return 0, err
		}
	}
	for some := range slices.Chunk(changed, followRuns) {
		if err := m.copyAgain(ctx, d, a, some); err != nil {
			return 0, err
		}
	}
	next := *a
	next.Followed = followed
	m.progress(ctx, changes, "project", d.Project, "runs", len(changed))
	return len(changed), m.step(ctx, a, next, func(pgx.Tx) error { return nil })
}

// copyAgain copies those of the runs that have not begun, or have ended, as they are now.
func (m *Mover) copyAgain(ctx context.Context, d departure, a *arrival, some []entities.RunID) error {
	return pg.InSnapshot(ctx, m.From, func(from pgx.Tx) error {
		ended, err := pg.CollectColumn[entities.RunID](from.Query(ctx, `
			SELECT t.id FROM unnest($2::text[]) t (id) WHERE NOT EXISTS (
				SELECT FROM runs r WHERE r.id = t.id AND r.project = $1 AND r.completed_at IS NULL)`, d.Project, some))
		if err != nil {
			return pg.Wrap(err, "look for ended runs")
		}
		next, err := a.readAt(ctx, from)
		if err != nil {
			return err
		}
		return m.step(ctx, a, next, func(to pgx.Tx) error {
			if err := m.erase(ctx, to, d, ended); err != nil { // an earlier command may have copied them
				return err
			}
			return m.copyRuns(ctx, from, to, d, ended)
		})
	})
}

// remaining reads the runs that are copied behind the fence: those that are open, or to come, and those that have
// changed and were not followed.
func remaining(ctx context.Context, from pgx.Tx, d departure, a arrival) ([]entities.RunID, error) {
	ids, err := pg.CollectColumn[entities.RunID](from.Query(ctx, `
		SELECT id FROM runs WHERE project = $1 AND completed_at IS NULL
		UNION SELECT run_id FROM leaving_changes WHERE project = $1 AND xid >= $2::text::xid8
		UNION SELECT run_id FROM collections WHERE project = $1
		UNION SELECT run_id FROM streams WHERE project = $1 AND before_run`, d.Project, a.Followed))
	return ids, pg.Wrap(err, "look for open runs")
}
