package queue

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

// TestTicketsHaveTheDatabasesTimes: a process whose clock is ahead must not issue tickets for the future.
func TestTicketsHaveTheDatabasesTimes(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.send(t)
	r.issue(t)
	// A ticket is issued in the transaction that makes its message wait for it.
	r.Want(t, "tickets with the time of their transaction", 1, `
		SELECT count(*) FROM river_job j JOIN messages m ON m.id = j.args->>'message'
		WHERE j.scheduled_at = m.due_at - $1::interval AND j.created_at = j.scheduled_at`, ticketTime)
	// The clock of this process is an hour behind.
	at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	err := pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
		return r.issuer.Issue(t.Context(), tx, []tickets.Ticket{{MessageID: "msg_1", Number: 1, IssuedAt: at}})
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Want(t, "tickets with the given time", 1, `SELECT count(*) FROM river_job WHERE scheduled_at = $1 AND state = 'available'`, at)
}
