// Package hold has the pauses of runs, workflows and deployments. A pause is a row. What is paused is not called: each
// message that would call it is put aside once, names the pause, and costs nothing from then on. When the pause is
// over, its messages are let go in batches, and then its row goes.
package hold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
)

// Until is when a message is due that a pause holds, in SQL: after all others, so that no search for due messages reads
// it.
const Until = `timestamptz '2201-01-01 00:00:00+00'`

const (
	// Max is how many pauses a project may have.
	Max = 1000
	// maxNote is the length limit of a note in bytes.
	maxNote = 1024
)

var (
	// ErrNotFound means that this is not paused.
	ErrNotFound = errors.New("it is not paused")
	// ErrTooMany means that the project has as many pauses as it may.
	ErrTooMany = fmt.Errorf("the project has %d pauses: resume some, or pause the workflow or the deployment of the runs",
		Max)
	// ErrNoWorkflow means that the project has no such workflow.
	ErrNoWorkflow = errors.New("no run and no deployment has the workflow: look for its name among the workflows")
)

// Kind is what a pause is of.
type Kind string

// The kinds.
const (
	Run        Kind = "run"
	Workflow   Kind = "workflow"
	Deployment Kind = "deployment"
)

// Subject is what a pause is of: the run or the deployment with the ID Name, or the workflow with that name.
type Subject struct {
	Kind Kind
	Name string
}

// Pause is a pause of a project.
type Pause struct {
	Subject

	ID       int64
	Note     string
	PausedBy string
	PausedAt time.Time
}

const columns = `id, kind, name, note, paused_by, paused_at`

// Holds reports whether pauses hold messages of the kind: those that call functions or other services. What records
// what has happened, starts runs or ends them goes on.
func Holds(w message.Work) bool {
	return w == message.WorkNone || w == message.WorkRun || w == message.WorkStep
}

// kinds say of each kind which condition there is something to pause with the name $2 in project $1, with the error
// otherwise, and what the audit calls a pause and its end.
var kinds = map[Kind]struct {
	exists     string
	missing    error
	begin, end admin.ActionKind
}{
	Run: {
		`EXISTS (SELECT FROM runs WHERE id = $2 AND project = $1)`, entities.ErrRunNotFound,
		admin.ActionRunPause, admin.ActionRunResume,
	},
	Workflow: {`EXISTS (SELECT FROM runs WHERE project = $1 AND workflow_name = $2)
		OR EXISTS (SELECT FROM deployments WHERE project = $1 AND $2 = ANY (workflows))`, ErrNoWorkflow,
		admin.ActionWorkflowPause, admin.ActionWorkflowResume,
	},
	Deployment: {
		`EXISTS (SELECT FROM deployments WHERE project = $1 AND id = $2)`, message.ErrDeploymentNotFound,
		admin.ActionDeploymentPause, admin.ActionDeploymentResume,
	},
}

// Check fails with [entities.ErrInvalid] if there is no such kind.
func (k Kind) Check() error {
	if _, ok := kinds[k]; !ok {
		return entities.Invalid("%q is none of run, workflow and deployment", k)
	}
	return nil
}

