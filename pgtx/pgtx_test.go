package pgtx_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/pgtx"
	"github.com/stepwell-dev/stepwell/queue"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// patience is how long a test waits for what must happen. It is long because machines can be busy.
const patience = 3 * time.Minute

// server is a server with its own database, in which an app has the table orders.
type server struct {
	http.Handler
	testdb.Rows

	pool  *pgxpool.Pool
	queue *queue.Queue
}

// rests is a flow whose runs do nothing for a day.
const rests = `rest: {wait: 24h}`

func newServer(t testing.TB) server {
	t.Helper()
	pool := testdb.Pool(t)
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	hub := pg.NewHub(pool, migrations.DefaultSchema+".hints", logger)
	q, err := queue.New(pool, migrations.DefaultSchema, hub)
	if err != nil {
		t.Fatal(err)
	}
	log := eventlog.New(pool, hub, q, time.Now)
	options := handlers.Options{
		Pool: pool, Log: log, Queue: q, Streams: read.NewStreams(pool, hub, time.Now), Open: true, Logger: logger,
		Stopping: t.Context(), Draining: t.Context(),
	}
	s := server{Handler: handlers.New(options), Rows: testdb.In(pool), pool: pool, queue: q}
	s.Exec(t, `CREATE TABLE orders (id text)`)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { hub.Run(ctx) })
	work := engine.New(q, log).Handlers()
	work[message.WorkRequest] = handlers.Requests(options)
	worker, err := q.NewWorker(migrations.DefaultSchema, queue.WorkerOptions{
		Deliveries: 10, MaxDeliveries: 50, BodyMemory: 64 << 20, Grace: patience, Logger: logger, Handlers: work,
	})
	if err == nil {
		err = worker.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := worker.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		cancel()
		running.Wait()
	})
	return s
}

// withFunction adds a deployment of all workflows, which nobody can reach: so its runs do nothing.
func (s server) withFunction(t testing.TB) server {
	t.Helper()
	if _, err := s.queue.PutDeployment(t.Context(), entities.DefaultProject, "shop", "http://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	return s
}

// withFlow adds the flow order.
func (s server) withFlow(t testing.TB, steps string) server {
	t.Helper()
	body, err := json.Marshal(map[string]string{"document": "flow: order\nsteps:\n  " + steps})
	if err != nil {
		t.Fatal(err)
	}
	if status, answer := s.post(t, "/v1/flows", string(body)); status != http.StatusCreated {
		t.Fatalf("add the flow: %d %v", status, answer)
	}
	return s
}

func (s server) post(t testing.TB, path, body string) (int, map[string]any) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	var answer map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s: %d %s: %v", path, w.Code, w.Body, err)
	}
	return w.Code, answer
}

// await waits until a query with one result returns true.
func (s server) await(t testing.TB, sql string, args ...any) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		var ok bool
		if err := s.pool.QueryRow(t.Context(), sql, args...).Scan(&ok); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		if ok {
			return
		}
		s.Exec(t, `SELECT pg_sleep(0.01)`)
	}
	var left string
	_ = s.pool.QueryRow(t.Context(), `SELECT coalesce(string_agg(id || ': ' || last_error, E'\n'), '') FROM messages`).Scan(&left)
	t.Fatalf("still not: %s %v; messages:\n%s", sql, args, left)
}

const (
	exists = `SELECT EXISTS (SELECT FROM v_runs WHERE run_id = $1)`
	// allDone says that no request is left.
	allDone = `SELECT NOT EXISTS (SELECT FROM messages WHERE work = 'request')`
)

// inTx calls do in a transaction that is committed.
func (s server) inTx(t testing.TB, do func(tx pgx.Tx) error) {
	t.Helper()
	if err := pgx.BeginFunc(t.Context(), s.pool, do); err != nil {
		t.Fatal(err)
	}
}

// start starts a run of the flow and waits until it exists.
func (s server) start(t *testing.T, id string, options map[string]any) (runID string) {
	t.Helper()
	s.inTx(t, func(tx pgx.Tx) (err error) {
		runID, err = pgtx.Default.StartTx(t.Context(), tx, pgtx.Start{
			Workflow: "order", Input: map[string]string{"id": id}, Options: options,
		})
		return err
	})
	s.await(t, exists, runID)
	return runID
}

