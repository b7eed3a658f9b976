package rest_test

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

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// t0 is the time of every test server's clock.
var t0 = time.Date(2026, 11, 21, 1, 41, 43, 197_000_000, time.UTC)

// api is a server with its own database.
type api struct {
	http.Handler

	log     *eventlog.Log
	streams *read.Streams
	queue   *queue.Queue
	pool    *pgxpool.Pool
	hub     *pg.Hub
	// drain disconnects waiting clients.
	drain  func()
	routes []*echo.Route
}

func newAPI(t testing.TB, change ...func(*handlers.Options)) api {
	t.Helper()
	pool := testdb.Connect(t, testdb.Indexed(t))
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	hub := pg.NewHub(pool, migrations.DefaultSchema+".hints", logger)
	q := check.Value(queue.New(pool, migrations.DefaultSchema, hub))(t)
	log := eventlog.New(pool, hub, q, func() time.Time { return t0 })
	streams := read.NewStreams(pool, hub, time.Now)
	draining, drain := context.WithCancel(context.Background())
	t.Cleanup(drain)
	options := handlers.Options{
		Pool: pool, Log: log, Streams: streams, Queue: q, Open: true, Logger: logger,
		Stopping: context.Background(), Draining: draining,
	}
	for _, c := range change {
		c(&options)
	}
	server := handlers.New(options)
	return api{
		log: log, streams: streams, queue: q, pool: pool, hub: hub, drain: drain,
		Handler: checkContract(t, server), routes: server.Routes(),
	}
}

