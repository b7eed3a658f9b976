package hostile

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

const (
	// victimRate is how many runs of one step the victim starts in a second.
	victimRate = 5
	// patience is how long a client of the victim waits for the end of a run.
	patience = 20 * time.Second
	// recovery is when, after an attack, the victim must be as before.
	recovery = 5 * time.Second
	// longAttack and briefAttack are how long each attack takes.
	longAttack, briefAttack = 20 * time.Second, 2 * time.Second
)

// briefly are the abuses that are tried in the short form of the test.
var briefly = []string{"bignum", "schema_bomb", "crashloop", "fork_bomb", "slow_bodies", "hung_steps"}

// resultsPage is the page that gets the results.
var resultsPage = flag.String("results", "", "write the results of TestNeighbours at the end of this page")

// TestNeighbours tries one abuse after the other. In each, the attacker and the victim share a server, and the victim
// starts five runs of a step in a second. The control does the same at the same time on a server without an attacker.
//
// In the short form, the victim's runs must be right. In the long form, `make neighbours`, they must also be fast.
func TestNeighbours(t *testing.T) {
	harness.SkipIfShort(t)
	window, chosen := briefAttack, briefly
	if harness.IsLong() {
		window, chosen = longAttack, nil
	}
	if text := os.Getenv("NEIGHBOURS_FOR"); text != "" {
		var err error
		if window, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	if names := os.Getenv("NEIGHBOURS"); names != "" {
		chosen = strings.Split(names, ",")
	}
	table := neighbours{machine: machine(t)}
	for _, b := range abuses() {
		if chosen != nil && !slices.Contains(chosen, b.name) {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			row := measureAbuse(t, b, window)
			t.Log("\n" + row.String())
			faults := row.wrong()
			if harness.IsLong() {
				faults = append(faults, row.slow()...)
			}
			for _, fault := range faults {
				t.Error(fault)
			}
			table.rows = append(table.rows, row)
		})
	}
	if chosen != nil && len(table.rows) != len(chosen) {
		t.Errorf("%d abuses were tried, want %q", len(table.rows), chosen)
	}
	t.Log("\n" + table.String())
	if *resultsPage != "" {
		table.write(t, *resultsPage)
	}
}

// measureAbuse tries one abuse on a new server.
func measureAbuse(t *testing.T, b abuse, window time.Duration) neighbour {
	t.Helper()
	attacked, control := newFixture(t), newFixture(t)
	a := attacked.newAttack(t, b)
	row := neighbour{abuse: b, answers: a.answers}
	calm := window * 2 / 5
	watch(t, attacked, control, calm) // opens connections, fills caches
	row.before, row.controlBefore = watch(t, attacked, control, calm)
	cpu := attacked.CPUTime(t)
	wait := a.begin(t, window)
	row.during, row.control = watch(t, attacked, control, window)
	wait()
	if row.alive = attacked.Alive(); row.alive {
		row.cpu, row.memory = attacked.CPUTime(t)-cpu, attacked.LargestMemory(t)
	}
	row.recovering, _ = watch(t, attacked, control, min(recovery, window))
	row.after, _ = watch(t, attacked, control, calm)
	return row
}

// watch runs the workflows of the victims of two servers at the same time.
func watch(t *testing.T, attacked, control *fixture, window time.Duration) (victim, unharmed sample) {
	t.Helper()
	var both sync.WaitGroup
	both.Go(func() { victim = attacked.watch(t.Context(), window) })
	both.Go(func() { unharmed = control.watch(t.Context(), window) })
	both.Wait()
	return victim, unharmed
}

// watch starts runs of the victim at a fixed rate, and waits until all of them have ended.
func (f *fixture) watch(ctx context.Context, window time.Duration) sample {
	var s sample
	var mu sync.Mutex
	var all sync.WaitGroup
	transport := &http.Transport{MaxIdleConnsPerHost: int(patience.Seconds()) * victimRate}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport}
	tick := time.NewTicker(time.Second / victimRate)
	defer tick.Stop()
	for range int(window.Seconds() * victimRate) {
		<-tick.C
		s.runs++
		n, began := s.runs, time.Now()
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			err := f.victim.runOne(ctx, c, n)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.fault = err
			} else {
				s.times = append(s.times, time.Since(began))
			}
		})
	}
	all.Wait()
	slices.Sort(s.times)
	return s
}

// runOne starts a run of one step, waits for its end, and checks its result.
func (n tenant) runOne(ctx context.Context, c *http.Client, input int) error {
	var run struct {
		ID, Status string
		Output     int
	}
	body := fmt.Sprintf(`{"workflow":"one","input":%d,"deployment":"f"}`, input)
	if err := n.ask(ctx, c, http.MethodPost, "/v1/runs", body, &run); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if err := n.ask(ctx, c, http.MethodGet, "/v1/runs/"+run.ID+"/wait", "", &run); err != nil {
		return fmt.Errorf("wait: %w", err)
	}
	if run.Status != "completed" || run.Output != input {
		return fmt.Errorf("run %s is %s with output %d, want completed with %d", run.ID, run.Status, run.Output, input)
	}
	return nil
}

// ask sends a request, and decodes its answer.
func (n tenant) ask(ctx context.Context, c *http.Client, method, path, body string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, n.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+n.admin)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 300 {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("got %s %.300s", resp.Status, text)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}
