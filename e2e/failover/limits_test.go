package failover

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

const (
	limitClients = 64
	// mailRate is how many runs that send mail may begin in a second.
	mailRate = 10
)

// slot is what a limit bounds: its slots with one key, or all of them with the key "*".
type slot struct{ limit, key string }

// limitedSlots has how many slots there are. Runs need customer and all, steps gateway and all.
var limitedSlots = map[slot]int{
	{"customer", "0"}: 2, {"customer", "1"}: 2, {"customer", "2"}: 2, {"all", "*"}: 6, {"gateway", "0"}: 2, {"gateway", "1"}: 2,
}

// recordPermits has the database record each grant and each release in the transaction that makes it.
const recordPermits = `
	CREATE SCHEMA history;
	CREATE TABLE history.permits (
		xid xid NOT NULL, name text NOT NULL, key text NOT NULL, cost integer NOT NULL, granted_at timestamptz);
	CREATE FUNCTION history.record() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF OLD.granted_at IS NOT NULL THEN
			INSERT INTO history.permits VALUES (pg_current_xact_id()::xid, OLD.name, OLD.key, -OLD.cost);
		END IF;
		IF NEW.granted_at IS NOT NULL THEN
			INSERT INTO history.permits VALUES (pg_current_xact_id()::xid, NEW.name, NEW.key, NEW.cost, NEW.granted_at);
		END IF;
		RETURN NULL;
	END $$;
	CREATE TRIGGER record AFTER INSERT OR DELETE OR UPDATE OF granted_at ON stepwell.permits
		FOR EACH ROW EXECUTE FUNCTION history.record()`

// mostHeld selects the most slots that were ever held. What a transaction grants and releases counts at its commit. A
// grant that depends on a release commits after it, so the times of commits have them in the right order.
const mostHeld = `
	WITH changes AS (
		SELECT name, slot.key, pg_xact_commit_timestamp(xid) AS at, sum(cost) AS cost
		FROM history.permits p CROSS JOIN LATERAL (VALUES (p.key), ('*')) AS slot (key)
		GROUP BY name, slot.key, at
	)
	SELECT name, key, max(held)::integer
	FROM (SELECT name, key, sum(cost) OVER (PARTITION BY name, key ORDER BY at) AS held FROM changes) AS c
	GROUP BY name, key`

// mostInASecond selects the most grants of the limit $1 in any window of a second.
const mostInASecond = `
	SELECT max(n) FROM (
		SELECT count(*) OVER (ORDER BY granted_at RANGE BETWEEN CURRENT ROW AND '999999 us' FOLLOWING) AS n
		FROM history.permits WHERE name = $1 AND cost > 0) AS windows`

// TestLimitsHoldWhateverDies kills two servers and their Postgres in turns while 64 clients start runs with limits that
// overlap. By the history that the database records, there is no moment with more holders than slots and no second with
// more grants than the rate; each run that was accepted completes; and no permit is left. LIMITS_FOR is for how long things
// die; make limits-crashes has 10 minutes.
func TestLimitsHoldWhateverDies(t *testing.T) {
	t.Parallel()
	lasts := 25 * time.Second
	if d, err := time.ParseDuration(os.Getenv("LIMITS_FOR")); err == nil {
		lasts = d
	}
	a := newNode(t, map[string]string{"track_commit_timestamp": "on"})
	l := newLimitedLoad(t, a)
	a.exec(recordPermits)
	l.start()
	faults := 0
	for began := time.Now(); time.Since(began) < lasts; faults++ {
		l.fault(faults)
		before := l.ended.Load()
		eventually(t, "runs end after a fault", func() bool { return l.ended.Load() >= before+limitClients })
	}
	l.stop()
	t.Logf("%d faults, %d runs, %d requests", faults, l.ended.Load(), l.requests.Load())

	l.wantNothingLeft()
	l.wantHistoryWithinLimits()
	// A call takes milliseconds. One whose server died is made again seconds later, so not even those add up.
	for p, n := range l.function.most {
		if n > limitedSlots[p] {
			t.Errorf("the function had %d calls under way that need %v, want at most %d", n, p, limitedSlots[p])
		}
	}
	if n := l.function.most[slot{"all", "*"}]; n < 2 {
		t.Errorf("at most %d calls were under way at once: the test shows nothing", n)
	}
}

// limitedLoad is two servers on a Postgres, a function, and clients that start runs of it.
type limitedLoad struct {
	t        *testing.T
	node     *node
	function *limitedFunction
	servers  [2]atomic.Pointer[server]

	stopped         chan struct{}
	clients         sync.WaitGroup
	requests, ended atomic.Int64
}