// TestRunStartsWithTheTransaction: the order and its run are there together, or neither is.
func TestRunStartsWithTheTransaction(t *testing.T) {
	t.Parallel()
	s := newServer(t).withFlow(t, rests)
	broken := errors.New("no stock")
	order := func(fails error) (runID string, err error) {
		err = pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `INSERT INTO orders VALUES ('12345')`); err != nil {
				return err
			}
			if runID, err = pgtx.Default.StartTx(t.Context(), tx, pgtx.Start{Workflow: "order"}); err != nil {
				return err
			}
			return fails
		})
		return runID, err
	}
	lost, err := order(broken)
	if !errors.Is(err, broken) || lost == "" {
		t.Fatalf("got run %q and %v, want a run and %v", lost, err, broken)
	}
	kept, err := order(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.await(t, exists, kept)
	s.await(t, allDone)
	var runs, orders int
	if err := s.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM v_runs), (SELECT count(*) FROM orders)`).
		Scan(&runs, &orders); err != nil || runs != 1 || orders != 1 {
		t.Errorf("got %d runs of %d orders and %v, want one of each", runs, orders, err)
	}
}

// BenchmarkStartTx reports how long after the commit a run exists, with one request at a time.
func BenchmarkStartTx(b *testing.B) {
	s := newServer(b).withFlow(b, rests)
	var took []time.Duration
	for b.Loop() {
		var runID string
		s.inTx(b, func(tx pgx.Tx) (err error) {
			runID, err = pgtx.Default.StartTx(b.Context(), tx, pgtx.Start{Workflow: "order"})
			return err
		})
		committed := time.Now()
		for found := false; !found; {
			if err := s.pool.QueryRow(b.Context(), exists, runID).Scan(&found); err != nil {
				b.Fatal(err)
			}
		}
		took = append(took, time.Since(committed))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// TestRowsAreThoseOfTheAPI: the API takes its own start with the key of one in SQL as a repetition of that, and both
// leave the same rows and log.
func TestRowsAreThoseOfTheAPI(t *testing.T) {
	t.Parallel()
	s := newServer(t).withFunction(t)
	for i, options := range []string{
		`{}`,
		`{"attributes": {"order": "1 & <2>"}, "timeout": "1h", "timeoutGrace": "10s"}`,
		`{"key": "k", "onConflict": "join", "delay": "1h"}`,
		`{"inbox": ["in"], "send": [{"inbox": "in", "payload": {"a": 1.50}}], "priority": "-10m"}`,
	} {
		const input = `{"id":  "é\u00e9", "n": 1.0e2}`
		var id string
		key := fmt.Sprintf(`, "idempotencyKey": "key %d"}`, i)
		withKey := strings.Replace(strings.TrimSuffix(options, "}")+key, "{, ", "{", 1)
		if err := s.pool.QueryRow(t.Context(), `SELECT start_run('order', $1, $2)`, input, withKey).Scan(&id); err != nil {
			t.Fatal(err)
		}
		s.await(t, exists, id)
		request := strings.Replace(withKey, "{", `{"workflow": "order", "input": `+input+", ", 1)
		if status, answer := s.post(t, "/v1/runs", request); status != http.StatusOK || answer["id"] != id {
			t.Errorf("%s: got %d %v, want run %s as a repetition", options, status, answer, id)
		}
		s.Exec(t, `UPDATE runs SET unique_key = '' WHERE id = $1`, id)
		again := strings.Replace(request, "key "+fmt.Sprint(i), "again "+fmt.Sprint(i), 1)
		status, answer := s.post(t, "/v1/runs", strings.Replace(again, "é", "e", 1))
		if status != http.StatusCreated {
			t.Fatalf("%s: got %d %v", options, status, answer)
		}
		if diff := cmp.Diff(s.started(t, answer["id"]), s.started(t, id)); diff != "" {
			t.Errorf("%s (-API +SQL):\n%s", options, diff)
		}
	}
}

// started returns the first event of a run and the row of its start, without what differs between two runs.
func (s server) started(t *testing.T, id any) (row map[string]any) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), `
		SELECT jsonb_build_object('event', e.data - '{idempotencyKey,requestDigest,startAt,deadline}'::text[],
			'dated', ARRAY[e.data ? 'startAt', e.data ? 'deadline'], 'spec', e.spec_version,
			'payload', replace(convert_from(e.payload, 'UTF8'), 'é', 'e'), 'extra', encode(e.extra, 'hex'),
			'row', to_jsonb(r) - '{id,idempotency_key,unique_key,created_at,updated_at,started_at,deadline,status,last_seq,await,seq_in_band}'::text[],
			'inboxes', (SELECT jsonb_agg(x.data - '{token,resumeId}'::text[] ORDER BY x.seq) FROM events x
				WHERE x.run_id = r.id AND x.seq > 1 AND x.type IN ('hook_created', 'hook_received') AND starts_with(x.correlation_id, 'inbox')))
		FROM runs r JOIN events e ON e.run_id = r.id AND e.seq = 1 WHERE r.id = $1`, id).Scan(&row); err != nil {
		t.Fatal(err)
	}
	return row
}

// TestRequestsAreMadeOnce: what a server repeats, because it died before it could note the outcome, has no effect.
func TestRequestsAreMadeOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t).withFunction(t)
	id := s.start(t, "1", map[string]any{"inbox": []string{"in"}})
	s.inTx(t, func(tx pgx.Tx) error {
		if err := pgtx.Default.SignalTx(t.Context(), tx, pgtx.Signal{Name: "other", Data: 1}); err != nil {
			return err
		}
		if err := pgtx.Default.SendTx(t.Context(), tx, pgtx.Message{RunID: id, Inbox: "in", Payload: "hello"}); err != nil {
			return err
		}
		if _, err := pgtx.Default.StartTx(t.Context(), tx, pgtx.Start{Workflow: "order", Input: map[string]string{"id": "2"}}); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `
			INSERT INTO messages (id, project, topic, deployment_id, work, subject, content_type, body, expires_at, due_at)
			SELECT id || n, project, topic, deployment_id, work, id || n, content_type, body, expires_at, now()
			FROM messages, generate_series(1, 3) n WHERE work = 'request'`)
		return err
	})
	s.await(t, allDone)
	var signals, messages, runs int
	if err := s.pool.QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM signals), (SELECT count(*) FROM v_events WHERE payload = '"hello"'),
			(SELECT count(*) FROM v_runs)`).Scan(&signals, &messages, &runs); err != nil {
		t.Fatal(err)
	}
	if signals != 1 || messages != 1 || runs != 2 {
		t.Errorf("got %d signals, %d messages and %d runs, want 1, 1 and 2", signals, messages, runs)
	}
}

