package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

// trip is a workflow endpoint: two parallel steps, a wait, and a hook. It counts the calls of its steps.
type trip struct {
	url string
	// before is called before a step returns; it may be nil.
	before func(step string, r *http.Request)

	mu    sync.Mutex
	calls map[string]int // by step and Idempotency-Key
}

func newTrip(t *testing.T) *trip {
	t.Helper()
	w := &trip{calls: map[string]int{}}
	s := httptest.NewServer(w)
	t.Cleanup(s.Close)
	w.url = s.URL
	return w
}

func (w *trip) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	var call struct {
		Type   string
		Step   struct{ Name string }
		Events []struct{ Type, CorrelationID string }
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	if call.Type == "step" {
		w.mu.Lock()
		w.calls[call.Step.Name+" "+r.Header.Get("Idempotency-Key")]++
		w.mu.Unlock()
		if w.before != nil {
			w.before(call.Step.Name, r)
		}
		_, _ = io.WriteString(rw, `"done"`)
		return
	}
	log := map[string]bool{}
	for _, e := range call.Events {
		log[e.Type+" "+e.CorrelationID] = true
	}
	_, _ = io.WriteString(rw, `{"commands": [`+nextCommands(log)+`]}`)
}

// nextCommands returns the commands that follow the log.
func nextCommands(log map[string]bool) string {
	switch {
	case !log["step_created flight"]:
		return `{"type": "runStep", "id": "flight"}, {"type": "runStep", "id": "hotel"}`
	case !log["step_completed flight"] || !log["step_completed hotel"]:
		return ""
	case !log["wait_created night"]:
		return `{"type": "wait", "id": "night", "for": "1s"}`
	case !log["wait_completed night"]:
		return ""
	case !log["hook_created checkout"]:
		return `{"type": "openHook", "id": "checkout", "token": "checkout"}`
	case !log["hook_received checkout"]:
		return ""
	default:
		return `{"type": "complete", "output": "home"}`
	}
}

// wantStepsCalledOnce checks that each step was called once.
func (w *trip) wantStepsCalledOnce(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.calls) != 2 {
		t.Errorf("calls of steps: %v, want two steps", w.calls)
	}
	for step, n := range w.calls {
		if n != 1 {
			t.Errorf("step %s was called %d times", step, n)
		}
	}
}

// ask sends a request with the key and returns the body of a 2xx response.
func (p *platform) ask(t *testing.T, method, path, body string) string {
	t.Helper()
	resp := servertest.Request(t, method, p.URL+path, body, "Authorization", "Bearer "+drainKey, "Content-Type", "application/json")
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s, %s, %v", method, path, resp.Status, answer, err)
	}
	return string(answer)
}

// startRun starts a run of the workflow and returns its ID.
func (p *platform) startRun(t *testing.T, url string) string {
	t.Helper()
	p.ask(t, http.MethodPut, "/v1/deployments/trips", `{"url": "`+url+`"}`)
	var run struct{ ID string }
	answer := p.ask(t, http.MethodPost, "/v1/runs", `{"workflow": "trip", "deployment": "trips"}`)
	if err := json.Unmarshal([]byte(answer), &run); err != nil || run.ID == "" {
		t.Fatalf("start: %s, %v", answer, err)
	}
	return run.ID
}

// drain requests a drain, as the platform's scheduler does.
func (p *platform) drain(t *testing.T) (done struct{ Delivered, Failed, Due int }) {
	t.Helper()
	if err := json.Unmarshal([]byte(p.ask(t, http.MethodPost, "/internal/drain?budget=20s", "")), &done); err != nil {
		t.Fatal(err)
	}
	return done
}

// tripEvents are the events of a run of the workflow.
var tripEvents = []string{
	"run_created", "run_started", "step_created flight", "step_created hotel",
	"step_started flight", "step_started hotel", "step_completed flight", "step_completed hotel",
	"wait_created night", "wait_completed night", "hook_created checkout", "hook_received checkout", "run_completed",
}

// wantTripEvents checks that a run's log has each event once. The order of parallel steps may vary.
func wantTripEvents(t *testing.T, got []string) {
	t.Helper()
	for _, event := range tripEvents {
		if n := count(got, event); n != 1 {
			t.Errorf("%s is in the log %d times, want 1", event, n)
		}
	}
	if len(got) != len(tripEvents) {
		t.Errorf("the log: %s", cmp.Diff(tripEvents, got))
	}
}

