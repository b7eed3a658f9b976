package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// RunFilter restricts a list of runs; empty fields match everything.
type RunFilter struct {
	WorkflowName string
	Status       entities.RunStatus
	// AnyStatus has the statuses of which a run must have one.
	AnyStatus []entities.RunStatus
	// Open matches the runs that have not ended.
	Open bool
	// ErrorCode matches the failed runs whose error has the code.
	ErrorCode    string
	DeploymentID string
	// Created and Ended are when the run was created and when it ended.
	Created, Ended Window
	// ByEnd orders the list by when the runs ended. It leaves out those that have not.
	ByEnd bool
	// UniqueKey, ParentID and ForkOf are fields of [entities.Run].
	UniqueKey string
	ParentID  entities.RunID
	ForkOf    entities.RunID
	// Attributes are the values that the runs must have, by key; at most 8.
	Attributes map[string]string
}

// maxAttributeFilters is the most attributes that a list may be filtered by (protocol §2.7).
const maxAttributeFilters = 8

// runStatuses returns the statuses that the row of a run can have.
func runStatuses() []entities.RunStatus {
	return []entities.RunStatus{
		entities.RunPending, entities.RunRunning, entities.RunCompleted, entities.RunFailed, entities.RunCancelled,
	}
}

// statuses returns the statuses that match the filter.
func (f RunFilter) statuses() []entities.RunStatus {
	return slices.DeleteFunc(runStatuses(), func(s entities.RunStatus) bool {
		return f.Status != "" && s != f.Status || f.Open && s.Ended() || f.ErrorCode != "" && s != entities.RunFailed ||
			len(f.AnyStatus) > 0 && !slices.Contains(f.AnyStatus, s)
	})
}

// beyondAttributes reports whether the filter has conditions other than attributes and the time window.
func (f RunFilter) beyondAttributes() bool {
	return f.WorkflowName != "" || f.Status != "" || len(f.AnyStatus) > 0 || f.Open || f.ErrorCode != "" ||
		f.UniqueKey != "" || f.ParentID != "" || f.ForkOf != ""
}

// Validate fails with [entities.ErrInvalid].
func (f RunFilter) Validate() error {
	if err := f.validateStatus(); err != nil {
		return err
	}
	if n := len(f.Attributes); n > maxAttributeFilters {
		return entities.Invalid("the list is filtered by %d attributes; the limit is %d", n, maxAttributeFilters)
	}
	for what, name := range map[string]string{"key": f.UniqueKey, "error code": f.ErrorCode} {
		if name == "" {
			continue
		}
		if err := entities.ValidateName(what, name); err != nil {
			return err
		}
	}
	for what, id := range map[string]entities.RunID{"parent": f.ParentID, "forkOf": f.ForkOf} {
		if id == "" {
			continue
		}
		if err := entities.ValidateID(what, string(id)); err != nil {
			return err
		}
	}
	for key, value := range f.Attributes {
		if err := (entities.AttributeChange{Key: key, Value: &value}).Validate(true); err != nil {
			return err
		}
	}
	if f.DeploymentID != "" {
		if err := entities.ValidateID("deployment", f.DeploymentID); err != nil {
			return err
		}
	}
	if err := f.Created.validate(); err != nil {
		return err
	}
	return f.Ended.validate()
}

func (f RunFilter) validateStatus() error {
	if f.Status != "" && !f.Status.Known() {
		return entities.Invalid("%q is not a status a run can have", f.Status)
	}
	for _, status := range f.AnyStatus {
		if !status.Known() {
			return entities.Invalid("%q is not a status a run can have", status)
		}
	}
	if len(f.statuses()) == 0 && f.ErrorCode != "" {
		return entities.Invalid("only failed runs have an error code")
	}
	if len(f.statuses()) == 0 {
		return entities.Invalid("no run is both open and %s", f.Status)
	}
	return nil
}