// Begin pauses something, with an entry in the audit; what is paused already gets the note. It fails with
// [entities.ErrInvalid], [ErrTooMany], and, if there is nothing to pause, with [entities.ErrRunNotFound],
// [entities.ErrRunEnded], [ErrNoWorkflow] or [message.ErrDeploymentNotFound].
func Begin(ctx context.Context, pool *pgxpool.Pool, project entities.Project, s Subject, note string) (Pause, error) {
	if err := s.Kind.Check(); err != nil {
		return Pause{}, err
	}
	of := kinds[s.Kind]
	if note != "" {
		if err := entities.ValidateText("note", note, maxNote); err != nil {
			return Pause{}, err
		}
	}
	var found, ended bool
	p, err := admin.Change(ctx, pg.NewPool(pool), ErrTooMany, func(b *pgx.Batch, into **Pause) {
		b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended('pauses ' || $1::text, 0))`, project)
		b.Queue(`SELECT `+of.exists+`, EXISTS (SELECT FROM runs WHERE id = $2 AND project = $1 AND completed_at IS NOT NULL)`,
			project, s.Name).QueryRow(func(row pgx.Row) error { return row.Scan(&found, &ended) })
		pg.LoadInto(b, into, `
			INSERT INTO pauses (project, kind, name, note, paused_by)
			SELECT $1, $2, $3, $4, $5
			WHERE EXISTS (SELECT FROM pauses WHERE project = $1 AND kind = $2 AND name = $3 AND resumed_at IS NULL)
				OR (SELECT count(*) FROM pauses WHERE project = $1 AND resumed_at IS NULL) < $6
			ON CONFLICT (project, kind, name) WHERE resumed_at IS NULL DO UPDATE SET note = excluded.note
			RETURNING `+columns, project, s.Kind, s.Name, note, admin.SourceOf(ctx).Actor, Max)
		admin.InsertAction(ctx, b, project, of.begin, s.Name, nil)
	}, func() error {
		switch {
		case !found:
			return of.missing
		case ended && s.Kind == Run:
			return entities.ErrRunEnded
		}
		return nil
	})
	return p, pg.Wrap(err, "pause %s %s", s.Kind, s.Name)
}

// End ends a pause, with an entry in the audit. From then on it holds no more messages. It fails
// with [ErrNotFound].
func End(ctx context.Context, pool *pgxpool.Pool, project entities.Project, s Subject) error {
	if err := s.Kind.Check(); err != nil {
		return err
	}
	_, err := admin.Change(ctx, pg.NewPool(pool), ErrNotFound, func(b *pgx.Batch, into **Pause) {
		pg.LoadInto(b, into, `
			UPDATE pauses SET resumed_at = now() WHERE project = $1 AND kind = $2 AND name = $3 AND resumed_at IS NULL
			RETURNING `+columns, project, s.Kind, s.Name)
		admin.InsertAction(ctx, b, project, kinds[s.Kind].end, s.Name, nil)
	})
	return pg.Wrap(err, "resume %s %s", s.Kind, s.Name)
}

// EndOfRuns ends the pauses of runs that have ended.
func EndOfRuns(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pg.NewPool(pool).Exec(ctx, `
		UPDATE pauses p SET resumed_at = now() WHERE kind = 'run' AND resumed_at IS NULL AND `+pg.Staying("p.project")+`
			AND NOT EXISTS (SELECT FROM runs r WHERE r.id = p.name AND r.completed_at IS NULL)`)
	return pg.Wrap(err, "end the pauses of runs")
}

// List lists the pauses of a project, the oldest first.
func List(ctx context.Context, q pg.Querier, project entities.Project) ([]Pause, error) {
	list, err := pg.CollectAll[Pause](q.Query(ctx, listSQL, project))
	return list, pg.Wrap(err, "list pauses")
}

const listSQL = `SELECT ` + columns + ` FROM pauses WHERE project = $1 AND resumed_at IS NULL ORDER BY id`

// Load queues a read of the pauses of a project.
func Load(b *pgx.Batch, project entities.Project, take func(Pause)) {
	pg.LoadEach(b, take, listSQL, project)
}

// State says which projects have pauses, and which pauses are over and may hold messages still.
type State struct {
	Projects []entities.Project
	Over     []int64
}

// Read reads the state. It jumps in the index from project to project, so that its cost does not depend on the number
// of pauses.
func Read(ctx context.Context, q pg.Querier) (State, error) {
	rows, err := q.Query(ctx, `
		WITH RECURSIVE p AS (
			(SELECT project FROM pauses WHERE resumed_at IS NULL ORDER BY project LIMIT 1)
			UNION ALL
			SELECT (SELECT project FROM pauses n WHERE resumed_at IS NULL AND n.project > p.project ORDER BY project LIMIT 1)
			FROM p WHERE p.project IS NOT NULL
		)
		SELECT array(SELECT project FROM p WHERE project IS NOT NULL) AS projects,
			array(SELECT id FROM pauses WHERE resumed_at IS NOT NULL AND `+pg.Staying("project")+`
				ORDER BY id LIMIT 100) AS over`)
	s, err := pg.CollectOne[State](rows, err, pgx.ErrNoRows)
	return s, pg.Wrap(err, "read pauses")
}

// Forget deletes a pause that is over, unless it holds messages still. It reports whether it is gone.
func Forget(ctx context.Context, pool *pgxpool.Pool, id int64) (bool, error) {
	tag, err := pg.NewPool(pool).Exec(ctx, `
		DELETE FROM pauses WHERE id = $1 AND resumed_at IS NOT NULL
			AND NOT EXISTS (SELECT FROM messages WHERE held_by = $1)`, id)
	return tag.RowsAffected() > 0, pg.Wrap(err, "forget pause")
}
