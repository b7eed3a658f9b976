package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/flow/flowgen"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// TestTheServerDecidesAsARemoteFunction runs random documents with random results twice: as flows, and by a function
// that answers with the commands of the same interpreter and has nothing but the function contract. The logs are equal
// but for the attempts' starts, and for where a long decision was divided. In both, what had an effect is undone if the
// run failed. FLOW_PROGRAMS is the number of documents, and FLOW_SEED the first one: see make flow-law.
func TestTheServerDecidesAsARemoteFunction(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs many flows")
	}
	programs, first := 30, 1
	if n, err := strconv.Atoi(os.Getenv("FLOW_PROGRAMS")); err == nil {
		programs = n
	}
	if n, err := strconv.Atoi(os.Getenv("FLOW_SEED")); err == nil {
		first = n
	}
	const servers = 3
	var next atomic.Int64
	for i := range servers {
		t.Run(fmt.Sprintf("server %d", i), func(t *testing.T) {
			t.Parallel()
			s := startStage(t)
			for {
				n := int(next.Add(1)) - 1
				if n >= programs || t.Failed() {
					return
				}
				s.compare(t, first+n)
			}
		})
	}
}

// stage is a server on which one run at a time is played. Its clock stands still, and all that comes from outside comes
// when the player lets it: so everything that can differ between two plays follows from the decisions.
type stage struct {
	*server

	clock atomic.Int64 // in milliseconds
	url   string       // of functions and services

	mu       sync.Mutex
	calls    map[string]*openCall     // those that wait for their answers, by their idempotency keys
	programs map[string]*flow.Program // of the remote function, by the project
	// asked, if it is set, gets what the remote function was asked, and its answer.
	asked func(call contract.Call, events []json.RawMessage, answer []byte)
}

// stageTime is when each play begins. It is so far ahead of the database's clock that no wait ends by itself.
var stageTime = time.Now().Add(10_000 * time.Hour).Truncate(time.Hour)

func startStage(t *testing.T) *stage {
	t.Helper()
	r := newReplica(t, testdb.New(t))
	s := &stage{calls: map[string]*openCall{}, programs: map[string]*flow.Program{}}
	s.clock.Store(stageTime.UnixMilli())
	log := eventlog.New(r.pool, r.hub, r.Queue, s.now)
	s.server = &server{r, log, New(r.Queue, log)}
	mux := http.NewServeMux()
	mux.HandleFunc("/remote/{project}", func(w http.ResponseWriter, r *http.Request) { s.decide(t, w, r) })
	mux.HandleFunc("/", s.wait)
	f := httptest.NewServer(mux)
	t.Cleanup(f.Close)
	s.url = f.URL
	s.worker(t, func(o *queue.WorkerOptions) { o.Handlers, o.Deliveries = s.runs.Handlers(), 1000 })
	return s
}

func (s *stage) now() time.Time { return time.UnixMilli(s.clock.Load()).UTC() }

// decide is the remote function: the interpreter, and the log as the call and the API give it.
func (s *stage) decide(t *testing.T, w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	p := s.programs[r.PathValue("project")]
	s.mu.Unlock()
	var call contract.Call
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		t.Error(err)
		return
	}
	events := call.Events
	for after := call.After; after != nil; {
		page, err := s.log.Events(r.Context(), entities.Project(r.PathValue("project")), call.Run.ID,
			pg.Page{Limit: 1000, Cursor: read.EventCursorAt(*after)}, read.WithPayloads)
		if err != nil {
			return // the call was cut off
		}
		after = nil
		for _, e := range page.Events {
			text, err := json.Marshal(view.Of(&e))
			if err != nil {
				t.Error(err)
			}
			events = append(events, text)
		}
		if page.More {
			after = &page.Events[len(page.Events)-1].Seq
		}
	}
	known := flow.Call{Run: call.Run}
	for _, text := range events {
		e, err := decodeEvent(text)
		if err != nil {
			t.Error(err)
		}
		known.Events = append(known.Events, e)
	}
	body, err := p.Answer(r.Context(), known)
	if err != nil && r.Context().Err() == nil {
		t.Errorf("%s: %v", r.PathValue("project"), err)
	}
	if s.asked != nil {
		s.asked(call, events, body)
	}
	_, _ = w.Write(body)
}

// openCall is the call of a function, or a request to a service, that waits for its answer.
type openCall struct {
	name          string // e, f, p or u
	isHTTP, async bool
	answer        chan func(http.ResponseWriter)
}

