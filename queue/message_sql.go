package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
	"github.com/stepwell-dev/stepwell/queue/hold"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

const (
	firstTicket = 1
	// ticketTime is how long a ticket may stay unused before it counts as lost. A backlog of tickets lengthens it; see
	// [takeDue].
	ticketTime = 30 * time.Second
	// leaseTime is how long a delivery holds the message unless the function extends the lease.
	leaseTime = 5 * time.Minute
	// keptBefore is how old a lease must be for commands to restart it.
	keptBefore = 15 * time.Second
)

// ticketOf returns the number of the ticket that a new message gets next: until the first delay is over, a client
// cannot receive the message.
func ticketOf(m message.Message) int {
	if m.Delay > 0 {
		return 0
	}
	return firstTicket
}

// gated is when a message is due that waits for its run to get slots of limits: [Queue.admit] makes it due then.
const gated = `timestamptz '2200-01-01 00:00:00+00'`

// waits is the condition that a message must wait until its run has slots of limits: it is for the deployment that
// executes the run, so [releaseGated] finds it. It locks what it finds, so that a grant that is committed meanwhile
// counts, and one that comes later sees what the statement writes.
func waits(run, project, deployment string) string {
	return `EXISTS (SELECT FROM permits w JOIN runs r ON r.id = w.holder
		WHERE w.holder = ` + run + ` AND w.granted_at IS NULL AND r.project = ` + project + `
			AND r.deployment_id = ` + deployment + ` FOR SHARE OF w)`
}

// messageWaits is [waits] for a row of messages m.
var messageWaits = waits("m.run_id", "m.project", "m.deployment_id")

// isRegistered is the condition that a process is registered. If it is not, others have taken over its leases, and
// would take over new ones as well.
func isRegistered(process string) string {
	return `EXISTS (SELECT FROM processes p WHERE p.id = ` + process + `)`
}

// OfLease selects the message under the lease $1. The second condition is for the planner: generic plans use the
// partial index on leases only if the statement excludes messages without a lease.
const OfLease = `lease = $1 AND lease <> ''`

// ofMessage selects the message of project $2 and topic $3 under the live lease $1. The other conditions are written so
// that they match no index: a plan made on an empty queue might otherwise prefer another index to the one on leases,
// and read the whole queue later. The condition on the lease uses clock_timestamp(), since now() is the start of the
// transaction, and the statement may have waited since then for another one that released the lease.
const ofMessage = OfLease +
	` AND (project, topic, work) IS NOT DISTINCT FROM ($2, $3, '') AND due_at > clock_timestamp()`

// ofID selects message $1 of project $2. Like [ofMessage], it lets the planner use only one index.
const ofID = `id = $1 AND project IS NOT DISTINCT FROM $2`

// notParked is the condition that a message is not parked, for statements that look up one message. It is written so
// that it does not match the index of due messages; see [ofMessage].
const notParked = `coalesce(parked_at, 'infinity') = 'infinity'`

// deliveryColumns are the columns of a [Delivery] except the body; m is the message.
const deliveryColumns = ofMessageAndDeployment + `
	coalesce((SELECT spec_version` + fromRun + `), 0) AS spec_version, leased_seq,
	CASE work WHEN 'run' THEN coalesce((SELECT w.acked_seq FROM run_wakes w WHERE w.run_id = m.run_id), 0) ELSE 0 END
		AS known, progress`

// newWorkColumns are [deliveryColumns] of work that is new, which knows nothing yet of its run. The protocol version
// matters only to messages for functions.
const newWorkColumns = ofMessageAndDeployment + ` 0 AS spec_version, leased_seq, 0::bigint AS known, progress`

const ofMessageAndDeployment = `id, project, topic, deployment_id, run_id, work, subject, content_type, created_at,
	expires_at, due_at, lease, delivery_count, unreached_count, disconnect_count, excused_count, now() AS claimed_at,
	coalesce((SELECT url FROM deployments d WHERE d.project = m.project AND d.id = m.deployment_id), '') AS url,
	(SELECT trial_at FROM deployments d WHERE d.project = m.project AND d.id = m.deployment_id) AS trial_at,`

