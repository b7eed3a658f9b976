package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/continuation"
)

// claimPass claims the next pass for this transaction, if it is due and no other process makes it. It returns the
// cursor of the round.
func claimPass(ctx context.Context, tx pgx.Tx, interval time.Duration) (cursor string, ok bool, err error) {
	// The next pass is due a second early, so that it does not miss the next tick of the caller.
	err = tx.QueryRow(ctx, `
		UPDATE sweeper SET due_at = now() + $1
		WHERE one = (SELECT one FROM sweeper WHERE due_at <= now() FOR UPDATE SKIP LOCKED)
		RETURNING cursor`, interval-time.Second).Scan(&cursor)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	return cursor, err == nil, pg.Wrap(err, "claim sweep")
}

// saveCursor stores where the next pass continues.
func saveCursor(ctx context.Context, tx pgx.Tx, cursor string) error {
	_, err := tx.Exec(ctx, `UPDATE sweeper SET cursor = $1`, cursor)
	return pg.Wrap(err, "save sweep cursor")
}

// knownStranded returns runs that were stranded at their last check.
func knownStranded(ctx context.Context, tx pgx.Tx, limit int) ([]string, error) {
	return selectIDs(ctx, tx, `SELECT run_id FROM run_wakes WHERE stranded_at IS NOT NULL ORDER BY run_id LIMIT $1`, limit)
}

func selectIDs(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]string, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, pg.Wrap(err, "list runs to sweep")
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return list, pg.Wrap(err, "list runs to sweep")
}

// Stranded is a run without a way to move (I5).
type Stranded struct {
	ID           entities.RunID
	Project      entities.Project
	DeploymentID string
	WorkflowName string
	SpecVersion  int
	Driver       entities.Driver
	LastSeq      int64
	// Reason describes the event or state for which a message is missing.
	Reason string
}

// findStranded returns those of the runs that are stranded, ordered by ID, and locks them. It skips locked runs:
// another transaction is writing to them, so they move.
//
// A run with an open hook is stranded if its log has unseen events: payloads of hooks and results of steps after
// acked_seq, which is the length of the log at the start of the last acknowledged delivery. A step's result also counts
// as seen if the workflow did something after it, since the delivery that recorded it then went on. That does not hold
// for a hook's payload, because a workflow need not react to it.
func findStranded(ctx context.Context, tx pgx.Tx, ids []string, quiet time.Duration, limit int) ([]Stranded, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	list, err := pg.CollectAll[Stranded](tx.Query(ctx, findStrandedSQL, ids, quiet, limit))
	return list, pg.Wrap(err, "find stranded runs")
}

