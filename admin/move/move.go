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

	copiedRuns, copiedRows int64
	said                   phase        // of which progress was logged
	ticks                  *time.Ticker // when it is logged again
}

// phase is how far a move is.
type phase string

// The phases of a move, in their order. A command can die after each.
const (
	copying   phase = "copying"   // some ended runs are in the target
	changes   phase = "changes"   // so is what has changed of them meanwhile
	departing phase = "departing" // the departure is noted
	fenced    phase = "fenced"    // no write of the project succeeds
	copied    phase = "copied"    // the other rows are in the target's transaction
	arrived   phase = "arrived"   // the target has the project
	marked    phase = "marked"    // the source says where it is
	cleaning  phase = "cleaning"  // some of its rows are deleted there
	cleaned   phase = "cleaned"   // all are
)

// progressEvery is how often the command says how far the copy is.
const progressEvery = 5 * time.Second

// progress is [Mover.reach] for what happens often: it is logged at first, and then every few seconds.
func (m *Mover) progress(ctx context.Context, at phase, args ...any) {
	says := m.said != at
	select {
	case <-m.ticks.C:
		says = true
	default:
	}
	if says {
		m.said = at
		m.Logger.InfoContext(ctx, string(at), args...)
	}
	m.tell(at)
}

func (m *Mover) reach(ctx context.Context, at phase, args ...any) {
	m.Logger.InfoContext(ctx, string(at), args...)
	m.tell(at)
}

func (m *Mover) tell(at phase) {
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

// hand copies the project, which is fenced while the rest of it is copied.
func (m *Mover) hand(ctx context.Context, tx pgx.Tx, d departure) (departure, error) {
	m.ticks = time.NewTicker(progressEvery)
	defer m.ticks.Stop()
	a, err := m.copyAhead(ctx, d)
	if err != nil {
		return d, err
	}
	d, err = m.depart(ctx, d)
	if err != nil {
		return d, err
	}
	m.reach(ctx, departing,
		"project", d.Project, "from", d.Here, "to", d.Cell, "runs", m.copiedRuns, "rows", m.copiedRows)
	if err := fence(ctx, m.From, tables); err != nil {
		return d, err
	}
	m.reach(ctx, fenced, "project", d.Project)
	if _, err := m.follow(ctx, d, &a); err != nil { // so that the transaction that decides is short
		return d, err
	}
	if err := m.copyRest(ctx, tx, d, a); err != nil {
		return d, err
	}
	m.reach(ctx, copied, "project", d.Project, "runs", m.copiedRuns, "rows", m.copiedRows)
	if err = tx.Commit(ctx); err != nil {
		return d, fmt.Errorf("commit: %w", err)
	}
	refused, err := pg.CollectValue[time.Duration](m.From.Query(ctx, `
		SELECT clock_timestamp() - $1::timestamptz`, d.FencedAt))
	if err != nil {
		return d, err
	}
	m.reach(ctx, arrived, "project", d.Project, "cell", d.Cell, "fenced for", refused)
	// The triggers let it be written, since its departure is gone, and need not be asked.
	if d.returning {
		return d, fence(ctx, m.To, tables)
	}
	return d, fence(ctx, m.To, names)
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
	case d.FencedAt.IsZero() && !d.leaving && len(d.begun) == 0:
		return refuse("project %s is not being moved", project)
	}
	err = pg.InTx(ctx, m.From, func(tx pgx.Tx) error {
		var b pgx.Batch
		b.Queue(`DELETE FROM departures WHERE project = $1 AND fenced_at = $2`, project, d.FencedAt)
		b.Queue(`DELETE FROM leaving WHERE project = $1`, project)
		return tx.SendBatch(ctx, &b).Close()
	})
	if err == nil {
		err = fence(ctx, m.From, tables)
	}
	if err == nil {
		always := func(context.Context, pgx.Tx) (bool, error) { return true, nil }
		err = deleter{m, m.From, project, always}.rows(ctx, "leaving_changes",
			`t.project = $project AND NOT EXISTS (SELECT FROM leaving WHERE project = $project)`)
	}
	for _, a := range d.begun {
		if err == nil {
			err = m.forget(ctx, a)
		}
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
