package move

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// departure is a row of the table, and what the target knows of it. FencedAt is zero before there is a row.
type departure struct {
	Project    entities.Project
	Here, Cell entities.Cell
	// Target is the newest epoch of the target when the move began.
	Target    string
	FencedAt  time.Time
	MovedAt   *time.Time
	CleanedAt *time.Time

	arrived   bool      // the target has the project
	returning bool      // the target has had it before
	leaving   bool      // the source notes changes
	begun     []arrival // what is copied ahead: one, or none
}

// check finds out how far the move is, or that it can begin.
func (m *Mover) check(ctx context.Context, to pgx.Tx, project entities.Project, cell entities.Cell) (departure, error) {
	if project == entities.DefaultProject {
		return departure{}, refuse("project %s cannot be moved: each cell has its own", project)
	}
	if err := m.checkSchemas(ctx, to); err != nil {
		return departure{}, err
	}
	here, err := m.checkCells(ctx, to, cell)
	if err != nil {
		return departure{}, err
	}
	d := departure{Project: project, Here: here, Cell: cell}
	exists, err := pg.CollectValue[bool](m.From.Query(ctx, `
		SELECT EXISTS (SELECT FROM projects WHERE name = $1)`, project))
	if err != nil {
		return d, err
	}
	if !exists {
		return d, refuse("cell %s has no project %s: stepwell projects list names those that it has", here, project)
	}
	if d, err = m.readDeparture(ctx, to, d); err != nil {
		return d, err
	}
	if d, err = m.readCopy(ctx, to, d); err != nil {
		return d, err
	}
	if d.FencedAt.IsZero() && !m.SameSettings {
		if err := m.checkSettings(ctx, project); err != nil {
			return d, err
		}
	}
	return m.checkTarget(ctx, to, d)
}