// columns are the destinations of [deliveryColumns].
func (d *Delivery) columns() []any {
	return []any{
		&d.ID, &d.Project, &d.Topic, &d.DeploymentID, &d.RunID, &d.Work, &d.Subject, &d.ContentType, &d.CreatedAt,
		&d.ExpiresAt, &d.DueAt, &d.Lease, &d.DeliveryCount,
		&d.UnreachedCount, &d.DisconnectCount, &d.ExcusedCount, &d.ClaimedAt,
		&d.URL, &d.TrialAt, &d.SpecVersion, &d.LeasedSeq, &d.Known, &d.Progress,
	}
}

// logLength is the number of events in the log of message m's run; 0 if it has none.
const logLength = `coalesce((SELECT last_seq` + fromRun + `), 0)`

// fromRun selects from the run of message m; see [store.OfRun].
const fromRun = ` FROM runs r WHERE r.id = m.run_id AND r.project IS NOT DISTINCT FROM m.project`

// claimGivenBackSQL leases to a poll the messages of project $1 for deployment $2 that have not reached it, under the
// handles $4, unless the deployment has got another URL than $6. A message that was cut off often keeps its backoff
// (unreachedOnly). They have up to $7 bytes together, unless the first one is larger.
var claimGivenBackSQL = claimGivenBack(`work = ''`, `''`)

// claimForHostSQL is [claimGivenBackSQL] for the process $8, whose app has the work done.
var claimForHostSQL = claimGivenBack(`work IN ('run', 'step') AND `+isRegistered("$8"), "$8")

// claimGivenBack claims messages that meet the condition, for the holder.
func claimGivenBack(condition, holder string) string {
	return `
	WITH next AS (
		SELECT id, n FROM (
			SELECT id, row_number() OVER one_by_one AS n, sum(size) OVER one_by_one AS bytes FROM (
				SELECT id, octet_length(body) AS size FROM messages m
				WHERE project = $1 AND deployment_id = $2 AND ` + unreachedOnly + ` AND lease = '' AND parked_at IS NULL
					AND due_at < ` + hold.Until + ` AND ` + condition + `
					AND NOT ` + messageWaits + ` AND NOT ` + limit.MessageWaits + ` AND NOT ` + limit.MustHoldBack + `
				AND EXISTS (SELECT FROM deployments WHERE project = $1 AND id = $2 AND url = $6) -- which has no bound
				ORDER BY due_at LIMIT cardinality($4::text[])
				FOR UPDATE SKIP LOCKED) AS locked
			WINDOW one_by_one AS (ROWS UNBOUNDED PRECEDING)) AS counted
		WHERE n = 1 OR bytes <= $7
	)
	UPDATE messages m
	SET lease = ($4::text[])[n], holder = ` + holder + `, ticket = ticket + 1, delivery_count = delivery_count + 1,
		due_at = now() + $5, begins_run = false, redeliver = false, awaits_since = NULL, leased_seq = ` + logLength + `
	FROM (SELECT id AS next_id, n FROM next) AS next WHERE m.id = next_id
	RETURNING ` + deliveryColumns + `, body`
}

// postponeTicket makes an issued ticket count as lost after d, so that its message gets another one then. It reports
// whether the ticket is still valid.
func postponeTicket(ctx context.Context, pool *pgxpool.Pool, t tickets.Ticket, d time.Duration) (bool, error) {
	tag, err := pg.NewPool(pool).Exec(ctx, `
		UPDATE messages SET due_at = now() + $3
		WHERE id = $1 AND ticket = $2 AND lease = '' AND `+notParked, t.MessageID, t.Number, d)
	return tag.RowsAffected() > 0, pg.Wrap(err, "postpone ticket")
}

