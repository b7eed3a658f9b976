package queue

import (
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/pg"
)

// Call is a call of a function that is under way: the kind of its work, and its subject.
type Call struct {
	Work    message.Work
	Subject string
}

// LockCall queues a read of the call with the lease, which it keeps from ending, and its step from being called again,
// until the transaction ends. If the call or its step is over, into stays nil. The caller has locked the run.
func LockCall(b *pgx.Batch, c token.Call, into **Call) {
	pg.LoadInto(b, into, `SELECT work, subject FROM messages WHERE `+ofCall+` AND `+stepOpen+` FOR SHARE`,
		c.Invocation, c.Project, c.RunID)
}