// serve sends a request, with pairs of a header's name and its value.
func (a api) serve(method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

// do is [api.serve] for a request whose response is JSON or empty, and decodes it.
func (a api) do(t *testing.T, method, path, body string, header ...string) (status int, answer map[string]any) {
	t.Helper()
	w := a.serve(method, path, body, header...)
	if err := json.NewDecoder(w.Body).Decode(&answer); err != nil && err != io.EOF {
		t.Fatalf("%s %s: %d %s: %v", method, path, w.Code, w.Body, err)
	}
	return w.Code, answer
}

// send is [api.do] for a request that is answered with the status.
func (a api) send(t *testing.T, method, path, body string, want int, header ...string) map[string]any {
	t.Helper()
	status, answer := a.do(t, method, path, body, header...)
	if status != want {
		t.Fatalf("%s %s %.300s: got %d %v, want %d", method, path, body, status, answer, want)
	}
	return answer
}

// sendAs is [api.send] with a key.
func (a api) sendAs(t *testing.T, key, method, path, body string, want int) map[string]any {
	t.Helper()
	return a.send(t, method, path, body, want, withKey(key)...)
}

// as is [api.do] with a key, which may be empty on an open server.
func (a api) as(t *testing.T, key, method, path, body string) (status int, answer map[string]any) {
	t.Helper()
	return a.do(t, method, path, body, withKey(key)...)
}

func withKey(key string) []string {
	if key == "" {
		return nil
	}
	return []string{"Authorization", "Bearer " + key}
}

func (a api) wantRejected(t *testing.T, method, path, body string, status int, code string) {
	t.Helper()
	got, answer := a.do(t, method, path, body)
	problem, _ := answer["error"].(map[string]any)
	if got != status || problem["code"] != code || problem["message"] == "" || len(answer) != 1 {
		t.Errorf("%s %.200s %.80s: got %d %v, want %d %s", method, path, body, got, answer, status, code)
	}
}

func TestDeployments(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	list := func() []any {
		t.Helper()
		status, answer := a.do(t, http.MethodGet, "/v1/deployments", "")
		data, ok := answer["data"].([]any)
		if status != http.StatusOK || !ok || len(answer) != 1 {
			t.Fatalf("list: got %d %v", status, answer)
		}
		return data
	}
	if got := list(); len(got) != 0 {
		t.Errorf("got %v before the first was created", got)
	}
	put := func(path, id, url string) map[string]any {
		t.Helper()
		status, d := a.do(t, http.MethodPut, "/v1/deployments/"+path, `{"url":"`+url+`"}`)
		if status != http.StatusOK || d["id"] != id || d["url"] != url || d["openRuns"] != 0.0 || len(d) != 6 {
			t.Fatalf("put %s: got %d %v", path, status, d)
		}
		for _, key := range []string{"createdAt", "updatedAt"} {
			if _, err := time.Parse(time.RFC3339Nano, d[key].(string)); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
		return d
	}
	first := put("b", "b", "http://shop.test:3000")
	moved := put("b", "b", "https://example.com/app")
	check.Equal(t, "createdAt changed", moved["createdAt"], first["createdAt"])
	// Encoded as url.PathEscape does, and as encodeURIComponent does.
	comma := put("a%2C%3Bz", "a,;z", "http://shop.test:3001")
	accent := put("caf%C3%A9", "café", "http://shop.test:3002")
	check.Equal(t, "list", list(), []any{comma, moved, accent})
	for _, path := range []string{"a%2C%3Bz", "%62"} {
		a.send(t, http.MethodDelete, "/v1/deployments/"+path, "", http.StatusNoContent)
		a.wantRejected(t, http.MethodDelete, "/v1/deployments/"+path, "", http.StatusNotFound, "deployment_not_found")
	}
	check.Equal(t, "list at last", list(), []any{accent})
}

func TestDeploymentWorkflows(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, wrong := range []string{
		`{"url":"http://x","maxConcurrent":-1}`, `{"url":"http://x","maxConcurrent":10001}`, `{"url":"pull:","maxConcurrent":1}`,
	} {
		a.wantRejected(t, http.MethodPut, "/v1/deployments/shop", wrong, http.StatusBadRequest, "invalid_request")
	}
	for _, put := range []struct {
		body string
		want any
	}{
		{`{"url":"http://x","maxConcurrent":5}`, 5.0}, {`{"url":"http://x"}`, 5.0}, {`{"url":"http://x","maxConcurrent":0}`, nil},
	} {
		status, got := a.do(t, http.MethodPut, "/v1/deployments/shop", put.body)
		if status != http.StatusOK || got["maxConcurrent"] != put.want {
			t.Errorf("put %s: got %d %v, want %v", put.body, status, got["maxConcurrent"], put.want)
		}
	}
	status, put := a.do(t, http.MethodPut, "/v1/deployments/shop", `{"url":"http://x","workflows":["refund","order"]}`)
	if diff := cmp.Diff([]any{"order", "refund"}, put["workflows"]); status != http.StatusOK || diff != "" {
		t.Errorf("put: got %d (-want +got):\n%s", status, diff)
	}
	status, got := a.do(t, http.MethodGet, "/v1/deployments/shop", "")
	if diff := cmp.Diff(put, got); status != http.StatusOK || diff != "" {
		t.Errorf("get: got %d (-want +got):\n%s", status, diff)
	}
	a.wantRejected(t, http.MethodGet, "/v1/deployments/other", "", http.StatusNotFound, "deployment_not_found")
}

// TestDeploymentsDescribeTheirWorkflows registers a deployment as an app does that registers itself.
func TestDeploymentsDescribeTheirWorkflows(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	about := `"url":"http://x","workflows":["order"],"build":"3f20b23",` +
		`"schemas":{"order":{"input":{"type":"object"},"output":{"type":"string"}}}`
	a.put(t, "orders@3f20b23", "{"+about+"}")
	for range 2 {
		a.post(t, "/v1/runs", `{"workflow":"order"}`, http.StatusCreated)
	}
	ended := a.post(t, "/v1/runs", `{"workflow":"order"}`, http.StatusCreated)
	a.post(t, "/v1/runs/"+ended["id"].(string)+"/cancel", "", http.StatusOK)
	got := a.get(t, "/v1/deployments/orders@3f20b23")
	times := `"createdAt":"` + got["createdAt"].(string) + `","updatedAt":"` + got["updatedAt"].(string) + `"`
	same(t, "the deployment", `{"id":"orders@3f20b23",`+about+`,"openRuns":2,"waitingMessages":0,`+times+`}`, got)
	listed := a.get(t, "/v1/deployments")["data"].([]any)[0].(object)
	if listed["schemas"] != nil || listed["openRuns"] != 2.0 || listed["build"] != "3f20b23" {
		t.Errorf("the list has %v", listed)
	}
	a.put(t, "orders@3f20b23", `{"url":"http://x"}`)
	got = a.get(t, "/v1/deployments/orders@3f20b23")
	if got["schemas"] == nil || got["build"] != "3f20b23" || got["openRuns"] != 2.0 {
		t.Errorf("after a registration that has nothing else: %v", got)
	}
	a.put(t, "orders@3f20b23", `{"url":"http://x","workflows":[]}`)
	got = a.get(t, "/v1/deployments/orders@3f20b23")
	if got["schemas"] != nil || got["workflows"] != nil || got["build"] != "3f20b23" {
		t.Errorf("after a registration without workflows: %v", got)
	}
	if status, moved := a.do(t, http.MethodPatch, "/v1/deployments/orders@3f20b23", `{"url":"http://y"}`); status != http.StatusOK ||
		moved["url"] != "http://y" {
		t.Errorf("move: got %d %v", status, moved)
	}
	a.wantRejected(t, http.MethodPatch, "/v1/deployments/none", `{"url":"http://y"}`, http.StatusNotFound, "deployment_not_found")
	for _, bad := range []string{
		`"build":""`, `"build":"` + strings.Repeat("x", 257) + `"`, `"schemas":[]`, `"schemas":{"ship":{}}`,
		`"schemas":{"order":{"input":1}}`, `"schemas":{"order":{"other":{}}}`, `"schemas":{"order":{"input":{"a":"\u0000"}}}`,
		`"schemas":{"order":{"input":{"a":"` + strings.Repeat("x", 1<<20) + `"}}}`,
	} {
		a.wantRejected(t, http.MethodPut, "/v1/deployments/orders@1", `{"url":"http://x","workflows":["order"],`+bad+`}`,
			http.StatusBadRequest, "invalid_request")
	}
}

// TestForbiddenAddressesAreRejected checks that host names are accepted: they are checked when they are called.
func TestForbiddenAddressesAreRejected(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, url := range []string{
		"http://127.0.0.1:3000", "http://10.0.0.1/app", "http://169.254.169.254", "https://[::1]", "http://[::ffff:7f00:1]",
	} {
		status, answer := a.do(t, http.MethodPut, "/v1/deployments/a", `{"url":"`+url+`"}`)
		problem, _ := answer["error"].(map[string]any)
		message, _ := problem["message"].(string)
		details, _ := problem["details"].(map[string]any)
		if status != http.StatusBadRequest || details["field"] != "url" || !strings.Contains(message, "STEPWELL_ALLOW_ADDRESSES") {
			t.Errorf("%s: got %d %v", url, status, answer)
		}
	}
	for _, url := range []string{"http://localhost:3000", "http://1.1.1.1"} {
		a.send(t, http.MethodPut, "/v1/deployments/a", `{"url":"`+url+`"}`, http.StatusOK)
	}
}

func TestInvalidDeploymentsAreRejected(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, body := range []string{
		``, `{}`, `{"url":""}`, `{"url":1}`, `[]`, `{"url":"http://x"`, `{"url":"127.0.0.1:3000"}`, `{"url":"/app"}`,
		`{"url":"ftp://x"}`, `{"url":"http://"}`, `{"url":"http://u:p@x"}`, `{"url":"http://x?y=1"}`,
		`{"url":"http://x#y"}`, `{"url":"http://x/\u0000"}`, `{"url":"http://x/%00` + "\n" + `"}`,
	} {
		a.wantRejected(t, http.MethodPut, "/v1/deployments/a", body, http.StatusBadRequest, "invalid_request")
	}
	long := strings.Repeat("x", 257)
	for _, id := range []string{"a%00b", "a%0Ab", "a%C3", "a%2Fb", "%2E%2E", "a%20b", "latest", long} {
		path := "/v1/deployments/" + id
		a.wantRejected(t, http.MethodPut, path, `{"url":"http://x"}`, http.StatusBadRequest, "invalid_request")
		got, answer := a.do(t, http.MethodDelete, path, "")
		if got != http.StatusBadRequest && got != http.StatusNotFound {
			t.Errorf("remove %s: got %d %v, want 400 or 404", id, got, answer)
		}
	}
}
