package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
)

// Received is a message that its reader fetched, leased until it is acknowledged or due again.
type Received struct {
	ID            string
	ContentType   string
	Body          []byte
	CreatedAt     time.Time
	ExpiresAt     time.Time
	Lease         string
	DeliveryCount int
}

// Receive leases one message to whoever asks for it by its ID, for as long as said, which counts as a
// delivery. It fails with [entities.ErrMessageNotFound] when the project's topic has no such message,
// also because it was acknowledged, and with [entities.ErrConflict] while the message is delayed, parked
// or leased.
func (q *Queue) Receive(
	ctx context.Context, project entities.Project, topic, id string, lease time.Duration,
) (Received, error) {
	if lease <= 0 || lease > MaxVisibility {
		return Received{}, entities.Invalid("a visibility timeout of %s is not between 0 and %s", lease, MaxVisibility)
	}
	fail := func(err error) (Received, error) { return Received{}, fmt.Errorf("receive message %s: %w", id, err) }
	// The ticket that is out is used up, as by a delivery.
	rows, err := q.pool.Query(ctx, `
		UPDATE messages m
		SET lease = $4, holder = '', ticket = ticket + 1, delivery_count = delivery_count + 1, due_at = now() + $5,
			seen_seq = `+lengthOfLog+`
		WHERE `+ofID+` AND topic = $3 AND work = '' AND lease = '' AND `+notParked+` AND ticket > 0
		RETURNING id, content_type, body, created_at, expires_at, lease, delivery_count`,
		id, project, topic, "rh_"+ulid.Make().String(), lease)
	if err != nil {
		return fail(err)
	}
	m, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Received])
	if errors.Is(err, pgx.ErrNoRows) {
		return fail(q.whyNotReceived(ctx, project, topic, id))
	}
	if err != nil {
		return fail(err)
	}
	return m, nil
}

func (q *Queue) whyNotReceived(ctx context.Context, project entities.Project, topic, id string) error {
	var exists bool
	err := q.pool.QueryRow(ctx,
		`SELECT EXISTS (SELECT FROM messages WHERE `+ofID+` AND topic = $3)`,
		id, project, topic).Scan(&exists)
	switch {
	case err != nil:
		return err
	case exists:
		return fmt.Errorf("it is delayed, parked or leased: %w", entities.ErrConflict)
	default:
		return entities.ErrMessageNotFound
	}
}
