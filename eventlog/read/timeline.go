package read

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// MaxLater is how many of the later events of a part [Log.Timeline] returns, the newest ones.
const MaxLater = 60

// TimelinePart is a step, hook or wait of a run with the times of its events, according to the log.
type TimelinePart struct {
	ID string
	// Seq is the position of the event that created the part, Type its type and Data its data, which parts may share.
	// After a hook_conflict the hook never had its token.
	Seq       int64
	CreatedAt time.Time
	Type      entities.EventType
	Data      *entities.EventData
	// Later are the part's further events in their order. If there are more than [MaxLater], the oldest are left out, and
	// Cut is set.
	Later []TimelineEvent
	Cut   bool
}

// TimelineEvent is an event of a part, without payload.
type TimelineEvent struct {
	Seq        int64
	Type       entities.EventType
	At         time.Time
	Code       string
	RetryAfter *time.Time
	// StartedAt and EndedAt are the times of an execution that the function made itself and recorded afterwards, by its
	// own clock.
	StartedAt, EndedAt *time.Time
}

// TimelineQuery selects parts of a run. With a name or a status it selects only steps.
type TimelineQuery struct {
	pg.Page

	Name     string
	Statuses []entities.StepStatus
}

func (q TimelineQuery) selectsSteps() bool { return q.Name != "" || len(q.Statuses) > 0 }

// These limit how many positions of the log one page of [Log.Timeline] looks at: of all events, or of those that
// created steps, which have an index of their own. A page that ends there may have few entries, or none.
const (
	partSpan = 10_000
	stepSpan = 50_000
)

// window returns the positions that the page looks at, after the first and up to the last, and the cursor of the page
// behind them; empty if there is none.
func (q TimelineQuery) window(lastSeq int64) (after, to int64, next string, err error) {
	from, err := parsePosition(q.Cursor)
	if err != nil {
		return 0, 0, "", err
	}
	from = min(from, lastSeq+1)
	span := int64(partSpan)
	if q.selectsSteps() {
		span = stepSpan
	}
	if q.Descending {
		to = lastSeq
		if q.Cursor != "" {
			to = min(to, from-1)
		}
		after = max(0, to-span)
		if after > 0 {
			next = strconv.FormatInt(after+1, 10)
		}
		return after, to, next, nil
	}
	if to = from + span; to < lastSeq {
		next = strconv.FormatInt(to, 10)
	}
	return from, to, next, nil
}

// timelineParts selects the parts of a page. %s is the order. The OFFSET keeps Postgres from joining: a join that was
// planned when there were few events would read the whole log for each step.
const (
	timelineParts = `
		SELECT run_id, correlation_id, seq, created_at, type, data FROM events
		WHERE run_id = $1 AND seq > $2 AND seq <= $3
			AND type IN ('step_created', 'hook_created', 'hook_conflict', 'wait_created')
		ORDER BY seq %s LIMIT $4`

	timelineSteps = `
		SELECT made.run_id, made.correlation_id, made.seq, made.created_at, made.type, made.data
		FROM steps s CROSS JOIN LATERAL (
			SELECT * FROM events e WHERE e.run_id = s.run_id AND e.seq = s.created_seq OFFSET 0) AS made
		WHERE s.run_id = $1 AND s.created_seq > $2 AND s.created_seq <= $3
			AND ($5 = '' OR s.name = $5) AND (coalesce(cardinality($6::text[]), 0) = 0 OR s.status = ANY ($6))
		ORDER BY s.created_seq %s LIMIT $4`
)