// TestFunctionModeCompletesARun: the servers are frozen between requests. Work that is due at once is delivered by the
// drains that commits request, and later work by the scheduler's drains.
func TestFunctionModeCompletesARun(t *testing.T) {
	t.Parallel()
	p := newPlatform(t, testdb.Indexed(t), 3)
	app := newTrip(t)
	runID := p.startRun(t, app.url)
	p.until(t, "the run waits", func() bool {
		return p.is(t, `SELECT true FROM stepwell.waits WHERE run_id = $1`, runID)
	})
	p.quiet(t)
	p.until(t, "the wait is over", func() bool {
		return p.is(t, `SELECT resume_at < now() FROM stepwell.waits WHERE run_id = $1`, runID)
	})
	p.quiet(t)
	if p.is(t, `SELECT status <> 'waiting' FROM stepwell.waits WHERE run_id = $1`, runID) {
		t.Error("the run continued without a request")
	}
	if done := p.drain(t); done.Delivered != 1 || done.Failed != 0 || done.Due != 0 {
		t.Errorf("the scheduler's drain: %+v, want one delivery", done)
	}
	p.quiet(t)
	p.ask(t, http.MethodPost, "/v1/hooks/checkout/resume", `{"payload": "key returned"}`)
	p.until(t, "the run has ended", func() bool {
		return p.is(t, `SELECT status = 'completed' FROM stepwell.runs WHERE id = $1`, runID)
	})
	p.quiet(t)
	wantTripEvents(t, p.events(t, runID))
	app.wantStepsCalledOnce(t)
	if left := p.is(t, `SELECT count(*) > 0 FROM stepwell.messages`); left {
		t.Error("messages are left")
	}
	if answer := p.ask(t, http.MethodGet, "/v1/runs/"+runID+"/wait", ""); !strings.Contains(answer, `"output":"home"`) {
		t.Errorf("the run: %s", answer)
	}
}

