package tests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	signals "os/signal"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// workerVariable makes this program a worker of the name that it has.
const workerVariable = "SDK_TESTS_WORKER"

var (
	shift = stepwell.NewWorkflow[string, string]("shift")
	job   = stepwell.NewStep[string, string]("job")
	tail  = stepwell.NewStep[string, string]("tail", stepwell.Remote())
	only  = stepwell.NewStep[string, string]("only", stepwell.AtMostOnce())
)

// runWorker is a worker until it gets SIGTERM. Its steps hang if their input says so and its name is dying, take long if
// it says so and the name is not other, and say who has executed them.
func runWorker(name string) error {
	ctx, stop := signals.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	app := stepwell.NewApp(stepwell.AppConfig{Name: "shifts", Build: "1", Slots: 8})
	execute := func(ctx context.Context, input string) (string, error) {
		fmt.Println("begins", input)
		switch {
		case input == "hang" && name == "dying":
			<-ctx.Done()
			fmt.Println("ended:", context.Cause(ctx))
			return "", context.Cause(ctx)
		case input == "freeze" && name != "other":
			time.Sleep(5 * time.Second) // most of it while the process is frozen
			fmt.Println("woke")
		}
		return name, nil
	}
	app.Register(job.Bind(execute), tail.Bind(execute), only.Bind(execute), shift.Bind(
		func(w *stepwell.Context, in string) (string, error) {
			if kind, in, ok := strings.Cut(in, " "); ok {
				return map[string]*stepwell.Step[string, string]{"remote": tail, "once": only}[kind].Run(w, in)
			}
			return job.Run(w, in)
		}))
	return app.Work(ctx)
}

// worker is a worker process.
type worker struct{ process }

// startWorker starts a worker at a server, and waits until it is registered.
func startWorker(t *testing.T, url, key, name string) worker {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := startProcess(exec.Command(program), regexp.MustCompile(`(working)`),
		workerVariable+"="+name, "STEPWELL_URL="+url, "STEPWELL_API_KEY="+key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("worker %s:\n%s", name, p.Output())
		}
	})
	return worker{p}
}

// awaits waits until the worker has printed a text, and returns when it was seen.
func (w worker) awaits(t *testing.T, text string) time.Time {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !strings.Contains(w.Output(), text) {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			t.Fatalf("the worker has not printed %q:\n%s", text, w.Output())
		}
	}
	return time.Now()
}

