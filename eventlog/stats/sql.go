package stats

import (
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// countedTypes are the types of the events that are counted.
var countedTypes = []entities.EventType{
	entities.EventRunCreated, entities.EventRunStarted,
	entities.EventRunCompleted, entities.EventRunFailed, entities.EventRunCancelled,
	entities.EventStepCompleted, entities.EventStepFailed, entities.EventStepRetrying,
}

// The metrics are the counted types and these. Metrics of runs have the deployment as their label, those of steps the
// name of the step.
const (
	// runError counts failed runs by the code of their error.
	runError = "run_error"
	// stepCancelled counts the step_failed events of steps that their run's function cancelled.
	stepCancelled = "step_cancelled"
)

const (
	// maxNames limits the pairs of a workflow and a label that a metric counts apart in a day. It bounds the rows that
	// names made of data can cause.
	maxNames = 2000
	// others is the label of pairs beyond the limit, and their workflow if there are no others of it in that day.
	others = "(others)"
)

// unread selects the next events of a type after the position p in a project, up to those that an open transaction
// may precede.
var unread = `
	SELECT type, run_id, seq, correlation_id, created_at, data ? 'cancelled' AS cancelled, xid FROM events
	WHERE project = p.project AND type = t.type
		AND xid < ` + pg.FeedPosition(`pg_snapshot_xmin(pg_current_snapshot())`) + `
		AND (xid, run_id, seq) > (p.xid, p.run_id, p.seq)
	ORDER BY xid`

var (
	// projectsWithNewEvents selects the projects that have events of the types $1 which are not counted.
	projectsWithNewEvents = `
		SELECT p.project FROM (
			SELECT name AS project, coalesce(xid, '0') AS xid, coalesce(run_id, '') AS run_id, coalesce(seq, 0) AS seq
			FROM projects LEFT JOIN stats_progress ON project = name) p
		WHERE ` + pg.Staying("p.project") + `
			AND EXISTS (SELECT FROM unnest($1::text[]) AS t(type), LATERAL (` + unread + ` LIMIT 1) e)
		ORDER BY p.project`

	// progressOf selects whether events of the project $1 before the place $3 are not counted, and the time up to which
	// events are.
	progressOf = `
		SELECT EXISTS (
			SELECT FROM unnest($2::text[]) AS t(type), LATERAL (
				SELECT FROM events WHERE project = $1 AND type = t.type AND xid < $3::text::xid8
					AND (xid, run_id, seq) > (coalesce(p.xid, '0'), coalesce(p.run_id, ''), coalesce(p.seq, 0))
				ORDER BY xid LIMIT 1) e
		) AS behind, greatest(p.complete_to, 'epoch') AS complete_to
		FROM (VALUES (0)) AS one LEFT JOIN stats_progress p ON p.project = $1`

	// noXID comes after every place.
	noXID = "18446744073709551615"

	addProgress = `INSERT INTO stats_progress (project) VALUES ($1) ON CONFLICT DO NOTHING`

	// ofDay selects whether the project has counts of a day like n.
	ofDay = `SELECT true FROM stats s
		WHERE s.project = $1 AND s.width = 1440 AND s.metric = n.metric AND s.at = n.day AND s.workflow = n.workflow`

	// countNext counts the next $2 events of the project $1 and selects their number. Of each metric it counts $4 pairs of
	// names apart in a day, and others as $5.
	countNext = `
		WITH p AS (
			SELECT * FROM stats_progress WHERE project = $1
		), new_events AS MATERIALIZED (
			SELECT e.* FROM p, unnest($3::text[]) AS t(type), LATERAL (
				` + unread + ` FETCH FIRST $2 ROWS WITH TIES) e
			ORDER BY e.xid, e.run_id, e.seq LIMIT $2
		), happened AS MATERIALIZED (
			SELECT workflow, metric, label, minute, date_bin('1 day', minute, 'epoch') AS day, took, count(*) AS count
			FROM (
				SELECT r.workflow_name AS workflow, m.metric, m.label,
					date_bin('1 minute', CASE WHEN e.seq <= r.fork_seq THEN r.created_at ELSE e.created_at END, 'epoch') AS minute,
					CASE WHEN m.since IS NULL THEN 0 ELSE ` + classOf(`e.created_at - m.since`) + ` END AS took
				FROM new_events e
				JOIN runs r ON r.id = e.run_id
				LEFT JOIN steps s ON s.run_id = e.run_id AND s.id = e.correlation_id AND e.correlation_id <> '',
				LATERAL (
					SELECT e.type, r.deployment_id, CASE WHEN e.type <> 'run_created' THEN r.created_at END
					WHERE e.correlation_id = ''
					UNION ALL SELECT '` + runError + `', r.error_code, NULL WHERE e.type = 'run_failed'
					UNION ALL SELECT CASE WHEN e.cancelled THEN '` + stepCancelled + `' ELSE e.type END, s.name,
						CASE WHEN e.type <> 'step_retrying' THEN s.created_at END
					WHERE s.id IS NOT NULL) AS m(metric, label, since)
				WHERE e.seq > r.fork_seq OR e.type = 'run_created' -- a fork has done nothing of what it keeps
			) e GROUP BY 1, 2, 3, 4, 6
		), names AS MATERIALIZED (
			SELECT *, row_number() OVER (PARTITION BY metric, day, known ORDER BY workflow, label) AS rank
			FROM (
				SELECT *, (` + ofDay + ` AND s.label = n.label LIMIT 1) IS NOT NULL AS known
				FROM (SELECT DISTINCT metric, day, workflow, label FROM happened) n) n
		), taken AS MATERIALIZED (
			SELECT metric, day, (
				SELECT count(*) FROM (
					SELECT FROM stats s WHERE s.project = $1 AND s.width = 1440 AND s.metric = n.metric AND s.at = n.day
					GROUP BY s.workflow, s.label) pairs) AS count
			FROM (SELECT DISTINCT metric, day FROM names WHERE NOT known) n
		), named AS (
			SELECT n.metric, n.day, n.workflow, n.label, beyond,
				CASE WHEN beyond AND (` + ofDay + ` LIMIT 1) IS NULL THEN $5 ELSE n.workflow END AS as_workflow
			FROM (
				SELECT names.*, NOT known AND rank + taken.count > $4 AS beyond
				FROM names LEFT JOIN taken USING (metric, day)) n
		), added AS (
			INSERT INTO stats (project, width, at, metric, workflow, label, took, count)
			SELECT $1, width, date_bin(make_interval(mins => width), minute, 'epoch'), metric,
				as_workflow, CASE WHEN beyond THEN $5 ELSE label END, took, sum(count)
			FROM happened JOIN named USING (metric, day, workflow, label), (` + widths + `) AS w (width, keep)
			WHERE minute >= now() - keep GROUP BY 2, 3, 4, 5, 6, 7
			ON CONFLICT (project, width, metric, at, workflow, label, took) DO UPDATE SET count = stats.count + excluded.count
		), last AS (
			SELECT xid, run_id, seq, created_at FROM new_events ORDER BY xid DESC, run_id DESC, seq DESC LIMIT 1
		), moved AS (
			UPDATE stats_progress s SET xid = last.xid, run_id = last.run_id, seq = last.seq,
				complete_to = greatest(s.complete_to, last.created_at)
			FROM last WHERE s.project = $1
		)
		SELECT count(*) FROM new_events`

	// recentFailures selects the workflows of the project $1 with runs that failed since $2, how many did, and the most
	// that failed in one of the hours $3.
	recentFailures = `
		SELECT workflow, coalesce(sum(count) FILTER (WHERE hour IS NULL), 0)::bigint AS last_hour,
			coalesce(max(count) FILTER (WHERE hour IS NOT NULL), 0)::bigint AS usual
		FROM (
			SELECT workflow, NULL AS hour, sum(count) AS count
			FROM stats WHERE project = $1 AND width = 1 AND metric = 'run_failed' AND at >= $2 GROUP BY 1
			UNION ALL SELECT workflow, at, sum(count)
			FROM stats WHERE project = $1 AND width = 60 AND metric = 'run_failed' AND at = ANY ($3) GROUP BY 1, 2) AS hours
		GROUP BY 1 HAVING count(*) FILTER (WHERE hour IS NULL) > 0 ORDER BY 1`

	// widths are the lengths of the intervals in minutes, and how long their counts are kept: somewhat longer than is
	// said, so that the first interval of a window is whole.
	widths = `VALUES (1, interval '2 days 2 hours'), (60, '91 days'), (360, '91 days'), (1440, '1000 years')`

	// prune deletes the counts of the project $1 that are too old, once in an hour.
	prune = `
		WITH due AS (
			UPDATE stats_progress SET pruned_at = now() WHERE project = $1 AND pruned_at < now() - interval '1 hour' RETURNING 1)
		DELETE FROM stats s USING due, (` + widths + `) AS w (width, keep)
		WHERE s.project = $1 AND s.width = w.width AND s.at < now() - w.keep`
)

// classOf returns the SQL for the class of a duration: 1 for up to 1 ms, and higher by one for each factor of √2; see
// upperBound. It computes in floating point: logarithms of numerics would take longer than the rest of the statement.
// What it subtracts keeps inexact results of whole powers in their class.
func classOf(interval string) string {
	return `1 + least(62, ceil(2 * ln(greatest(1, date_part('epoch', ` + interval + `) * 1000)) / ln(2::float8) - 1e-9))`
}
