package cells

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestMove moves a project under load, by a command that is killed again and again: at each point once, and then it is
// left alone. All runs end in the other cell, each started and resumed once, and the feed goes on where it was. Payloads
// are encrypted, a limit holds throughout, and a trigger starts a run for the end of each order.
func TestMove(t *testing.T) {
	t.Parallel()
	harness.SkipIfShort(t)
	from, to := startCell(t, names[0], "shop"), startCell(t, names[1], "mail")
	m := &moving{runs: map[string]string{}, open: map[string]bool{}, key: from.key, cells: map[string]*cell{from.name: from, to.name: to}, at: from}
	m.prepare(t)
	if out, err := m.command(t, from, to).CombinedOutput(); err == nil || !strings.Contains(string(out), "STEPWELL_ENCRYPTION_KEYS") {
		t.Fatalf("a move of encrypted payloads without --same-settings: %v\n%s", err, out)
	}
	const before, during, after = 30, 30, 10
	m.drive(t, before)
	m.ended(t, before)
	seen, cursor := m.someEvents(t)
	var load sync.WaitGroup
	load.Go(func() { m.drive(t, during) })
	load.Go(func() { m.writeLate(t, before) })
	for _, at := range []string{"copying", "changes", "departing", "fenced", "copied", "arrived", "marked", "cleaning"} {
		m.moveUntil(t, from, to, at)
		if at == "fenced" {
			m.neighbour(t, from)
		}
	}
	if out, err := m.command(t, from, to, "--same-settings").CombinedOutput(); err != nil {
		t.Fatalf("the last command: %v\n%s", err, out)
	}
	load.Wait()
	m.drive(t, after)
	m.atNewCell(t, from, to)
	ids := m.allEnd(t, to, before+during+after)
	m.limitHeld(t, to)
	m.streamsAreWhole(t, to, before)
	m.feedGoesOn(t, to, ids, seen, cursor)
	for _, c := range []*cell{from, to} {
		verify(t, c)
	}
	if m.refusals.Load() == 0 {
		t.Error("nothing was refused while the project moved: the load has not met the move")
	}
}

// moving is a project that moves, and its clients.
type moving struct {
	key   string
	cells map[string]*cell

	mu       sync.Mutex
	at       *cell // where clients find the project
	started  int
	runs     map[string]string // the ID of the run of each order
	open     map[string]bool   // the orders between their two requests
	most     int               // how many there were at once
	refusals atomic.Int64
}

// document is what each run does: a request, a wait beside a webhook and a signal, and a request.
const document = `
flow: order
steps:
  charge: {http: {method: POST, url: "%[1]s/charge/${input.id}"}}
  nap: {needs: [charge], wait: 500ms}
  ok: {needs: [charge], hook: {token: "ok-${input.id}", webhook: {}}}
  paid: {needs: [charge], signal: "paid.${input.id}"}
  ship: {needs: [nap, ok, paid], http: {method: POST, url: "%[1]s/ship/${input.id}"}}
output: "${input.id}"
`

// permits is how many orders are in progress at most.
const permits = 8

// shop serves the requests of orders, which have a permit from before the first until after the second.
func (m *moving) shop(r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	what, id := path.Split(r.URL.Path)
	if m.open[id] = what == "/charge/"; !m.open[id] {
		delete(m.open, id)
	}
	m.most = max(m.most, len(m.open))
}

// limitHeld checks that there were as many orders at once as may be, and that no permit is left or lost.
func (m *moving) limitHeld(t *testing.T, c *cell) {
	t.Helper()
	if m.most != permits {
		t.Errorf("%d orders were in progress at once, want %d", m.most, permits)
	}
	harness.Eventually(t, "all permits are free", func() bool {
		return harness.Decode[struct{ Held, Waiting int }](t, c.send(t, m.key, http.MethodGet, "/v1/limits/till", nil).
			Want(t, http.StatusOK)) == struct{ Held, Waiting int }{}
	})
}

