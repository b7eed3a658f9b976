package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/queue/continuation"
)

// claimPass reports whether it is this process's turn to sweep, and the position of the round. The transaction then
// holds the turn.
func claimPass(ctx context.Context, tx pgx.Tx, interval time.Duration) (place string, ok bool, err error) {
	err = tx.QueryRow(ctx, `
		UPDATE sweeper SET due_at = now() + $1
		WHERE one = (SELECT one FROM sweeper WHERE due_at <= now() FOR UPDATE SKIP LOCKED)
		RETURNING place`, interval-time.Second).Scan(&place) // a little early is in time for the next tick
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	return place, err == nil, wrap("take turn", err)
}

func saveCursor(ctx context.Context, tx pgx.Tx, place string) error {
	_, err := tx.Exec(ctx, `UPDATE sweeper SET place = $1`, place)
	return wrap("move on", err)
}

// selectOpenRuns returns the next runs that have not ended.
func selectOpenRuns(ctx context.Context, tx pgx.Tx, after string, limit int) ([]string, error) {
	return selectIDs(ctx, tx, `SELECT id FROM runs WHERE completed_at IS NULL AND id > $1 ORDER BY id LIMIT $2`, after, limit)
}

// knownStranded returns runs that were stranded at their last check.
func knownStranded(ctx context.Context, tx pgx.Tx, limit int) ([]string, error) {
	return selectIDs(ctx, tx, `SELECT run_id FROM run_wakes WHERE stranded_at IS NOT NULL ORDER BY run_id LIMIT $1`, limit)
}

func selectIDs(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]string, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, wrap("list runs to look at", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return list, wrap("list runs to look at", err)
}

// Stranded is a run without a way to move.
type Stranded struct {
	ID           entities.RunID
	Project      entities.Project
	DeploymentID string
	WorkflowName string
	SpecVersion  int
	Driver       entities.Driver
	LastSeq      int64
	// Reason is the event or state of which no message tells it.
	Reason string
}

// findStranded returns the stranded ones of the runs, by ID, and locks them. It skips runs that are being written to:
// they move.
//
// For a run with an open hook, news are the events behind seen_seq: the length of the log when the last acknowledged
// delivery began. Results of steps count as seen as well if the workflow did something after them, since the delivery
// that recorded them went on; after a hook's payload a workflow need not do anything.
func findStranded(ctx context.Context, tx pgx.Tx, ids []string, quiet time.Duration, limit int) ([]Stranded, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, findStrandedSQL, ids, quiet, limit)
	if err != nil {
		return nil, wrap("find stranded runs", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Stranded])
	return list, wrap("find stranded runs", err)
}

