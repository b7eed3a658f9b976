package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestAServerBehindAPoolerIsReplaced kills the server that calls a function. Another one takes over, with sessions past
// the pooler and without.
func TestAServerBehindAPoolerIsReplaced(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	for _, way := range []string{harness.PoolerAndDirect, harness.PoolerOnly} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.New(t)
			env, err := harness.BehindPooler(dsn, way)
			if err != nil {
				t.Fatal(err)
			}
			first, second := newReplica(t, dsn, env...), newReplica(t, dsn, env...)
			f := newFunction(t, first, examples[0])
			order := teapot("killed")
			order["seconds"] = 2
			id := f.order(t, first, order)
			crashPoints[0].reach(t, first, f)
			first.Kill()
			second.decide(t, "killed", true)
			second.wantOutput(t, id, shipped(id))
			second.wantOnce(t, id)
			second.verify(t)
		})
	}
}

// TestFunctionProcessesShareSessions runs many processes in function mode behind a pooler, as a platform starts them when
// requests come. Each starts a run, and each drains when it is asked to. All runs end, and Postgres never has more sessions
// than the pooler. There are 200 of them in make pooler.
func TestFunctionProcessesShareSessions(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	processes := 12
	if os.Getenv("E2E_POOLER") != "" {
		processes = 200
	}
	dsn := testdb.New(t)
	env, err := harness.BehindPooler(dsn, harness.PoolerOnly)
	if err != nil {
		t.Fatal(err)
	}
	urls := make([]*url.URL, processes)
	var next atomic.Int64
	front := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(urls[int(next.Add(1))%processes])
	}})
	t.Cleanup(front.Close)
	program, err := harness.FastServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	for i := range urls {
		cmd := harness.Serve(program, dsn, apiKey, append(env, "STEPWELL_PUBLIC_URL="+front.URL)...)
		cmd.Args = append(cmd.Args, "--role", "function")
		_, addr := startProcess(t, fmt.Sprint("process ", i), cmd, harness.ServerReady)
		urls[i] = &url.URL{Scheme: "http", Host: addr}
	}
	f := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `"done"`)
	}))
	t.Cleanup(f.Close)
	at := func(path string) string { return front.URL + path }
	request(t, http.MethodPut, at("/v1/deployments/steps"), []byte(`{"url": "`+f.URL+`"}`)).Want(t, http.StatusOK)
	document, err := json.Marshal(map[string]any{"document": `
flow: three
deployment: steps
steps:
  a: {call: a}
  b: {needs: [a], call: b}
  c: {needs: [b], call: c}
`})
	if err != nil {
		t.Fatal(err)
	}
	request(t, http.MethodPost, at("/v1/flows"), document).Want(t, http.StatusCreated)

	sessions := newSessionCount(t, dsn)
	ids := make([]string, processes)
	var starting sync.WaitGroup
	for i := range ids {
		starting.Go(func() {
			started := request(t, http.MethodPost, at("/v1/runs"), []byte(`{"workflow": "three"}`))
			if err := started.Problem(http.StatusCreated); err != nil {
				t.Error(err)
				return
			}
			ids[i] = decode[struct{ ID string }](t, started).ID
		})
	}
	starting.Wait()
	for _, id := range ids {
		harness.Eventually(t, "run "+id+" ends", func() bool {
			sessions.sample()
			run := request(t, http.MethodGet, at("/v1/runs/"+id), nil)
			return decode[struct{ Status string }](t, run.Want(t, http.StatusOK)).Status == "completed"
		})
	}
	if sessions.most > harness.PoolerSessions {
		t.Errorf("%d processes had %d sessions of Postgres; the pooler has %d", processes, sessions.most,
			harness.PoolerSessions)
	}
	t.Logf("%d processes, %d sessions", processes, sessions.most)
}

// sessionCount is the most sessions that others had on a database.
type sessionCount struct {
	t    *testing.T
	pool *pgxpool.Pool
	most int
}

func newSessionCount(t *testing.T, dsn string) *sessionCount {
	return &sessionCount{t: t, pool: testdb.Connect(t, dsn)}
}

func (s *sessionCount) sample() {
	var sessions int
	err := s.pool.QueryRow(s.t.Context(), `
		SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&sessions)
	if err != nil {
		s.t.Error(err)
	}
	s.most = max(s.most, sessions)
}