// prepare encrypts the project, and puts the flow with its limit, a trigger for its end, and a schedule that starts
// another one every ten seconds.
func (m *moving) prepare(t *testing.T) {
	t.Helper()
	program, err := harness.FastServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	encrypt := exec.Command(program, "projects", "encrypt", m.at.project)
	encrypt.Env = harness.CleanEnv("STEPWELL_URL=http://"+m.at.addrs[0], "STEPWELL_API_KEY="+m.at.operator)
	if out, err := encrypt.CombinedOutput(); err != nil {
		t.Fatalf("encrypt the project: %v\n%s", err, out)
	}
	m.at.send(t, m.key, http.MethodPut, "/v1/limits/till", map[string]any{"total": permits}).Want(t, http.StatusOK, http.StatusCreated)
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.shop(r)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{}`))
	}))
	t.Cleanup(shop.Close)
	for _, flow := range []string{fmt.Sprintf(document, shop.URL), "flow: receipt\nsteps: {now: {set: 1}}\n", "flow: tick\nsteps: {now: {set: 1}}\n"} {
		m.at.send(t, m.key, http.MethodPost, "/v1/flows", map[string]any{"document": flow}).Want(t, http.StatusCreated)
	}
	m.at.send(t, m.at.operator, http.MethodPost, "/v1/flows",
		map[string]any{"document": "flow: tick\nsteps: {now: {set: 1}}\n"}).Want(t, http.StatusCreated)
	m.at.send(t, m.key, http.MethodPut, "/v1/triggers/receipts", map[string]any{
		"on":    map[string]any{"runEnded": map[string]any{"workflow": "order"}},
		"start": map[string]any{"workflow": "receipt"},
	}).Want(t, http.StatusCreated)
	m.at.send(t, m.key, http.MethodPut, "/v1/schedules/tick",
		map[string]any{"every": "10s", "workflow": "tick", "overlap": "allow"}).Want(t, http.StatusOK, http.StatusCreated)
}

// wrong is the cell that a 421 names.
var wrong = regexp.MustCompile(`"cell": ?"([a-z0-9]+)"`)

// persist sends a request until it is accepted: where a 421 says, and again after a 503, and while the hook is not there.
func (m *moving) persist(
	t *testing.T, method, path string, body any, headers ...string,
) (accepted harness.Response) {
	t.Helper()
	harness.Eventually(t, method+" "+path+" is accepted", func() bool {
		m.mu.Lock()
		at := m.at
		m.mu.Unlock()
		r := at.send(t, m.key, method, path, body, headers...)
		switch r.Status {
		case http.StatusMisdirectedRequest:
			m.refusals.Add(1)
			named := wrong.FindSubmatch(r.Body)
			if named == nil || m.cells[string(named[1])] == nil || m.cells[string(named[1])] == at {
				t.Errorf("%s does not say where the project is", r.Body)
				return true
			}
			m.mu.Lock()
			m.at = m.cells[string(named[1])]
			m.mu.Unlock()
		case http.StatusServiceUnavailable:
			m.refusals.Add(1)
			if r.Header.Get("Retry-After") == "" {
				t.Errorf("%s has no Retry-After", r.Body)
			}
		case http.StatusNotFound, http.StatusTooManyRequests: // the hook is not open
		default:
			if err := r.Problem(http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent); err != nil {
				t.Error(err)
			}
			accepted = r
			return true
		}
		return false
	})
	return accepted
}

// drive starts runs and sends each what it waits for.
func (m *moving) drive(t *testing.T, runs int) {
	var all sync.WaitGroup
	for range runs {
		m.mu.Lock()
		m.started++
		id := fmt.Sprint(m.started)
		m.mu.Unlock()
		all.Go(func() {
			r := m.persist(t, http.MethodPost, "/v1/runs",
				map[string]any{
					"workflow": "order", "input": map[string]any{"id": id}, "idempotencyKey": "order-" + id,
					"limits": []any{map[string]any{"name": "till"}},
				})
			m.mu.Lock()
			m.runs[id] = harness.Decode[listed](t, r).ID
			m.mu.Unlock()
			m.chunk(t, id)
			m.persist(t, http.MethodPost, "/hooks/shop/ok-"+id, []byte(`{}`), "Idempotency-Key", "sent-"+id)
			m.persist(t, http.MethodPost, "/v1/signals/paid."+id, map[string]any{"id": "paid-" + id})
			m.chunk(t, id)
		})
	}
	all.Wait()
}

// chunk writes a chunk to the stream of an order.
func (m *moving) chunk(t *testing.T, id string) {
	t.Helper()
	m.mu.Lock()
	run := m.runs[id]
	m.mu.Unlock()
	m.persist(t, http.MethodPut, "/sdk/v2/runs/"+run+"/stream/strm_of_"+id, []byte("chunk of "+id))
}

// ended waits until the first runs have ended.
func (m *moving) ended(t *testing.T, runs int) {
	t.Helper()
	for n := range runs {
		if status := runOf(t, "http://"+m.at.addrs[0], m.key, m.runs[fmt.Sprint(n+1)]); status != "completed" {
			t.Errorf("order %d is %s", n+1, status)
		}
	}
}

// writeLate writes to the streams of the first runs, which have ended.
func (m *moving) writeLate(t *testing.T, runs int) {
	for n := range runs {
		m.chunk(t, fmt.Sprint(n+1))
	}
}

// streamsAreWhole checks that each stream has what was written to it, once.
func (m *moving) streamsAreWhole(t *testing.T, c *cell, late int) {
	t.Helper()
	for id, run := range m.runs {
		want := 2
		if n, _ := strconv.Atoi(id); n <= late {
			want = 3
		}
		r := c.send(t, m.key, http.MethodGet, "/v1/runs/"+run+"/streams/strm_of_"+id, nil).Want(t, http.StatusOK)
		if got := strings.Count(string(r.Body), "chunk of "+id+`"`); got != want {
			t.Errorf("the stream of order %s has %d chunks, want %d: %s", id, got, want, r.Body)
		}
	}
}