// TestRunGoesOn resumes the hook of a run by its token, whatever characters that has.
func TestRunGoesOn(t *testing.T) {
	t.Parallel()
	s := newServer(t).withFlow(t, `pay: {hook: {token: "pay-${input.id}"}}`)
	id := s.start(t, "7/ä?", nil)
	s.await(t, `SELECT count(*) = 1 FROM v_hooks WHERE run_id = $1`, id)
	s.inTx(t, func(tx pgx.Tx) error {
		return pgtx.Default.ResumeTx(t.Context(), tx, pgtx.Resumption{Token: "pay-7/ä?", Payload: map[string]int{"paid": 5}})
	})
	s.await(t, `SELECT status = 'completed' FROM v_runs WHERE run_id = $1`, id)
}

// TestWhatIsRefusedIsSaid: what SQL can see is an error there, and what only the API can see parks the request.
func TestWhatIsRefusedIsSaid(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for sql, want := range map[string]string{
		`SELECT start_run('')`:                                   "the workflow is missing",
		`SELECT start_run('order', NULL, '[]')`:                  "options are no JSON object",
		`SELECT start_run('order', NULL, NULL)`:                  "options are no JSON object",
		`SELECT start_run('order', '{')`:                         "invalid input syntax for type json",
		`SELECT start_run('order', '1', '{"batch": {}}')`:        `option "batch" cannot be given here`,
		`SELECT start_run('order', '1', '{}', 'nowhere')`:        `project "nowhere" does not exist`,
		`SELECT send_signal('s', to_json(repeat('x', 5000000)))`: "the limit is 4194304",
	} {
		_, err := s.pool.Exec(t.Context(), sql)
		if refusal, ok := errors.AsType[*pgconn.PgError](err); !ok || !strings.Contains(refusal.Message, want) {
			t.Errorf("%s: got %v, want %s", sql, err, want)
		}
	}
	parked := `SELECT EXISTS (SELECT FROM messages WHERE parked_at IS NOT NULL AND strpos(last_error, $1) > 0)`
	s.Exec(t, `SELECT start_run('order', '1', '{"nonsense": 1}')`)
	s.await(t, parked, "nonsense")
	// A workflow that is not there yet is waited for.
	s.Exec(t, `SELECT start_run('order', '{"id": "1"}')`)
	s.await(t, `SELECT EXISTS (SELECT FROM messages WHERE parked_at IS NULL AND strpos(last_error, 'order') > 0)`)
	s.withFlow(t, rests)
	s.await(t, `SELECT count(*) = 1 FROM v_runs`)
}

