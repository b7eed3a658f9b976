package read

import (
	"context"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// MaxLater is how many of the later events of a part [Log.Timeline] returns, the newest ones.
const MaxLater = 60

// TimelinePart is a step, hook or wait of a run with the times of its events, according to the log.
type TimelinePart struct {
	RunID entities.RunID
	ID    string
	// Seq is the position of the event that created the part, Type its type and Data its data. After a hook_conflict the
	// hook never had its token.
	Seq       int64
	CreatedAt time.Time
	Type      entities.EventType
	Data      entities.EventData
	// Later are the part's further events in their order. If there are more than [MaxLater], the oldest are left out, and
	// Cut is set.
	Later []TimelineEvent
	Cut   bool
}

// TimelineEvent is an event of a part, without payload.
type TimelineEvent struct {
	Seq        int64              `json:"seq"`
	Type       entities.EventType `json:"type"`
	At         time.Time          `json:"at"`
	Code       string             `json:"code"`
	RetryAfter *time.Time         `json:"retryAfter"`
}

// timeline selects the parts. An ID may be that of a step, a hook and a wait at the same time, so the beginning of the
// types of their events tells them apart.
var timeline = fmt.Sprintf(`
	SELECT made.run_id, made.correlation_id AS id, made.seq, made.created_at, made.type, made.data, later.events AS later,
		later.cut
	FROM events made JOIN runs r ON r.id = made.run_id CROSS JOIN LATERAL (
		SELECT coalesce(jsonb_agg(jsonb_build_object('seq', e.seq, 'type', e.type, 'at', e.created_at,
				'code', e.data->'errorCode', 'retryAfter', e.data->'retryAfter') ORDER BY e.seq)
			FILTER (WHERE e.nth <= %[1]d), '[]') AS events, count(*) > %[1]d AS cut
		FROM (
			SELECT e.seq, e.type, e.created_at, e.data, row_number() OVER (ORDER BY e.seq DESC) AS nth FROM events e
			WHERE e.run_id = made.run_id AND e.correlation_id = made.correlation_id AND e.correlation_id <> ''
				AND e.seq > made.seq AND split_part(e.type, '_', 1) = split_part(made.type, '_', 1)
			ORDER BY e.seq DESC LIMIT %[1]d + 1) AS e) AS later
	WHERE made.type IN ('step_created', 'hook_created', 'hook_conflict', 'wait_created')`, MaxLater)

// Timeline reads a page of the steps, hooks and waits that a run ever had. Order, cursors and errors are as for
// [Log.HookHistories].
func (l *Log) Timeline(
	ctx context.Context, project entities.Project, runID entities.RunID, p pg.Page,
) ([]TimelinePart, string, error) {
	return histories(ctx, l, timeline, project, runID, p, func(t TimelinePart) int64 { return t.Seq })
}