// wait answers the call of a step, or an HTTP request, when the player says how.
func (s *stage) wait(w http.ResponseWriter, r *http.Request) {
	var body contract.Call
	text, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(text, &body) // a service gets other bodies
	c := &openCall{name: strings.Split(r.URL.Path, "/")[1], isHTTP: body.Step == nil, answer: make(chan func(http.ResponseWriter))}
	if !c.isHTTP {
		c.name, c.async = body.Step.Name, body.Step.Callback != nil
	}
	key := r.Header.Get(contract.HeaderIdempotencyKey)
	s.mu.Lock()
	s.calls[key] = c
	s.mu.Unlock()
	select {
	case how := <-c.answer:
		how(w)
	case <-r.Context().Done():
		s.mu.Lock()
		if s.calls[key] == c {
			delete(s.calls, key)
		}
		s.mu.Unlock()
	}
}

// reply ends a call.
func (s *stage) reply(t *testing.T, key string, how func(http.ResponseWriter)) {
	t.Helper()
	s.mu.Lock()
	c := s.calls[key]
	delete(s.calls, key)
	s.mu.Unlock()
	select {
	case c.answer <- how:
	case <-time.After(testdb.Timeout):
		t.Errorf("the call %s is gone", key)
	}
}

// compare plays a document as a flow and as a remote function, and compares the logs.
func (s *stage) compare(t *testing.T, seed int) {
	t.Helper()
	document := strings.ReplaceAll(flowgen.Document(flowgen.Seeded(uint64(seed))), "https://example.com", s.url)
	document = strings.Replace(document, "deployment: d\n", "deployment: dpl_test\n", 1)
	var logs, trails [2][]string
	for i, deployment := range []string{"random@1", "remote"} {
		p := s.play(t, document, seed, deployment)
		if p == nil {
			t.Fatalf("seed %d, %s:\n%s", seed, deployment, document)
		}
		logs[i], trails[i] = p.compared(t), p.trail
		p.checkLedger(t, document)
		p.checkDecisions(t, document)
	}
	for i := range min(len(logs[0]), len(logs[1])) {
		if logs[0][i] != logs[1][i] {
			t.Errorf("seed %d: the log of the server and of the remote function:\n%s\n%s\nafter %q and %q\nin the log\n%s\nof\n%s", seed,
				logs[0][i], logs[1][i], trails[0], trails[1], strings.Join(logs[0][:i], "\n"), document)
			return
		}
	}
	if len(logs[0]) != len(logs[1]) {
		t.Errorf("seed %d: the log of the server has %d events, that of the remote function %d\nin\n%s", seed, len(logs[0]), len(logs[1]),
			document)
	}
}

// play plays a document until its run has ended. It returns nil if the run does not end.
func (s *stage) play(t *testing.T, document string, seed int, deployment string) *player {
	t.Helper()
	program, err := flow.Parse([]byte(document))
	if err != nil {
		t.Fatalf("%v\nin:\n%s", err, document)
	}
	project := entities.Project(fmt.Sprintf("%s-%d-%s", program.Name, seed, strings.Trim(deployment, "@1")))
	s.clock.Store(stageTime.UnixMilli())
	s.mu.Lock()
	s.programs[string(project)] = program
	s.mu.Unlock()
	const other = "{flow: other, deployment: dpl_test, steps: {go: {call: f}}}"
	for _, text := range []string{document, other} {
		if _, err := s.runs.flows.Put(t.Context(), project, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for id, url := range map[string]string{"dpl_test": s.url, "remote": s.url + "/remote/" + string(project)} {
		if _, err := s.PutDeployment(t.Context(), project, id, url); err != nil {
			t.Fatal(err)
		}
	}
	p := &player{
		stage: s, project: project, program: program, draw: flowgen.Seeded(uint64(seed)), ledger: map[string]bool{},
		votes: map[string]int{},
	}
	run, _, err := s.log.Start(t.Context(), project, eventlog.Request{
		RunID: entities.NewRunID(s.now()), Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven, Payload: []byte(`{"id":7}`),
		Data: entities.EventData{DeploymentID: deployment, WorkflowName: program.Name, Driver: entities.DriverServer},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.id, p.cancels = run.ID, p.draw("is cancelled", 8) == 0
	for range 2000 {
		if !p.settle(t) {
			return nil
		}
		if p.ended && len(p.open) == 0 {
			return p
		}
		if p.ended { // runs that it has started go on
			s.reply(t, p.open[0], func(http.ResponseWriter) {})
			continue
		}
		options := p.options(t)
		if len(options) == 0 {
			t.Errorf("nothing is under way, and the run has not ended; its log is\n%s", p.describe())
			return nil
		}
		options[p.draw("what happens", len(options))](t)
	}
	t.Errorf("the run does not end; its log is\n%s", p.describe())
	return nil
}
