package queue

import (
	"net/http"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func (r *replica) setPaused(t testing.TB, paused bool) {
	t.Helper()
	r.Exec(t, `INSERT INTO projects (name, paused_at) VALUES ($1, CASE WHEN $2 THEN now() END)
		ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at`, project, paused)
}

// TestPausedProjectIsNotCalled, by the process that accepts a message or by another one, until it is resumed. What ends
// runs is done.
func TestPausedProjectIsNotCalled(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	r, other := open(t, dsn), open(t, dsn)
	called := make(chan struct{}, 10)
	a := newApp(t, func(_ http.ResponseWriter, _ *http.Request, c call) {
		r.ack(t, c)
		called <- struct{}{}
	})
	r.register(t, deployment, a.URL)
	r.worker(t)
	other.worker(t)
	r.setPaused(t, true) // without a hint
	testdb.Eventually(t, "both know", func() bool { return r.pauses.known().projects[project] && other.pauses.known().projects[project] })
	first, second := r.send(t), other.send(t)
	const waiting = `SELECT count(*) FROM messages WHERE lease = '' AND last_error = $1 AND due_at > now() + interval '5 minutes'`
	testdb.Eventually(t, "both messages wait", func() bool { return r.Count(t, waiting, message.ProjectPaused) == 2 })
	for _, work := range []message.Work{message.WorkEnd, message.WorkCancel, message.WorkReport, message.WorkDeadline} {
		if other.newWorker(t).holds(Delivery{Project: project, Work: work}) {
			t.Errorf("work %q waits", work)
		}
	}
	if len(called) > 0 {
		t.Fatal("the app was called")
	}
	r.setPaused(t, false)
	if err := r.Resume(t.Context(), project); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		select {
		case <-called:
		case <-time.After(testdb.Timeout):
			t.Fatal("the app was not called")
		}
	}
	r.gone(t, first)
	r.gone(t, second)
}

// TestResumeMissesNoDelivery: a process that does not know yet that the project was resumed puts a message off after
// that has made the others due.
func TestResumeMissesNoDelivery(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	w := r.newWorker(t)
	id := r.send(t)
	r.Exec(t, `UPDATE messages SET lease = 'rh_1', due_at = now() + interval '1 minute' WHERE id = $1`, id)
	r.setPaused(t, false)
	if err := r.Resume(t.Context(), project); err != nil {
		t.Fatal(err)
	}
	if err := w.postpone(t.Context(), Delivery{Project: project, Lease: "rh_1"}); err != nil {
		t.Fatal(err)
	}
	r.Want(t, "due messages", 1, `SELECT count(*) FROM messages WHERE lease = '' AND due_at <= now()`)
}
