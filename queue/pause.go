package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/hold"
)

const (
	// pausesRetry is how soon a process reads again what is paused after that has failed.
	pausesRetry = time.Second
	// pausedPause is how long a message of a paused project waits before it is delivered again. To resume the project
	// makes it due at once.
	pausedPause = 10 * time.Minute
	// pausesTopic is the hub's topic for hints that a pause began or ended.
	pausesTopic = "pauses"
)

// pauses knows which projects are paused, of which nothing is delivered but what ends runs, and which have pauses of
// runs, workflows or deployments.
type pauses struct {
	pool *pgxpool.Pool
	last atomic.Pointer[paused] // nil while this process delivers nothing, and so does not follow what is paused
}

// paused has the projects that were paused a moment ago, and those of which runs, workflows or deployments were.
type paused struct{ projects, parts map[entities.Project]bool }

// any reports whether anything is paused.
func (p paused) any() bool { return len(p.projects)+len(p.parts) > 0 }

// known returns what is known to be paused.
func (p *pauses) known() paused {
	if last := p.last.Load(); last != nil {
		return *last
	}
	return paused{}
}

// read reads what is paused, and returns the pauses that are over and may hold messages still.
func (p *pauses) read(ctx context.Context) (over []int64, err error) {
	list, err := admin.PausedProjects(ctx, pg.NewPool(p.pool))
	if err != nil {
		return nil, err
	}
	state, err := hold.Read(ctx, pg.NewPool(p.pool))
	if err != nil {
		return nil, err
	}
	parts := make(map[entities.Project]bool, len(state.Projects))
	for _, project := range state.Projects {
		parts[project] = true
	}
	p.last.Store(&paused{list, parts})
	return state.Over, nil
}

// followPauses reads what is paused, when that changes and when a heartbeat says that it is due, and lets go what was
// held, until the context ends.
func (q *Queue) followPauses(ctx context.Context, due <-chan struct{}, logger *slog.Logger) {
	changed, cancel := q.hub.Subscribe(pausesTopic)
	defer cancel()
	for ctx.Err() == nil {
		over, err := q.pauses.read(ctx)
		for _, id := range over {
			err = errors.Join(err, q.letGo(ctx, id))
		}
		var retry <-chan time.Time
		if err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "read pauses", "error", err)
			retry = time.After(pausesRetry)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-due:
		case <-retry:
		}
	}
}

// Pause pauses a run, a workflow or a deployment; see [hold.Begin].
func (q *Queue) Pause(ctx context.Context, project entities.Project, s hold.Subject, note string) (hold.Pause, error) {
	p, err := hold.Begin(ctx, q.pool, project, s, note)
	if err == nil {
		q.hub.Publish(pausesTopic)
	}
	return p, err
}

// EndPause ends a pause; see [hold.End]. What it has held becomes due in batches.
func (q *Queue) EndPause(ctx context.Context, project entities.Project, s hold.Subject) error {
	err := hold.End(ctx, q.pool, project, s)
	if err == nil {
		q.hub.Publish(pausesTopic)
	}
	return err
}

// holds reports whether the delivery waits because its project is paused. What ends runs and steps goes on: to cancel
// works.
func (w *deliverer) holds(d Delivery) bool {
	switch d.Work {
	case message.WorkEnd, message.WorkCancel, message.WorkReport, message.WorkDeadline:
		return false
	default:
		return w.queue.pauses.known().projects[d.Project]
	}
}

// partPaused is the outcome of a delivery whose run, workflow or deployment is paused.
const partPaused = "its run, workflow or deployment is paused"

// putAside puts the message of a delivery that calls something aside if its run, workflow or deployment is paused, and
// reports whether it is.
func (q *Queue) putAside(ctx context.Context, d Delivery) (held bool, err error) {
	err = Persist(ctx, func(ctx context.Context) error {
		return pg.NewPool(q.pool).QueryRow(ctx, holdSQL, d.Lease, d.Project, d.RunID, d.DeploymentID).Scan(&held)
	})
	return held, pg.Wrap(err, "hold message")
}

// isHeld puts a delivery aside that calls something which is paused, and reports whether it is.
func (w *deliverer) isHeld(ctx context.Context, d Delivery) (bool, error) {
	if !hold.Holds(d.Work) || !w.queue.pauses.known().parts[d.Project] {
		return false, nil
	}
	return w.queue.putAside(ctx, d)
}

// putAsideSome puts aside what is paused of the deliveries of a project, and returns the others.
func (q *Queue) putAsideSome(ctx context.Context, claimed []Delivery) (list []Delivery, err error) {
	if len(claimed) == 0 || q.pauses.last.Load() != nil && !q.pauses.known().parts[claimed[0].Project] {
		return claimed, nil
	}
	for _, d := range claimed {
		held, err := q.putAside(ctx, d)
		if err != nil {
			return list, err
		}
		if !held {
			list = append(list, d)
		}
	}
	return list, nil
}

