package move

// table says which rows of a table belong to a project, and how they are copied. In its texts, $project is the project,
// $runs is a list of runs, $streams and $pauses are joined for the target's numbers, and $revision is the number after
// which the target's begin.
type table struct {
	name string
	// key is the column that says whose a row is: project if empty, name, run_id or stream_id.
	key string
	// from joins other tables to the rows t.
	from string
	// where selects rows of the project among those that the key selects; empty for all.
	where string
	// values replace the values of columns. A column without a value gets the target's default.
	values map[string]string
	// ahead says that the rows are those of a run, in whose transactions they change, and that those of ended runs are
	// copied before the fence. What changes of them otherwise is noted (see noted).
	ahead bool
	// order is that of the rows, for which the target's default is a new number; empty for any.
	order string
	// stays says that the rows are not deleted in the source: they say where the project is. Goes names the table whose
	// rows these go with.
	stays bool
	goes  string
}

// renumbered joins the streams of runs with their new IDs.
func renumbered(id string) string {
	return ` JOIN $streams n ON n.old = t.` + id
}

// tables are those with rows of a project. Rows come after those that they refer to.
var tables = []table{
	{name: "projects", key: "name", stays: true},
	{name: "api_keys", stays: true},
	{name: "deployments"},
	{name: "flow_versions"},
	{name: "flow_aliases"},
	{name: "catalogs"},
	{name: "secrets"},
	{name: "signing_keys"},
	{name: "data_keys", values: map[string]string{"revision": `$revision + row_number() OVER (ORDER BY t.revision)`}},
	{name: "run_keys", ahead: true},
	{name: "retention"},
	{name: "limits"},
	{name: "policies"},
	{name: "limit_clocks"},
	{name: "runs", ahead: true},
	{name: "events", ahead: true, goes: "runs"},
	{name: "steps", ahead: true, key: "run_id", goes: "runs"},
	{name: "hooks", goes: "runs"},
	{name: "waits", ahead: true, goes: "runs", key: "run_id"}, // older ones have no project
	{name: "run_attributes", ahead: true, goes: "runs"},
	{name: "run_store", ahead: true, key: "run_id", goes: "runs"},
	{name: "run_wakes", ahead: true, key: "run_id", goes: "runs"},
	{name: "step_results", ahead: true, key: "run_id"},
	{name: "archived_runs", ahead: true},
	{name: "archived_attributes", ahead: true, goes: "archived_runs"},
	{name: "archive_files", ahead: true, goes: "archived_runs"},
	// Objects that no run has are the source's to delete.
	{name: "blobs", ahead: true, where: `t.run_id IS NOT NULL`},
	{name: "streams", ahead: true, from: renumbered("id"), values: map[string]string{"id": `n.new`}},
	{
		name: "stream_chunks", ahead: true, key: "stream_id", from: renumbered("stream_id"), goes: "streams",
		values: map[string]string{"stream_id": `n.new`},
	},
	{
		name: "stream_writers", ahead: true, key: "stream_id", from: renumbered("stream_id"), goes: "streams",
		values: map[string]string{"stream_id": `n.new`},
	},
	{name: "pauses", values: map[string]string{"id": newPause("id")}},
	{
		// A delivery under way is lost, as if its server had died. It counts as none, and may have reached its function:
		// who may call that once only must know.
		name: "messages", values: map[string]string{
			"lease": `''::text`, "holder": `''::text`, "drained_lease": `''::text`, "ticket": `0`,
			"kept_until":      `NULL::timestamptz`,
			"due_at":          `CASE WHEN t.lease = '' THEN t.due_at ELSE now() END`,
			"excused_count":   `t.excused_count + (t.lease <> '')::integer`,
			"unreached_count": `CASE WHEN t.lease = '' THEN t.unreached_count ELSE 0 END`,
			"held_by":         `CASE WHEN t.held_by IS NOT NULL THEN ` + newPause("held_by") + ` END`,
		},
	},
	{name: "message_keys"},
	{name: "permits"},
	{name: "signals"},
	{name: "schedules"},
	{name: "schedule_ticks"},
	{name: "collections"},
	{name: "collected", ahead: true},
	{name: "triggers"},
	{name: "trigger_events", goes: "triggers", values: map[string]string{"seq": ""}, order: "seq"},
	{name: "stats"},
	{name: "stats_progress"},
	{name: "audit", values: map[string]string{"seq": ""}, order: "seq"},
	{name: "arrivals"},
	{name: "arrived_epochs"},
}

// names is the table of projects alone. Nothing of a project is written in a database where it has no row.
var names = tables[:1]

// newPause is the new ID of the pause in a column.
func newPause(column string) string {
	return `(SELECT n.new FROM $pauses n WHERE n.old = t.` + column + `)`
}

// others are the tables without rows of projects, and those whose rows are about a server or a browser.
var others = []string{
	"arriving", "departures", "feed_epochs", "leaving", "leaving_changes", "processes", "server_keys", "session_codes",
	"session_keys", "sessions", "sweeper",
}

// keyed returns the column that says whose a row is.
func (t table) keyed() string {
	if t.key == "" {
		return "project"
	}
	return t.key
}

// ofProject is the condition that a row t of the table is the project's.
func (t table) ofProject() string {
	is := map[string]string{
		"name": `t.name = $project`, "project": `t.project = $project`,
		"run_id":    `t.run_id IN (SELECT id FROM runs WHERE project = $project)`,
		"stream_id": `true`, // those that are renumbered
	}[t.keyed()]
	if t.where != "" {
		is += ` AND ` + t.where
	}
	return is
}

// ofRuns is the condition that a row t of a table that is copied ahead is of one of the runs.
func (t table) ofRuns() string {
	const runs = `ANY ($runs)`
	switch {
	case t.keyed() == "stream_id":
		return `true` // those that are renumbered
	case t.keyed() == "run_id":
		return `t.run_id = ANY (ARRAY(SELECT id FROM runs WHERE id = ` + runs + ` AND project = $project))`
	case t.name == "runs" || t.name == "archived_runs":
		return t.ofProject() + ` AND t.id = ` + runs
	}
	return t.ofProject() + ` AND t.run_id = ` + runs
}

// noted are the tables whose changes are noted while ended runs are copied ahead, with the column of the run, and the
// condition, on the row NEW or OLD, that matters. A run that has not ended is copied behind the fence, so what belongs
// to it is not noted; its end is. What is appended to the log of an ended run, or deleted with it, changes its row.
var noted = map[string]struct{ run, inserted, updated, deleted string }{
	"runs":          {"id", `NEW.completed_at IS NOT NULL`, `NEW.completed_at IS NOT NULL`, `true`},
	"archived_runs": {"id", `true`, `true`, `true`},
	"run_keys":      {"run_id", `false`, `true`, `true`}, // a run that is to come, or open, has a new one
	"streams":       {"run_id", `true`, `true`, `true`},
}