// Runs that are driven by the server are woken in the transaction of each event. For them each piece of work must
// exist: the invocation, if they wait, one of each open step, and the deadline's. A step that stands for a child has
// none while the child is open.
//
// Each question about a run is a subquery with a LIMIT, which Postgres answers from an index instead of reading the
// whole table into a hash. News are looked for only in runs with hooks, in one pass over the unseen part of the log: a
// log may be long.
//
// The statement reads the tables of runs, steps, waits, hooks and events, which belong to packages entities and
// eventlog, since one statement over a batch is what makes a sweep cheap.
const findStrandedSQL = `
	WITH mute AS MATERIALIZED (
		SELECT r.id, r.status, r.last_seq, r.driver, r.deadline,
			r.driver = '' OR (SELECT true FROM messages m WHERE m.run_id = r.id AND m.work = 'run' LIMIT 1) IS NULL AS idle
		FROM runs r
		WHERE r.id = ANY($1) AND r.completed_at IS NULL AND r.updated_at <= now() - $2::interval
			AND (r.driver <> '' OR (SELECT true FROM messages m
				WHERE m.project = r.project AND m.deployment_id = r.deployment_id AND m.run_id = r.id LIMIT 1) IS NULL)
	), asked AS MATERIALIZED (
		SELECT id, status, last_seq, driver, idle,
			deadline IS NOT NULL AND (SELECT true FROM messages m
				WHERE m.run_id = r.id AND m.work = 'deadline' LIMIT 1) IS NULL AS endless,
			(SELECT 'step ' || s.id || ' is ' || s.status || ', and no message is about it' FROM steps s
				WHERE s.run_id = r.id AND s.completed_at IS NULL
					AND coalesce(s.retry_after, s.updated_at) <= now() - $2::interval
					AND (r.driver = '' OR (SELECT true FROM runs c WHERE c.parent_id = r.id AND c.parent_id <> ''
						AND c.parent_step = s.id AND c.completed_at IS NULL LIMIT 1) IS NULL
						AND (SELECT true FROM messages m WHERE m.run_id = r.id AND m.work IN ('step', 'report')
							AND m.subject = s.id LIMIT 1) IS NULL)
				LIMIT 1) AS step,
			(SELECT 'wait ' || v.id || ' is over, and no message says so' FROM waits v
				WHERE v.run_id = r.id AND v.status = 'waiting'
					AND CASE r.driver WHEN '' THEN v.resume_at <= now() - $2::interval ELSE r.idle END LIMIT 1) AS wait,
			(SELECT 'event ' || e.seq || ', ' || e.type || ', came, and no message says so' FROM events e
				WHERE e.run_id = r.id
					AND e.seq > coalesce((SELECT seen_seq FROM run_wakes w WHERE w.run_id = r.id), 0)
					AND (SELECT true FROM hooks h WHERE h.run_id = r.id LIMIT 1)
					AND (e.type = 'hook_received' OR e.type IN ('step_completed', 'step_failed') AND e.seq > coalesce((
						SELECT l.seq FROM events l WHERE l.run_id = r.id AND l.type IN (
							'step_created', 'hook_created', 'hook_conflict', 'hook_disposed', 'wait_created', 'wait_completed')
						ORDER BY l.seq DESC LIMIT 1), 0))
				ORDER BY e.seq LIMIT 1) AS news,
			(SELECT true FROM hooks h WHERE h.run_id = r.id LIMIT 1) AS hook,
			(SELECT true FROM steps s WHERE s.run_id = r.id AND s.completed_at IS NULL LIMIT 1) AS retry,
			(SELECT true FROM waits v WHERE v.run_id = r.id AND v.status = 'waiting' LIMIT 1) AS sleep
		FROM mute r
	), why AS MATERIALIZED (
		SELECT id, last_seq, CASE
			WHEN driver <> '' AND endless THEN 'no message ends it at its deadline'
			WHEN status = 'pending' AND idle THEN 'it was created, and no message starts it'
			WHEN step IS NOT NULL THEN step
			WHEN wait IS NOT NULL THEN wait
			WHEN hook THEN CASE driver WHEN '' THEN news END
			WHEN retry OR sleep OR NOT idle THEN NULL
			ELSE 'it waits for nothing' END AS reason
		FROM asked
	)
	SELECT r.id, r.project, r.deployment_id, r.workflow_name, r.spec_version, r.driver, r.last_seq, why.reason
	FROM why JOIN runs r ON r.id = why.id AND r.last_seq = why.last_seq
	WHERE why.reason IS NOT NULL
	ORDER BY r.id LIMIT $3
	FOR NO KEY UPDATE OF r SKIP LOCKED`

// noteStranded records that a run is Stranded, and reports whether it is time to wake it: when it moved
// since it was last woken, or when the backoff is over.
func noteStranded(ctx context.Context, tx pgx.Tx, s Stranded) (due bool, err error) {
	err = tx.QueryRow(ctx, `
		INSERT INTO run_wakes AS w (run_id, stranded_at, reason, stranded_seq, repairs, repaired_at)
		VALUES ($1, now(), $2, $3, 1, now())
		ON CONFLICT (run_id) DO UPDATE SET
			stranded_at = coalesce(w.stranded_at, now()), reason = excluded.reason, stranded_seq = excluded.stranded_seq,
			(repairs, repaired_at) = (SELECT
				CASE WHEN moved THEN 1 WHEN over THEN w.repairs + 1 ELSE w.repairs END,
				CASE WHEN moved OR over THEN now() ELSE w.repaired_at END
				FROM (SELECT
					w.stranded_seq <> excluded.stranded_seq AS moved,
					w.repaired_at <= now() - least($4::interval * power(2, least(w.repairs, 20) - 1), $5::interval) AS over) AS was)
		RETURNING repaired_at = now()`,
		s.ID, s.Reason, s.LastSeq, firstRepairBackoff, maxRepairBackoff).Scan(&due)
	return due, wrap("note stranded run", err)
}