// pausesOf selects the pauses of a run, its workflow and a deployment.
func pausesOf(project, run, deployment string) string {
	return `SELECT id FROM pauses p
		WHERE p.project = ` + project + ` AND resumed_at IS NULL AND (kind, name) IN (
			VALUES ('run', ` + run + `), ('deployment', ` + deployment + `), ('workflow', (SELECT workflow_name FROM runs r
				WHERE r.id = ` + run + ` AND r.project IS NOT DISTINCT FROM ` + project + `)))`
}

// holdSQL ends the lease $1 of a message whose run $3, deployment $4 or workflow is paused in project $2, and reports
// whether it is. The lock has the end of a pause wait for those that hold messages for it: what it lets go is all.
// The delivery has not started; see [releaseSQL].
var holdSQL = `
	WITH paused AS (
		` + pausesOf("$2", "$3::text", "$4::text") + `
		FOR SHARE
	), failed AS (
		UPDATE messages SET lease = '', holder = '', awaits_since = NULL, due_at = ` + hold.Until + `,
			held_by = (SELECT min(id) FROM paused), delivery_count = delivery_count - 1,
			unreached_count = unreached_count + (work = 'step')::integer
		WHERE ` + OfLease + ` AND EXISTS (SELECT FROM paused)
		RETURNING id, 'infinity'::timestamptz AS not_before
	), returned AS (` + limit.Return + `)
	SELECT EXISTS (SELECT FROM paused)`

// letGo makes the messages due now that a pause has held which is over, in batches, so that it holds up nothing else,
// and then deletes the pause. Several processes may do so at once, and go on after a crash.
func (q *Queue) letGo(ctx context.Context, pause int64) error {
	err := q.moveInBatches(ctx, `held_by = $2 ORDER BY id`, `held_by = NULL, due_at = CASE
		WHEN due_at <> `+hold.Until+` THEN due_at WHEN `+needsSlots+` THEN `+gated+` ELSE now() END`, pause)
	if err != nil {
		return fmt.Errorf("let go what pause %d held: %w", pause, err)
	}
	_, err = hold.Forget(ctx, q.pool, pause)
	return err
}

// postpone puts off a delivery of a paused project. If that was resumed meanwhile, the message is due at once: whoever
// resumes a project makes due what was put off until then, and both commit before they read.
func (w *deliverer) postpone(ctx context.Context, d Delivery) error {
	err := w.nack(ctx, d.Lease, Failure{Reason: message.ProjectPaused, Public: message.ProjectPaused, After: pausedPause})
	if err != nil {
		return err
	}
	list, err := admin.PausedProjects(ctx, pg.NewPool(w.queue.pool))
	if err == nil && !list[d.Project] {
		err = w.queue.Resume(ctx, d.Project)
	}
	return err
}

// Resume makes the messages due now that were put off because their project was paused.
func (q *Queue) Resume(ctx context.Context, project entities.Project) error {
	err := q.moveInBatches(ctx, `project = $2 AND lease = '' AND parked_at IS NULL AND last_error = $3 ORDER BY due_at`,
		`last_error = '', due_at = CASE WHEN due_at < `+gated+` THEN now() ELSE due_at END`, project, message.ProjectPaused)
	return pg.Wrap(err, "resume project %s", project)
}

// moveInBatches changes the messages m that which selects, in its order, and ends the pauses of their permits: in
// batches, so that it holds up nothing else. The arguments of which begin with $2. It skips locked rows.
func (q *Queue) moveInBatches(ctx context.Context, which, change string, args ...any) error {
	for n := dueBatch; n == dueBatch; {
		err := pg.NewPool(q.pool).QueryRow(ctx, `
			WITH next AS (
				SELECT id FROM messages WHERE `+which+` LIMIT $1 FOR UPDATE SKIP LOCKED
			), moved AS (
				UPDATE messages m SET `+change+` WHERE id = ANY (ARRAY(SELECT id FROM next))
			), advanced AS (`+advancePermits+`)
			SELECT count(*) FROM next`, append([]any{dueBatch}, args...)...).Scan(&n)
		if err != nil {
			return err
		}
		q.announceDue(nil)
	}
	return nil
}

// advancePermits ends the pauses of the permits of the messages in the relation next.
const advancePermits = `
	UPDATE permits SET not_before = now()
	WHERE message_id = ANY (ARRAY(SELECT id FROM next)) AND granted_at IS NULL AND not_before > now()`
