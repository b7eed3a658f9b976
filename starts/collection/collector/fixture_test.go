package collector

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/starts/collection"
	"github.com/stepwell-dev/stepwell/starts/startstest"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const project = entities.DefaultProject

var noon = startstest.Noon

type server struct {
	*Collector
	startstest.Server
}

// newServer returns a server on the database. At first it is noon there.
func newServer(t testing.TB, dsn string) *server {
	t.Helper()
	return serverOn(t, testdb.Connect(t, dsn))
}

func serverOn(t testing.TB, pool *pgxpool.Pool) *server {
	t.Helper()
	s := startstest.New(t, pool)
	return &server{New(s.Queue, s.Log), s}
}

// registered returns a server on a database of its own, with an app that has all workflows.
func registered(t testing.TB) *server {
	t.Helper()
	s := newServer(t, testdb.New(t))
	s.Register(t)
	return s
}

// debounced collects starts for ten seconds after the last one, and for a minute at most.
func debounced(keep collection.Keep) collection.Rule {
	r, err := collection.NewDebounce("k", 10*time.Second, time.Minute, keep)
	if err != nil {
		panic(err)
	}
	return r
}

// batches collects so many starts, for at most a minute.
func batches(size int) collection.Rule {
	r, err := collection.NewBatch("k", size, time.Minute, 0)
	if err != nil {
		panic(err)
	}
	return r
}

// start is a start of the workflow "w" with an input.
func start(input string, edit ...func(*collection.Start)) collection.Start {
	s := collection.Start{
		Workflow: "w", Input: []byte(input), Data: entities.EventData{Driver: entities.DriverServer, WorkflowName: "w"},
	}
	for _, e := range edit {
		e(&s)
	}
	return s
}

// once gives a start an idempotency key.
func once(key string) func(*collection.Start) {
	return func(s *collection.Start) { s.IdempotencyKey, s.Digest = key, "digest of "+string(s.Input) }
}

func uniqueKey(s *collection.Start) { s.Data.UniqueKey = "u" }

// add collects a start, and returns the run that it belongs to.
func (s *server) add(t testing.TB, rule collection.Rule, st collection.Start) entities.RunID {
	t.Helper()
	done, err := s.Add(t.Context(), project, rule, st)
	if err != nil {
		t.Fatal(err)
	}
	return runOf(done)
}

func runOf(done Collected) entities.RunID {
	if done.Collection != nil {
		return done.Collection.RunID
	}
	return done.Run.ID
}

// claim leases the collection's work.
func (s *server) claim(t testing.TB, id entities.RunID) queue.Delivery {
	t.Helper()
	d, ok := s.Claim(t, message.WorkCollection, string(id))
	if !ok {
		t.Fatalf("no work of %s", id)
	}
	return d
}

// deliver delivers the collection's work once.
func (s *server) deliver(t testing.TB, id entities.RunID) {
	t.Helper()
	s.Deliver(t, message.WorkCollection, string(id), s.handle)
}

// state describes what there is: the runs with their inputs, in the order of their starts, and the collections with their counts.
func (s *server) state(t testing.TB) string {
	t.Helper()
	q := pg.NewPool(s.pool)
	inputs, err := pg.CollectColumn[string](q.Query(t.Context(), `
		SELECT convert_from(e.payload, 'UTF8') FROM runs r JOIN events e ON e.run_id = r.id AND e.seq = 1
		ORDER BY r.created_at, r.id`))
	if err != nil {
		t.Fatal(err)
	}
	open, _, err := collection.List(t.Context(), q, project, pg.Page{Limit: pg.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, input := range inputs {
		parts = append(parts, "run "+input)
	}
	for _, c := range open {
		parts = append(parts, fmt.Sprintf("%d until %s", c.Count, c.DueAt.Sub(noon)))
	}
	return strings.Join(parts, ", ")
}

// want checks the state. Collections have work, and runs an invocation; otherwise there is nothing.
func (s *server) want(t testing.TB, want string) {
	t.Helper()
	if got := s.state(t); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	runs, open := s.Count(t, `SELECT count(*) FROM runs`), s.Count(t, `SELECT count(*) FROM collections`)
	if n := s.Count(t, `SELECT count(*) FROM messages WHERE work = 'run'`); n != runs {
		t.Errorf("%d runs have %d invocations", runs, n)
	}
	if n := s.Count(t, `SELECT count(*) FROM messages WHERE work = 'collection'`); n != open {
		t.Errorf("%d collections have %d pieces of work", open, n)
	}
	n := s.Count(t, `
		SELECT count(*) FROM collected c
		WHERE NOT EXISTS (SELECT FROM collections WHERE run_id = c.run_id) AND (idempotency_key = '' OR input <> '')`)
	if n > 0 {
		t.Errorf("%d inputs are left of runs that have started", n)
	}
}

// flush starts the run of the only collection.
func (s *server) flush(t testing.TB) entities.RunID {
	t.Helper()
	id := s.onlyID(t)
	run, err := s.Flush(t.Context(), project, id)
	if err != nil || run.ID != id {
		t.Fatalf("got %s, %v", run.ID, err)
	}
	return id
}

// onlyID returns the ID of the only collection.
func (s *server) onlyID(t testing.TB) (id entities.RunID) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), `SELECT run_id FROM collections`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// items returns the items of all runs' lists.
func (s *server) items(t testing.TB) (items []int) {
	t.Helper()
	lists, err := pg.CollectColumn[[]byte](pg.NewPool(s.pool).Query(t.Context(), `
		SELECT payload FROM events WHERE seq = 1 ORDER BY run_id`))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		var part []int
		if err := json.Unmarshal(list, &part); err != nil {
			t.Fatal(err)
		}
		items = append(items, part...)
	}
	return items
}
