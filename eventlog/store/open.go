package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// openScan is how many hooks or waits one page of [OpenHooks] or [OpenWaits] looks at, each with its run.
const openScan = 1000

// HookFilter narrows a list of hooks; empty fields match everything.
type HookFilter struct {
	WorkflowName string
	// TokenPrefix is the beginning of the token.
	TokenPrefix string
	// CreatedUntil is the latest time of creation.
	CreatedUntil time.Time
	// Approvals selects those that may be approvals.
	Approvals bool
	RunID     entities.RunID
	HookID    entities.HookID
}

// mayBeApproval is the condition on hooks that may be approvals, by their token, and that of an index.
const mayBeApproval = `starts_with(token, 'approval_')`

// OpenHook is a hook with the workflow of its run.
type OpenHook struct {
	entities.Hook

	WorkflowName string
}

// OpenHooks reads a page of the project's hooks that hold their token at the given time and match the filter: by token
// if the filter has a prefix, otherwise by creation. It returns the cursor of the next page; empty after the last page.
// A page looks at up to 1,000 hooks, so it may have fewer than its limit, or none, before the last page. It fails with
// a [pg.CursorError] on a cursor of another list.
func OpenHooks(
	ctx context.Context, q pg.Querier, project entities.Project, f HookFilter, at time.Time, p pg.Page,
) ([]OpenHook, string, error) {
	keyword, after := p.Order()
	order, where := `created_at `+keyword+`, id `+keyword, ``
	a := pg.Args{project, at, f.WorkflowName, openScan, p.Limit + 1}
	if f.TokenPrefix != "" {
		order = `token ` + keyword
		where += ` AND token >= ` + a.Add(f.TokenPrefix) + ` AND token < ` + a.Add(f.TokenPrefix+"\U0010FFFF")
	}
	if !f.CreatedUntil.IsZero() {
		where += ` AND created_at <= ` + a.Add(f.CreatedUntil)
	}
	if f.Approvals {
		where += ` AND ` + mayBeApproval
	}
	if f.RunID != "" {
		where += ` AND run_id = ` + a.Add(f.RunID)
	}
	if f.HookID != "" {
		where += ` AND id = ` + a.Add(f.HookID)
	}
	switch from, err := pg.ParseTimeCursor(p.Cursor); {
	case p.Cursor == "":
	case f.TokenPrefix != "" && strings.HasPrefix(p.Cursor, f.TokenPrefix):
		where += ` AND token ` + after + ` ` + a.Add(p.Cursor)
	case f.TokenPrefix != "" || err != nil:
		return nil, "", pg.BadCursor(p.Cursor)
	default:
		where += ` AND (created_at, id) ` + after + ` (` + a.Add(from.At) + `, ` + a.Add(from.ID) + `)`
	}
	type row struct {
		OpenHook
		Matches, Last bool
	}
	hooks, next, err := pg.ScanPage(p.Limit, func(r row) (OpenHook, bool, bool) { return r.OpenHook, r.Matches, r.Last },
		func(h OpenHook) string {
			if f.TokenPrefix != "" {
				return h.Token
			}
			return HookCursor(h.Hook)
		}, func() ([]row, error) {
			return pg.CollectAll[row](q.Query(ctx, `
				SELECT * FROM (
					SELECT h.*, r.workflow_name, ($3 = '' OR r.workflow_name = $3) AND `+holdsToken(2)+` AS matches
					FROM (
						SELECT `+hookColumns+`, row_number() OVER (ORDER BY `+order+`) = $4 AS last
						FROM hooks WHERE project = $1`+where+` ORDER BY `+order+` LIMIT $4) AS h,
						LATERAL (SELECT workflow_name FROM runs WHERE runs.id = h.run_id) AS r) AS looked_at
				WHERE matches OR last ORDER BY `+order+` LIMIT $5`, a...))
		})
	return hooks, next, pg.Wrap(err, "list open hooks")
}

// OpenWait is a wait with the workflow of its run.
type OpenWait struct {
	entities.Wait

	WorkflowName string
}

// OpenWaits reads a page of the project's waits that are not over, by the time at which they end, and the cursor of the
// next page; empty after the last page. An empty workflow lists all. A page looks at up to 1,000 waits, so it may have
// fewer than its limit, or none, before the last page. It fails with a [pg.CursorError] on a cursor of another list.
func OpenWaits(
	ctx context.Context, q pg.Querier, project entities.Project, workflow string, p pg.Page,
) ([]OpenWait, string, error) {
	keyword, after := p.Order()
	order, where := fmt.Sprintf(`resume_at %[1]s, run_id %[1]s, id %[1]s`, keyword), ``
	a := pg.Args{project, workflow, openScan, p.Limit + 1}
	if p.Cursor != "" {
		run, id, _ := strings.Cut(p.Cursor, "/") // which IDs do not have
		from, err := pg.ParseTimeCursor(run)
		if err != nil || entities.ValidateID("wait ID", id) != nil {
			return nil, "", pg.BadCursor(p.Cursor)
		}
		place := a.Add(from.At) + `, ` + a.Add(from.ID) + `, ` + a.Add(id)
		where = ` AND (resume_at, run_id, id) ` + after + ` (` + place + `)`
	}
	type row struct {
		OpenWait
		Matches, Last bool
	}
	waits, next, err := pg.ScanPage(p.Limit, func(r row) (OpenWait, bool, bool) { return r.OpenWait, r.Matches, r.Last },
		func(w OpenWait) string {
			return pg.TimeCursor{At: *w.ResumeAt, ID: string(w.RunID)}.String() + "/" + string(w.ID)
		}, func() ([]row, error) {
			return pg.CollectAll[row](q.Query(ctx, `
				SELECT * FROM (
					SELECT w.*, r.workflow_name, ($2 = '' OR r.workflow_name = $2) AS matches
					FROM (
						SELECT `+waitColumns+`, row_number() OVER (ORDER BY `+order+`) = $3 AS last
						FROM waits WHERE project = $1 AND status = 'waiting'`+where+` ORDER BY `+order+` LIMIT $3) AS w,
						LATERAL (SELECT workflow_name FROM runs WHERE runs.id = w.run_id) AS r) AS looked_at
				WHERE matches OR last ORDER BY `+order+` LIMIT $4`, a...))
		})
	return waits, next, pg.Wrap(err, "list open waits")
}