// strandedSQL selects those of the runs $1 that have been stranded for the time $2, up to the number $3.
//
// For a run that the server continues, every piece of work must exist, because it is written in the transaction of its
// event: the invocation if the run waits for time, the work of each open step, the deadline's, and that which ends it
// after the grace of a cancellation; with that, the deadline may have passed. The step of a child run has no work while
// the child is open, nor has a step that the function executes itself while the run is invoked. If the run awaits
// something (entities/await) and has no invocation, the steps that it awaits must be open, and it must not await a
// time.
//
// A run that its client continues has an instant from which it needs a message: a step's retry_after or last change, a
// wait's resume_at, and now for unseen events. A message moves it if it is due, or if it ever had a ticket: then it is
// leased, about to be delivered, retried by the backoff of the queue, or parked. A message whose delay is not over
// moves nothing yet. Clients send such messages as backstops, for 15 minutes later, besides the one that is due in
// time. Only a run that was created and not started may have any message: its sender chose when it starts, and the log
// does not say.
//
// Each question about a run is a subquery with a LIMIT, so that Postgres answers it from an index instead of hashing
// the whole table. The statement reads unseen events only of runs with hooks, and reads the unseen part of the log
// once, since a log may be long.
//
// The statement reads the tables of runs, steps, waits, hooks and events, although they belong to packages entities and
// eventlog: one statement for the whole batch is what makes a sweep cheap.
var strandedSQL = `
	WITH mute AS MATERIALIZED (
		SELECT r.id, r.status, r.last_seq, r.driver, r.deadline, r.forced_at,
			CASE WHEN (r.await->>'seq')::bigint = r.last_seq THEN r.await END AS await,
			r.driver = '' OR (SELECT true FROM messages m WHERE m.run_id = r.id AND m.work = 'run' LIMIT 1) IS NULL AS idle,
			coalesce((SELECT true FROM messages m WHERE m.run_id = r.id AND m.work = 'run'
				AND (m.lease <> '' OR m.last_error <> '' OR m.due_at <= now() OR m.held_by IS NOT NULL) LIMIT 1), false) AS invoked
		FROM runs r
		WHERE r.id = ANY($1) AND r.completed_at IS NULL AND r.updated_at <= now() - $2::interval
			AND (r.driver <> '' OR (SELECT true FROM messages m
				WHERE m.project = r.project AND m.deployment_id = r.deployment_id AND m.run_id = r.id AND m.work = ''
					AND (m.ticket > 0 OR m.due_at <= now() OR r.status = 'pending') LIMIT 1) IS NULL)
	), asked AS MATERIALIZED (
		SELECT id, status, last_seq, driver, idle, await,
			deadline IS NOT NULL AND (SELECT true FROM messages m
				WHERE m.run_id = r.id AND m.work = 'deadline' LIMIT 1) IS NULL
				AND (forced_at IS NULL OR deadline > now()) AS endless,
			forced_at IS NOT NULL AND (SELECT true FROM messages m
				WHERE m.run_id = r.id AND m.work = 'cancel' AND m.subject = '' LIMIT 1) IS NULL AS unforced,
			(SELECT 'step ' || s.id || ' is ' || s.status || ', but no message about it is due' FROM steps s
				WHERE s.run_id = r.id AND s.completed_at IS NULL
					AND coalesce(s.retry_after, s.updated_at) <= now() - $2::interval
					AND (r.driver = '' OR (SELECT true FROM runs c WHERE c.parent_id = r.id AND c.parent_id <> ''
						AND c.parent_step = s.id AND c.completed_at IS NULL LIMIT 1) IS NULL
						AND (SELECT true FROM messages m WHERE m.run_id = r.id AND m.work IN ('step', 'report')
							AND m.subject = s.id LIMIT 1) IS NULL
						AND NOT (r.invoked AND (SELECT e.data -> 'step' IS NULL FROM events e
							WHERE e.run_id = r.id AND e.seq = s.created_seq)))
				LIMIT 1) AS step,
			(SELECT 'wait ' || v.id || ' is over, but no message that resumes the run is due' FROM waits v
				WHERE v.run_id = r.id AND v.status = 'waiting'
					AND CASE r.driver WHEN '' THEN v.resume_at <= now() - $2::interval ELSE r.idle END LIMIT 1) AS wait,
			(SELECT 'it awaits step ' || of_set.id || ', which is not open' FROM (
					SELECT jsonb_array_elements_text(r.await->'any') AS id
					UNION ALL SELECT jsonb_path_query(r.await, '$.all[*].steps[*]') #>> '{}') AS of_set
				WHERE r.idle AND (SELECT true FROM steps s
					WHERE s.run_id = r.id AND s.id = of_set.id AND s.completed_at IS NULL LIMIT 1) IS NULL
				LIMIT 1) AS unopened,
			(SELECT 'no delivery has seen event ' || e.seq || ', ' || e.type FROM events e
				WHERE e.run_id = r.id
					AND e.seq > coalesce((SELECT acked_seq FROM run_wakes w WHERE w.run_id = r.id), 0)
					AND (SELECT true FROM hooks h WHERE h.run_id = r.id LIMIT 1)
					AND (e.type = 'hook_received' OR e.type IN ('step_completed', 'step_failed') AND e.seq > coalesce((
						SELECT l.seq FROM events l WHERE l.run_id = r.id AND l.type IN (
							'step_created', 'hook_created', 'hook_conflict', 'hook_disposed', 'wait_created', 'wait_completed')
						ORDER BY l.seq DESC LIMIT 1), 0))
				ORDER BY e.seq LIMIT 1) AS unseen,
			(SELECT true FROM hooks h WHERE h.run_id = r.id LIMIT 1) AS hook,
			(SELECT true FROM steps s WHERE s.run_id = r.id AND s.completed_at IS NULL LIMIT 1) AS retry,
			(SELECT true FROM waits v WHERE v.run_id = r.id AND v.status = 'waiting' LIMIT 1) AS sleep
		FROM mute r
	), why AS MATERIALIZED (
		SELECT id, last_seq, CASE
			WHEN driver <> '' AND endless THEN 'no message ends it at its deadline'
			WHEN unforced THEN 'it was asked to cancel, but no message ends it after its grace'
			WHEN status = 'pending' AND idle THEN 'it was created, but no message starts it'
			WHEN step IS NOT NULL THEN step
			WHEN await IS NOT NULL AND idle THEN CASE
				WHEN await ? 'at' THEN 'no message invokes it at ' || (await->>'at')
				WHEN unopened IS NULL AND NOT await ?| '{any,all}' AND hook IS NULL THEN 'it waits for nothing'
				ELSE unopened END
			WHEN wait IS NOT NULL THEN wait
			WHEN hook THEN CASE driver WHEN '' THEN unseen END
			WHEN retry OR sleep OR NOT idle THEN NULL
			ELSE 'it waits for nothing' END AS reason
		FROM asked
	)
	SELECT r.id, r.project, r.deployment_id, r.workflow_name, r.spec_version, r.driver, r.last_seq, why.reason
	FROM why JOIN runs r ON r.id = why.id AND r.last_seq = why.last_seq
	WHERE why.reason IS NOT NULL AND ` + pg.Staying("r.project") + `
	ORDER BY r.id LIMIT $3`