// MayMatch checks only the conditions on what never changes in a run. A run that fails them never matches.
func (f *RunFilter) MayMatch(r entities.Run) bool {
	return (f.WorkflowName == "" || r.WorkflowName == f.WorkflowName) &&
		(f.UniqueKey == "" || r.UniqueKey == f.UniqueKey) &&
		(f.ParentID == "" || r.ParentID == f.ParentID) &&
		(f.ForkOf == "" || r.ForkOf == f.ForkOf) &&
		f.Created.has(r.CreatedAt)
}

// Matches reports whether [ListRuns] would list a run of the project.
func (f *RunFilter) Matches(r entities.Run) bool {
	for key, value := range f.Attributes {
		if has, ok := r.Attributes[key]; !ok || has != value {
			return false
		}
	}
	return f.MayMatch(r) && slices.Contains(f.statuses(), r.Status) &&
		(f.ErrorCode == "" || r.ErrorCode == f.ErrorCode) &&
		(f.DeploymentID == "" || r.DeploymentID == f.DeploymentID) && f.matchesEnd(r)
}

// matchesEnd reports whether the filter's conditions on the end of a run hold.
func (f *RunFilter) matchesEnd(r entities.Run) bool {
	if r.CompletedAt == nil {
		return !f.ByEnd && f.Ended == Window{}
	}
	return f.Ended.has(*r.CompletedAt)
}

// Window is a closed interval of time; a zero end leaves that side open.
type Window struct {
	From, To time.Time
}

// has reports whether the time is in the window.
func (w Window) has(t time.Time) bool {
	return (w.From.IsZero() || !t.Before(w.From)) && (w.To.IsZero() || !t.After(w.To))
}

func (w Window) validate() error {
	if !w.From.IsZero() && !w.To.IsZero() && w.To.Before(w.From) {
		return entities.Invalid("the time window ends before it starts")
	}
	return nil
}

// conditions returns the SQL conditions for a column to be in the window, each preceded by " AND ".
func (w Window) conditions(column string, a *pg.Args) string {
	sql := ""
	if !w.From.IsZero() {
		sql += ` AND ` + column + ` >= ` + a.Add(w.From)
	}
	if !w.To.IsZero() {
		sql += ` AND ` + column + ` <= ` + a.Add(w.To)
	}
	return sql
}

// ListRuns reads a page of the project's runs, oldest first, and the cursor of the next page; empty after the last
// page. A page of a list by attributes, deployment, end, or both workflow and error code may be short, even empty,
// without being the last: see [runSearch.byAttributes] and [runSearch.scan].
// It fails with [entities.ErrInvalid] on an invalid filter, and with a [pg.CursorError] on a cursor of another list.
func ListRuns(
	ctx context.Context, q pg.Querier, project entities.Project, f RunFilter, p pg.Page,
) ([]entities.Run, string, error) {
	return listRuns(ctx, q, runSearch{RunFilter: f, Page: p, project: project})
}

func listRuns(ctx context.Context, q pg.Querier, s runSearch) ([]entities.Run, string, error) {
	if err := s.Validate(); err != nil {
		return nil, "", err
	}
	if err := s.begin(); err != nil {
		return nil, "", err
	}
	runs, next, err := s.read(ctx, q)
	return runs, next, pg.Wrap(err, "list runs")
}

// runSearch builds the query of one page. A place in the list is a pair of a creation time and an ID. In descending
// order the page continues with the runs less than the place; in ascending order with those greater than or equal to
// it.
type runSearch struct {
	RunFilter
	pg.Page

	project entities.Project
	// archived lists archived runs. Their tables have indexes for fewer conditions.
	archived bool
	// start is the place where the page begins; nil for the beginning of the list.
	start *pg.TimeCursor
	args  pg.Args
}

