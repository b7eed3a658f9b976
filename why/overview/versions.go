package overview

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/live"
	"github.com/stepwell-dev/stepwell/pg"
)

// The topics of [Reader.Versions].
const (
	TopicAttention = "attention"
	TopicQueue     = "queue"
	TopicStats     = "stats"
	TopicSettings  = "settings"
	TopicServers   = "servers"
)

// versionOf selects a version of the rows that a query selects with their xmin, which each change of a row changes.
func versionOf(rows string) string {
	return `(SELECT count(*) || '.' || coalesce(sum(xmin::text::bigint), 0) FROM (` + rows + `) AS r)`
}

// versionsSQL selects the versions of the queue, the statistics, the settings and the servers of the project $1. Of
// many rows it reads the first or last $2, where changes happen.
var versionsSQL = `SELECT
	` + versionOf(message.FirstDue("xmin, due_at", "parked_at IS NULL", "due_at", "$2")) + ` || ' ' ||
	` + versionOf(`
		SELECT xmin FROM messages WHERE project = $1 AND parked_at IS NOT NULL ORDER BY project, id LIMIT $2`) + ` AS queue,
	` + versionOf(`SELECT xmin FROM stats_progress WHERE project = $1`) + ` AS stats,
	concat_ws(' ', (SELECT max(seq) FROM audit WHERE project = $1), (SELECT max(id) FROM signals WHERE project = $1),
		` + versionOf(`SELECT xmin FROM deployments WHERE project = $1 LIMIT $2`) + `,
		` + versionOf(`SELECT xmin FROM limits WHERE project = $1 LIMIT $2`) + `,
		` + versionOf(`SELECT xmin FROM schedules WHERE project = $1 LIMIT $2`) + `,
		` + versionOf(`SELECT xmin FROM triggers WHERE project = $1 LIMIT $2`) + `,
		` + versionOf(`SELECT xmin FROM collections WHERE project = $1 ORDER BY run_id DESC LIMIT $2`) + `,
		(SELECT sum(last) FROM (
			SELECT (SELECT max(seq) FROM trigger_events WHERE trigger_id = t.id) AS last
			FROM triggers t WHERE project = $1 LIMIT $2) AS e)
	) AS settings,
	concat_ws(' ', (
			SELECT string_agg(concat(id, beat_at < now() - interval '2.5 s'), ' ' ORDER BY id) FROM processes),
		` + versionOf(`SELECT xmin FROM run_wakes WHERE stranded_at IS NOT NULL ORDER BY run_id LIMIT $2`) + `
	) AS servers`

// Versions returns the versions of what pages show of the project, up to a second old. What happens to runs is a topic
// of its own: [live.Runs].
func (r *Reader) Versions(ctx context.Context, project entities.Project) (live.Versions, error) {
	return r.versions.Get(ctx, project, func() (live.Versions, error) {
		items, _, err := r.Attention(ctx, project)
		if err != nil {
			return nil, err
		}
		rows, err := r.pool.Query(ctx, versionsSQL, project, MaxCount)
		v, err := pg.CollectOne[struct{ Queue, Stats, Settings, Servers string }](rows, err, pgx.ErrNoRows)
		if err != nil {
			return nil, fmt.Errorf("read versions: %w", err)
		}
		wants, err := json.Marshal(items)
		return live.Versions{
			TopicAttention: digest(string(wants)), TopicQueue: digest(v.Queue), TopicStats: digest(v.Stats),
			TopicSettings: digest(v.Settings), TopicServers: digest(v.Servers),
		}, err
	})
}

func digest(text string) string {
	h := fnv.New64a()
	_, _ = strings.NewReader(text).WriteTo(h)
	return fmt.Sprintf("%x", h.Sum64())
}
