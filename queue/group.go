package queue

import (
	"cmp"
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
)

// insertion is the statement that stores a message and its idempotency key: due after its delay, or with the reserved
// lease. It may share its transaction with others (group commit). If the reservation's process is not registered, the
// message is stored without a lease, and gets a ticket.
type insertion struct {
	message.Message
	Reservation

	queue *Queue
	id    string
	// stored has the delivery of the stored message; it is empty if the key belongs to another message.
	stored []Delivery
}

// newInsertion validates a message and gives it an ID.
func (q *Queue) newInsertion(m message.Message) (*insertion, error) {
	m.Retention = cmp.Or(m.Retention, defaultRetention)
	if err := q.Validate(m); err != nil {
		return nil, err
	}
	return &insertion{Message: m, Reservation: q.reserve(m, 0), queue: q, id: "msg_" + ulid.Make().String()}, nil
}

// Order implements [pg.Statement].
func (s *insertion) Order() pg.LockOrder { return pg.LockOrder{Class: pg.LockKey, Name: s.keyOrder()} }

// Size implements [pg.Statement].
func (s *insertion) Size() int { return len(s.Body) }

// keyOrder returns the sort key of the idempotency key. Transactions that claim several keys claim them in this order.
func (s *insertion) keyOrder() string {
	return strings.Join([]string{s.Key, s.Topic, s.DeploymentID, string(s.Project)}, "\x00")
}

func (s *insertion) compare(other *insertion) int {
	return strings.Compare(s.keyOrder(), other.keyOrder())
}

// Execute implements [pg.Statement].
func (s *insertion) Execute(ctx context.Context, pool *pgxpool.Pool) error {
	return s.execute(ctx, pg.NewPool(pool))
}

// execute executes the statement on the pool or in a transaction.
func (s *insertion) execute(ctx context.Context, q pg.Querier) error {
	rows, err := q.Query(ctx, insertMessage, s.args()...)
	if err == nil {
		err = s.read(rows)
	}
	return pg.Wrap(err, "insert message")
}

// Queue implements [pg.Statement].
func (s *insertion) Queue(b *pgx.Batch) { b.Queue(insertMessage, s.args()...).Query(s.read) }

func (s *insertion) read(rows pgx.Rows) (err error) {
	s.stored, err = pg.CollectAll[Delivery](rows, nil)
	return err
}

func (s *insertion) args() []any { return append(s.rowArgs(), s.Key) }

func (s *insertion) rowArgs() []any {
	return []any{
		s.id, s.Project, s.Topic, s.DeploymentID, s.RunID, s.ContentType, bodyOf(s.id, s.Message), s.Delay + s.Retention,
		s.Delay,
		ticketOf(s.Message), s.handle, s.holder, s.lease, s.BeginsRun,
	}
}

// addTo adds the statement to a conditional one about the message's run, which has no limits. It does not apply if
// the key has been claimed, and fails if another transaction claims it meanwhile; see [pg.Retryable].
func (s *insertion) addTo(c *pg.Conditional) {
	if s.Key != "" {
		c.Add(pg.Write{What: "claim idempotency key", SQL: claimFreeKey, If: isFreeKey, Args: []any{
			s.Project, s.DeploymentID, s.Topic, s.Key, s.id, s.Delay + s.Retention,
		}})
	}
	s.stored = make([]Delivery, 1)
	c.Add(pg.Write{What: "insert message", SQL: insertUngated, Args: s.rowArgs(), Returning: deliveryColumns,
		Into: s.stored[0].columns()})
}

// resolve replaces the ID of a duplicate by that of the message that the key belongs to. It must be a separate
// statement: the snapshot of the one that failed to claim the key is older than the commit of the rival claim it waited
// for.
func (s *insertion) resolve(ctx context.Context, q pg.Querier) error {
	if len(s.stored) > 0 {
		return nil
	}
	rows, err := q.Query(ctx, `
		SELECT message_id FROM message_keys WHERE project = $1 AND deployment_id = $2 AND topic = $3 AND key = $4`,
		s.Project, s.DeploymentID, s.Topic, s.Key)
	if err == nil {
		s.id, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
	}
	return pg.Wrap(err, "read idempotency key")
}

// ended must be called with the transaction's error when the transaction has ended. It delivers the message if it is
// leased to this process, and announces it otherwise.
func (s *insertion) ended(failed error) {
	switch {
	case failed != nil && s.Made(): // the commit may have succeeded although its response was lost
		s.Start(Delivery{Lease: s.handle}, failed)
	case failed != nil || len(s.stored) == 0:
	case s.stored[0].Lease != "":
		d := s.stored[0]
		d.Body = s.Body
		s.Start(d, nil)
	default:
		s.queue.announce(s.Message)(nil)
	}
}

// insertMessage stores a message and its idempotency key. It stores nothing if the key belongs to another message, and
// transfers the key of a message only if the key has expired.
var insertMessage = `
	WITH claimed AS (
		INSERT INTO message_keys (project, deployment_id, topic, key, message_id, expires_at)
		SELECT $2, $4, $3, $15, $1, now() + $8 WHERE $15 <> ''
		ON CONFLICT (project, deployment_id, topic, key)
			DO UPDATE SET message_id = excluded.message_id, expires_at = excluded.expires_at
			WHERE message_keys.expires_at <= now()
		RETURNING message_id
	)` + insertRow(waits("$5", "$2", "$4")) + `
	WHERE $15 = '' OR EXISTS (SELECT FROM claimed)
	RETURNING ` + deliveryColumns + `, ''::bytea AS body`

