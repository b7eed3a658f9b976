package read

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
)

// maxChanges is the most events that one call of [Log.Changes] reads.
const maxChanges = 1000

// Change tells that an event was written.
type Change struct {
	RunID entities.RunID
	Seq   int64
	Type  entities.EventType
	// Late is set if an open transaction may still add an event before this one.
	Late bool
}

// Changes are the events of a project that were committed after a place.
type Changes struct {
	List []Change
	// To is the place after which the next call goes on. Changes that are late will be read again.
	To FeedCursor
	// More is set if further events can be read at once; Blocked if some can be read only when an open transaction ends.
	More, Blocked bool
	// Future is set if the place is of another database cluster, whose transactions had higher numbers.
	Future bool
}

// EndOfChanges returns the place after which all events are that are committed from now on.
func (l *Log) EndOfChanges(ctx context.Context, project entities.Project) (FeedCursor, error) {
	end, err := withConnection(ctx, l.live, project, func() (end FeedCursor, err error) {
		err = l.pool.QueryRow(ctx, `SELECT pg_snapshot_xmin(pg_current_snapshot())`).Scan(&end.xid)
		return end, err
	})
	if err != nil {
		return end, fmt.Errorf("find the end of the events: %w", err)
	}
	return end, nil
}

// Changes reads which events of the project were committed after a place, up to 1,000, in one statement. Unlike lists
// of events it also returns those that an open transaction may precede. So there may be events between them later, and
// callers must know which they have seen.
func (l *Log) Changes(ctx context.Context, project entities.Project, after FeedCursor) (Changes, error) {
	c, err := withConnection(ctx, l.live, project, func() (Changes, error) {
		return l.readChanges(ctx, project, after)
	})
	if err != nil {
		return c, fmt.Errorf("read what has changed: %w", err)
	}
	return c, nil
}

func (l *Log) readChanges(ctx context.Context, project entities.Project, after FeedCursor) (Changes, error) {
	rows, err := l.pool.Query(ctx, changesSQL,
		project, strconv.FormatUint(after.xid, 10), after.runID, after.seq, maxChanges)
	if err != nil {
		return Changes{}, err
	}
	var (
		c          Changes
		xmin, xmax uint64
		last       FeedCursor
		run, typ   *string
		seq        *int64
		xid        *uint64
	)
	_, err = pgx.ForEachRow(rows, []any{&xmin, &xmax, &run, &seq, &typ, &xid}, func() error {
		if run == nil {
			return nil // there is no event
		}
		last = FeedCursor{*xid, entities.RunID(*run), *seq}
		c.List = append(c.List, Change{last.runID, last.seq, entities.EventType(*typ), *xid >= xmin})
		return nil
	})
	c.To, c.Future = FeedCursor{xid: xmin}, after.xid > xmax
	if len(c.List) == maxChanges {
		c.Blocked = last.xid >= xmin
		if c.More = !c.Blocked; c.More {
			c.To = last
		}
	}
	if c.To.Compare(after) < 0 && !c.Future {
		c.To = after
	}
	return c, err
}

// changesSQL selects the first $5 events of project $1 after the place ($2, $3, $4), with the bounds of open
// transactions; if there is none, only these. It reads the index type by type, as lists of events do.
var changesSQL = func() string {
	parts := make([]string, len(entities.EventTypes))
	for i, t := range entities.EventTypes {
		parts[i] = `(SELECT run_id, seq, type, xid FROM events
			WHERE project = $1 AND type = '` + string(t) + `' AND (xid, run_id, seq) > ($2::text::xid8, $3, $4)
			ORDER BY xid, run_id, seq LIMIT $5)`
	}
	return `
		SELECT pg_snapshot_xmin(now), pg_snapshot_xmax(now), run_id, seq, type, xid
		FROM pg_current_snapshot() now LEFT JOIN (
			` + strings.Join(parts, ` UNION ALL `) + `
			ORDER BY xid, run_id, seq LIMIT $5
		) e ON true
		ORDER BY xid, run_id, seq`
}()

// SubscribeProject is [pg.Hub.Subscribe] to the events of a project.
func (l *Log) SubscribeProject(project entities.Project) (news <-chan struct{}, cancel func()) {
	return l.hub.Subscribe(projectTopic(project))
}