// nackSQL ends a lease without an acknowledgement: the message is due again after the failure's delay. A delivery that
// did not reach the function does not count. One that was cut off counts, and is also unreached: the app is away.
//
// The permits of a step wait again, and their pass makes the message due, unless the step keeps its slots ($7). If the
// message is parked ($8), they wait until somebody retries it.
const nackSQL = `
	WITH failed AS (
	UPDATE messages m
	SET lease = '', holder = '', awaits_since = NULL,
		due_at = CASE WHEN ` + needsSlots + ` AND NOT $7::boolean THEN ` + gated + ` ELSE now() + $2 END,
		last_error = CASE WHEN ` + encrypted + ` THEN $9 ELSE $3 END,
		delivery_count = CASE WHEN $4 THEN delivery_count ELSE delivery_count - 1 END,
		unreached_count = CASE WHEN $4 AND NOT $5 THEN 0 ELSE unreached_count + 1 END,
		disconnect_count = disconnect_count + $5::boolean::integer,
		first_failed_at = CASE WHEN $4 THEN coalesce(first_failed_at, now()) ELSE first_failed_at END,
		blocked = CASE WHEN NOT $4 THEN blocked
			WHEN ` + encrypted + ` THEN $6::jsonb || '{"message": "` + hiddenText + `"}' ELSE $6 END,
		parked_at = CASE WHEN $8::boolean THEN now() END
	WHERE ` + OfLease + `
	RETURNING id, CASE WHEN $8 THEN 'infinity' ELSE now() + $2 END AS not_before
	)` + limit.Return + ` AND NOT $7`

// releaseSQL makes the message under the lease $1 due again, after $2, whose delivery has not started. If the log
// already has an attempt of its step, the attempt counts as unreached. Its run keeps counting as begun: such messages
// are few, not more than the slots for which reservations raced or that a process had when it stopped, and come first
// the next time.
const releaseSQL = `
	UPDATE messages SET lease = '', holder = '', due_at = now() + $2, delivery_count = delivery_count - 1,
		unreached_count = unreached_count + (work = 'step')::integer
	WHERE ` + OfLease

func (f Failure) nackArgs(handle string) []any {
	return []any{
		handle, f.After, Storable(f.Reason), f.Reached, f.Disconnected, f.Blocked, f.KeepsSlots, f.Parked,
		Storable(f.hiddenReason()),
	}
}

// dueBatch is how many messages one statement makes due.
const dueBatch = 500

// notAcknowledged is the last error of a message whose lease expired.
const notAcknowledged = "not acknowledged before the lease expired"

// parking is the rule for parking a message: after so many deliveries that reached its function, but only once its
// first failure is older than the window. A burst of failures alone parks nothing.
type parking struct {
	deliveries int
	window     time.Duration
}

// stepOfFence is the condition that message m is for a step of a run with a fence: not for its orchestrator, whose
// topic ends with the run. The app counts the attempts of a step in the log of the run, and gives the step up itself.
var stepOfFence = fmt.Sprintf(`(m.run_id <> '' AND right(m.topic, length(m.run_id)) <> m.run_id
	AND coalesce((SELECT spec_version`+fromRun+`), 0) >= %d)`, entities.SpecFence)

// dropOfParked is [limit.DropOfParked]; takeDue has a parameter of that name.
const dropOfParked = limit.DropOfParked