func newLimitedLoad(t *testing.T, a *node) *limitedLoad {
	t.Helper()
	l := &limitedLoad{t: t, node: a, stopped: make(chan struct{})}
	l.function = &limitedFunction{under: map[slot]map[string]int{}, most: map[slot]int{}}
	f := httptest.NewServer(l.function)
	t.Cleanup(f.Close)
	for i := range l.servers {
		l.restart(i)
	}
	for path, body := range map[string]any{
		"deployments/limited": map[string]string{"url": f.URL},
		"limits/customer":     map[string]int{"perKey": 2},
		"limits/all":          map[string]int{"total": 6},
		"limits/gateway":      map[string]int{"perKey": 2},
		"limits/mail":         map[string]any{"rate": map[string]any{"limit": mailRate, "per": "1s", "burst": mailRate / 2}},
	} {
		if got := l.servers[0].Load().send(t.Context(), http.MethodPut, "/v1/"+path, body); got.Status != http.StatusOK {
			t.Fatalf("PUT /v1/%s: got %d %s, %v", path, got.Status, got.Body, got.Err)
		}
	}
	return l
}

func (l *limitedLoad) restart(i int) {
	l.servers[i].Store(startServer(l.t, databaseURL(l.t, "", l.node)))
}

// fault kills, in turns, one server, the other one, Postgres, and all of them. What was killed is up when it returns.
func (l *limitedLoad) fault(turn int) {
	turn %= 4
	for i := range l.servers {
		if turn == i || turn == 3 {
			l.servers[i].Load().Kill()
		}
	}
	if turn >= 2 {
		l.node.kill()
		l.node.start()
	}
	for i := range l.servers {
		if turn == i || turn == 3 {
			l.restart(i)
		}
	}
}

// start starts the clients. They end with the test.
func (l *limitedLoad) start() {
	l.t.Cleanup(l.clients.Wait)
	for i := range limitClients {
		l.clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.stopped:
					return
				case <-l.t.Context().Done():
					return
				default:
					l.run(i, n)
				}
			}
		})
	}
}

// stop lets the clients wait for the ends of their last runs.
func (l *limitedLoad) stop() {
	close(l.stopped)
	l.clients.Wait()
}

// run starts the n-th run of a client, and waits until it has ended.
func (l *limitedLoad) run(client, n int) {
	input := limitedInput{Kind: client % 3, Customer: fmt.Sprint(client / 3 % 3), Gateway: fmt.Sprint(n % 2), Fails: n%5 == 0}
	run := struct{ ID, Status string }{}
	accepted := l.send(http.MethodPost, "/v1/runs", map[string]any{
		"workflow": "limited", "deployment": "limited", "idempotencyKey": fmt.Sprint(client, "-", n),
		"input": input, "limits": input.runLimits(),
	}, func(body []byte) bool { return json.Unmarshal(body, &run) == nil })
	ended := accepted && l.send(http.MethodGet, "/v1/runs/"+run.ID+"/wait?timeout=5s", nil, func(body []byte) bool {
		return json.Unmarshal(body, &run) == nil && (run.Status == "completed" || run.Status == "failed")
	})
	if ended {
		l.ended.Add(1) // wantNothingLeft looks how
	}
}

// send sends a request to the servers in turns, until one answers as wanted. It reports false if none does, or the test
// has ended.
func (l *limitedLoad) send(method, path string, body any, wanted func(body []byte) bool) bool {
	var last answer
	deadline := time.Now().Add(2 * timeout)
	for ; time.Now().Before(deadline); time.Sleep(harness.PollInterval) {
		ctx, cancel := context.WithTimeout(l.t.Context(), timeout)
		last = l.servers[l.requests.Add(1)%2].Load().send(ctx, method, path, body)
		cancel()
		switch {
		case l.t.Context().Err() != nil:
			return false
		case last.Err == nil && (last.Status == http.StatusOK || last.Status == http.StatusCreated) && wanted(last.Body):
			return true
		}
	}
	l.t.Errorf("%s %s: not within %s; last: %d %s %v", method, path, 2*timeout, last.Status, last.Body, last.Err)
	return false
}

func (l *limitedLoad) wantNothingLeft() {
	l.t.Helper()
	for what, sql := range map[string]string{
		"permits":              `SELECT count(*) FROM stepwell.permits`,
		"runs not completed":   `SELECT count(*) FROM stepwell.runs WHERE status <> 'completed'`,
		"slots not released":   `SELECT sum(cost) FROM history.permits`,
		"changes without time": `SELECT count(*) FROM history.permits WHERE pg_xact_commit_timestamp(xid) IS NULL`,
	} {
		if n := query[int](l.node, sql); n != 0 {
			l.t.Errorf("%d %s are left", n, what)
		}
	}
	if n := query[int64](l.node, `SELECT count(*) FROM stepwell.runs`); n != l.ended.Load() {
		l.t.Errorf("there are %d runs, but the clients have seen %d end", n, l.ended.Load())
	}
}

