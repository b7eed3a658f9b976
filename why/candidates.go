package why

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/inbox"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// maxTraces is how many entries of an index each source looks at, so that a list by need costs the same however many
// runs there are.
const maxTraces = 1000

// Each source selects runs of project $1 that may be in a class: the columns run_id, and hit, which is not true for
// entries that are about something else. It looks at $2 entries of an index.
var (
	// stuckSources are where each cause of being stuck leaves a trace, apart from deadlocks and a paused project.
	stuckSources = []string{
		`SELECT run_id, true AS hit FROM messages WHERE project = $1 AND parked_at IS NOT NULL
			ORDER BY project DESC, id DESC LIMIT $2`,
		`SELECT run_id, true AS hit FROM messages WHERE project = $1 AND blocked IS NOT NULL
			ORDER BY project DESC, id DESC LIMIT $2`,
		`SELECT run_id, starts_with(last_error, '` + message.AnswerRefused + `') OR ` + unregistered + ` AS hit
			FROM (` + failedMessages + `) AS m`,
		`SELECT run_id, ` + unregistered + ` AS hit FROM (` + message.FirstDue(
			"run_id, project, deployment_id, work, due_at", `parked_at IS NULL AND due_at <= now()`, "due_at", "$2") + `) AS m`,
		`SELECT run_id, (SELECT project = $1 FROM runs WHERE id = run_id) AS hit
			FROM (SELECT run_id FROM run_wakes WHERE stranded_at IS NOT NULL ORDER BY run_id DESC LIMIT $2) AS w`,
		`SELECT p.run_id, true AS hit FROM limits l, LATERAL (
				SELECT run_id FROM permits WHERE project = $1 AND name = l.name AND granted_at IS NULL
				ORDER BY key, rank_at, holder LIMIT $2) AS p
			WHERE l.project = $1 AND l.paused LIMIT $2`,
		ofPauses(`SELECT p.name AS run_id WHERE p.kind = 'run'`),
		ofPauses(`SELECT id AS run_id FROM runs WHERE p.kind = 'workflow' AND project = $1 AND workflow_name = p.name
			AND status IN ('pending', 'running') ORDER BY project, workflow_name, status, created_at DESC LIMIT $2`),
		ofPauses(`SELECT id AS run_id FROM runs WHERE p.kind = 'deployment' AND project = $1 AND deployment_id = p.name
			AND completed_at IS NULL LIMIT $2`),
		ofPauses(`SELECT run_id FROM messages WHERE held_by = p.id ORDER BY held_by, id LIMIT $2`),
	}
	retryingSources = []string{
		`SELECT run_id, blocked IS NULL AND last_error <> ALL (` + textsSQL(message.ServerErrors) + `) AS hit
			FROM (` + failedMessages + `) AS m`,
		// What an app tries again by itself is in the log alone.
		`SELECT run_id, EXISTS (SELECT FROM steps s WHERE s.run_id = e.run_id AND s.id = e.correlation_id
				AND s.completed_at IS NULL AND s.retry_after > now()) AS hit
			FROM (SELECT run_id, correlation_id FROM events WHERE project = $1 AND type = 'step_retrying'
				ORDER BY project DESC, type DESC, xid DESC LIMIT $2) AS e`,
	}
	// personSources are the oldest hooks that somebody is to resume. Approvals are few among them.
	personSources = []string{
		`SELECT run_id, true AS hit FROM hooks WHERE project = $1 AND starts_with(token, 'approval_')
			ORDER BY project, created_at, id LIMIT $2`,
		`SELECT run_id, signal = '' AND NOT is_system AND NOT starts_with(id, '` + string(inbox.HookID("")) + `') AS hit
			FROM (SELECT run_id, id, signal, is_system FROM hooks WHERE project = $1
				ORDER BY project, created_at, id LIMIT $2) AS h`,
	}
)

// ofPauses selects runs by the pauses p of the project.
func ofPauses(runs string) string {
	return `SELECT r.run_id, true AS hit FROM pauses p, LATERAL (` + runs + `) AS r
		WHERE p.project = $1 AND p.resumed_at IS NULL LIMIT $2`
}

const (
	failedMessages = `SELECT run_id, project, deployment_id, work, last_error, blocked FROM messages
		WHERE project = $1 AND parked_at IS NULL AND last_error <> '' ORDER BY project DESC, id DESC LIMIT $2`
	// unregistered is the condition that the message m is for a call of a deployment that is not registered.
	unregistered = `m.work = ANY ('{"",run,step}') AND NOT EXISTS (
		SELECT FROM deployments d WHERE d.project = m.project AND d.id = m.deployment_id)`
)