// takeDue gives due messages a ticket and parks those that failed too often; both lose their lease. It returns the
// tickets to issue: the projects take turns. Of one project, the messages of runs that have begun come first, and then
// those that begin one, each in the order in which they are due: a backlog of new runs delays none that has begun.
// Steps are never parked: each has its own limit of attempts, and [stepOfFence] that of its log. Nor are runs that have
// diverged: they wait for the right code, and go on when it is deployed.
//
// A message that is due because its ticket was not used gets one with the same number: if the first is not lost but
// waits in a long queue, it stays valid and keeps its place there. The longer tickets wait, the later they count as
// lost: otherwise a backlog would issue tickets faster than it can use them.
//
// The transaction does not wait for the disk: if a crash undoes it, the messages are due as before.
func takeDue(ctx context.Context, tx pgx.Tx, from []ration, limit parking) ([]tickets.Ticket, error) {
	projects, most := make([]string, len(from)), make([]int, len(from))
	for i, r := range from {
		projects[i], most[i] = string(r.project), r.tickets
	}
	list, err := pg.CollectAll[tickets.Ticket](tx.Query(ctx, `
		WITH due AS (
			SELECT d.id, d.due_at, d.begins_run FROM unnest($1::text[], $6::integer[]) AS ration (project, most),
				(SELECT set_config('synchronous_commit', 'off', true) OFFSET 0) AS quick,
				LATERAL (
					SELECT of_kind.* FROM unnest(ARRAY[false, true]) AS kind (begins_run),
						LATERAL (
							SELECT id, due_at, begins_run FROM messages m
							WHERE m.project = ration.project AND m.begins_run = kind.begins_run
								AND m.parked_at IS NULL AND m.due_at <= now()
							ORDER BY m.due_at LIMIT ration.most
							FOR UPDATE SKIP LOCKED) AS of_kind
					ORDER BY begins_run, due_at LIMIT ration.most) AS d
		), longest AS (
			SELECT greatest(now() - scheduled_at, '0') AS wait FROM (`+tickets.OldestSince+`) AS oldest
		), moved AS (
			UPDATE messages m
			SET lease = '', holder = '', ticket = greatest(ticket, 1),
				parked_at = CASE WHEN work <> 'step' AND delivery_count - excused_count >= $3
					AND coalesce(blocked->>'code', '') <> '`+message.CodeDiverged+`'
					AND coalesce(first_failed_at <= now() - $5::interval, false) AND NOT `+stepOfFence+` THEN now() END,
				due_at = now() + $2 + 2 * coalesce((SELECT wait FROM longest), '0'),
				first_failed_at = CASE lease WHEN '' THEN first_failed_at ELSE coalesce(first_failed_at, now()) END,
				last_error = CASE lease WHEN '' THEN last_error ELSE $4 END,
				unreached_count = CASE lease WHEN '' THEN unreached_count ELSE 0 END
			WHERE id = ANY (ARRAY(SELECT id FROM due)) -- the plan of a join might read all messages for each
			RETURNING id, project, ticket, octet_length(body) AS size, parked_at
		), dropped AS (`+dropOfParked+`
		)
		SELECT id AS message_id, project, ticket AS number, size, now() AS issued_at
		FROM moved JOIN due USING (id) WHERE parked_at IS NULL
		ORDER BY row_number() OVER (PARTITION BY project ORDER BY due.begins_run, due.due_at), due.due_at`,
		projects, ticketTime, limit.deliveries, notAcknowledged, limit.window, most))
	return list, pg.Wrap(err, "take due messages")
}

// The messages that wait for a deployment, as conditions for [makeDueNow]. A message that was cut off more than
// [promptDisconnects] times keeps its backoff, since it may be what kills the app.
const (
	unreachedOnly      = `unreached_count > 0 AND disconnect_count <= $3` // did not reach it, or were cut off
	unreachedOrBlocked = `(` + unreachedOnly + `) OR blocked IS NOT NULL` // and invocations of runs that are blocked
	unreachedAll       = `(` + unreachedOnly + `) OR last_error <> ''`    // and all others that failed
)

