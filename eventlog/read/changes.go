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
}

// EndOfChanges returns the place after which all events are that are committed from now on.
func (l *Log) EndOfChanges(ctx context.Context, project entities.Project) (FeedCursor, error) {
	return l.endAfter(ctx, project, FeedCursor{})
}

// endAfter is [Log.EndOfChanges] for who continues at a cursor. It fails with [ErrCursorLost].
func (l *Log) endAfter(ctx context.Context, project entities.Project, after FeedCursor) (FeedCursor, error) {
	end, err := withConnection(ctx, l.live, project, func() (FeedCursor, error) {
		var now bounds
		err := l.pool.QueryRow(ctx, `SELECT `+boundColumns+` FROM (`+boundsSQL+`) bounds`, after.epoch, project).
			Scan(now.columns()...)
		if err != nil {
			return FeedCursor{}, err
		}
		return now.end(), now.check(after)
	})
	if err != nil {
		return end, fmt.Errorf("find the end of the events: %w", err)
	}
	return end, nil
}

// Changes reads which events of the project were committed after a place, up to 1,000, in one statement. Unlike lists
// of events it also returns those that an open transaction may precede. So there may be events between them later, and
// callers must know which they have seen. It fails with [ErrCursorLost].
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
		after.epoch, project, strconv.FormatUint(after.xid, 10), after.runID, after.seq, maxChanges)
	if err != nil {
		return Changes{}, err
	}
	var (
		c        Changes
		now      bounds
		last     FeedCursor
		run, typ *string
		seq      *int64
		xid      *uint64
	)
	_, err = pgx.ForEachRow(rows, append(now.columns(), &run, &seq, &typ, &xid), func() error {
		if run == nil {
			return nil // there is no event
		}
		last = FeedCursor{now.epoch, *xid, entities.RunID(*run), *seq}
		c.List = append(c.List, Change{last.runID, last.seq, entities.EventType(*typ), *xid >= now.oldest})
		return nil
	})
	if err == nil {
		err = now.check(after)
	}
	c.To = now.end()
	if len(c.List) == maxChanges {
		c.Blocked = last.xid >= now.oldest
		if c.More = !c.Blocked; c.More {
			c.To = last
		}
	}
	if c.To.Compare(after) < 0 {
		c.To = after
	}
	return c, err
}

// changesSQL selects the first $6 events of project $2 after the place ($3, $4, $5) of the epoch $1, with the bounds;
// if there is none, only these. It reads the index type by type, as lists of events do.
var changesSQL = func() string {
	parts := make([]string, len(entities.EventTypes))
	for i, t := range entities.EventTypes {
		parts[i] = `(SELECT run_id, seq, type, xid FROM events
			WHERE project = $2 AND type = '` + string(t) + `' AND (xid, run_id, seq) > ($3::text::xid8, $4, $5)
			ORDER BY xid FETCH FIRST $6 ROWS WITH TIES)`
	}
	return `
		SELECT ` + boundColumns + `, run_id, seq, type, xid
		FROM (` + boundsSQL + `) bounds LEFT JOIN (
			SELECT * FROM (
				` + strings.Join(parts, ` UNION ALL `) + `
				ORDER BY xid FETCH FIRST $6 ROWS WITH TIES) changes
			ORDER BY xid, run_id, seq LIMIT $6
		) e ON true
		ORDER BY xid, run_id, seq`
}()

// SubscribeProject is [pg.Hub.Subscribe] to the events of a project.
func (l *Log) SubscribeProject(project entities.Project) (hints <-chan struct{}, cancel func()) {
	return l.hub.Subscribe(projectTopic(project))
}