// command returns the command that moves the project.
func (m *moving) command(t *testing.T, from, to *cell, flags ...string) *exec.Cmd {
	t.Helper()
	program, err := harness.FastServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append([]string{"projects", "move", from.project, "--to", to.name}, flags...)...)
	cmd.Env = harness.CleanEnv("DATABASE_URL="+from.dsn, "TO_DATABASE_URL="+to.dsn, masterKeys)
	return cmd
}

// moveUntil kills a command as soon as it says that it has reached a point.
func (m *moving) moveUntil(t *testing.T, from, to *cell, at string) {
	t.Helper()
	p, _, err := harness.Launch("move until "+at, m.command(t, from, to, "--same-settings"), regexp.MustCompile(`msg=(`+at+`|cleaned)\b`))
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
}

// neighbour runs something of another project while this one is fenced.
func (m *moving) neighbour(t *testing.T, c *cell) {
	t.Helper()
	r := c.send(t, c.operator, http.MethodPost, "/v1/runs", map[string]any{"workflow": "tick"}).Want(t, http.StatusCreated)
	id := harness.Decode[listed](t, r).ID
	if status := runOf(t, "http://"+c.addrs[1], c.operator, id); status != "completed" {
		t.Errorf("a run of another project is %s", status)
	}
}

// atNewCell checks that each server of the old cell says where the project is, and of the new one has it.
func (m *moving) atNewCell(t *testing.T, from, to *cell) {
	t.Helper()
	for i := range from.addrs {
		for what, r := range map[string]harness.Response{
			"key":     harness.Send(t.Context(), http.DefaultClient, http.MethodGet, "http://"+from.addrs[i]+"/v1/runs", m.key, nil),
			"webhook": harness.Send(t.Context(), http.DefaultClient, http.MethodPost, "http://"+from.addrs[i]+"/hooks/shop/x", "", nil),
		} {
			if err := r.Problem(http.StatusMisdirectedRequest); err != nil || !strings.Contains(string(r.Body), to.name) {
				t.Errorf("%s at the old cell: %v, %s", what, err, r.Body)
			}
		}
		harness.Send(t.Context(), http.DefaultClient, http.MethodGet, "http://"+to.addrs[i]+"/v1/runs", m.key, nil).Want(t, http.StatusOK)
	}
	if lines := projectMap(t, "haproxy", []*cell{from, to}); lines != "mail us1\nshop us1\n" {
		t.Errorf("the proxy's map is %q", lines)
	}
	ticks := func() int { return len(m.list(t, to, "/v1/runs?workflow=tick&limit=1000")) }
	was := ticks()
	harness.Eventually(t, "the schedule ticks", func() bool { return ticks() > was })
	to.send(t, m.key, http.MethodPost, "/v1/schedules/tick/pause", map[string]any{}).Want(t, http.StatusOK)
}