// checkSettings refuses a project whose payloads could not be read with other settings.
func (m *Mover) checkSettings(ctx context.Context, project entities.Project) error {
	var objects, encrypted bool
	err := m.From.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM blobs WHERE project = $1 AND run_id IS NOT NULL)
				OR EXISTS (
					SELECT FROM archived_runs a
					WHERE project = $1 AND NOT EXISTS (SELECT FROM archive_files f WHERE f.run_id = a.id)),
			EXISTS (SELECT FROM data_keys WHERE project = $1 AND wrapped IS NOT NULL)`, project).Scan(&objects, &encrypted)
	switch {
	case err != nil:
		return pg.Wrap(err, "look for payloads")
	case objects:
		return refuse("project %s has payloads or archived runs outside of the database: give the servers of both cells"+
			" the same STEPWELL_PAYLOADS and STEPWELL_ARCHIVE, and say --same-settings", project)
	case encrypted:
		return refuse("the payloads of project %s are encrypted: give the servers of both cells the same"+
			" STEPWELL_ENCRYPTION_KEYS, and say --same-settings", project)
	}
	return nil
}

// checkSchemas refuses databases of different versions.
func (m *Mover) checkSchemas(ctx context.Context, to pgx.Tx) error {
	const version = `SELECT coalesce(max(version_id), 0) FROM goose_db_version`
	of, err := pg.CollectValue[int64](m.From.Query(ctx, version))
	if err != nil {
		return pg.Wrap(err, "read the version of this cell")
	}
	its, err := pg.CollectValue[int64](to.Query(ctx, version))
	if err != nil {
		return pg.Wrap(err, "read the version of the other cell")
	}
	if of != its {
		return refuse("the database of this cell has migration %d, and the other one %d: run the same version in both cells",
			of, its)
	}
	return nil
}

// checkCells returns the name of the source's cell.
func (m *Mover) checkCells(ctx context.Context, to pgx.Tx, cell entities.Cell) (entities.Cell, error) {
	// A server says every second that it is alive.
	const names = `SELECT DISTINCT cell FROM processes WHERE beat_at > now() - interval '15 s' ORDER BY cell`
	here, err := pg.CollectColumn[entities.Cell](m.From.Query(ctx, names))
	if err != nil {
		return "", pg.Wrap(err, "read the name of this cell")
	}
	there, err := pg.CollectColumn[entities.Cell](to.Query(ctx, names))
	if err != nil {
		return "", pg.Wrap(err, "read the name of the other cell")
	}
	switch {
	case len(here) != 1 || here[0] == "":
		return "", refuse("the servers of this database say that they are of the cells %q: start them with one"+
			" STEPWELL_CELL", here)
	case len(there) != 1 || there[0] != cell:
		return "", refuse("the servers of the other database say that they are of the cells %q, not of %s: name the right"+
			" cell and database, and start its servers", there, cell)
	case here[0] == cell:
		return "", refuse("the project is in cell %s already", cell)
	}
	return here[0], nil
}

// readDeparture completes d if the move has begun.
func (m *Mover) readDeparture(ctx context.Context, to pgx.Tx, d departure) (departure, error) {
	found, err := pg.CollectAll[departure](m.From.Query(ctx, `
		SELECT project, here, cell, target, fenced_at, moved_at, cleaned_at FROM departures WHERE project = $1`, d.Project))
	if err != nil {
		return d, err
	}
	if len(found) == 0 {
		d.Target, err = pg.CollectValue[string](to.Query(ctx, `SELECT id FROM feed_epochs ORDER BY number DESC LIMIT 1`))
		return d, err
	}
	if found[0].Cell != d.Cell {
		return d, refuse("project %s goes to cell %s: repeat that move", d.Project, found[0].Cell)
	}
	d = found[0]
	known, err := pg.CollectValue[bool](to.Query(ctx, `
		SELECT EXISTS (SELECT FROM feed_epochs WHERE id = $1)`, d.Target))
	if err != nil {
		return d, err
	}
	if !known {
		return d, refuse("the move of project %s began with another database of cell %s: name that one", d.Project, d.Cell)
	}
	d.arrived, err = pg.CollectValue[bool](to.Query(ctx, `
		SELECT EXISTS (SELECT FROM arrivals WHERE project = $1 AND cell = $2 AND departed_at = $3)`,
		d.Project, d.Here, d.FencedAt))
	if err == nil && !d.arrived && d.MovedAt != nil {
		err = refuse("cell %s has had project %s since %s, and no longer has it: it has moved on, or the database was"+
			" restored from an older backup", d.Cell, d.Project, d.MovedAt.Format(time.RFC3339))
	}
	return d, err
}

// readCopy completes d if the project is being copied ahead.
func (m *Mover) readCopy(ctx context.Context, to pgx.Tx, d departure) (departure, error) {
	cells, err := pg.CollectColumn[entities.Cell](m.From.Query(ctx, `
		SELECT cell FROM leaving WHERE project = $1`, d.Project))
	if err != nil {
		return d, err
	}
	if d.leaving = len(cells) > 0; d.leaving && cells[0] != d.Cell {
		return d, refuse("project %s goes to cell %s: repeat that move, or give it up with --abort", d.Project, cells[0])
	}
	if d.begun, err = readArrivals(ctx, to, d.Project); err != nil {
		return d, err
	}
	if len(d.begun) > 0 && d.begun[0].Cell != d.Here {
		return d, refuse("cell %s gets a project %s from cell %s: repeat that move, or give it up with --abort", d.Cell,
			d.Project, d.begun[0].Cell)
	}
	return d, nil
}

// checkTarget refuses a target that has a project of the name which has not come by this move.
func (m *Mover) checkTarget(ctx context.Context, to pgx.Tx, d departure) (departure, error) {
	if d.arrived {
		return d, nil
	}
	var exists, left, cleaned bool
	err := to.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM projects WHERE name = $1),
			EXISTS (SELECT FROM departures WHERE project = $1 AND moved_at IS NOT NULL),
			EXISTS (SELECT FROM departures WHERE project = $1 AND cleaned_at IS NOT NULL)`, d.Project).
		Scan(&exists, &left, &cleaned)
	switch {
	case err != nil:
		return d, pg.Wrap(err, "look for the project in the other cell")
	case left && !cleaned:
		return d, refuse("cell %s still has rows of project %s from before it left: repeat the move from there first",
			d.Cell, d.Project)
	case exists && !left:
		return d, refuse("cell %s has a project %s already", d.Cell, d.Project)
	}
	d.returning = exists
	return d, nil
}