// insertRow is the insertion of a message up to its condition. Waits is the condition that the message waits until its
// run has slots of limits.
func insertRow(waits string) string {
	return `
	INSERT INTO messages AS m (id, project, topic, deployment_id, run_id, content_type, body, expires_at, ticket,
		due_at, begins_run, lease, holder, delivery_count, leased_seq)
	SELECT $1, $2, $3, $4, $5, $6, coalesce($7::bytea, ''), now() + $8, $10::integer,
		CASE WHEN waits AND $10::integer > 0 THEN ` + gated + `
			ELSE now() + CASE WHEN taken THEN $13 ELSE $9::interval END END,
		$14::boolean AND NOT taken, CASE WHEN taken THEN $11 ELSE '' END,
		CASE WHEN taken THEN $12 ELSE '' END, taken::integer, CASE WHEN taken THEN
			coalesce((SELECT last_seq FROM runs WHERE id = $5 AND project IS NOT DISTINCT FROM $2), 0) ELSE 0 END
	FROM (
		SELECT ` + mayLease("$12", "$2", "$4", "''") + ` AND NOT waits
			AND NOT ` + limit.LimitsClientStep("$2", "$5", "$3") + ` AS taken, waits
		FROM (SELECT ` + waits + ` AS waits OFFSET 0) AS p OFFSET 0 -- OFFSET 0: evaluate it once
	) AS o`
}

// insertUngated is the insertion of a message about a run without limits.
var insertUngated = insertRow(`false`) + ` WHERE true`

// claimFreeKey claims an idempotency key that nobody has claimed. It fails if somebody does so meanwhile.
const (
	claimFreeKey = `
		INSERT INTO message_keys (project, deployment_id, topic, key, message_id, expires_at)
		SELECT $1::text, $2::text, $3::text, $4::text, $5::text, now() + $6::interval WHERE true`
	isFreeKey = `NOT EXISTS (
		SELECT FROM message_keys WHERE project = $1 AND deployment_id = $2 AND topic = $3 AND key = $4)`
)

// acknowledgement is the group-commit statement that deletes an acknowledged message.
type acknowledgement struct {
	project       entities.Project
	topic, handle string

	// ended is set when the message was deleted.
	ended bool
	// shared is set when the statement shared its transaction, and so skipped the message if it needs a note.
	shared bool
}

// Order implements [pg.Statement].
func (a *acknowledgement) Order() pg.LockOrder {
	return pg.LockOrder{Class: pg.LockLease, Name: a.handle}
}

// Size implements [pg.Statement].
func (a *acknowledgement) Size() int { return 0 }

// needNote is the condition that the delivery of m needs a note of the events it has seen; steps, whose topics match
// $4, see none. It avoids EXISTS, which Postgres turns into a join: planned while there are no hooks, that would later
// read all of them.
const needNote = `topic !~ $4 AND coalesce(
	(SELECT true FROM hooks h WHERE h.run_id = m.run_id AND h.project IS NOT DISTINCT FROM m.project LIMIT 1), false)`

// deleteNoted deletes an acknowledged message, with a note if it needs one.
const deleteNoted = `
	WITH m AS (
		DELETE FROM messages WHERE ` + ofMessage + `
		RETURNING project, topic, run_id, leased_seq
	), noted AS (
		INSERT INTO run_wakes AS w (run_id, acked_seq)
		SELECT run_id, leased_seq FROM m WHERE ` + needNote + onNote + `
	)
	SELECT FROM m`

const onNote = `
		ON CONFLICT (run_id) DO UPDATE SET acked_seq = excluded.acked_seq WHERE w.acked_seq < excluded.acked_seq`

// Execute implements [pg.Statement].
func (a *acknowledgement) Execute(ctx context.Context, pool *pgxpool.Pool) error {
	tag, err := pg.NewPool(pool).Exec(ctx, deleteNoted, a.args()...)
	a.ended, a.shared = tag.RowsAffected() > 0, false
	return err
}

// Queue implements [pg.Statement].
func (a *acknowledgement) Queue(b *pgx.Batch) {
	a.shared = true
	b.Queue(`DELETE FROM messages m WHERE `+ofMessage+` AND NOT (`+needNote+`)`, a.args()...).
		Exec(func(tag pgconn.CommandTag) error {
			a.ended = tag.RowsAffected() > 0
			return nil
		})
}

// addTo adds the statement to a conditional one. That locks the run of the message, so the note may be part of it.
func (a *acknowledgement) addTo(c *pg.Conditional) {
	if !stepTopic.MatchString(a.topic) {
		c.Add(pg.Write{SQL: `
			INSERT INTO run_wakes AS w (run_id, acked_seq)
			SELECT run_id, leased_seq FROM messages m WHERE ` + ofMessage + ` AND ` + needNote, Rest: onNote, Args: a.args()})
	}
	c.Add(pg.Write{SQL: `DELETE FROM messages m WHERE ` + ofMessage, Args: a.args()[:3]})
}

func (a *acknowledgement) args() []any { return []any{a.handle, a.project, a.topic, stepTopics} }