// wantHistoryWithinLimits checks that each limit was ever reached, and never exceeded.
func (l *limitedLoad) wantHistoryWithinLimits() {
	l.t.Helper()
	conn := l.node.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	rows, err := conn.Query(l.t.Context(), mostHeld)
	if err != nil {
		l.t.Fatal(err)
	}
	var p slot
	var n int
	most := map[slot]int{}
	if _, err := pgx.ForEachRow(rows, []any{&p.limit, &p.key, &n}, func() error { most[p] = n; return nil }); err != nil {
		l.t.Fatal(err)
	}
	for p, want := range limitedSlots {
		if most[p] != want {
			l.t.Errorf("at most %d slots of %v were held at once, want %d", most[p], p, want)
		}
	}
	if n := query[int](l.node, mostInASecond, "mail"); n > mailRate || n < mailRate/2 {
		l.t.Errorf("at most %d runs that send mail began in a second, want %d to %d", n, mailRate/2, mailRate)
	}
}

// limitedInput is the input of a run and of its steps. A run that fails has its first step fail once.
type limitedInput struct {
	Kind              int
	Customer, Gateway string
	Fails             bool
}

type limitUse struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// runLimits and stepLimits are such that nobody waits for ever: who holds a slot of all waits for no customer, and who
// holds one of gateway for nothing.
func (in limitedInput) runLimits() []limitUse {
	customer, all := limitUse{"customer", in.Customer}, limitUse{"all", in.Customer}
	return [][]limitUse{{customer, all}, {customer}, {all, {"mail", "all"}}}[in.Kind]
}

// stepLimits of the step ship have a slot of all that most runs share with it: they hold one.
func (in limitedInput) stepLimits(step string) []limitUse {
	uses := []limitUse{{"gateway", in.Gateway}}
	if step == "ship" {
		uses = append(uses, limitUse{"all", in.Customer})
	}
	return uses
}

// limitedFunction serves a workflow of two steps, charge and ship, and counts the calls under way by what they need.
type limitedFunction struct {
	mu    sync.Mutex
	under map[slot]map[string]int // by who holds the slot
	most  map[slot]int
}

type limitedCall struct {
	Type    string
	Attempt int
	Run     struct {
		ID    string
		Input limitedInput
	}
	Step struct {
		ID    string
		Input limitedInput
	}
	Events []struct{ Type, CorrelationID string }
}

func (f *limitedFunction) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var call limitedCall
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	f.count(call, 1)
	status, answer := call.answer()
	f.count(call, -1)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

func (c limitedCall) answer() (status int, body any) {
	if c.Type == "step" {
		time.Sleep(20 * time.Millisecond) // the work of the step: without any, too few would meet
		if c.Step.Input.Fails && c.Step.ID == "charge" && c.Attempt == 1 {
			return http.StatusServiceUnavailable, nil
		}
		return http.StatusOK, "done"
	}
	next := map[string]any{"type": "runStep", "id": "charge"}
	for _, e := range c.Events {
		switch {
		case e.Type == "step_failed":
			next = map[string]any{"type": "fail"}
		case e.Type == "step_completed" && e.CorrelationID == "charge":
			next["id"] = "ship"
		case e.Type == "step_completed":
			next = map[string]any{"type": "complete"}
		}
	}
	if id, ok := next["id"].(string); ok {
		next["input"], next["limits"] = c.Run.Input, c.Run.Input.stepLimits(id)
		next["retry"] = map[string]string{"backoff": "10ms"}
	}
	return http.StatusOK, map[string]any{"commands": []any{next}}
}

// holders has who holds the slots that the call needs: the run or, if that does not, the step.
func (c limitedCall) holders() map[slot]string {
	input := c.Run.Input
	if c.Type == "step" {
		input = c.Step.Input
	}
	holders := map[slot]string{}
	add := func(holder string, uses []limitUse) {
		for _, u := range uses {
			p := slot{u.Name, u.Key}
			if p.limit == "all" {
				p.key = "*"
			}
			if limitedSlots[p] > 0 && holders[p] == "" {
				holders[p] = holder
			}
		}
	}
	add(c.Run.ID, input.runLimits())
	if c.Type == "step" {
		add(c.Run.ID+"/"+c.Step.ID, input.stepLimits(c.Step.ID))
	}
	return holders
}

func (f *limitedFunction) count(call limitedCall, change int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, holder := range call.holders() {
		if f.under[p] == nil {
			f.under[p] = map[string]int{}
		}
		f.under[p][holder] += change
		if f.under[p][holder] == 0 {
			delete(f.under[p], holder)
		}
		f.most[p] = max(f.most[p], len(f.under[p]))
	}
}