// begin starts a run of the workflow.
func begin(t *testing.T, c *stepwell.Client, input string) *stepwell.Run[string] {
	t.Helper()
	run, err := shift.Start(t.Context(), c, input)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func wantShift(t *testing.T, run *stepwell.Run[string], want string) {
	t.Helper()
	if out, err := run.Wait(t.Context()); err != nil || out != want {
		t.Errorf("got %q %v, want %q", out, err, want)
	}
}

// events returns how many events of a type the run's log has; of all types if it is empty.
func (s *server) events(t *testing.T, id, kind string) (n int) {
	t.Helper()
	var page struct{ Data []struct{ Type string } }
	s.admin(t, http.MethodGet, "/v1/runs/"+id+"/events?limit=1000", nil, &page)
	for _, e := range page.Data {
		if kind == "" || e.Type == kind {
			n++
		}
	}
	return n
}

// balancer passes requests on to servers in turn.
type balancer struct {
	*httptest.Server

	to   atomic.Pointer[[]*server]
	next atomic.Int64
}

func throughAll(t *testing.T, servers ...*server) *balancer {
	t.Helper()
	var b balancer
	b.to.Store(&servers)
	b.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			to := *b.to.Load()
			r.Out.URL.Scheme, r.Out.URL.Host = "http", to[int(b.next.Add(1))%len(to)].addr
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(b.Close)
	return &b
}

// TestWorkersShareRuns: two workers at different servers make the calls of many runs, without a URL and a port.
func TestWorkersShareRuns(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	key, c := s.workerKey(t, "shifts@*"), s.client(t, "write")
	startWorker(t, s.url(), key, "first")
	startWorker(t, s.beside(t).url(), key, "second")
	var waiting sync.WaitGroup
	var mu sync.Mutex
	by := map[string]int{}
	for range 100 {
		run := begin(t, c, "shared")
		waiting.Go(func() {
			out, err := run.Wait(t.Context())
			mu.Lock()
			defer mu.Unlock()
			if by[out]++; err != nil {
				t.Error(err)
			}
		})
	}
	waiting.Wait()
	if by["first"]+by["second"] != 100 {
		t.Errorf("runs ended by %v", by)
	}
	t.Logf("runs ended by %v", by)
}

// TestAKilledWorkersCallsAreMadeByAnother within five seconds, inline steps and those that the server asks for.
func TestAKilledWorkersCallsAreMadeByAnother(t *testing.T) {
	t.Parallel()
	for _, input := range []string{"hang", "remote hang"} {
		t.Run(input, func(t *testing.T) {
			t.Parallel()
			killWorker(t, input)
		})
	}
}

func killWorker(t *testing.T, input string) {
	t.Helper()
	s := newServer(t)
	key, c := s.workerKey(t, "shifts@*"), s.client(t, "write")
	dying := startWorker(t, s.url(), key, "dying")
	run := begin(t, c, input)
	dying.awaits(t, "begins hang")
	other := startWorker(t, s.url(), key, "other")
	killed := time.Now()
	if err := dying.stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	took := other.awaits(t, "begins hang").Sub(killed)
	if t.Logf("taken over after %s", took); took > 5*time.Second {
		t.Errorf("taken over after %s", took)
	}
	wantShift(t, run, "other")
	if n := s.events(t, run.ID(), "step_completed"); n != 1 {
		t.Errorf("the log has %d results, want 1", n)
	}
}

// TestAFrozenWorkerCannotWrite: a worker that is silent loses its calls, and what it sends afterwards is refused.
func TestAFrozenWorkerCannotWrite(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	key, c := s.workerKey(t, "shifts@*"), s.client(t, "write")
	frozen := startWorker(t, s.url(), key, "frozen")
	run := begin(t, c, "freeze")
	frozen.awaits(t, "begins freeze")
	if err := frozen.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	other := startWorker(t, s.url(), key, "other")
	stopped := time.Now()
	t.Logf("taken over after %s", other.awaits(t, "begins freeze").Sub(stopped))
	wantShift(t, run, "other")
	before := s.events(t, run.ID(), "")
	if err := frozen.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	frozen.awaits(t, "woke")
	if after := s.events(t, run.ID(), ""); after != before {
		t.Errorf("the log has %d events, and had %d", after, before)
	}
}

// TestASilentWorkersWritesAreRefused while another worker makes its call.
func TestASilentWorkersWritesAreRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	key, c := s.workerKey(t, "shifts@*"), s.client(t, "write")
	ask := map[string]any{"deployment": "shifts@1", "worker": "silent", "slots": 1, "wait": "0s",
		"registration": map[string]any{"workflows": []string{"shift"}}}
	for first := (reply{status: 503}); first.status == 503; { // until it makes calls
		var err error
		if first, err = s.request(t.Context(), key, http.MethodPost, "/v1/work", ask, nil); err != nil {
			t.Fatal(err)
		}
	}
	run := begin(t, c, "hang")
	var got struct {
		Calls []struct {
			Body struct{ Token, Invocation string }
		}
	}
	ask["wait"] = "20s"
	if r, err := s.request(t.Context(), key, http.MethodPost, "/v1/work", ask, &got); err != nil || len(got.Calls) != 1 {
		t.Fatal(r, err)
	}
	startWorker(t, s.url(), key, "dying").awaits(t, "begins hang")
	end := []any{map[string]any{"type": "complete", "output": "silent"}}
	for path, body := range map[string]any{
		"/call/answer": map[string]any{"status": 200, "seen": 2, "body": map[string]any{"commands": end}},
		"/commands":    map[string]any{"commands": end},
		"/call/keep":   nil,
	} {
		r, err := s.request(t.Context(), got.Calls[0].Body.Token, http.MethodPost, "/v1/runs/"+run.ID()+path, body, nil)
		if err != nil || r.status != http.StatusConflict {
			t.Errorf("%s: got %s %v", path, r, err)
		}
	}
}

// TestAWorkersCallsOutliveTheServer that made them: the worker asks another one, which takes the answers.
func TestAWorkersCallsOutliveTheServer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	other := s.beside(t)
	through := throughAll(t, s)
	key, c := s.workerKey(t, "shifts@*"), other.client(t, "write")
	w := startWorker(t, through.URL, key, "worker")
	run := begin(t, c, "freeze")
	w.awaits(t, "begins freeze")
	through.to.Store(&[]*server{other})
	if err := s.stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantShift(t, run, "worker")
	if n := strings.Count(w.Output(), "begins freeze"); n != 1 {
		t.Errorf("the step began %d times", n)
	}
	s.start(t) // for the end of the test
}

