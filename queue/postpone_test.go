package queue

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestPostponedMessageHasNotFailed: a function of a run with a fence asks for the same message again, however often, by
// setting when it is due and answering with success.
func TestPostponedMessageHasNotFailed(t *testing.T) {
	t.Parallel()
	var r *replica
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) {
		if err := r.SetVisibility(context.Background(), project, topic, c.handle(), time.Minute); err != nil {
			t.Error(err)
		}
	})
	r = open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	r.worker(t)
	r.ticketsOnly()
	const run entities.RunID = "wrun_fenced"
	r.exec(t, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq, created_at,
			updated_at)
		VALUES ($1, $2, $3, 'w', 'running', $4, '{}', 1, now(), now())`, run, project, deployment, entities.SpecFence)
	id := r.send(t, of(run))
	for n := range 3 {
		c := a.next(t)
		if got := c.Header.Get("Ce-Vqsdeliverycount"); got != []string{"1", "2", "100"}[n] || c.Header.Get("Ce-Vqsmessageid") != id {
			t.Errorf("delivery %d has the count %s and the message %s", n, got, c.Header.Get("Ce-Vqsmessageid"))
		}
		r.ticketsDone(t, id, n+1)
		var wait time.Duration
		r.scan(t, `SELECT due_at - now() FROM messages WHERE id = $1 AND lease = '' AND last_error = ''
			AND first_failed_at IS NULL AND parked_at IS NULL`, []any{id}, &wait)
		if wait < time.Minute/2 || wait > time.Minute {
			t.Errorf("the message is due in %s, want a minute", wait)
		}
		if n == 1 {
			r.exec(t, `UPDATE messages SET delivery_count = 99 WHERE id = $1`, id) // more than are parked
		}
		r.makeDue(t, id)
	}
}