// listed is a run or an event of a list.
type listed struct {
	ID, RunID, Status, Type string
	Seq                     int
}

// list reads all pages of a list.
func (m *moving) list(t *testing.T, c *cell, path string) (all []listed) {
	t.Helper()
	for next := path; ; {
		r := c.send(t, m.key, http.MethodGet, next, nil).Want(t, http.StatusOK)
		page := harness.Decode[struct {
			Data   []listed
			Cursor string
		}](t, r)
		all = append(all, page.Data...)
		if page.Cursor == "" {
			return all
		}
		first, _, _ := strings.Cut(path, "&cursor=")
		next = first + "&cursor=" + page.Cursor
	}
}

// allEnd waits until all runs have ended, and returns the IDs of all, those of the schedule too.
func (m *moving) allEnd(t *testing.T, c *cell, runs int) []string {
	t.Helper()
	var all []listed
	harness.Eventually(t, "all runs end", func() bool {
		all = m.list(t, c, "/v1/runs?limit=1000")
		for _, r := range all {
			if r.Status == "pending" || r.Status == "running" {
				return false
			}
		}
		return len(m.list(t, c, "/v1/runs?workflow=receipt&limit=1000")) >= runs
	})
	ids := []string{}
	for _, r := range all {
		if r.Status != "completed" {
			t.Errorf("run %s is %s", r.ID, r.Status)
		}
		ids = append(ids, r.ID)
	}
	for _, workflow := range []string{"order", "receipt"} {
		if started := m.list(t, c, "/v1/runs?workflow="+workflow+"&limit=1000"); len(started) != runs {
			t.Errorf("%d runs of %s were started, want %d", len(started), workflow, runs)
		}
	}
	for id, run := range m.runs {
		r := c.send(t, m.key, http.MethodGet, "/v1/runs/"+run, nil).Want(t, http.StatusOK)
		if output := harness.Decode[struct{ Output string }](t, r).Output; output != id {
			t.Errorf("the output of order %s is %q", id, output)
		}
	}
	return ids
}

// someEvents reads the first events of the project, and returns the cursor after them.
func (m *moving) someEvents(t *testing.T) (events []listed, cursor string) {
	t.Helper()
	harness.Eventually(t, "a page of events", func() bool {
		page := harness.Decode[struct {
			Data   []listed
			Cursor string
		}](t, m.at.send(t, m.key, http.MethodGet, "/v1/events?limit=50", nil).Want(t, http.StatusOK))
		events, cursor = page.Data, page.Cursor
		return cursor != ""
	})
	return events, cursor
}

// feedGoesOn checks that the events after the old cell's cursor are exactly the others of all runs, and what they say:
// each webhook and signal was received once, and each step completed once.
func (m *moving) feedGoesOn(t *testing.T, c *cell, ids []string, seen []listed, cursor string) {
	t.Helper()
	want := 0
	for _, id := range ids {
		counts := map[string]int{}
		events := m.list(t, c, "/v1/runs/"+id+"/events?limit=1000")
		for _, e := range events {
			counts[e.Type]++
		}
		if counts["hook_received"] > 2 || counts["step_completed"] > 2 || counts["run_completed"] != 1 {
			t.Errorf("the log of run %s has %v", id, counts)
		}
		want += len(events)
	}
	got := map[string]bool{}
	harness.Eventually(t, "the feed has all events", func() bool {
		clear(got)
		all := append(seen[:len(seen):len(seen)], m.list(t, c, "/v1/events?limit=1000&cursor="+cursor)...)
		for _, e := range all {
			got[fmt.Sprint(e.RunID, e.Seq)] = true
		}
		if len(got) != len(all) {
			t.Errorf("of %d events in the feed, %d are different", len(all), len(got))
			return true
		}
		return len(got) >= want
	})
	if len(got) != want {
		t.Errorf("the feed has %d events, and the logs %d", len(got), want)
	}
}

// verify compares the rows of a cell with its logs.
func verify(t *testing.T, c *cell) {
	t.Helper()
	program, err := harness.FastServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "verify")
	cmd.Env = harness.CleanEnv("DATABASE_URL=" + c.dsn)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("verify of %s: %v\n%s", c.name, err, out)
	}
}