// findStrandedSQL is [strandedSQL] with a lock on the runs that it finds, except for those that are locked: another
// transaction is writing to them, so they move.
var findStrandedSQL = strandedSQL + ` FOR NO KEY UPDATE OF r SKIP LOCKED`

// repairPause is how long a run w is left alone after it was woken, given the first pause and the longest.
func repairPause(first, longest string) string {
	return `least(` + first + `::interval * power(2, least(w.repairs, 20) - 1), ` + longest + `::interval)`
}

// noteStranded records that a run is stranded, and reports whether to wake it now: it has moved since it was last
// woken, or its backoff has expired.
func noteStranded(ctx context.Context, tx pgx.Tx, s Stranded) (due bool, err error) {
	err = tx.QueryRow(ctx, `
		INSERT INTO run_wakes AS w (run_id, stranded_at, reason, stranded_seq, repairs, repaired_at)
		VALUES ($1, now(), $2, $3, 1, now())
		ON CONFLICT (run_id) DO UPDATE SET
			stranded_at = coalesce(w.stranded_at, now()), reason = excluded.reason, stranded_seq = excluded.stranded_seq,
			(repairs, repaired_at) = (SELECT
				CASE WHEN moved THEN 1 WHEN expired THEN w.repairs + 1 ELSE w.repairs END,
				CASE WHEN moved OR expired THEN now() ELSE w.repaired_at END
				FROM (SELECT
					w.stranded_seq <> excluded.stranded_seq AS moved,
					w.repaired_at + `+repairPause("$4", "$5")+` <= now() AS expired) AS was)
		RETURNING repaired_at = now()`,
		s.ID, s.Reason, s.LastSeq, firstRepairBackoff, maxRepairBackoff).Scan(&due)
	return due, pg.Wrap(err, "note stranded run")
}

// clearStranded records which of the known runs are no longer stranded.
func clearStranded(ctx context.Context, tx pgx.Tx, known []string, still []Stranded) error {
	if len(known) == len(still) {
		return nil
	}
	ids := make([]string, len(still))
	for i, s := range still {
		ids[i] = string(s.ID)
	}
	_, err := tx.Exec(ctx, `
		UPDATE run_wakes SET stranded_at = NULL, reason = '' WHERE run_id = ANY (ARRAY(
			SELECT run_id FROM run_wakes WHERE run_id = ANY($1) AND NOT run_id = ANY($2)
				AND EXISTS (SELECT FROM runs r WHERE r.id = run_id AND `+pg.Staying("r.project")+`)
			ORDER BY run_id FOR UPDATE -- in the order of those who commit several runs together
		))`, known, ids)
	return pg.Wrap(err, "clear stranded runs")
}

