package move

// table says which rows of a table belong to a project, and how they are copied. In its texts, $project is the project,
// and $streams, $pauses and $revision are where the numbers begin that the target has reserved.
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
	// order is that of the rows, for which the target's default is a new number; empty for any.
	order string
	// stays says that the rows are not deleted in the source: they say where the project is. Goes names the table whose
	// rows these go with.
	stays bool
	goes  string
}

// renumbered joins the streams of the project with their new IDs.
func renumbered(id string) string {
	return ` JOIN (SELECT id, $streams + row_number() OVER (ORDER BY id) AS renumbered
		FROM streams WHERE project = $project) n ON n.id = t.` + id
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
	{name: "run_keys"},
	{name: "retention"},
	{name: "limits"},
	{name: "policies"},
	{name: "limit_clocks"},
	{name: "runs"},
	{name: "events", goes: "runs"},
	{name: "steps", key: "run_id", goes: "runs"},
	{name: "hooks", goes: "runs"},
	{name: "waits", goes: "runs", key: "run_id"}, // older ones have no project
	{name: "run_attributes", goes: "runs"},
	{name: "run_store", key: "run_id", goes: "runs"},
	{name: "run_wakes", key: "run_id", goes: "runs"},
	{name: "step_results", key: "run_id"},
	{name: "archived_runs"},
	{name: "archived_attributes", goes: "archived_runs"},
	// Objects that no run has are the source's to delete.
	{name: "blobs", where: `t.run_id IS NOT NULL`},
	{name: "streams", from: renumbered("id"), values: map[string]string{"id": `n.renumbered`}},
	{
		name: "stream_chunks", key: "stream_id", from: renumbered("stream_id"), goes: "streams",
		values: map[string]string{"stream_id": `n.renumbered`},
	},
	{
		name: "stream_writers", key: "stream_id", from: renumbered("stream_id"), goes: "streams",
		values: map[string]string{"stream_id": `n.renumbered`},
	},
	{name: "pauses", values: map[string]string{"id": newPause("id")}},
	{
		// A delivery under way is lost, as if its server had died. It counts as none.
		name: "messages", values: map[string]string{
			"lease": `''::text`, "holder": `''::text`, "drained_lease": `''::text`, "ticket": `0`,
			"kept_until":    `NULL::timestamptz`,
			"due_at":        `CASE WHEN t.lease = '' THEN t.due_at ELSE now() END`,
			"excused_count": `t.excused_count + (t.lease <> '')::integer`,
			"held_by":       `CASE WHEN t.held_by IS NOT NULL THEN ` + newPause("held_by") + ` END`,
		},
	},
	{name: "message_keys"},
	{name: "permits"},
	{name: "signals"},
	{name: "schedules"},
	{name: "schedule_ticks"},
	{name: "collections"},
	{name: "collected"},
	{name: "triggers"},
	{name: "trigger_events", goes: "triggers", values: map[string]string{"seq": ""}, order: "seq"},
	{name: "stats"},
	{name: "stats_progress"},
	{name: "audit", values: map[string]string{"seq": ""}, order: "seq"},
	{name: "arrivals"},
	{name: "arrived_epochs"},
}

// newPause is the new ID of the pause in a column.
func newPause(column string) string {
	return `$pauses + (SELECT count(*) FROM pauses p WHERE p.project = $project AND p.id <= t.` + column + `)`
}

// others are the tables without rows of projects, and those whose rows are about a server or a browser.
var others = []string{
	"departures", "feed_epochs", "processes", "server_keys", "session_codes", "session_keys", "sessions", "sweeper",
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