// makeDueNow makes the messages due now that wait for a deployment and meet the condition. After a long outage there
// are many, so it updates them in batches, in the order in which they are due, and skips locked rows.
func makeDueNow(
	ctx context.Context, pool *pgxpool.Pool, project entities.Project, d Deployment, condition string,
) error {
	for at, last, n := d.UpdatedAt, "", dueBatch; n == dueBatch; {
		err := pg.NewPool(pool).QueryRow(ctx, `
			WITH next AS (
				SELECT id, due_at FROM messages
				WHERE project = $1 AND deployment_id = $2 AND lease = '' AND parked_at IS NULL
					AND (`+condition+`)
					AND due_at >= $4 AND (due_at, id) > ($4, $5) AND due_at < `+hold.Until+`
				ORDER BY due_at, id LIMIT $6
				FOR UPDATE SKIP LOCKED
			), moved AS (
				UPDATE messages SET due_at = now() WHERE id = ANY (ARRAY(SELECT id FROM next)) AND due_at < `+gated+`
			), advanced AS (`+advancePermits+`)
			SELECT coalesce(max(due_at), $4),
				coalesce(max(id) FILTER (WHERE due_at = (SELECT max(due_at) FROM next)), ''), count(*)
			FROM next`,
			project, d.ID, promptDisconnects, at, last, dueBatch).Scan(&at, &last, &n)
		if err != nil {
			return pg.Wrap(err, "make messages due")
		}
	}
	return nil
}

// keysBatch is how many idempotency keys one statement deletes.
const keysBatch = 10_000

// deleteExpiredKeys deletes idempotency keys a minute after they expire, so that a transaction that could not claim a
// key can still read it.
func deleteExpiredKeys(ctx context.Context, pool *pgxpool.Pool) error {
	for {
		tag, err := pg.NewPool(pool).Exec(ctx, `
			DELETE FROM message_keys WHERE ctid = ANY (ARRAY(
				SELECT ctid FROM message_keys WHERE expires_at <= now() - interval '1 minute'
					AND `+pg.Staying("project")+`
				LIMIT $1 FOR UPDATE SKIP LOCKED))`, keysBatch)
		if err != nil || tag.RowsAffected() < keysBatch {
			return pg.Wrap(err, "delete expired idempotency keys")
		}
	}
}

// exec executes a statement; what names it in its error.
func exec(ctx context.Context, pool *pgxpool.Pool, what, sql string, args ...any) error {
	_, err := pg.NewPool(pool).Exec(ctx, sql, args...)
	return pg.Wrap(err, "%s", what)
}

// DeleteRunMessages deletes the messages of runs that retention deletes: delayed and parked ones, and those an ended
// run has not received yet. All messages of a run are for the deployment that executes it. Their tickets and leases
// become invalid.
func DeleteRunMessages(ctx context.Context, tx pgx.Tx, project entities.Project, runs []entities.RunID) error {
	_, err := tx.Exec(ctx, `
		WITH deleted AS MATERIALIZED (SELECT id, deployment_id FROM runs WHERE id = ANY ($1) AND project = $2)
		DELETE FROM messages WHERE id = ANY (ARRAY(
			SELECT id FROM messages WHERE id = ANY (ARRAY(
				SELECT m.id FROM deleted r JOIN messages m
					ON m.project = $2 AND m.deployment_id = r.deployment_id AND m.run_id = r.id AND m.work = ''
				UNION ALL
				SELECT m.id FROM deleted r JOIN messages m ON m.run_id = r.id AND m.work <> ''))
			`+cluster.LockOrder+`))`, runs, project)
	return pg.Wrap(err, "delete messages of runs")
}

