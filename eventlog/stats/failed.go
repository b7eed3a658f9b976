package stats

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// MaxFailed is how many of the last failed runs are looked at.
	MaxFailed = 1000
	// MaxFailedPayload is the size of the largest error that is read, in bytes.
	MaxFailedPayload = 8 << 10
	// stepWithin is how many positions before the end of a run the failure of a step is looked for.
	stepWithin = 10
)

// Failed is a run that has failed.
type Failed struct {
	RunID                entities.RunID
	Workflow, Deployment string
	// Code is that of the error; empty if the error has none.
	Code string
	// Step is the name of the step that failed right before the run; empty for none.
	Step                string
	CreatedAt, FailedAt time.Time
	// Payload and Extra are those of the run's last event: the error, if it is at most [MaxFailedPayload] bytes long. They
	// are empty in queries without payloads.
	Payload, Extra []byte
	// Seq is the position of that event.
	Seq int64
}

// Payloads implements [atrest.Row].
func (f *Failed) Payloads(o *atrest.Opener) {
	o.Bytes(atrest.Place{Kind: atrest.Event, Owner: string(f.RunID), Seq: f.Seq}, &f.Payload)
	o.Bytes(atrest.Place{Kind: atrest.Extra, Owner: string(f.RunID), Seq: f.Seq}, &f.Extra)
}

// failedSQL selects those of the last $2 failed runs of the project $1 that failed since $3. The OFFSET and the
// subquery for the name keep Postgres from joining: a join that was planned when there were few rows could read all of
// each run.
const failedSQL = `
	WITH newest AS MATERIALIZED (
		SELECT run_id, seq, created_at FROM events
		WHERE project = $1 AND type = 'run_failed'
		ORDER BY xid DESC LIMIT $2
	)
	SELECT n.run_id, n.seq, r.workflow_name AS workflow, r.deployment_id AS deployment, r.error_code AS code,
		coalesce(s.name, '') AS step, r.created_at, n.created_at AS failed_at, ended.payload, ended.extra
	FROM newest n
	JOIN runs r ON r.id = n.run_id
	LEFT JOIN LATERAL (
		SELECT payload, extra FROM events
		WHERE run_id = n.run_id AND seq = n.seq AND ` + read.PayloadSize + ` <= $4
			AND coalesce(octet_length(extra), 0) <= $4 AND $4 > 0 OFFSET 0) ended ON true
	LEFT JOIN LATERAL (
		SELECT (SELECT name FROM steps WHERE steps.run_id = f.run_id AND steps.id = f.correlation_id) AS name FROM events f
		WHERE f.run_id = n.run_id AND f.seq BETWEEN n.seq - $5 AND n.seq - 1 AND f.type = 'step_failed'
			AND NOT f.data ? 'cancelled'
		ORDER BY f.seq DESC LIMIT 1) s ON true
	WHERE n.created_at >= $3`

// Failed returns those of the project's last [MaxFailed] failed runs that have failed since a time, in no order, and
// reports whether there may be more. MaxPayload is the size of the largest error to read, in bytes; 0 for no payloads.
func (r *Reader) Failed(
	ctx context.Context, project entities.Project, since time.Time, maxPayload int,
) (runs []Failed, more bool, err error) {
	rows, err := r.pool.Query(ctx, failedSQL, project, MaxFailed, since, maxPayload, stepWithin)
	runs, err = pg.CollectAll[Failed](rows, err)
	if err != nil {
		return nil, false, fmt.Errorf("list failed runs: %w", err)
	}
	return runs, len(runs) == MaxFailed, nil
}

// FailureGroup are failed runs that are alike.
type FailureGroup struct {
	Workflow, Step, Code string
	// Shape is the message of the error without what differs from run to run, and Message that of the last one.
	Shape, Message string
	Count          int
	First, Last    time.Time
	// CreatedFrom is when the oldest of the runs was created.
	CreatedFrom time.Time
	// FirstDeployment is the deployment of the run that failed first, and RunID the run that failed last.
	FirstDeployment string
	RunID           entities.RunID
	// Trend counts the runs in as many equal parts of the window as [GroupFailed] was asked for.
	Trend []int
}

// GroupFailed groups runs that have failed in the window by workflow, step, code and the shape of the message, the
// group that failed last first. The window must not be empty.
func GroupFailed(runs []Failed, message func(Failed) string, from, to time.Time, parts int) []FailureGroup {
	type key struct{ workflow, step, code, shape string }
	runs = slices.SortedFunc(slices.Values(runs), func(a, b Failed) int {
		return cmp.Or(a.FailedAt.Compare(b.FailedAt), cmp.Compare(a.RunID, b.RunID))
	})
	groups := map[key]*FailureGroup{}
	for _, run := range runs {
		text := message(run)
		k := key{run.Workflow, run.Step, run.Code, shapeOf(text)}
		g, ok := groups[k]
		if !ok {
			g = &FailureGroup{
				Workflow: k.workflow, Step: k.step, Code: k.code, Shape: k.shape, First: run.FailedAt,
				CreatedFrom: run.CreatedAt, FirstDeployment: run.Deployment, Trend: make([]int, parts),
			}
			groups[k] = g
		}
		g.Count++
		g.Last, g.RunID, g.Message = run.FailedAt, run.RunID, text
		if run.CreatedAt.Before(g.CreatedFrom) {
			g.CreatedFrom = run.CreatedAt
		}
		part := int(run.FailedAt.Sub(from) * time.Duration(parts) / to.Sub(from))
		g.Trend[min(max(part, 0), parts-1)]++
	}
	list := make([]FailureGroup, 0, len(groups))
	for _, g := range groups {
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b FailureGroup) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(b.RunID, a.RunID))
	})
	return list
}

// variable matches the parts of a message that differ from run to run: quoted texts, IDs, hexadecimal and decimal
// numbers. An apostrophe begins a quoted text only at the beginning of a word.
var variable = regexp.MustCompile("\"[^\"]*\"|`[^`]*`|“[^”]*”|(^|[\\s(=:])'[^']*'|" +
	`\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b[a-zA-Z]+_[0-9A-HJKMNP-TV-Z]{26}\b|` +
	`\b0x[0-9a-fA-F]+\b|\b[0-9a-f]*\d[0-9a-f]{7,}\b|\d+(?:[.,:]\d+)*`)

// maxShape is the length of the longest shape, in bytes.
const maxShape = 200

// shapeOf returns a message with … in place of what differs from run to run.
func shapeOf(message string) string {
	// A long message is cut first: the expression would take long for it.
	message = cut(message, 8*maxShape)
	return cut(variable.ReplaceAllString(message, "${1}…"), maxShape)
}

// cut returns the first bytes of a text that end with a whole character.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "…"
}