// TestAPIKeyIsNotInTheServersOwnRequests: what the servers send to their public address starts drains, and is of no use
// for anything else.
func TestAPIKeyIsNotInTheServersOwnRequests(t *testing.T) {
	t.Parallel()
	p := newPlatform(t, testdb.New(t), 3)
	app := newTrip(t)
	runID := p.startRun(t, app.url)
	p.until(t, "the run waits", func() bool { // it does so only if the servers accept their own requests
		return p.is(t, `SELECT true FROM stepwell.waits WHERE run_id = $1`, runID)
	})
	p.mu.Lock()
	own := slices.Clone(p.own)
	p.mu.Unlock()
	if len(own) == 0 {
		t.Fatal("no request to itself was seen")
	}
	for _, header := range own {
		for name, values := range header {
			if strings.Contains(strings.Join(values, " "), drainKey) {
				t.Errorf("%s has the API key", name)
			}
		}
	}
	token := own[0].Get("Authorization")
	for _, tt := range []struct {
		method, path string
		want         int
	}{
		{http.MethodPost, "/internal/drain", http.StatusOK},
		{http.MethodPost, "/internal/drain?budget=2s", http.StatusUnauthorized},
		{http.MethodGet, "/v1/runs/" + runID, http.StatusUnauthorized},
		{http.MethodGet, "/v1/keys", http.StatusUnauthorized},
		{http.MethodGet, "/metrics", http.StatusUnauthorized},
	} {
		resp := servertest.Request(t, tt.method, p.URL+tt.path, "", "Authorization", token)
		if resp.StatusCode != tt.want {
			t.Errorf("%s %s with the token: got %s, want %d", tt.method, tt.path, resp.Status, tt.want)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
}

// TestStartThatWaitsInFunctionMode: the drain that the run needs is asked for before the request waits.
func TestStartThatWaitsInFunctionMode(t *testing.T) {
	t.Parallel()
	p := newPlatform(t, testdb.New(t), 2)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"commands": [{"type": "complete", "output": "home"}]}`)
	}))
	t.Cleanup(app.Close)
	p.ask(t, http.MethodPut, "/v1/deployments/trips", `{"url": "`+app.URL+`"}`)
	resp := servertest.Request(t, http.MethodPost, p.URL+"/v1/runs", `{"workflow": "trip"}`,
		"Authorization", "Bearer "+drainKey, "Content-Type", "application/json", "Prefer", "wait=60")
	if got, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(got), `"output":"home"`) {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestLongPollEndsInFunctionMode: a long poll ends when the run ends, without notifications between processes.
func TestLongPollEndsInFunctionMode(t *testing.T) {
	t.Parallel()
	p := newPlatform(t, testdb.New(t), 4)
	app := newTrip(t)
	runID := p.startRun(t, app.url)
	ended := make(chan string, 1)
	go func() {
		resp, err := servertest.Try(t, http.MethodGet, p.URL+"/v1/runs/"+runID+"/wait?timeout=30s", "", "Authorization", "Bearer "+drainKey)
		if err != nil {
			ended <- err.Error()
			return
		}
		body, _ := io.ReadAll(resp.Body)
		ended <- string(body)
	}()
	p.until(t, "the wait is over", func() bool {
		return p.is(t, `SELECT resume_at < now() FROM stepwell.waits WHERE run_id = $1`, runID)
	})
	p.drain(t)
	p.ask(t, http.MethodPost, "/v1/hooks/checkout/resume", `{"payload": null}`)
	select {
	case answer := <-ended:
		if !strings.Contains(answer, `"status":"completed"`) {
			t.Errorf("got %s", answer)
		}
	case <-time.After(waitLimit):
		t.Fatal("no answer")
	}
}

// TestNextDrainTakesOverAfterACrash: the drain makes the deliveries of a server that was killed during its drain.
func TestNextDrainTakesOverAfterACrash(t *testing.T) {
	t.Parallel()
	p := newPlatform(t, testdb.New(t), 4)
	app := newTrip(t)
	called, hang := make(chan struct{}), sync.Once{}
	app.before = func(step string, r *http.Request) {
		if step != "hotel" {
			return
		}
		hang.Do(func() {
			close(called)
			<-r.Context().Done()
		})
	}
	runID := p.startRun(t, app.url)
	await(t, "the call", called)
	p.until(t, "the other step is done", func() bool {
		return count(p.events(t, runID), "step_completed flight") == 1
	})
	for _, i := range p.serving("/internal/drain") {
		i.kill(t)
	}
	p.until(t, "the run waits", func() bool {
		p.drain(t)
		return p.is(t, `SELECT true FROM stepwell.waits WHERE run_id = $1`, runID)
	})
	p.until(t, "the wait is over", func() bool {
		return p.is(t, `SELECT resume_at < now() FROM stepwell.waits WHERE run_id = $1`, runID)
	})
	p.drain(t)
	p.ask(t, http.MethodPost, "/v1/hooks/checkout/resume", `{"payload": null}`)
	p.until(t, "the run has ended", func() bool {
		return p.is(t, `SELECT status = 'completed' FROM stepwell.runs WHERE id = $1`, runID)
	})
	p.quiet(t)
	got := p.events(t, runID)
	for _, event := range tripEvents {
		if n := count(got, event); n != 1 && event != "step_started hotel" {
			t.Errorf("%s is in the log %d times, want 1", event, n)
		}
	}
	app.mu.Lock()
	defer app.mu.Unlock()
	if n := app.calls["hotel "+runID+"/hotel"]; n != 2 {
		t.Errorf("the interrupted step was called %d times with its key, want 2: %v", n, app.calls)
	}
}

// TestDrainRequestIsValidated: its key, its method and its parameters.
func TestDrainRequestIsValidated(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t), server.RoleFunction)
	s.config.APIKey, s.config.Open = drainKey, false
	mustStart(t, s)
	for _, tt := range []struct {
		method, path, key string
		want              int
	}{
		{http.MethodPost, "/internal/drain", "", http.StatusUnauthorized},
		{http.MethodPost, "/internal/drain", "wrong", http.StatusUnauthorized},
		{http.MethodGet, "/internal/drain", drainKey, http.StatusMethodNotAllowed},
		{http.MethodPost, "/internal/drain?budget=1", drainKey, http.StatusBadRequest},
		{http.MethodPost, "/internal/drain?budget=-1s", drainKey, http.StatusBadRequest},
		{http.MethodPost, "/internal/drain?linger=61m", drainKey, http.StatusBadRequest},
		{http.MethodPost, "/internal/drain?sink=1s", drainKey, http.StatusBadRequest},
		{http.MethodPost, "/internal/drain", drainKey, http.StatusOK},
		{http.MethodPost, "/internal/drain?budget=1s&linger=1ms", drainKey, http.StatusOK},
	} {
		resp := servertest.Request(t, tt.method, "http://"+s.Addr()+tt.path, "", "Authorization", "Bearer "+tt.key)
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != tt.want || err != nil {
			t.Errorf("%s %s: got %s, want %d", tt.method, tt.path, resp.Status, tt.want)
		}
		want := `{"delivered":0,"failed":0,"due":0,"nextDueAt":null}`
		if got := strings.TrimSpace(string(body)); tt.want == http.StatusOK && got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	all := newServer(t, testdb.New(t), server.RoleAll)
	mustStart(t, all)
	if got := servertest.Request(t, http.MethodPost, "http://"+all.Addr()+"/internal/drain", ""); got.StatusCode != http.StatusNotFound {
		t.Errorf("role all: got %s", got.Status)
	}
}

// TestPublicURLIsValidated: it must be an absolute URL, and requires a key.
func TestPublicURLIsValidated(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	api := newServer(t, dsn, server.RoleAPI)
	mustStart(t, api)
	key := admin.Key{Project: entities.DefaultProject, Name: "admin", Role: admin.RoleAdmin}
	if _, _, err := access.NewKeys(api.Pool(), time.Now).Mint(t.Context(), key); err != nil { // so that the server starts without STEPWELL_API_KEY
		t.Fatal(err)
	}
	if _, err := readConfig([]string{"STEPWELL_PUBLIC_URL=here"}); err == nil || !strings.Contains(err.Error(), "STEPWELL_PUBLIC_URL: ") {
		t.Errorf("got %v, want STEPWELL_PUBLIC_URL", err)
	}
	s := newServer(t, dsn, server.RoleFunction)
	s.config.PublicURL, s.config.Open = "https://here.test", false
	const want = "STEPWELL_PUBLIC_URL requires STEPWELL_API_KEY"
	if err := s.start(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	wantStopped(t, s)
}