// upsertWork stores a piece of work or makes the stored one due, and leases it if it has a reservation. Work that is
// new is stored without the search for another. Work in
// progress is marked to be done again, unless the new request is for later. Work that failed keeps its backoff unless
// the request is urgent, and work that is parked stays so: it sees all new events when it runs. Work that waits for
// its deployment keeps waiting if the new request is for later.
//
// A statement with new work requires that its process may lease it: it is not asked again.
func upsertWork(m message.Message, s *storedWork) pg.Write {
	taken, columns := mayLease("$12", "$2", "$4", "$6"), deliveryColumns
	if m.New {
		taken, columns = `$12::text <> ''`, newWorkColumns
	}
	w := pg.Write{What: "enqueue work", SQL: `
		INSERT INTO messages AS m (id, project, topic, deployment_id, run_id, work, subject, content_type, body,
			expires_at, ticket, due_at, begins_run, lease, holder, delivery_count)
		SELECT $1, $2, $3, $4, $5, $6, $7, '', coalesce($15::bytea, ''), now() + $8 + $10, $9::integer,
			CASE WHEN $16::boolean THEN ` + gated + ` ELSE now() + CASE WHEN taken THEN $13 ELSE $8::interval END END,
			$17 AND NOT taken, CASE WHEN taken THEN $11 ELSE '' END, CASE WHEN taken THEN $12 ELSE '' END, $14 + taken::integer
		FROM (SELECT ` + taken + ` AS taken OFFSET 0) AS o -- OFFSET 0: evaluate it once
		WHERE true`,
		Args: []any{
			s.ID, m.Project, m.Topic, m.DeploymentID, m.RunID, m.Work, m.Subject, m.Delay, ticketOf(m),
			maxRetention, s.handle, s.holder, s.lease, m.Deliveries, bodyOf(s.ID, m), m.Gated, m.BeginsRun,
		},
		Returning: columns + `, body, lease <> '' AND lease = $11 AS taken`,
		Into:      append(s.columns(), &s.Body, &s.Taken),
		Opens:     &s.Delivery,
	}
	if !m.New {
		w.Rest, w.Args = mergeWork, append(w.Args, m.Urgent)
	}
	return w
}

// mergeWork is the part of [upsertWork] about work that is stored already. Parameters are those of the whole statement.
const mergeWork = `
	ON CONFLICT (run_id, work, subject) WHERE work <> '' DO UPDATE SET
		redeliver = m.redeliver OR m.lease <> '' AND excluded.ticket > 0,
		(ticket, due_at, lease, holder, awaits_since, delivery_count) = (SELECT
			CASE WHEN NOT idle THEN m.ticket WHEN excluded.lease <> '' THEN m.ticket + 1 -- invalidates the issued ticket
				ELSE greatest(m.ticket, excluded.ticket) END,
			CASE WHEN NOT idle THEN
					CASE WHEN $18::boolean AND m.lease = '' AND m.parked_at IS NULL THEN least(m.due_at, now()) ELSE m.due_at END
				WHEN excluded.ticket > 0 THEN excluded.due_at
				WHEN m.awaits_since IS NOT NULL THEN m.due_at
				ELSE least(m.due_at, excluded.due_at) END,
			CASE WHEN idle THEN excluded.lease ELSE m.lease END,
			CASE WHEN idle THEN excluded.holder ELSE m.holder END,
			CASE WHEN idle AND excluded.lease <> '' THEN NULL ELSE m.awaits_since END,
			CASE WHEN idle THEN excluded.delivery_count ELSE 0 END + m.delivery_count
			FROM (SELECT m.lease = '' AND m.parked_at IS NULL AND m.last_error = '' AS idle) AS was)`

const (
	// dropAllWork deletes the work about run $1.
	dropAllWork = `DELETE FROM messages WHERE run_id = $1 AND work <> ''`
	// dropWorkButOrders leaves the orders of others to cancel the run, which its next run obeys.
	dropWorkButOrders = dropAllWork + ` AND (work <> 'cancel' OR subject = '')`
)

// dropWorkAt returns the statement that deletes the work about a run at its end, which is the message.
func dropWorkAt(end message.Message) string {
	if end.Continues {
		return dropWorkButOrders
	}
	return dropAllWork
}

// endGated makes the messages due of run $3 that has ended before it got slots. They are those of [waits].
const endGated = `
	UPDATE messages SET due_at = now()
	WHERE project = $1 AND deployment_id = $2 AND run_id = $3 AND work = '' AND due_at = ` + gated

// dropWork deletes the work about a run that has ended, and reports whether the run has children to end. The
// statements in before have deleted the permits of the run: a pass locks these before the messages, too.
func dropWork(ctx context.Context, tx pgx.Tx, before *pgx.Batch, m message.Message) (children bool, err error) {
	before.Queue(dropWorkAt(m), m.RunID)
	if m.Gated {
		before.Queue(endGated, m.Project, m.DeploymentID, m.RunID)
	}
	store.LoadOpenChildren(before, m.RunID, &children)
	return children, pg.Wrap(pg.SendQueued(ctx, tx, before), "drop work")
}

