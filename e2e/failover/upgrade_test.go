package failover

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestUpgradeUnderLoad replaces an old server by a new one while runs are started, executed and read through both. No
// request may fail but with a status that asks for a repetition, and no run may be lost.
//
// The old server is the program in STEPWELL_TEST_OLD_SERVER (make upgrade OLD=ref). Without it, the old server is a current
// one, and the statements of nextSchema stand for the migrations of the new version.
func TestUpgradeUnderLoad(t *testing.T) {
	t.Parallel()
	harness.SkipIfShort(t)
	current, err := harness.FastServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	old := os.Getenv("STEPWELL_TEST_OLD_SERVER")
	dsn := testdb.Empty(t)
	first, url := startVersion(t, "old", old, current, dsn)
	load := newUpgradeLoad(t, url)
	load.moreRuns(t, 20) // so that the connections have prepared their statements

	if old == "" {
		migrateToNextSchema(t, dsn)
	}
	_, newURL := startVersion(t, "new", "", current, dsn)
	load.use(url, newURL)
	load.moreRuns(t, 40)

	load.use(newURL)
	load.settle() // requests that have chosen the old server
	first.Stop(t)
	load.moreRuns(t, 20)
	load.end(t)

	verify := exec.Command(current, "verify")
	verify.Env = harness.CleanEnv("DATABASE_URL=" + dsn)
	if out, err := verify.CombinedOutput(); err != nil {
		t.Errorf("stepwell verify: %v\n%s", err, out)
	}
}

const upgradeKey = "sk_upgrade_0123456789abcdef0123456789abcdef"

// startVersion starts the first program that is named, and returns the server's address.
func startVersion(t *testing.T, name, program, otherwise, dsn string) (p *harness.Process, url string) {
	t.Helper()
	if program == "" {
		program = otherwise
	}
	p, addr := harness.Start(t, name, harness.Serve(program, dsn, upgradeKey), harness.ServerReady)
	return p, "http://" + addr
}

// nextSchema changes what the statements of a running server return.
var nextSchema = []string{
	`DROP VIEW v_runs, v_events, v_steps, v_waits, v_hooks, v_attributes, v_store`, // they have the columns that change
	`ALTER TABLE runs ADD COLUMN of_next_version text NOT NULL DEFAULT ''`,
	`ALTER TABLE runs ALTER COLUMN workflow_name TYPE varchar`,
	`ALTER TABLE events ALTER COLUMN correlation_id TYPE varchar COLLATE "C"`,
	`ALTER TABLE steps ALTER COLUMN name TYPE varchar`,
	`ALTER TABLE messages ALTER COLUMN content_type TYPE varchar`,
}

// migrateToNextSchema executes nextSchema as migrations are executed: with a short wait for each lock.
func migrateToNextSchema(t *testing.T, dsn string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), `SET lock_timeout = '2s'; SET search_path = `+migrations.DefaultSchema); err != nil {
		t.Fatal(err)
	}
	for _, sql := range nextSchema {
		harness.Eventually(t, sql, func() bool {
			_, err := conn.Exec(t.Context(), sql)
			if refused, ok := errors.AsType[*pgconn.PgError](err); err != nil && (!ok || refused.Code[:2] == "42") {
				t.Fatalf("%s: %v", sql, err)
			}
			return err == nil
		})
	}
}

// upgradeLoad starts runs, waits for their ends and reads lists, through the servers in use.
type upgradeLoad struct {
	servers  atomic.Pointer[[]string]
	stop     chan struct{}
	clients  sync.WaitGroup
	rounds   [8]atomic.Int64 // of each client
	runs     atomic.Int64    // that completed
	repeated atomic.Int64    // requests that were asked to be repeated
	failed   chan error
}

func newUpgradeLoad(t *testing.T, url string) *upgradeLoad {
	t.Helper()
	function := httptest.NewServer(http.HandlerFunc(serveThreeSteps))
	t.Cleanup(function.Close)
	l := &upgradeLoad{stop: make(chan struct{}), failed: make(chan error, 100)}
	l.use(url)
	body := map[string]any{"url": function.URL}
	if err := l.send(t.Context(), http.MethodPut, url+"/v1/deployments/f", body, nil); err != nil {
		t.Fatal(err)
	}
	for i := range l.rounds {
		l.clients.Go(func() { l.run(i) })
	}
	t.Cleanup(sync.OnceFunc(func() { // unless end was called
		select {
		case <-l.stop:
		default:
			close(l.stop)
		}
		l.clients.Wait()
	}))
	return l
}

