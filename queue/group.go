package queue

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// reservedMessage is the group-commit statement that stores a message that is due now, and its key.
type reservedMessage struct {
	message.Message
	Reservation

	id string
	// stored has the delivery of the stored message; it is empty if the key belongs to another message.
	stored []Delivery
}

// insertReserved combines [claimKey] and [insertMessage] in one statement, for a message that is due now. The statement
// may share its transaction with others (group commit). If the process is not registered, the message is stored without
// a lease, and gets a ticket like other due messages. It fails with [pgx.ErrNoRows] when the key belongs to another
// message.
func insertReserved(
	ctx context.Context, g *pg.GroupCommit, m message.Message, id string, r Reservation,
) (Delivery, error) {
	s := reservedMessage{Message: m, Reservation: r, id: id}
	if err := g.Do(ctx, &s); err != nil {
		return Delivery{}, wrap("insert message", err)
	}
	if len(s.stored) == 0 {
		return Delivery{}, pgx.ErrNoRows
	}
	s.stored[0].Body = m.Body
	return s.stored[0], nil
}

// Order implements [pg.Statement].
func (s *reservedMessage) Order() pg.LockOrder {
	return pg.LockOrder{Class: pg.LockKey, Name: keyOrder(s.Message)}
}

// keyOrder returns the sort key of an idempotency key. Transactions that claim several keys claim them in this order.
func keyOrder(m message.Message) string {
	return strings.Join([]string{m.Key, m.Topic, m.DeploymentID, string(m.Project)}, "\x00")
}

// Execute implements [pg.Statement].
func (s *reservedMessage) Execute(ctx context.Context, pool *pgxpool.Pool) error {
	sql, args := s.statement()
	rows, err := pg.NewPool(pool).Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	return s.read(rows)
}

// Queue implements [pg.Statement].
func (s *reservedMessage) Queue(b *pgx.Batch) {
	sql, args := s.statement()
	b.Queue(sql, args...).Query(s.read)
}

func (s *reservedMessage) read(rows pgx.Rows) (err error) {
	s.stored, err = pgx.CollectRows(rows, pgx.RowToStructByName[Delivery])
	return err
}

func (s *reservedMessage) statement() (string, []any) {
	return `
		WITH claimed AS (
			INSERT INTO message_keys (project, deployment_id, topic, key, message_id, expires_at)
			SELECT $2, $4, $3, $14, $1, now() + $8 WHERE $14 <> '' ` + onKnownKey + `
			RETURNING message_id
		)` + storeMessage + `WHERE $14 = '' OR EXISTS (SELECT FROM claimed)` + returnDelivery, []any{
			s.id, s.Project, s.Topic, s.DeploymentID, s.RunID, s.ContentType, s.Body, s.Retention, time.Duration(0), firstTicket,
			s.handle, s.holder, s.lease, s.Key,
		}
}

// acknowledgement is the group-commit statement that deletes an acknowledged message.
type acknowledgement struct {
	project       entities.Project
	topic, handle string

	// ended is set when the message was deleted.
	ended bool
	// shared is set when the statement shared its transaction, and so skipped the message if it needs a note.
	shared bool
}

// deleteLeased deletes a message. If its run has hooks, it also notes how much of the log the delivery has seen: later
// events without a message tell the sweeper that the run is stranded. A message that needs a note is deleted in a
// transaction of its own, since the note locks another row.
func (q *Queue) deleteLeased(ctx context.Context, project entities.Project, topic, handle string) error {
	a := acknowledgement{project: project, topic: topic, handle: handle}
	err := q.group.Do(ctx, &a)
	if err == nil && a.shared && !a.ended {
		err = a.Execute(ctx, q.pool)
	}
	if err == nil && !a.ended {
		return message.ErrLeaseNotFound
	}
	return err
}

// Order implements [pg.Statement].
func (a *acknowledgement) Order() pg.LockOrder {
	return pg.LockOrder{Class: pg.LockLease, Name: a.handle}
}

// needNote is the condition that the delivery of m needs a note of the events it has seen; steps, whose topics match
// $4, see none. It avoids EXISTS, which Postgres turns into a join: planned while there are no hooks, that would later
// read all of them.
const needNote = `topic !~ $4 AND coalesce(
	(SELECT true FROM hooks h WHERE h.run_id = m.run_id AND h.project IS NOT DISTINCT FROM m.project LIMIT 1), false)`

// Execute implements [pg.Statement].
func (a *acknowledgement) Execute(ctx context.Context, pool *pgxpool.Pool) error {
	tag, err := pg.NewPool(pool).Exec(ctx, `
		WITH m AS (
			DELETE FROM messages WHERE `+ofMessage+`
			RETURNING project, topic, run_id, seen_seq
		), noted AS (
			INSERT INTO run_wakes AS w (run_id, seen_seq)
			SELECT run_id, seen_seq FROM m WHERE `+needNote+`
			ON CONFLICT (run_id) DO UPDATE SET seen_seq = excluded.seen_seq WHERE w.seen_seq < excluded.seen_seq
		)
		SELECT FROM m`, a.args()...)
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

func (a *acknowledgement) args() []any { return []any{a.handle, a.project, a.topic, stepTopics} }