// DropWorkOf deletes, as part of the batch, work that belongs to no run.
func (q *Queue) DropWorkOf(b *pgx.Batch, work message.Work, subject string) {
	b.Queue(`DELETE FROM messages WHERE run_id = '' AND work = $1 AND work <> '' AND subject = $2`, work, subject)
}

// DropWaitingStep deletes, as part of the batch, the work of a step that nobody is executing.
func (q *Queue) DropWaitingStep(b *pgx.Batch, p entities.Project, runID entities.RunID, step entities.StepID) {
	b.Queue(`DELETE FROM messages WHERE project = $1 AND run_id = $2 AND work = 'step' AND subject = $3 AND lease = ''`,
		p, runID, step)
}

// reviveSQL makes parked work of kind $1 about the subject $2 due at once, which belongs to no run, and returns
// whether there is work.
var reviveSQL = `
	WITH revived AS (` + retrySQL + `run_id = '' AND work = $1 AND work <> '' AND subject = $2 AND parked_at IS NOT NULL)
	SELECT EXISTS (SELECT FROM messages WHERE run_id = '' AND work = $1 AND work <> '' AND subject = $2)`

// Revive makes the work about the subject due at once if it is parked, and enqueues it if it is missing; it belongs
// to no run. The function that it returns must be called with the transaction's error when the transaction has ended.
func (q *Queue) Revive(ctx context.Context, tx pgx.Tx, m message.Message) (ended func(error), err error) {
	there, err := pg.CollectValue[bool](tx.Query(ctx, reviveSQL, m.Work, m.Subject))
	if err != nil {
		return nil, pg.Wrap(err, "revive work")
	}
	if there {
		return q.announceDue, nil
	}
	_, ended, err = q.Enqueue(ctx, tx, &pgx.Batch{}, []message.Message{m})
	return ended, err
}

// extendSQL sets the time that the lease $1 lasts from now.
const extendSQL = `UPDATE messages SET due_at = now() + $2 WHERE ` + OfLease

// keepSQL restarts the lease $1 for the time $2 if less than that without $6 is left. Most commands follow the last
// ones soon: a time that stays the same leaves the indexes as they are (a HOT update). $3 says whether the work must
// be done again after this delivery. $4 is the request of a copy of the call that writes, or NULL, and $5 how many
// events the log has then. See [Copy].
const keepSQL = `
	UPDATE messages
	SET due_at = CASE WHEN due_at < now() + ($2::interval - $6::interval) THEN now() + $2 ELSE due_at END,
		redeliver = redeliver OR $3, unreached_count = 0,
		last_write_request = coalesce($4::bigint, last_write_request),
		last_write_seq = CASE WHEN $4::bigint IS NULL THEN last_write_seq ELSE $5::bigint END
	WHERE ` + OfLease

// endWork deletes the piece of work under the lease $1. It has no condition on the column work: on an empty queue the
// planner would consider the index on work as good as that on leases; see [ofMessage].
const endWork = `DELETE FROM messages WHERE ` + OfLease

// RequireNoInvocation makes a conditional statement depend on that the run of the work is not being invoked. Whoever
// leases its invocation adds to the log in the same transaction, or locks the run before it reads the log.
func (d Delivery) RequireNoInvocation(c *pg.Conditional) {
	c.Require(noInvocation, d.RunID)
}

// noInvocation is the condition that run $1 is not being invoked. OFFSET 0 has Postgres look it up by its run: the
// index on leases would find all that there are.
const noInvocation = `NOT EXISTS (SELECT FROM (
	SELECT lease FROM messages WHERE run_id = $1 AND work = 'run' AND subject = '' FOR UPDATE OFFSET 0) AS invocation
	WHERE lease <> '')`