// clearStranded unmarks the known runs that are no longer stranded.
func clearStranded(ctx context.Context, tx pgx.Tx, known []string, still []Stranded) error {
	if len(known) == len(still) {
		return nil
	}
	ids := make([]string, len(still))
	for i, s := range still {
		ids[i] = string(s.ID)
	}
	_, err := tx.Exec(ctx, `
		UPDATE run_wakes SET stranded_at = NULL, reason = '' WHERE run_id = ANY($1) AND NOT run_id = ANY($2)`, known, ids)
	return wrap("clear stranded runs", err)
}

// lostKeys selects the idempotency keys of the steps and waits that run $1 of project $2 and deployment $3 waits for.
// They are on topic $4 and on those of the steps. Each key and each topic is looked up by itself: in a plan made while
// there were few keys, a join or a list of topics would go through all keys of the deployment.
const lostKeys = `
	SELECT of_one.place FROM (
		SELECT id, ARRAY[$4, '__wkf_step_' || regexp_replace(name, '[^A-Za-z0-9_-]', '-', 'g')] AS topics
			FROM steps WHERE run_id = $1 AND completed_at IS NULL
		UNION ALL
		SELECT id, ARRAY[$4] FROM waits WHERE run_id = $1 AND status = 'waiting'
	) lost, unnest(lost.topics) AS lost_topic, LATERAL (
		SELECT k.ctid AS place FROM message_keys k
		WHERE k.project = $2 AND k.deployment_id = $3 AND k.topic = lost_topic
			AND k.key >= lost.id AND k.key < lost.id || ';' AND (k.key = lost.id OR starts_with(k.key, lost.id || ':'))
			AND (SELECT m.id FROM messages m WHERE m.id = k.message_id) IS NULL
		FOR UPDATE SKIP LOCKED
	) of_one`

// ForgetLostKeys deletes the idempotency keys of what a stranded run waits for, so that its client can send those
// messages again: keys outlive their messages, and here no message is left. Clients' keys begin with the ID of the step
// or wait (protocol §5.1).
func ForgetLostKeys(ctx context.Context, tx pgx.Tx, s Stranded) error {
	_, err := tx.Exec(ctx, `DELETE FROM message_keys WHERE ctid = ANY (ARRAY(`+lostKeys+`))`,
		s.ID, s.Project, s.DeploymentID, continuation.Topic(entities.WorkflowTopic+s.WorkflowName))
	return wrap("forget lost keys", err)
}

// missingWork returns the missing work about a run, and an invocation, since the run may have missed events.
func missingWork(ctx context.Context, tx pgx.Tx, run Stranded) ([]entities.Message, error) {
	rows, err := tx.Query(ctx, `
		SELECT s.id AS subject, s.name AS topic,
			CASE WHEN e.data->'step'->>'childId' IS NULL THEN 'step' ELSE 'report' END AS work,
			coalesce(e.data->'step'->>'deploymentId', $2) AS deployment_id, interval '0' AS delay
		FROM steps s JOIN events e ON e.run_id = s.run_id AND e.seq = s.created_seq
		WHERE s.run_id = $1 AND s.completed_at IS NULL AND e.data->'step' IS NOT NULL
			AND NOT EXISTS (SELECT FROM runs c WHERE c.parent_id = s.run_id AND c.parent_id <> ''
				AND c.parent_step = s.id AND c.completed_at IS NULL)
			AND NOT EXISTS (SELECT FROM messages m
				WHERE m.run_id = s.run_id AND m.work IN ('step', 'report') AND m.subject = s.id)
		UNION ALL
		SELECT '', workflow_name, 'deadline', deployment_id, deadline - now() FROM runs r
		WHERE r.id = $1 AND deadline IS NOT NULL
			AND NOT EXISTS (SELECT FROM messages m WHERE m.run_id = r.id AND m.work = 'deadline')
		LIMIT $3`, run.ID, run.DeploymentID, eventlog.MaxBatch)
	if err != nil {
		return nil, wrap("look for lost work", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[entities.Message])
	if err != nil {
		return nil, wrap("look for lost work", err)
	}
	list = append(list, entities.Message{Work: entities.WorkRun, Topic: run.WorkflowName, DeploymentID: run.DeploymentID})
	for i := range list {
		list[i].Project, list[i].RunID = run.Project, run.ID
	}
	return list, nil
}