// read reads the page with the query that suits the filter.
func (s *runSearch) read(ctx context.Context, q pg.Querier) ([]entities.Run, string, error) {
	switch {
	case len(s.Attributes) > 0 && !s.ByEnd:
		return s.collect(ctx, q, s.byAttributes())
	case s.ByEnd || s.archived || s.hasResidual():
		return s.collect(ctx, q, s.scan())
	default: // an index has all conditions
		sql := s.runs(runColumns, s.place(), s.args.Add(s.Limit+1))
		rows, err := q.Query(ctx, sql, s.args...)
		return pg.CollectPage(rows, err, s.Limit, s.cursorOf)
	}
}

// justAfter, appended to an ID, gives the least text that is greater: IDs have no control characters.
const justAfter = "\x01"

// begin sets the place where the page begins: after its cursor or at the near end of the window, whichever comes later.
// The query then has one condition on the beginning. With two, Postgres could begin its walk through the index at the
// wrong one and skip all rows up to the other.
func (s *runSearch) begin() error {
	of := s.window()
	window, open := pg.TimeCursor{At: of.From}, !of.From.IsZero()
	if s.Descending {
		window, open = pg.TimeCursor{At: of.To.Add(time.Microsecond)}, !of.To.IsZero()
	}
	if open {
		s.start = &window
	}
	if s.Cursor == "" {
		return nil
	}
	cursor, err := pg.ParseTimeCursor(s.Cursor)
	if err != nil {
		return err
	}
	if !s.Descending {
		cursor.ID += justAfter
	}
	if !open || cursor.At.Before(window.At) == s.Descending {
		s.start = &cursor
	}
	return nil
}

// beyond returns the condition that a row follows the place, preceded by " AND ". Id is the column of the run's ID, and
// place the SQL of the two values; empty for no condition.
func (s *runSearch) beyond(id, place string) string {
	if place == "" {
		return ""
	}
	compare := `>=`
	if s.Descending {
		compare = `<`
	}
	return ` AND (` + s.column() + `, ` + id + `) ` + compare + ` (` + place + `)`
}

// untilEnd returns the condition that a row is not beyond the far end of the window, preceded by " AND ".
func (s *runSearch) untilEnd() string {
	end, compare := s.window().To, `<=`
	if s.Descending {
		end, compare = s.window().From, `>=`
	}
	if end.IsZero() {
		return ""
	}
	return ` AND ` + s.column() + ` ` + compare + ` ` + s.args.Add(end)
}

// RunCursor returns the cursor for the part of a list of runs that follows the run.
func RunCursor(r entities.Run) string {
	return pg.TimeCursor{At: r.CreatedAt, ID: string(r.ID)}.String()
}

// place returns the SQL of the place where the page begins; empty for the beginning of the list.
func (s *runSearch) place() string {
	if s.start == nil {
		return ""
	}
	return s.args.Add(s.start.At) + `, ` + s.args.Add(s.start.ID)
}

