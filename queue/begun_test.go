package queue

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/tickets"
)

func beginsRun(m *message.Message) { m.BeginsRun = true }

// TestRunsThatHaveBegunComeFirst: two servers share a backlog. The messages of runs that have begun get their tickets
// before those with which runs begin, although these are due for longer, and of each kind the oldest first.
func TestRunsThatHaveBegunComeFirst(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	servers := []*Worker{withoutHints(t, dsn).newWorker(t), withoutHints(t, dsn).newWorker(t)}
	r := withoutHints(t, dsn)
	const each = 20
	r.Exec(t, `
		INSERT INTO messages (id, project, topic, deployment_id, content_type, body, expires_at, due_at, begins_run)
		SELECT CASE WHEN new THEN 'msg_new_' ELSE 'msg_begun_' END || chr(64 + n), $1, $2, $3, '', '', now() + interval '1 d',
			now() - make_interval(hours => CASE WHEN new THEN 2 ELSE 1 END, mins => -n), new
		FROM generate_series(1, $4::integer) n, unnest(ARRAY[false, true]) new`, project, topic, deployment, each)
	var order []string
	for _, kind := range []string{"begun", "new"} {
		for n := range each {
			order = append(order, fmt.Sprintf("msg_%s_%c", kind, 'A'+n))
		}
	}
	// Each ticket is for the first message that the other server has not locked for one of its own, so the tickets of both
	// are for the first ones.
	for issued := 10; issued <= len(order); issued += 10 {
		var racing sync.WaitGroup
		for _, w := range servers {
			racing.Go(func() {
				for range 5 {
					if n, err := w.issue(t.Context(), []ration{{project, 1}}); err != nil || n != 1 {
						t.Errorf("issued %d tickets: %v", n, err)
					}
				}
			})
		}
		racing.Wait()
		if got := r.ticketed(t); !slices.Equal(got, order[:issued]) {
			t.Errorf("got tickets for %v, want them for %v", got, order[:issued])
		}
	}
}

// ticketed returns the messages that have tickets.
func (r *replica) ticketed(t *testing.T) []string {
	t.Helper()
	rows, err := r.pool.Query(t.Context(), `SELECT args->>'message' FROM river_job ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestNoRunBeginsWhileOthersWait: a process that has no slot for messages that are due begins no run: its message waits
// with them. Runs that have begun go on, and new ones begin when there are slots.
func TestNoRunBeginsWhileOthersWait(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	w := r.newWorker(t, func(o *WorkerOptions) { o.Deliveries = 4 })
	r.Attach(w)
	search := func() {
		if _, err := w.issueDue(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	reserves := func(options ...func(*message.Message)) bool { return r.reserve(newMessage(options...), 0).Made() }
	r.addDue(t, project, 1)
	search()
	if !reserves(beginsRun) {
		t.Error("no run begins although nothing waits")
	}

	taken := w.slots.Room(string(project), shareFactor)
	if !w.slots.Try(string(project), taken, shareFactor) {
		t.Fatal("the slots are not free")
	}
	r.addDue(t, "other", 1)
	r.Exec(t, `UPDATE messages SET due_at = now()`)
	search()
	if reserves(beginsRun) || !reserves() {
		t.Errorf("a new run gets a slot: %v; one that has begun: %v", reserves(beginsRun), reserves())
	}

	w.slots.Release(string(project), taken)
	search()
	if !reserves(beginsRun) {
		t.Error("no run begins although slots are free")
	}
}

// TestClaimedMessageBeginsNoRun: what is due again after its first delivery, or has been received, belongs to a run that has begun.
func TestClaimedMessageBeginsNoRun(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	id := r.send(t, beginsRun)
	const waiting = `SELECT count(*) FROM messages WHERE begins_run`
	if n := r.Count(t, waiting); n != 1 {
		t.Fatalf("%d messages begin a run, want the one that was sent", n)
	}
	received := r.send(t, beginsRun)
	if _, err := r.Receive(t.Context(), project, topic, received, leaseTime); err != nil {
		t.Fatal(err)
	}
	_, ok, err := r.Claim(t.Context(), tickets.Ticket{MessageID: id, Number: firstTicket}, "rh_1", "", leaseTime)
	if err != nil || !ok {
		t.Fatalf("claim: got %v, %v", ok, err)
	}
	r.Want(t, "messages begin a run after the claim", 0, waiting)
}

// TestGrantedRunCountsAsBegun: a run that has got the slots of its limits goes before runs that begin, whether its app is
// sent a message or the server invokes it.
func TestGrantedRunCountsAsBegun(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]message.Work{"message of an app": message.WorkNone, "invocation": message.WorkRun} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := withoutHints(t, testdb.New(t))
			const run entities.RunID = "wrun_limited"
			r.Exec(t, `
				INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, attributes, last_seq,
					created_at, updated_at)
				VALUES ($1, $2, $3, 'w', 'pending', 2, '{}', 1, now(), now())`, run, project, deployment)
			id := r.send(t, beginsRun, func(m *message.Message) { m.RunID = run })
			r.Exec(t, `UPDATE messages SET due_at = `+gated+`, work = $1`, work)
			err := pg.InTxBatch(t.Context(), r.pool, func(b *pgx.Batch) {
				r.admit(b, project, []limit.Granted{{RunID: run}})
			})
			if err != nil {
				t.Fatal(err)
			}
			r.Want(t, "due messages of a run that has begun", 1, `SELECT count(*) FROM messages WHERE id = $1 AND NOT begins_run AND due_at <= now()`, id)
		})
	}
}