// textsSQL returns an array of texts.
func textsSQL(texts []string) string {
	return `'{"` + strings.ReplaceAll(strings.Join(texts, `","`), `'`, `''`) + `"}'`
}

// candidatesOf selects the candidates of a source, and whether there may be more.
func candidatesOf(source string) string {
	return `SELECT coalesce(array_agg(DISTINCT run_id) FILTER (WHERE hit), '{}') AS ids, count(*) = $2 AS more
		FROM (` + source + `) AS s`
}

// candidates are runs that may be in a class.
type candidates struct {
	ids []entities.RunID
	// More says that there may be more than were looked at, and all that each run which has not ended is one.
	more, all bool
}

// readCandidates reads the candidates of a class.
func readCandidates(ctx context.Context, pool pg.Pool, project entities.Project, of class) (candidates, error) {
	c := candidates{all: len(of.sources) == 0}
	type found struct {
		IDs  []entities.RunID `db:"ids"`
		More bool
	}
	var b pgx.Batch
	for _, source := range of.sources {
		pg.LoadEach(&b, func(f found) {
			c.ids, c.more = append(c.ids, f.IDs...), c.more || f.More
		}, candidatesOf(source), project, maxTraces)
	}
	if of.isStuck {
		b.Queue(`SELECT coalesce((SELECT paused_at IS NOT NULL FROM projects WHERE name = $1), false)`, project).
			QueryRow(func(row pgx.Row) error { return row.Scan(&c.all) })
	}
	if b.Len() > 0 {
		if err := pool.Run(ctx, &b); err != nil {
			return c, err
		}
	}
	if !of.isStuck || c.all {
		return c, nil
	}
	deadlocks, err := limit.ReadDeadlocks(ctx, pool, project)
	c.ids = append(c.ids, deadlocks.DeadRuns()...)
	return c, err
}

// cut keeps at most [MaxNeeding] candidates, the newest or the oldest: their IDs begin with their time.
func (c *candidates) cut(oldest bool) {
	slices.Sort(c.ids)
	c.ids = slices.Compact(c.ids)
	if len(c.ids) <= MaxNeeding {
		return
	}
	c.more = true
	if !oldest {
		slices.Reverse(c.ids)
	}
	c.ids = c.ids[:MaxNeeding]
}

// pager reads a page of runs that have not ended and match a filter, by their creation, and the cursor of the next
// page; empty after the last.
type pager func(ctx context.Context, p pg.Page) ([]entities.Run, string, error)

// pages returns the pages of the candidates of a class, and whether there may be more candidates.
func (n needing) pages(ctx context.Context, of class) (read pager, more bool, err error) {
	f, pool := n.filter, pg.NewPool(n.pool)
	f.Open = true
	if err := f.Validate(); err != nil {
		return nil, false, err
	}
	c, err := readCandidates(ctx, pool, n.project, of)
	if err != nil {
		return nil, false, err
	}
	if c.all {
		return func(ctx context.Context, p pg.Page) ([]entities.Run, string, error) {
			return store.ListRuns(ctx, pool, n.project, f, p)
		}, false, nil
	}
	c.cut(of.oldest)
	runs, err := store.RunsByID(ctx, pool, n.project, c.ids)
	runs = slices.DeleteFunc(runs, func(r entities.Run) bool { return !f.Matches(r) })
	return func(_ context.Context, p pg.Page) ([]entities.Run, string, error) { return pageOf(runs, p) }, c.more, err
}

// pageOf returns a page of runs that are all in memory.
func pageOf(runs []entities.Run, p pg.Page) ([]entities.Run, string, error) {
	sign := 1
	if p.Descending {
		sign = -1
	}
	compare := func(a, b entities.Run) int {
		return sign * cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	}
	slices.SortFunc(runs, compare)
	if p.Cursor != "" {
		at, err := pg.ParseTimeCursor(p.Cursor)
		if err != nil {
			return nil, "", err
		}
		last := entities.Run{ID: entities.RunID(at.ID), CreatedAt: at.At}
		runs = runs[sort.Search(len(runs), func(i int) bool { return compare(runs[i], last) > 0 }):]
	}
	if len(runs) <= p.Limit {
		return runs, "", nil
	}
	return runs[:p.Limit], store.RunCursor(runs[p.Limit-1]), nil
}
