package read

import (
	"context"
	"fmt"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// maxOfPart is how many events of one part [Log.EventsOf] reads, beside the first: the newest ones.
const maxOfPart = 200

// EventsOf reads the first and the newest events of the steps, hooks and waits of a run that have one of the IDs, in
// the order of the log. The first one is that of their creation. Of those that are among received, it reads the
// payloads that they have received. The caller must have checked that it may see the run.
func (l *Log) EventsOf(
	ctx context.Context, runID entities.RunID, ids, received []string,
) ([]entities.Event, error) {
	rows, err := l.pool.Query(ctx, `
		SELECT `+EventColumns+`, CASE WHEN type = 'hook_received' AND correlation_id = ANY ($3) THEN payload END AS payload
		FROM events WHERE run_id = $1 AND seq = ANY (ARRAY(
			SELECT part.seq FROM unnest($2::text[]) AS wanted (id), LATERAL (
				(SELECT seq FROM events WHERE run_id = $1 AND correlation_id = wanted.id AND correlation_id <> ''
				ORDER BY `+store.BySeq+` LIMIT 1)
				UNION
				(SELECT seq FROM events WHERE run_id = $1 AND correlation_id = wanted.id AND correlation_id <> ''
				ORDER BY `+store.BySeq+` DESC LIMIT $4)) AS part))
		ORDER BY seq`, runID, ids, received, maxOfPart)
	events, err := pg.CollectAll[entities.Event](rows, err)
	if err != nil {
		return nil, fmt.Errorf("read events of %s: %w", runID, err)
	}
	return events, nil
}

// BodyCount counts the instances of a step's body that are alike.
type BodyCount struct {
	// Of is the ID of the step, and Mark what follows it in theirs: "[" for items, "#" for iterations and the calls of a
	// planner, or "." for the steps that it has returned.
	Of, Mark string
	// Status is that of the step that has the ID of the instance, and ErrorCode that of its failure; empty if there is no
	// such step yet.
	Status, ErrorCode string
	// Undone is set if a step of the instance was undone.
	Undone bool
	Count  int
}

// bodyParts selects the parts in the bodies of steps, with what follows the step's ID in theirs: [KEY] of an item, #N
// of an iteration, or .STEP, and the rest. The bounds are those of the index.
const bodyParts = `
	SELECT wanted.id AS of, substr(p.id, length(wanted.id) + 1) AS rest, p.status, p.result_seq
	FROM unnest($2::text[]) AS wanted (id), unnest('{[,#,.}'::text[]) AS mark (text), LATERAL (
		SELECT id, status, result_seq FROM steps
		WHERE run_id = $1 AND id > wanted.id || mark.text AND id < wanted.id || chr(ascii(mark.text) + 1)
		UNION ALL SELECT id, NULL, 0 FROM waits
		WHERE run_id = $1 AND id > wanted.id || mark.text AND id < wanted.id || chr(ascii(mark.text) + 1)
		UNION ALL SELECT id, NULL, 0 FROM hooks
		WHERE run_id = $1 AND id > wanted.id || mark.text AND id < wanted.id || chr(ascii(mark.text) + 1)
	) AS p`

// CountBodies counts the instances of the bodies of a flow's steps: items, iterations, the calls of a planner, and
// the steps that it has returned. The caller must have checked that it may see the run.
func (l *Log) CountBodies(ctx context.Context, runID entities.RunID, steps []string) ([]BodyCount, error) {
	if len(steps) == 0 {
		return nil, nil
	}
	rows, err := l.pool.Query(ctx, `
		WITH parts AS (
			SELECT of, status, result_seq, rest, substring(rest FROM '^(?:\[[^]]*\]|#[0-9]+|\.[A-Za-z0-9_-]+)') AS instance
			FROM (`+bodyParts+`) AS p
		), instances AS (
			SELECT of, instance, max(status) FILTER (WHERE rest = instance) AS status,
				max(result_seq) FILTER (WHERE rest = instance AND status = 'failed') AS failed_seq,
				coalesce(bool_or(rest LIKE '%~undo' AND status = 'completed'), false) AS undone
			FROM parts GROUP BY of, instance
		)
		SELECT of, left(instance, 1) AS mark, coalesce(status, '') AS status, undone, coalesce((
			SELECT data->>'errorCode' FROM events e WHERE e.run_id = $1 AND e.seq = failed_seq), '') AS error_code,
			count(*)::int AS count
		FROM instances GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5`, runID, steps)
	counts, err := pg.CollectAll[BodyCount](rows, err)
	if err != nil {
		return nil, fmt.Errorf("count the bodies of %s: %w", runID, err)
	}
	return counts, nil
}
