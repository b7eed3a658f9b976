package triggers_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/tickets"
	"github.com/stepwell-dev/stepwell/starts/trigger"
	"github.com/stepwell-dev/stepwell/starts/trigger/triggers"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const project = entities.DefaultProject

// server is the parts of a server process that triggers need.
type server struct {
	*triggers.Triggers

	pool     *pgxpool.Pool
	queue    *queue.Queue
	log      *eventlog.Log
	runs     *engine.Engine
	handlers map[message.Work]queue.Handler
}

// newServer returns a server on the database.
func newServer(t testing.TB, dsn string) *server {
	t.Helper()
	pool := testdb.Connect(t, dsn)
	return serverOn(t, pool)
}

func serverOn(t testing.TB, pool *pgxpool.Pool) *server {
	t.Helper()
	hub := pg.NewHub(pool, "stepwell", slog.New(slog.DiscardHandler))
	q, err := queue.New(pool, migrations.DefaultSchema, hub)
	if err != nil {
		t.Fatal(err)
	}
	log := eventlog.New(pool, hub, q, time.Now)
	runs := engine.New(q, log)
	return &server{runs.Triggers(), pool, q, log, runs, runs.Handlers()}
}

// newApp returns a server with an app that has all workflows.
func newApp(t testing.TB) *server {
	t.Helper()
	s := newServer(t, testdb.New(t))
	s.register(t)
	return s
}

func (s *server) register(t testing.TB, workflows ...string) {
	t.Helper()
	if _, err := s.queue.PutDeployment(t.Context(), project, "dpl", "http://127.0.0.1:1", workflows...); err != nil {
		t.Fatal(err)
	}
}

// onSignal returns a trigger on the signal paid that starts report.
func onSignal(condition string) trigger.Spec {
	return trigger.Spec{Kind: trigger.KindSignal, Source: "paid", Condition: condition, Workflow: "report"}
}

// onEnd returns a trigger on every end of a run of order that starts report.
func onEnd(condition string) trigger.Spec {
	return trigger.Spec{
		Kind: trigger.KindRunEnded, Source: "order", Condition: condition, Workflow: "report",
		Statuses: []entities.RunStatus{entities.RunCompleted, entities.RunFailed, entities.RunCancelled},
	}
}

// put creates a trigger of the name t, or changes it.
func (s *server) put(t testing.TB, spec trigger.Spec) trigger.Trigger {
	t.Helper()
	trg, _, err := s.Put(t.Context(), project, "t", spec)
	if err != nil {
		t.Fatal(err)
	}
	return trg
}

// post posts a signal paid.
func (s *server) post(t testing.TB, data string) store.SignalID {
	t.Helper()
	signal, _, err := s.runs.PostSignal(t.Context(), store.Signal{Project: project, Name: "paid", Data: []byte(data)}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return signal.ID
}

// run starts a run of order, or of another workflow.
func (s *server) run(t testing.TB, edit ...func(*eventlog.Request)) entities.RunID {
	t.Helper()
	r := eventlog.Request{
		RunID: entities.NewRunID(time.Now()), Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven,
		Payload: []byte(`1`), Data: entities.EventData{Driver: entities.DriverServer, WorkflowName: "order", DeploymentID: "dpl"},
	}
	for _, e := range edit {
		e(&r)
	}
	if _, err := s.log.Append(t.Context(), project, r); err != nil {
		t.Fatal(err)
	}
	return r.RunID
}

// end ends a run with an event of the type.
func (s *server) end(t testing.TB, id entities.RunID, how entities.EventType) {
	t.Helper()
	payload := []byte(`{"sum":7}`)
	if how == entities.EventRunCancelled {
		payload = nil
	}
	_, err := s.log.Append(t.Context(), project, eventlog.Request{
		RunID: id, Type: how, SpecVersion: entities.SpecDriven, Payload: payload,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// claim leases the oldest work of a kind. It reports false if there is none.
func (s *server) claim(t testing.TB, work message.Work) (queue.Delivery, bool) {
	t.Helper()
	ticket := tickets.Ticket{}
	err := s.pool.QueryRow(t.Context(), `
		UPDATE messages SET lease = '', holder = '', ticket = greatest(ticket, 1), parked_at = NULL
		WHERE id = (SELECT id FROM messages WHERE work = $1 ORDER BY id LIMIT 1)
		RETURNING id, ticket`, work).Scan(&ticket.MessageID, &ticket.Number)
	if err != nil {
		return queue.Delivery{}, false
	}
	d, ok, err := s.queue.Claim(t.Context(), ticket, "rh_"+ulid.Make().String(), "", 5*time.Minute)
	if err != nil || !ok {
		t.Fatalf("claim: %v, %v", ok, err)
	}
	return s.bind(t, d), true
}

// bind binds a delivery to this server, as its worker would.
func (s *server) bind(t testing.TB, d queue.Delivery) queue.Delivery {
	t.Helper()
	w, err := s.queue.NewWorker(migrations.DefaultSchema, queue.WorkerOptions{
		Deliveries: 1, BodyMemory: 1, Logger: slog.New(slog.DiscardHandler), Allowed: egress.Allowed{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w.Bind(d)
}

// do does all work of a kind.
func (s *server) do(t testing.TB, work message.Work) {
	t.Helper()
	for {
		d, ok := s.claim(t, work)
		if !ok {
			return
		}
		if err := s.handlers[work](t.Context(), d); err != nil {
			t.Fatalf("%s: %v", work, err)
		}
	}
}

// settle dispatches all signals and does the work of triggers.
func (s *server) settle(t testing.TB) {
	t.Helper()
	s.do(t, message.WorkSignal)
	s.do(t, message.WorkTrigger)
}

func (s *server) count(t testing.TB, sql string) (n int) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *server) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// history returns what became of the events of the trigger t, in the order of the decisions.
func (s *server) history(t testing.TB) []trigger.Event {
	t.Helper()
	q := pg.NewPool(s.pool)
	trg, err := trigger.ByName(t.Context(), q, project, "t")
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := trigger.History(t.Context(), q, trg.ID, pg.Page{Limit: pg.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// wantHistory checks the decisions, and that each event that has started a run has its own, which says so, and that no
// other run of report exists.
func (s *server) wantHistory(t testing.TB, want ...trigger.Decision) []trigger.Event {
	t.Helper()
	list := s.history(t)
	got := make([]trigger.Decision, len(list))
	started := map[entities.RunID]bool{}
	for i, e := range list {
		if got[i] = e.Decision; e.Decision != trigger.Started {
			continue
		}
		started[e.RunID] = true
		run, err := store.RunByID(t.Context(), pg.NewPool(s.pool), project, e.RunID)
		if err != nil {
			t.Errorf("the run of %s: %v", e.Event, err)
			continue
		}
		if run.Attributes["$trigger"] != "t" || run.Attributes["$triggerEvent"] != e.Event || run.WorkflowName != "report" {
			t.Errorf("the run of %s is a %s with the attributes %v", e.Event, run.WorkflowName, run.Attributes)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got the decisions %v, want %v", got, want)
	}
	if n := s.count(t, `SELECT count(*) FROM runs WHERE workflow_name = 'report'`); n != len(started) {
		t.Errorf("there are %d runs for %d events", n, len(started))
	}
	return list
}

// input returns the input of a run.
func (s *server) input(t testing.TB, id entities.RunID) string {
	t.Helper()
	e, err := s.log.Event(t.Context(), project, id, 1)
	if err != nil {
		t.Fatal(err)
	}
	return string(e.Payload)
}
