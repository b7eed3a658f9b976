package failover

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience is how long a request may wait for a silent database. It should be 2 s, which a busy machine exceeds;
// without a limit, the answers would take as long as the silence.
const patience = 20 * time.Second

// freeze stops all processes of the node, which then keep their connections and say nothing. It returns what lets them
// go on.
func (n *node) freeze() (thaw func()) {
	n.t.Helper()
	first := n.pid()
	var stopped []int
	signal := func(s syscall.Signal, pids ...int) {
		for _, pid := range pids {
			_ = syscall.Kill(pid, s) // one that has just ended needs no signal
		}
	}
	signal(syscall.SIGSTOP, first) // which then begins no more
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", first, first))
	if err != nil {
		n.t.Fatal(err)
	}
	for field := range strings.FieldsSeq(string(children)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			n.t.Fatal(err)
		}
		stopped = append(stopped, pid)
	}
	signal(syscall.SIGSTOP, stopped...)
	thaw = sync.OnceFunc(func() { signal(syscall.SIGCONT, append(stopped, first)...) })
	n.t.Cleanup(thaw)
	return thaw
}

// pid is the node's main process.
func (n *node) pid() int {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(n.dir, "data", "postmaster.pid"))
	if err != nil {
		n.t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(data), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid < 2 {
		n.t.Fatalf("postmaster.pid contains %q", first)
	}
	return pid
}

// TestSilentDatabaseIs503 stops all processes of the database. Requests do not wait for them, and what follows
// something ends. A call of a function that goes on meanwhile is not repeated, and its answer is recorded afterwards.
func TestSilentDatabaseIs503(t *testing.T) {
	t.Parallel()
	a := newNode(t, nil)
	s := startServer(t, databaseURL(t, "", a))
	a.awaitWorker()
	var calls atomic.Int64
	release := make(chan struct{})
	finish := sync.OnceFunc(func() { close(release) })
	function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		calls.Add(1)
		<-release
		_, _ = io.WriteString(w, `{"commands": [{"type": "complete", "output": 42}]}`)
	}))
	t.Cleanup(function.Close)
	t.Cleanup(finish)
	if got := s.send(t.Context(), http.MethodPut, "/v1/deployments/slow", map[string]string{"url": function.URL}); got.Status != http.StatusOK {
		t.Fatalf("register: %d %s %v", got.Status, got.Body, got.Err)
	}
	id, got := s.startRunOf(t.Context(), "slow")
	if id == "" {
		t.Fatalf("start: %d %s %v", got.Status, got.Body, got.Err)
	}
	eventually(t, "the function is called", func() bool { return calls.Load() == 1 })
	ended := make(chan answer, 2)
	following, end := context.WithCancel(t.Context())
	defer end()
	stream := s.open(following, "/v1/runs/"+id+"/events/stream")
	go func() {
		_, err := io.Copy(io.Discard, stream)
		ended <- answer{Err: err}
	}()
	go func() { ended <- s.send(following, http.MethodGet, "/v1/runs/"+id+"/wait?timeout=60s", nil) }()

	thaw := a.freeze()
	s.want503(id)
	for range 2 {
		select {
		case <-ended:
		case <-time.After(timeout):
			t.Fatal("a request that follows a run does not end")
		}
	}
	finish()
	s.awaitReadiness(http.StatusServiceUnavailable)
	thaw()
	back := time.Now()
	s.mustStartRun("after", patience)
	t.Logf("the server was back after %s", time.Since(back))
	s.awaitReadiness(http.StatusOK)
	eventually(t, "the run ends", func() bool {
		got := s.send(t.Context(), http.MethodGet, "/v1/runs/"+id, nil)
		return strings.Contains(string(got.Body), `"completed"`)
	})
	if n := calls.Load(); n != 1 {
		t.Errorf("the function was called %d times", n)
	}
}

// want503 sends requests of all kinds at once.
func (s *server) want503(runID string) {
	s.t.Helper()
	run := map[string]string{"workflow": "w", "deployment": "f"}
	var waiting sync.WaitGroup
	for _, request := range []struct {
		method, path string
		body         any
	}{
		{http.MethodPost, "/v1/runs", run},
		{http.MethodGet, "/v1/runs", nil},
		{http.MethodGet, "/v1/runs/" + runID, nil},
		{http.MethodGet, "/v1/runs/" + runID + "/events", nil},
		{http.MethodGet, "/v1/stats/now", nil}, // the dashboard
		{http.MethodGet, "/v1/live?runs=true", nil},
		{http.MethodGet, "/sdk/v2/runs/wrun_01KJM8J2G00000000000000000", nil},
		{http.MethodPost, "/hooks/tok_0123456789abcdef0123456789abcdef", run},
	} {
		waiting.Go(func() {
			ctx, cancel := context.WithTimeout(s.t.Context(), patience)
			defer cancel()
			began := time.Now()
			got := s.send(ctx, request.method, request.path, request.body)
			s.t.Logf("%s %s: %d after %s", request.method, request.path, got.Status, time.Since(began))
			if got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" ||
				!strings.Contains(string(got.Body), "database_unavailable") {
				s.t.Errorf("%s %s: got %d %s, Retry-After %q, %v", request.method, request.path, got.Status, got.Body,
					got.Header.Get("Retry-After"), got.Err)
			}
		})
	}
	waiting.Wait()
}

// startRunOf starts a run of a deployment.
func (s *server) startRunOf(ctx context.Context, deployment string) (id string, a answer) {
	a = s.send(ctx, http.MethodPost, "/v1/runs", map[string]any{"workflow": "w", "deployment": deployment})
	var run struct{ ID string }
	_ = json.Unmarshal(a.Body, &run) // an empty ID is no run
	return run.ID, a
}

// open begins a request that lasts, and returns its body once that begins.
func (s *server) open(ctx context.Context, path string) io.Reader {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("GET %s: %s", path, resp.Status)
	}
	return resp.Body
}
