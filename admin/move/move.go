package move

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// Mover moves projects from the database of one cell to that of another one.
type Mover struct {
	// From and To are the two databases. Both need sessions.
	From, To *pgxpool.Pool
	// Lingering is how long servers of the source may still read what they have known of a project that has moved: its
	// rows are deleted only then.
	Lingering time.Duration
	// SameSettings says that the servers of both cells find payloads in the same place and have the same master keys.
	SameSettings bool
	// Logger logs what has been done.
	Logger *slog.Logger

	reached func(phase) // for tests; nil for nobody
}

// phase is how far a move is.
type phase string

// The phases of a move, in their order. A command can die after each.
const (
	departing phase = "departing" // the departure is noted
	fenced    phase = "fenced"    // no write of the project succeeds
	copied    phase = "copied"    // the rows are in the target's transaction
	arrived   phase = "arrived"   // the target has the project
	marked    phase = "marked"    // the source says where it is
	cleaning  phase = "cleaning"  // some of its rows are deleted there
	cleaned   phase = "cleaned"   // all are
)

func (m *Mover) reach(ctx context.Context, at phase, args ...any) {
	m.Logger.InfoContext(ctx, string(at), args...)
	if m.reached != nil {
		m.reached(at)
	}
}

// RefusedError says why a project cannot be moved, and what to do. Nothing was changed.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

func refuse(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// Move moves a project to a cell, or goes on with a move that has begun. It fails with a [*RefusedError] before
// anything is changed. After any other error, it can be called again; the project is refused writes until then.
func (m *Mover) Move(ctx context.Context, project entities.Project, to entities.Cell) error {
	tx, d, err := m.begin(ctx, project, to)
	if err != nil {
		return err
	}
	defer rollBack(ctx, tx)
	switch {
	case d.CleanedAt != nil:
		m.reach(ctx, cleaned)
		return nil
	case !d.arrived:
		if d, err = m.hand(ctx, tx, d); err != nil {
			return fmt.Errorf("move project %s: %w", project, err)
		}
	}
	if err := m.leave(ctx, d); err != nil {
		return fmt.Errorf("project %s is in cell %s, but rows of it are left here: run the same command again: %w",
			project, to, err)
	}
	return nil
}

// hand fences the project and copies it.
func (m *Mover) hand(ctx context.Context, tx pgx.Tx, d departure) (departure, error) {
	d, err := m.depart(ctx, d)
	if err != nil {
		return d, err
	}
	m.reach(ctx, departing, "project", d.Project, "from", d.Here, "to", d.Cell)
	if err := fence(ctx, m.From); err != nil {
		return d, err
	}
	m.reach(ctx, fenced, "project", d.Project)
	if err := m.copyAll(ctx, tx, d); err != nil {
		return d, err
	}
	m.reach(ctx, copied, "project", d.Project)
	if err = tx.Commit(ctx); err != nil {
		return d, fmt.Errorf("commit: %w", err)
	}
	m.reach(ctx, arrived, "project", d.Project, "cell", d.Cell)
	if d.returning { // the triggers let it write, since its departure is gone, and need not be asked
		err = fence(ctx, m.To)
	}
	return d, err
}

// Abort gives up the move of a project that the target does not have yet. It fails with a [*RefusedError] before
// anything is changed.
func (m *Mover) Abort(ctx context.Context, project entities.Project, to entities.Cell) error {
	tx, d, err := m.begin(ctx, project, to)
	if err != nil {
		return err
	}
	defer rollBack(ctx, tx)
	switch {
	case d.arrived:
		return refuse("project %s is in cell %s: the move cannot be given up. Repeat it without --abort", project, to)
	case d.FencedAt.IsZero():
		return refuse("project %s is not being moved", project)
	}
	_, err = m.From.Exec(ctx, `DELETE FROM departures WHERE project = $1 AND fenced_at = $2`, project, d.FencedAt)
	if err == nil {
		err = fence(ctx, m.From)
	}
	return pg.Wrap(err, "give up the move of project %s", project)
}

// lockWait is how often lock tries to get the lock: for about ten seconds, in which Postgres notices that a command has
// died.
const lockWait = 50

// begin locks the project and finds out how far its move is. The caller ends the transaction, which is the target's.
func (m *Mover) begin(
	ctx context.Context, project entities.Project, to entities.Cell,
) (tx pgx.Tx, d departure, err error) {
	if tx, err = m.lock(ctx, project); err != nil {
		return nil, d, err
	}
	if d, err = m.check(ctx, tx, project, to); err != nil {
		rollBack(ctx, tx)
	}
	return tx, d, err
}

// lock begins the transaction of the target and locks the name of the project in it. It fails with a [*RefusedError] if
// another command has it.
func (m *Mover) lock(ctx context.Context, project entities.Project) (pgx.Tx, error) {
	tx, err := m.To.Begin(ctx)
	if err != nil {
		return nil, refuse("the database of the other cell cannot be reached: %v", err)
	}
	var free bool
	_, err = tx.Exec(ctx, `
		SELECT set_config(name, '0', true) FROM pg_settings
		WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')`)
	for try := 0; err == nil && !free && try < lockWait; try++ {
		if err = wait(ctx, min(time.Duration(try), 1)*lockPause); err == nil {
			err = tx.QueryRow(ctx, `
				SELECT pg_try_advisory_xact_lock(hashtextextended('move ' || $1::text, 0))`, project).Scan(&free)
		}
	}
	if err == nil && !free {
		err = refuse("another command is moving project %s: wait for it, or end it", project)
	}
	if err != nil {
		rollBack(ctx, tx)
	}
	return tx, err
}

func rollBack(ctx context.Context, tx pgx.Tx) { _ = tx.Rollback(context.WithoutCancel(ctx)) }

// asMover lets a transaction write to a project that leaves.
const asMover = `SELECT set_config('stepwell.mover', 'on', true)`

// audited queues the entry of the audit.
func audited(ctx context.Context, b *pgx.Batch, d departure) {
	admin.InsertAction(ctx, b, d.Project, admin.ActionProjectMove, string(d.Project),
		map[string]any{"from": d.Here, "to": d.Cell})
}
