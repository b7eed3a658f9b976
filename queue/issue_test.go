package queue

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestDivide(t *testing.T) {
	t.Parallel()
	const overdue = -time.Second
	crowd := make([]demand, 2*issueBatch)
	for i := range crowd {
		crowd[i] = demand{Project: entities.Project(fmt.Sprint(i)), Wait: -time.Duration(i) * time.Second}
	}
	for name, tt := range map[string]struct {
		all  []demand
		room map[entities.Project]int // of projects with less than all slots
		want map[entities.Project]int
		next time.Duration
	}{
		"nobody":         {next: time.Hour},
		"nothing is due": {all: []demand{{"a", time.Minute, 0}, {"b", time.Second, 0}}, next: time.Second},
		"alone": {
			all: []demand{{"a", overdue, 0}}, want: map[entities.Project]int{"a": maxTickets}, next: time.Hour,
		},
		"tickets wait": {
			all: []demand{{"a", overdue, 30}}, want: map[entities.Project]int{"a": maxTickets - 30}, next: time.Hour,
		},
		"enough tickets wait": {all: []demand{{"a", overdue, maxTickets}}, next: time.Hour},
		"few slots": {
			all: []demand{{"a", overdue, 2}}, room: map[entities.Project]int{"a": 7},
			want: map[entities.Project]int{"a": 5}, next: time.Hour,
		},
		"one has no slot, one is due, one is due later": {
			all:  []demand{{"a", overdue, 0}, {"b", overdue, 0}, {"c", time.Second, 0}},
			room: map[entities.Project]int{"a": 0}, want: map[entities.Project]int{"b": maxTickets}, next: time.Second,
		},
	} {
		got := map[entities.Project]int{}
		rations, next := divide(tt.all, roomOf(tt.room))
		for _, r := range rations {
			got[r.project] = r.tickets
		}
		if tt.want == nil {
			tt.want = map[entities.Project]int{}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || next != tt.next {
			t.Errorf("%s: the next is due in %s, want %s; tickets (-want +got):\n%s", name, next, tt.next, diff)
		}
	}
	for _, n := range []int{issueBatch / 10, issueBatch, 2 * issueBatch} {
		rations, _ := divide(crowd[len(crowd)-n:], roomOf(nil))
		sum := 0
		for _, r := range rations {
			sum += r.tickets
			if r.tickets != max(1, issueBatch/n) {
				t.Errorf("one of %d projects gets %d tickets, want equal parts of %d", n, r.tickets, issueBatch)
			}
		}
		if sum != issueBatch {
			t.Errorf("%d projects get %d tickets, want %d", n, sum, issueBatch)
		}
	}
	rations, _ := divide(crowd, roomOf(nil))
	if oldest := crowd[len(crowd)-1].Project; rations[0].project != oldest {
		t.Errorf("project %s is first, want %s, which has waited longest", rations[0].project, oldest)
	}
}

// roomOf returns the room of projects; those that are not named have a lot.
func roomOf(few map[entities.Project]int) func(entities.Project) int {
	return func(p entities.Project) int {
		if n, ok := few[p]; ok {
			return n
		}
		return 1000
	}
}

// addDue adds due messages of a project, before all others.
func (r *replica) addDue(t testing.TB, p entities.Project, n int) {
	t.Helper()
	r.Exec(t, `
		INSERT INTO messages (id, project, topic, deployment_id, content_type, body, expires_at, due_at, ticket)
		SELECT 'msg_' || $1 || n, $1, $2, $3, '', '', now() + interval '1 d', now() - interval '1 h', 1
		FROM generate_series(1, $4::integer) n`, p, topic, deployment, n)
}

// tickets counts the tickets of a project.
func (r *replica) tickets(t testing.TB, p entities.Project) int {
	t.Helper()
	return r.Count(t, `SELECT count(*) FROM river_job WHERE args->>'project' = $1`, p)
}

// TestBacklogOfOneProjectDelaysNoOther: a project with 5,000 due messages gets no more tickets than may wait, and
// another one gets its ticket in the same round.
func TestBacklogOfOneProjectDelaysNoOther(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.addDue(t, "greedy", 5000)
	r.Exec(t, `ANALYZE messages`)
	id := r.send(t)
	r.issue(t)
	if got := r.tickets(t, "greedy"); got < 1 || got > maxTickets {
		t.Errorf("the greedy project has %d tickets, want 1 to %d", got, maxTickets)
	}
	r.Want(t, "tickets of the other project", 1, `SELECT count(*) FROM river_job WHERE args->>'message' = $1`, id)
	// A second round issues no more, although more is due.
	before := r.tickets(t, "greedy")
	r.issue(t)
	if got := r.tickets(t, "greedy"); got != before {
		t.Errorf("the greedy project has %d tickets after another round, want %d", got, before)
	}
}

// TestTicketsAreIssuedInTurns: projects take turns, and the messages of one get tickets in the order in which they are
// due, whatever the order in which they were stored.
func TestTicketsAreIssuedInTurns(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	due := func(p entities.Project, minutes int) string {
		id := r.send(t, func(m *message.Message) { m.Project = p })
		r.Exec(t, `UPDATE messages SET due_at = now() - make_interval(mins => $2) WHERE id = $1`, id, minutes)
		return id
	}
	third, first, second := due("a", 1), due("a", 3), due("a", 2)
	other := due("b", 0)
	r.issue(t)
	rows, err := r.pool.Query(t.Context(), `SELECT args->>'message' FROM river_job ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if want := []string{first, other, second, third}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got tickets for %v (%v), want %v", got, err, want)
	}
}

// TestReadingDemandsScansNoBacklog: the cost depends on the number of projects, not on that of their messages.
func TestReadingDemandsScansNoBacklog(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.addDue(t, "greedy", 20_000)
	for i := range 10 {
		r.addDue(t, entities.Project(fmt.Sprint("small", i)), 2)
	}
	r.Exec(t, `VACUUM ANALYZE messages`)
	all, err := readDemands(t.Context(), r.pool)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 11 {
		t.Errorf("got the demands %v, want those of 11 projects", all)
	}
	if n := blocks(t, r.explain(t, demandsSQL)); n > 100 {
		t.Errorf("%d blocks were read for 11 projects, want at most 100:\n%s", n, r.explain(t, demandsSQL))
	}
}

// TestTicketWithoutSlotIsGivenUp: it neither waits in the slot of another project's ticket nor gets lost.
func TestTicketWithoutSlotIsGivenUp(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	a := newApp(t, nil)
	r.register(t, deployment, a.URL)
	w := r.newWorker(t)
	w.slots = share.NewPool(0)
	r.send(t)
	other := r.newWorker(t) // issues a ticket, which the process without a slot fetches
	if _, err := other.issueDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	startWorker(t, w)
	r.ticketsOnly()
	testdb.Eventually(t, "the ticket was given up", func() bool {
		return r.Count(t, `SELECT count(*) FROM river_job WHERE state = 'completed'`) == 1
	})
	startWorker(t, other)
	if c := a.next(t); c.count() != "1" {
		t.Errorf("got delivery %s, want 1", c.count())
	} else {
		r.ack(t, c)
	}
}

// TestHungProjectLeavesSlots: one project's calls hang, in the dispatcher and with tickets; another's are made.
func TestHungProjectLeavesSlots(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	hung := newApp(t, func(_ http.ResponseWriter, r *http.Request, _ call) { <-r.Context().Done() })
	a := acknowledgingApp(t, r)
	r.register(t, deployment, a.URL)
	if _, err := r.PutDeployment(t.Context(), "greedy", deployment, hung.URL); err != nil {
		t.Fatal(err)
	}
	const slots, most = 40, 2 * 16
	w := r.worker(t, func(o *WorkerOptions) { o.Deliveries, o.Grace = slots, 0 })
	r.addDue(t, "greedy", 100)
	for range 20 {
		m := newMessage()
		m.Project = "greedy"
		if _, err := r.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for range most {
		hung.next(t)
	}
	for _, how := range []func(){func() {}, r.ticketsOnly} {
		how()
		for range 20 {
			r.gone(t, r.send(t))
		}
	}
	if n := len(hung.calls); n > 0 {
		t.Errorf("got %d more calls of the greedy project, want %d at once at most", n, most)
	}
	testdb.Eventually(t, "only the slots of the greedy project are taken", func() bool { // a slot is free after its message is gone
		return slots-w.dispatcher.slots.Free()-w.slots.Free() == most
	})
}

// TestMessageWithoutTicketIsReceivedOnceDue: a client can receive a message whose delay is over, although a backlog of
// its project keeps it from getting a ticket.
func TestMessageWithoutTicketIsReceivedOnceDue(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	id := r.send(t, delayed(time.Hour))
	if _, err := r.Receive(t.Context(), project, topic, id, time.Minute); !errors.Is(err, entities.ErrConflict) {
		t.Errorf("during its delay: got error %v, want %v", err, entities.ErrConflict)
	}
	r.makeDue(t, id)
	if _, err := r.Receive(t.Context(), project, topic, id, time.Minute); err != nil {
		t.Error(err)
	}
}