// TestWorkersBehindABalancer: each request of the worker goes to another server than the last one, also those that answer
// and that keep calls.
func TestWorkersBehindABalancer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	through := throughAll(t, s, s.beside(t), s.beside(t))
	key, c := s.workerKey(t, "shifts@*"), s.client(t, "write")
	w := startWorker(t, through.URL, key, "worker")
	runs := []*stepwell.Run[string]{begin(t, c, "freeze")}
	for range 30 {
		runs = append(runs, begin(t, c, "shared"))
	}
	for _, run := range runs {
		wantShift(t, run, "worker")
		if n := s.events(t, run.ID(), "step_retrying"); n != 0 {
			t.Errorf("%d attempts failed", n)
		}
	}
	if n := strings.Count(w.Output(), "begins freeze"); n != 1 {
		t.Errorf("the step began %d times", n)
	}
}

// TestAStoppingWorkerGivesBack what it cannot finish: no attempt is counted.
func TestAStoppingWorkerGivesBack(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	key, c := s.workerKey(t, "shifts@*"), s.client(t, "write")
	w := startWorker(t, s.url(), key, "first")
	wantShift(t, begin(t, c, "quick"), "first")
	if err := w.stop(syscall.SIGTERM); err != nil {
		t.Errorf("the worker ended with %v", err)
	}
	run := begin(t, c, "quick")
	startWorker(t, s.url(), key, "second")
	wantShift(t, run, "second")
	if n := s.events(t, run.ID(), "step_retrying"); n != 0 {
		t.Errorf("%d attempts failed", n)
	}
}

// TestWorkerIsRefused: Work ends when the server refuses the worker for good.
func TestWorkerIsRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = startProcess(exec.Command(program), regexp.MustCompile(`(working)`),
		workerVariable+"=refused", "STEPWELL_URL="+s.url(), "STEPWELL_API_KEY="+s.workerKey(t, "orders@*"))
	if err == nil || !strings.Contains(err.Error(), "the key is for the deployments orders@* only") {
		t.Errorf("got %v", err)
	}
}

// TestACancelledStepEndsAtItsWorker: its context ends within seconds.
func TestACancelledStepEndsAtItsWorker(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	key, c := s.workerKey(t, "shifts@*"), s.client(t, "write")
	w := startWorker(t, s.url(), key, "dying")
	run := begin(t, c, "remote hang")
	w.awaits(t, "begins hang")
	if err := run.Cancel(t.Context(), "not wanted", 0); err != nil {
		t.Fatal(err)
	}
	w.awaits(t, "ended: ")
	if _, err := run.Wait(t.Context()); !errors.Is(err, stepwell.ErrCancelled) {
		t.Errorf("got %v", err)
	}
}

// TestThePythonExampleWorks without a port, and goes on when it is killed in the middle of a step.
func TestThePythonExampleWorks(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	key := s.workerKey(t, "orders")
	start := func() worker {
		p, _, err := startProcess(exec.Command("python3", "../../examples/function-python/order.py", "--work"),
			regexp.MustCompile(`(working)`), "STEPWELL_URL="+s.url(), "STEPWELL_API_KEY="+key)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			p.Kill()
			if t.Failed() {
				t.Logf("the worker:\n%s", p.Output())
			}
		})
		return worker{p}
	}
	first := start()
	var run struct {
		ID, Status string
		Output     struct{ Status string }
	}
	s.admin(t, http.MethodPost, "/v1/runs", map[string]any{
		"workflow": "order", "input": map[string]any{"id": "7", "item": "teapot", "amount": 25, "seconds": 2},
	}, &run)
	first.awaits(t, "step reserve")
	second := start()
	killed := time.Now()
	if err := first.stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Logf("taken over after %s", second.awaits(t, "step reserve attempt 2").Sub(killed))
	for s.events(t, run.ID, "hook_created") == 0 {
		time.Sleep(20 * time.Millisecond)
	}
	s.admin(t, http.MethodPost, "/v1/hooks/approve-7/resume", map[string]any{"payload": map[string]bool{"approved": true}}, nil)
	s.admin(t, http.MethodGet, "/v1/runs/"+run.ID+"/wait?timeout=30s", nil, &run)
	if run.Status != "completed" || run.Output.Status != "shipped" {
		t.Errorf("the run is %+v", run)
	}
	if n := s.events(t, run.ID, "step_completed"); n != 3 {
		t.Errorf("the log has %d results, want 3", n)
	}
}