// TestARoleNeedsNothingElse: a role can call what it is granted and nothing else, and cannot make a function write to a
// table of its own.
func TestARoleNeedsNothingElse(t *testing.T) {
	t.Parallel()
	s := newServer(t).withFlow(t, rests)
	role := testdb.Role(t, s.pool)
	s.Exec(t, `GRANT USAGE ON SCHEMA stepwell TO `+role)
	s.Exec(t, `GRANT EXECUTE ON FUNCTION stepwell.start_run TO `+role)
	var id string
	s.inTx(t, func(tx pgx.Tx) error {
		for _, sql := range []string{
			`SET LOCAL ROLE ` + role,
			`CREATE TEMPORARY TABLE messages (id text) ON COMMIT DROP`,
			`CREATE TEMPORARY TABLE projects (name text) ON COMMIT DROP`,
		} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				return err
			}
		}
		return tx.QueryRow(t.Context(), `SELECT stepwell.start_run('order')`).Scan(&id)
	})
	s.await(t, exists, id)
	for _, sql := range []string{
		`SELECT stepwell.send_signal('s')`, `SELECT stepwell.resume_hook('t')`, `SELECT stepwell.send_message('r', 'i')`,
		`SELECT stepwell.leave_request('default', '{runs}', '{}', NULL, false)`, `SELECT stepwell.begin_step('r', 's')`,
		`SELECT stepwell.end_step('r', 's', '1')`, `SELECT * FROM stepwell.messages`,
	} {
		err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL ROLE `+role); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), sql)
			return err
		})
		if refusal, ok := errors.AsType[*pgconn.PgError](err); !ok || refusal.Code != "42501" {
			t.Errorf("%s: got %v, want that it is not permitted", sql, err)
		}
	}
}

// TestConcurrentStepIsExecutedOnce: of racers one writes, and all get its result.
func TestConcurrentStepIsExecutedOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	step := func(id string, fails error) (string, error) {
		return pgtx.Step(t.Context(), s.pool, pgtx.Default, "wrun_1/charge", func(ctx context.Context, tx pgx.Tx) (string, error) {
			if _, err := tx.Exec(ctx, `INSERT INTO orders VALUES ($1)`, id); err != nil {
				return "", err
			}
			return id + " <ok>", fails
		})
	}
	broken := errors.New("broken")
	if _, err := step("failed", broken); !errors.Is(err, broken) {
		t.Fatalf("got %v, want %v", err, broken)
	}
	results := make([]string, 8)
	var racers sync.WaitGroup
	for i := range results {
		racers.Go(func() {
			var err error
			if results[i], err = step(fmt.Sprint(i), nil); err != nil {
				t.Error(err)
			}
		})
	}
	racers.Wait()
	var written []string
	if err := s.pool.QueryRow(t.Context(), `SELECT array_agg(id) FROM orders`).Scan(&written); err != nil || len(written) != 1 {
		t.Fatalf("got %v and %v, want one row", written, err)
	}
	for i, result := range results {
		if result != written[0]+" <ok>" {
			t.Errorf("racer %d: got %q, but %s wrote", i, result, written[0])
		}
	}
	if _, err := pgtx.Step(t.Context(), s.pool, pgtx.Default, "", func(context.Context, pgx.Tx) (int, error) {
		t.Error("a step without a key was executed")
		return 0, nil
	}); !errors.Is(err, pgtx.ErrNoStep) {
		t.Errorf("got %v, want %v", err, pgtx.ErrNoStep)
	}
}

// TestStepWithoutResultIsExecutedOnce: the result null is one, too.
func TestStepWithoutResultIsExecutedOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for range 2 {
		if _, err := pgtx.Step(t.Context(), s.pool, pgtx.Default, "wrun_1/charge", func(ctx context.Context, tx pgx.Tx) (any, error) {
			_, err := tx.Exec(ctx, `INSERT INTO orders VALUES ('1')`)
			return nil, err
		}); err != nil {
			t.Fatal(err)
		}
	}
	s.await(t, `SELECT count(*) = 1 FROM orders`)
}

// TestPageOnTransactionsIsTrue runs the statements of docs/transactions.md, and compares its Go code with the example.
func TestPageOnTransactionsIsTrue(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/transactions.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t).withFlow(t, rests)
	s.Exec(t, `ALTER TABLE orders ADD total int`)
	role := testdb.Role(t, s.pool)
	for _, m := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		s.Exec(t, strings.ReplaceAll(m[1], "shop", role))
	}
	s.await(t, `SELECT count(*) = 1 FROM v_runs WHERE unique_key = '12345'`)
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, m := range code {
		indented := "\t" + strings.ReplaceAll(strings.TrimSpace(m[1]), "\n", "\n\t")
		if !strings.Contains(string(example), m[1]) && !strings.Contains(string(example), indented) {
			t.Errorf("example_test.go does not have\n%s", m[1])
		}
	}
	if len(code) != 2 {
		t.Errorf("found %d blocks of Go, want 2", len(code))
	}
}