// timelineEvents has the events of the parts that the first placeholder selects, in the columns of [timelineRow]: of
// each part the one that created it, and then the newest ones. An ID may be that of a step, a hook and a wait at the
// same time, so the beginning of the types of their events tells them apart. A row for each event takes Postgres a
// third of the time of an aggregate for each part.
const timelineEvents = `
	SELECT e.* FROM (%[1]s) AS made CROSS JOIN LATERAL (
		SELECT made.correlation_id AS id, made.seq, made.created_at, made.type, made.data,
			NULL AS code, NULL AS retry_after, NULL AS started_at, NULL AS ended_at
		UNION ALL (
			SELECT '', e.seq, e.created_at, e.type, NULL,
				e.data->>'errorCode', e.data->>'retryAfter', e.data->>'startedAt', e.data->>'endedAt'
			FROM events e
			WHERE e.run_id = made.run_id AND e.correlation_id = made.correlation_id AND e.correlation_id <> ''
				AND e.seq > made.seq AND split_part(e.type, '_', 1) = split_part(made.type, '_', 1)
			ORDER BY e.` + store.BySeq + ` DESC LIMIT %[3]d + 1)) AS e
	ORDER BY made.seq %[2]s, e.seq`

// timelineRow has the columns of a row of [timelineEvents]. The ID and the data are those of a part, which begins with
// this row; the last four are in the data of a later event.
type timelineRow struct {
	id, data, eventType                  pgtype.DriverBytes
	seq                                  int64
	createdAt                            pgtype.Timestamptz
	code, retryAfter, startedAt, endedAt pgtype.DriverBytes
}

func (r *timelineRow) columns() []any {
	return []any{
		&r.id, &r.seq, &r.createdAt, &r.eventType, &r.data, &r.code, &r.retryAfter, &r.startedAt, &r.endedAt,
	}
}

// addTo adds the event to its part, or the part that it creates.
func (r *timelineRow) addTo(parts []TimelinePart, known *knownData) ([]TimelinePart, error) {
	if r.data != nil {
		data, err := known.decode(r.data)
		return append(parts, TimelinePart{
			ID: string(r.id), Seq: r.seq, CreatedAt: r.createdAt.Time, Type: eventType(r.eventType), Data: data,
		}), err
	}
	part := &parts[len(parts)-1]
	if len(part.Later) == MaxLater {
		part.Later, part.Cut = slices.Delete(part.Later, 0, 1), true
	}
	e := TimelineEvent{Seq: r.seq, Type: eventType(r.eventType), At: r.createdAt.Time, Code: string(r.code)}
	for _, at := range []struct {
		text pgtype.DriverBytes
		into **time.Time
	}{{r.retryAfter, &e.RetryAfter}, {r.startedAt, &e.StartedAt}, {r.endedAt, &e.EndedAt}} {
		if at.text == nil {
			continue
		}
		*at.into = new(time.Time)
		if err := (*at.into).UnmarshalText(at.text); err != nil {
			return nil, fmt.Errorf("decode the data of event %d: %w", r.seq, err)
		}
	}
	part.Later = append(part.Later, e)
	return parts, nil
}

// Timeline reads a page of the steps, hooks and waits that a run ever had, in the order of their creation, and the
// cursor of the next page; empty after the last. A page looks at a limited part of the log. It fails with
// [entities.ErrInvalid] on an invalid cursor.
func (l *Log) Timeline(ctx context.Context, run entities.Run, q TimelineQuery) ([]TimelinePart, string, error) {
	after, to, next, err := q.window(run.LastSeq)
	if err != nil {
		return nil, "", err
	}
	order, _ := q.Order()
	args, parts := []any{run.ID, after, to, q.Limit + 1}, timelineParts
	if q.selectsSteps() {
		args, parts = append(args, q.Name, q.Statuses), timelineSteps
	}
	rows, err := l.pool.Query(ctx, fmt.Sprintf(timelineEvents, fmt.Sprintf(parts, order), order, MaxLater), args...)
	if err != nil {
		return nil, "", fmt.Errorf("read timeline of %s: %w", run.ID, err)
	}
	var items []TimelinePart
	var row timelineRow
	var known knownData
	_, err = pgx.ForEachRow(rows, row.columns(), func() (err error) {
		items, err = row.addTo(items, &known)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("read timeline of %s: %w", run.ID, err)
	}
	if len(items) > q.Limit {
		items, next = items[:q.Limit], strconv.FormatInt(items[q.Limit-1].Seq, 10)
	}
	return items, next, nil
}
