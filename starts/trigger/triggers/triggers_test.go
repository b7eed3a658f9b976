package triggers_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/starts/startstest"
	"github.com/stepwell-dev/stepwell/starts/trigger"
	"github.com/stepwell-dev/stepwell/starts/trigger/triggers"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const project = entities.DefaultProject

type server struct {
	*triggers.Triggers
	startstest.Server

	runs     *engine.Engine
	handlers map[message.Work]queue.Handler
}

// newServer returns a server on the database.
func newServer(t testing.TB, dsn string) *server {
	t.Helper()
	return serverOn(t, testdb.Connect(t, dsn))
}

func serverOn(t testing.TB, pool *pgxpool.Pool) *server {
	t.Helper()
	s := startstest.WithClock(t, pool, time.Now)
	runs := engine.New(s.Queue, s.Log)
	return &server{runs.Triggers(), s, runs, runs.Handlers()}
}

// newApp returns a server with an app that has all workflows.
func newApp(t testing.TB) *server {
	t.Helper()
	s := newServer(t, testdb.New(t))
	s.Register(t)
	return s
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
	if _, err := s.Log.Append(t.Context(), project, r); err != nil {
		t.Fatal(err)
	}
	return r.RunID
}

// end ends a run with an event of the type.
func (s *server) end(t testing.TB, id entities.RunID, how entities.EventType) {
	t.Helper()
	payload := `{"sum":7}`
	if how == entities.EventRunCancelled {
		payload = ""
	}
	s.End(t, id, how, payload)
}

// do does all work of a kind.
func (s *server) do(t testing.TB, work message.Work) {
	t.Helper()
	for {
		d, ok := s.Claim(t, work, "")
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

// history returns what became of the events of the trigger t, in the order of the decisions.
func (s *server) history(t testing.TB) []trigger.Event {
	t.Helper()
	q := pg.NewPool(s.Pool)
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
		run, err := store.RunByID(t.Context(), pg.NewPool(s.Pool), project, e.RunID)
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
	if n := s.Count(t, `SELECT count(*) FROM runs WHERE workflow_name = 'report'`); n != len(started) {
		t.Errorf("there are %d runs for %d events", n, len(started))
	}
	return list
}

// input returns the input of a run.
func (s *server) input(t testing.TB, id entities.RunID) string {
	t.Helper()
	e, err := s.Log.Event(t.Context(), project, id, 1)
	if err != nil {
		t.Fatal(err)
	}
	return string(e.Payload)
}
