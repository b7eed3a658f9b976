package queue

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// pausesPoll is how often a process reads which projects are paused.
	pausesPoll = time.Second
	// pausedPause is how long a message of a paused project waits before it is delivered again. To resume the project
	// makes it due at once.
	pausedPause = 10 * time.Minute
)

// pauses knows which projects are paused: of them, nothing is delivered but what ends runs.
type pauses struct {
	pool *pgxpool.Pool
	list atomic.Pointer[map[entities.Project]bool]
}

// has reports whether the project was paused a moment ago.
func (p *pauses) has(project entities.Project) bool {
	list := p.list.Load()
	return list != nil && (*list)[project]
}

// run reads which projects are paused until the context ends.
func (p *pauses) run(ctx context.Context, logger *slog.Logger) {
	for {
		list, err := admin.PausedProjects(ctx, pg.NewPool(p.pool))
		if err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "read paused projects", "error", err)
		}
		if err == nil {
			p.list.Store(&list)
		}
		if !pause(ctx, pausesPoll) {
			return
		}
	}
}

// holds reports whether the delivery waits because its project is paused. What ends runs and steps goes on: to cancel
// works.
func (w *deliverer) holds(d Delivery) bool {
	switch d.Work {
	case message.WorkEnd, message.WorkCancel, message.WorkReport, message.WorkDeadline:
		return false
	default:
		return w.queue.pauses.has(d.Project)
	}
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
	defer q.announceDue(nil)
	for n := dueBatch; n == dueBatch; {
		err := pg.NewPool(q.pool).QueryRow(ctx, `
			WITH next AS (
				SELECT id, due_at FROM messages
				WHERE project = $1 AND lease = '' AND parked_at IS NULL AND last_error = $2
				ORDER BY due_at LIMIT $3
				FOR UPDATE SKIP LOCKED
			), moved AS (
				UPDATE messages SET last_error = '', due_at = CASE WHEN due_at < `+gated+` THEN now() ELSE due_at END
				WHERE id = ANY (ARRAY(SELECT id FROM next))
			), hurried AS (
				UPDATE permits SET not_before = now()
				WHERE message_id = ANY (ARRAY(SELECT id FROM next)) AND granted_at IS NULL AND not_before > now()
			)
			SELECT count(*) FROM next`, project, message.ProjectPaused, dueBatch).Scan(&n)
		if err != nil {
			return fmt.Errorf("resume project %s: %w", project, err)
		}
	}
	return nil
}
