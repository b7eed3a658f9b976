package webhook_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/handlers/webhook"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// t0 is the time of every test server's clock.
var t0 = time.Date(2026, 11, 21, 1, 41, 43, 197_000_000, time.UTC)

// waitTimeout is the timeout of [eventually]. Only a failing test waits that long.
const waitTimeout = time.Minute

// testServer is a server with its own database. Its API requires a key; webhooks do not.
type testServer struct {
	http.Handler

	pool    *pgxpool.Pool
	hub     *pg.Hub
	log     *eventlog.Log
	queue   *queue.Queue
	secrets *admin.Secrets
	drain   context.CancelFunc
	logged  *testdb.Log
}

func newTestServer(t testing.TB, change ...func(*handlers.Options)) *testServer {
	t.Helper()
	pool := testdb.Pool(t)
	d := &testServer{pool: pool, logged: &testdb.Log{}}
	logger := slog.New(slog.NewTextHandler(d.logged, nil))
	d.hub = pg.NewHub(pool, migrations.DefaultSchema+".hints", logger)
	var err error
	if d.queue, err = queue.New(pool, migrations.DefaultSchema, d.hub); err != nil {
		t.Fatal(err)
	}
	clock := func() time.Time { return t0 }
	d.log, d.secrets = eventlog.New(pool, d.hub, d.queue, clock), admin.NewSecrets(pool, clock)
	draining, drain := context.WithCancel(context.Background())
	d.drain = drain
	t.Cleanup(drain)
	allowed := check.Value(egress.Parse(egress.Loopback))(t)
	o := handlers.Options{
		Pool: pool, Log: d.log, Streams: read.NewStreams(pool, d.hub, clock), Queue: d.queue, APIKey: "sk",
		Logger: logger, Stopping: context.Background(), Draining: draining,
		Allowed: allowed, HookRates: webhook.Rates{Token: 1_000_000, Project: 1_000_000},
	}
	for _, c := range change {
		c(&o)
	}
	d.Handler = handlers.New(o)
	return d
}

// append appends events to runs of the project.
func (d *testServer) append(t *testing.T, project entities.Project, all ...eventlog.Request) {
	t.Helper()
	for _, r := range all {
		check.Value(d.log.Append(t.Context(), project, r))(t)
	}
}

func created(id entities.RunID, driver entities.Driver) eventlog.Request {
	return eventlog.Request{
		RunID: id, Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven, Payload: []byte("{}"),
		Data: entities.EventData{DeploymentID: "shop", WorkflowName: "order", Driver: driver},
	}
}

func opened(id entities.RunID, hook, token string, spec *entities.WebhookSpec) eventlog.Request {
	is := spec != nil
	return eventlog.Request{
		RunID: id, Type: entities.EventHookCreated, CorrelationID: hook, SpecVersion: entities.SpecDriven,
		Data: entities.EventData{Token: token, IsWebhook: &is, Webhook: spec},
	}
}

func ended(id entities.RunID) eventlog.Request {
	return eventlog.Request{
		RunID: id, Type: entities.EventRunCompleted, SpecVersion: entities.SpecDriven, Payload: []byte("null"),
	}
}

// hook creates a server-driven run with a webhook.
func (d *testServer) hook(t *testing.T, token string, spec entities.WebhookSpec) entities.RunID {
	t.Helper()
	id := entities.NewRunID(t0)
	d.append(t, entities.DefaultProject, created(id, entities.DriverServer), opened(id, "hook", token, &spec))
	return id
}

// received returns the payloads that the run's hooks received.
func (d *testServer) received(t *testing.T, id entities.RunID) []string {
	t.Helper()
	page := check.Value(d.log.Events(t.Context(), entities.DefaultProject, id, pg.Page{Limit: 1000}, read.WithPayloads))(t)
	list := []string{}
	for _, e := range page.Events {
		if e.Type == entities.EventHookReceived {
			list = append(list, string(e.Payload))
		}
	}
	return list
}

func (d *testServer) wantReceived(t *testing.T, id entities.RunID, n int) {
	t.Helper()
	if got := d.received(t, id); len(got) != n {
		t.Errorf("the run got %d payloads, want %d: %.500s", len(got), n, got)
	}
}

// call sends a request. Headers come in pairs.
func (d *testServer) call(method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

// wantAccepted checks that a request was recorded, and returns its ID.
func wantAccepted(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var answer struct{ Request string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusAccepted ||
		!strings.HasPrefix(answer.Request, "hreq_") || len(answer.Request) != 31 {
		t.Fatalf("got %d %s, want 202 and the request ID", w.Code, w.Body)
	}
	return answer.Request
}

func wantRejected(t *testing.T, w *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	var answer struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != status || answer.Error.Code != code {
		t.Errorf("got %d %s, want %d %s", w.Code, w.Body, status, code)
	}
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(waitTimeout)
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("not within %s: %s", waitTimeout, what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// slow is a body of unknown length.
type slow struct{ io.Reader }