// use makes the clients use the servers in turn.
func (l *upgradeLoad) use(urls ...string) { l.servers.Store(&urls) }

// run is one client.
func (l *upgradeLoad) run(client int) {
	for n := client; ; n++ {
		select {
		case <-l.stop:
			return
		default:
		}
		urls := *l.servers.Load()
		if err := l.once(urls[n%len(urls)]); err != nil {
			select {
			case l.failed <- err:
			default:
			}
		}
		l.rounds[client].Add(1)
	}
}

// once starts a run, waits for its end, and reads.
func (l *upgradeLoad) once(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Timeout)
	defer cancel()
	var run struct{ ID, Status string }
	start := map[string]any{"workflow": "three", "deployment": "f", "input": 1}
	if err := l.send(ctx, http.MethodPost, url+"/v1/runs", start, &run); err != nil {
		return err
	}
	id := run.ID
	if err := l.send(ctx, http.MethodGet, url+"/v1/runs/"+id+"/wait?timeout=30s", nil, &run); err != nil {
		return err
	}
	if run.Status != "completed" {
		return fmt.Errorf("run %s is %s after 30 s, want completed", id, run.Status)
	}
	for _, path := range []string{
		"/runs/" + id, "/runs/" + id + "/steps", "/runs/" + id + "/events", "/runs?limit=3", "/events?limit=3", "/messages",
		"/runs/" + id + "/steps/1", "/hooks", "/deployments",
	} {
		if err := l.send(ctx, http.MethodGet, url+"/v1"+path, nil, nil); err != nil {
			return err
		}
	}
	l.runs.Add(1)
	return nil
}

// send sends a request, again if it is asked to.
func (l *upgradeLoad) send(ctx context.Context, method, url string, body, into any) error {
	sent, err := json.Marshal(body)
	if err != nil {
		return err
	}
	for {
		req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(sent))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+upgradeKey)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		switch {
		case err != nil:
			return fmt.Errorf("%s %s: %w", method, url, err)
		case resp.Header.Get("Retry-After") != "" && resp.StatusCode >= http.StatusBadRequest:
			l.repeated.Add(1)
		case resp.StatusCode >= http.StatusBadRequest:
			return fmt.Errorf("%s %s answered %d %.300s", method, url, resp.StatusCode, got)
		case into == nil:
			return nil
		default:
			return json.Unmarshal(got, into)
		}
	}
}

// moreRuns waits until the given number of further runs have completed.
func (l *upgradeLoad) moreRuns(t *testing.T, n int64) {
	t.Helper()
	want := l.runs.Load() + n
	harness.Eventually(t, strconv.FormatInt(n, 10)+" more runs complete", func() bool {
		return l.runs.Load() >= want || len(l.failed) == cap(l.failed)
	})
}

// settle waits until each client has finished what it is doing.
func (l *upgradeLoad) settle() {
	for i := range l.rounds {
		before := l.rounds[i].Load()
		for l.rounds[i].Load() == before {
			time.Sleep(harness.PollInterval)
		}
	}
}

// end stops the clients, and fails the test if one of their requests failed.
func (l *upgradeLoad) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.clients.Wait()
	t.Logf("%d runs completed, %d requests were repeated, %d failed", l.runs.Load(), l.repeated.Load(), len(l.failed))
	for len(l.failed) > 0 {
		t.Error(<-l.failed)
	}
}

// serveThreeSteps is a function whose workflows run three steps one after the other; see docs/function-contract.md.
func serveThreeSteps(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Type   string `json:"type"`
		Events []struct {
			Type          string `json:"type"`
			CorrelationID string `json:"correlationId"`
		} `json:"events"`
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if call.Type == "step" {
		_, _ = w.Write([]byte("3"))
		return
	}
	created, completed := 0, 0
	for _, e := range call.Events {
		switch e.Type {
		case "step_created":
			created++
		case "step_completed":
			completed++
		}
	}
	commands := []any{}
	switch {
	case completed == 3:
		commands = append(commands, map[string]any{"type": "complete", "output": 3})
	case created == completed:
		commands = append(commands, map[string]any{"type": "runStep", "id": strconv.Itoa(created + 1), "name": "work"})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"commands": commands})
}