// runs returns a query for the first runs that follow the place and match the filter, apart from its attributes. The
// index has the runs of one status in order. For several statuses their lists are merged (UNION ALL), so that little
// more than the results is read, however rare they are.
func (s *runSearch) runs(columns, place, limit string) string {
	statuses := s.statuses()
	keyword, _ := s.Order()
	tail := fmt.Sprintf(` ORDER BY created_at %[1]s, id %[1]s LIMIT %[2]s`, keyword, limit)
	where := ` WHERE project = ` + s.args.Add(s.project) + s.identity()
	if !s.failedWith() {
		where += s.workflow()
	}
	where += s.beyond("id", place) + s.untilEnd()
	parts := make([]string, len(statuses))
	for i, status := range statuses {
		parts[i] = `(SELECT ` + columns + ` FROM runs` + where + ` AND status = ` + s.args.Add(status) + tail + `)`
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return strings.Join(parts, ` UNION ALL `) + tail
}

// maxLeaps bounds the work for one page of a list by attributes to about 100 ms.
const maxLeaps = 5000

// leaping is a row of a search: a run that matches, or the one at which the search gave up.
type leaping struct {
	entities.Run

	// N is the number of leaps so far, or of runs read.
	N int
	// Hit says that the run matches.
	Hit bool
}

// byAttributes returns the query of a list by attributes, a leapfrog join. It walks several ordered lists in parallel:
// one per attribute, and one of the runs if the filter has other conditions. Each list in turn leaps to its first run
// that is not before the place where the previous list arrived. When all arrive at the same run, it matches. So the
// rarest condition determines how much is read. If many conditions are common but rarely meet, the page ends after
// [maxLeaps] with the runs found so far, and its cursor continues from there.
func (s *runSearch) byAttributes() string {
	return fmt.Sprintf(`%s
		SELECT %s, n, (hit%s) IS TRUE AS hit
		FROM (SELECT n, first, hit FROM leap WHERE hit OR n = %d LIMIT %s) stood
		JOIN %s runs ON runs.id = stood.first
		ORDER BY n`,
		s.leap(), runColumns, s.residual(), maxLeaps, s.args.Add(s.Limit+1), s.table())
}

// collect returns the runs that match among the rows of a search, and the cursor to continue with.
func (s *runSearch) collect(ctx context.Context, q pg.Querier, sql string) ([]entities.Run, string, error) {
	rows, err := q.Query(ctx, sql, s.args...)
	found, next, err := pg.CollectPage(rows, err, s.Limit, func(l leaping) string { return s.cursorOf(l.Run) })
	if err != nil || len(found) == 0 {
		return nil, "", err
	}
	if last := found[len(found)-1]; last.N == maxLeaps {
		next = s.cursorOf(last.Run)
	}
	runs := make([]entities.Run, 0, len(found))
	for _, f := range found {
		if f.Hit {
			runs = append(runs, f.Run)
		}
	}
	return runs, next, nil
}

// leap returns the table of the leaps, as a WITH clause. Each row of its recursive part is one round of leaps.
func (s *runSearch) leap() string {
	at, id := `'-infinity'`, `''`
	// Suffixes of a run's ID: for a place that the run itself follows, and for one that it does not.
	within, without := `''`, `E'\x01'`
	if s.Descending {
		at, within, without = `'infinity'`, `E'\x01'`, `''`
	}
	if s.start != nil {
		at, id = s.args.Add(s.start.At), s.args.Add(s.start.ID)
	}
	place := `leap.at, leap.id || leap.beyond`
	stops, n := "", 0
	stop := func(query string) {
		n++
		stops += fmt.Sprintf(` CROSS JOIN LATERAL (%s) s%d`, query, n)
		place = fmt.Sprintf(`s%[1]d.created_at, s%[1]d.id || %[2]s`, n, within)
	}
	for _, key := range sortedKeys(s.Attributes) {
		stop(s.attribute(key, s.Attributes[key], place))
	}
	if s.beyondAttributes() && !s.archived {
		stop(s.runs(`created_at, id`, place, `1`))
	}
	return fmt.Sprintf(`
		WITH RECURSIVE leap (n, at, id, beyond, first, hit) AS (
			SELECT 0, %[1]s::timestamptz, %[2]s::text COLLATE "C", '', '' COLLATE "C", false
			UNION ALL
			SELECT leap.n + 1, s%[3]d.created_at, s%[3]d.id,
				CASE WHEN s1.id = s%[3]d.id THEN %[4]s ELSE %[5]s END, s1.id, s1.id = s%[3]d.id
			FROM leap%[6]s
			WHERE leap.n < %[7]d
		)`,
		at, id, n, without, within, stops, maxLeaps)
}

// attribute returns a query for the first run that follows the place and has the attribute.
func (s *runSearch) attribute(key, value, place string) string {
	keyword, _ := s.Order()
	return fmt.Sprintf(`
		SELECT created_at, run_id AS id FROM %[7]s
		WHERE project = %[1]s AND key = %[2]s AND value = %[3]s%[4]s%[5]s
		ORDER BY created_at %[6]s, run_id %[6]s LIMIT 1`,
		s.args.Add(s.project), s.args.Add(key), s.args.Add(value), s.beyond("run_id", place), s.untilEnd(), keyword,
		s.attributesTable())
}