// lostKeys selects the idempotency keys, without messages, of the steps and waits that run $1 of project $2 and
// deployment $3 waits for. The keys are on topic $4 and on the topics of the steps. Each key is looked up on one topic
// at a time: in a plan made while the table had few keys, a join or a list of topics would read all keys of the
// deployment.
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

// ForgetLostKeys deletes the idempotency keys, without messages, of the steps and waits that a stranded run waits for.
// Keys outlive their messages, so the queue would drop the messages as duplicates when the client sends them again.
// Clients' keys start with the ID of the step or wait (protocol §5.1).
func ForgetLostKeys(ctx context.Context, tx pgx.Tx, s Stranded) error {
	_, err := tx.Exec(ctx, `DELETE FROM message_keys WHERE ctid = ANY (ARRAY(`+lostKeys+`))`,
		s.ID, s.Project, s.DeploymentID, continuation.Topic(entities.WorkflowTopic+s.WorkflowName))
	return pg.Wrap(err, "forget lost keys")
}

// missingWork returns the work that a run driven by the server lacks, and an invocation, since the run may have missed
// events.
func missingWork(ctx context.Context, tx pgx.Tx, run Stranded) ([]message.Message, error) {
	rows, err := tx.Query(ctx, `
		SELECT s.id AS subject, s.name AS topic,
			CASE WHEN e.data->'step'->>'childId' IS NULL THEN 'step' ELSE 'report' END AS work,
			coalesce(e.data->'step'->>'deploymentId', $2) AS deployment_id, interval '0' AS delay, e.data->'step' AS spec
		FROM steps s JOIN events e ON e.run_id = s.run_id AND e.seq = s.created_seq
		WHERE s.run_id = $1 AND s.completed_at IS NULL AND e.data->'step' IS NOT NULL
			AND NOT EXISTS (SELECT FROM runs c WHERE c.parent_id = s.run_id AND c.parent_id <> ''
				AND c.parent_step = s.id AND c.completed_at IS NULL)
			AND NOT EXISTS (SELECT FROM messages m
				WHERE m.run_id = s.run_id AND m.work IN ('step', 'report') AND m.subject = s.id)
		UNION ALL
		SELECT '', workflow_name, 'deadline', deployment_id, deadline - now(), NULL FROM runs r
		WHERE r.id = $1 AND deadline IS NOT NULL AND (forced_at IS NULL OR deadline > now())
			AND NOT EXISTS (SELECT FROM messages m WHERE m.run_id = r.id AND m.work = 'deadline')
		UNION ALL
		SELECT '', workflow_name, 'cancel', deployment_id, forced_at - now(), NULL FROM runs r
		WHERE r.id = $1 AND forced_at IS NOT NULL
			AND NOT EXISTS (SELECT FROM messages m WHERE m.run_id = r.id AND m.work = 'cancel' AND m.subject = '')
		LIMIT $3`, run.ID, run.DeploymentID, eventlog.MaxBatch)
	if err != nil {
		return nil, pg.Wrap(err, "find missing work")
	}
	type missing struct {
		message.Message

		Spec *entities.StepSpec
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[missing])
	if err != nil {
		return nil, pg.Wrap(err, "find missing work")
	}
	list := []message.Message{{Work: message.WorkRun, Topic: run.WorkflowName, DeploymentID: run.DeploymentID}}
	for _, m := range found {
		if m.Spec != nil && len(m.Spec.Limits) > 0 {
			if m.Limits, err = limit.OfStep(ctx, tx, run.Project, run.ID, *m.Spec); err != nil {
				return nil, err
			}
			m.Gated = m.Limits != nil
		}
		list = append(list, m.Message)
	}
	for i := range list {
		list[i].Project, list[i].RunID = run.Project, run.ID
	}
	return list, nil
}
