package store

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// column returns the column that orders the list.
func (s *runSearch) column() string {
	if s.ByEnd {
		return `completed_at`
	}
	return `created_at`
}

// table and attributesTable return the tables with the runs and with their attributes.
func (s *runSearch) table() string {
	if s.archived {
		return `archived_runs`
	}
	return `runs`
}

func (s *runSearch) attributesTable() string {
	if s.archived {
		return `archived_attributes`
	}
	return `run_attributes`
}

// window returns the window of the column that orders the list.
func (s *runSearch) window() Window {
	if s.ByEnd {
		return s.Ended
	}
	return s.Created
}

// cursorOf returns the cursor for the part of the list that follows the run.
func (s *runSearch) cursorOf(r entities.Run) string {
	if s.ByEnd {
		return pg.TimeCursor{At: *r.CompletedAt, ID: string(r.ID)}.String()
	}
	return RunCursor(r)
}

// hasResidual reports whether a list by creation has conditions that no index has.
func (s *runSearch) hasResidual() bool {
	return s.DeploymentID != "" || s.Ended != Window{} || s.failedWith()
}

// failedWith reports whether the list has runs of one workflow that failed with one code. An index has either; a run
// that has both may be far from the next one.
func (s *runSearch) failedWith() bool { return s.ErrorCode != "" && s.WorkflowName != "" }

// residual returns the conditions for which no index has the list in order, each preceded by " AND "; empty for none.
// Lists by creation have an index for most conditions, lists by end and of the archive only for the time.
func (s *runSearch) residual() string {
	sql := ""
	if s.DeploymentID != "" {
		sql += ` AND deployment_id = ` + s.args.Add(s.DeploymentID)
	}
	if !s.ByEnd {
		sql += s.Ended.conditions(`completed_at`, &s.args)
	}
	switch {
	case s.ByEnd || s.archived:
		sql += s.workflow() + s.identity() + s.Created.conditions(`created_at`, &s.args)
	case s.failedWith():
		return sql + s.workflow()
	default:
		return sql
	}
	if statuses := s.statuses(); len(statuses) < len(runStatuses()) {
		sql += ` AND status = ANY(` + s.args.Add(statuses) + `)`
	}
	if len(s.Attributes) > 0 {
		wanted, err := json.Marshal(s.Attributes)
		if err != nil {
			panic(err) // a map of strings
		}
		sql += ` AND attributes @> ` + s.args.Add(string(wanted)) + `::jsonb`
	}
	return sql
}

// scan returns the query of a list that no index has: it reads up to maxLeaps runs in their order, and returns those
// that match. If few do, the page is short, and its cursor continues from the last run that was read.
func (s *runSearch) scan() string {
	return fmt.Sprintf(`
		SELECT %[1]s, n, hit
		FROM (
			SELECT * FROM (
				SELECT *, row_number() OVER () AS n, (true%[2]s) IS TRUE AS hit FROM (%[3]s) scanned
			) numbered
			WHERE hit OR n = %[4]d LIMIT %[5]s
		) stood
		ORDER BY n`,
		runColumns, s.residual(), s.scanned(runColumns, s.place(), fmt.Sprint(maxLeaps)), maxLeaps, s.args.Add(s.Limit+1))
}

// scanned returns a query for the first runs that follow the place, by the conditions that an index has.
func (s *runSearch) scanned(columns, place, limit string) string {
	if !s.ByEnd && !s.archived {
		return s.runs(columns, place, limit)
	}
	keyword, _ := s.Order()
	where := s.beyond("id", place) + s.untilEnd()
	if s.archived && s.UniqueKey != "" {
		where += ` AND unique_key <> '' AND unique_key = ` + s.args.Add(s.UniqueKey)
	}
	return fmt.Sprintf(`SELECT %[1]s FROM %[2]s WHERE project = %[3]s AND completed_at IS NOT NULL%[4]s
		ORDER BY %[5]s %[6]s, id %[6]s LIMIT %[7]s`,
		columns, s.table(), s.args.Add(s.project), where, s.column(), keyword, limit)
}

// workflow returns the condition on the workflow, preceded by " AND "; empty for none.
func (s *runSearch) workflow() string {
	if s.WorkflowName == "" {
		return ""
	}
	return ` AND workflow_name = ` + s.args.Add(s.WorkflowName)
}

// identity returns the other conditions on what a run is called, each preceded by " AND ".
func (s *runSearch) identity() string {
	var sql strings.Builder
	if s.UniqueKey != "" {
		sql.WriteString(` AND unique_key <> '' AND unique_key = ` + s.args.Add(s.UniqueKey))
	}
	if s.ErrorCode != "" {
		sql.WriteString(` AND error_code <> '' AND error_code = ` + s.args.Add(s.ErrorCode))
	}
	if s.ParentID != "" {
		sql.WriteString(` AND parent_id <> '' AND parent_id = ` + s.args.Add(s.ParentID))
	}
	if s.ForkOf != "" {
		sql.WriteString(` AND fork_of <> '' AND fork_of = ` + s.args.Add(s.ForkOf))
	}
	return sql.String()
}
