package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// driver uses an app as its users would, who repeat what failed: it starts runs, resumes their hooks and reads
// their streams.
type driver struct {
	*app
	postgres *postgres
	seed     uint64
	// atOnce is how many runs may be open before the next one is started.
	atOnce int
	// events counts what went how.
	events *counter

	// following are those who read streams and resume hooks, listening is who sees new hooks.
	following, listening sync.WaitGroup

	mu      sync.Mutex
	number  uint64          // of the latest plan
	plans   map[string]plan // all that were attempted, by ID
	started map[string]plan // those of which a run is known, by its ID
	streams map[string]*stream
}

func newDriver(a *app, p *postgres, seed uint64, atOnce int, events *counter) *driver {
	return &driver{
		app: a, postgres: p, seed: seed, atOnce: atOnce, events: events,
		plans: map[string]plan{}, started: map[string]plan{}, streams: map[string]*stream{},
	}
}

// starters is how many start runs at the same time.
const starters = 3

// drive starts runs until the context ends, but at least so many. What it began with them goes on until life ends.
func (d *driver) drive(ctx, life context.Context, least uint64) {
	var starting sync.WaitGroup
	for range starters {
		starting.Go(func() {
			for {
				p := d.nextPlan()
				if ctx.Err() != nil && d.latest() > least {
					return
				}
				d.start(life, p)
				d.awaitCapacity(life)
			}
		})
	}
	d.listening.Go(func() { d.listen(life) })
	starting.Wait()
}

func (d *driver) nextPlan() plan {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.number++
	return newPlan(d.seed, d.name, d.number)
}

func (d *driver) latest() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.number
}

// awaitCapacity waits until there are not too many open runs.
func (d *driver) awaitCapacity(ctx context.Context) {
	for {
		open, err := d.postgres.count(ctx, `SELECT count(*) FROM runs WHERE completed_at IS NULL AND deployment_id = $1`, d.name)
		if err == nil && open < d.atOnce || !pause(ctx, retryPause) {
			return
		}
	}
}

// start starts a run of the plan. An attempt that failed may have led to a run all the same.
func (d *driver) start(ctx context.Context, p plan) {
	for n := 1; ctx.Err() == nil; n++ {
		attempt := p.attempt(n)
		d.mu.Lock()
		d.plans[attempt.ID] = attempt
		d.mu.Unlock()
		started, err := call[struct{ RunID string }](ctx, http.MethodPost, d.url+"/start",
			map[string]any{"workflow": "torture", "args": []plan{attempt}})
		if err == nil {
			d.track(ctx, started.RunID, attempt)
			return
		}
		d.events.add("starts that failed")
		pause(ctx, retryPause)
	}
}

// track takes note of a run, and reads its streams.
func (d *driver) track(ctx context.Context, runID string, p plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.started[runID] = p
	for name, part := range p.named("stream") {
		s := &stream{run: runID, name: name, want: part.N}
		d.streams[name] = s
		d.following.Go(func() { d.follow(ctx, s) })
	}
}

// listen resumes the hooks that runs say they have, also those that nobody knows of.
func (d *driver) listen(ctx context.Context) {
	log := effects{path: d.effects}
	announced := map[string]bool{}
	for pause(ctx, retryPause) {
		for _, e := range log.next() {
			token, ok := strings.CutSuffix(e.Step, ".announce")
			if !ok || announced[token] {
				continue
			}
			announced[token] = true
			d.following.Go(func() { d.resumeAll(ctx, e.RunID, token) })
		}
	}
}

// resumeAll gives a hook all of its payloads, in some order.
func (d *driver) resumeAll(ctx context.Context, runID, token string) {
	d.mu.Lock()
	hook := d.plans[planOf(token)].named("hook")[token]
	d.mu.Unlock()
	for _, payload := range rand.Perm(hook.N) {
		if !pause(ctx, time.Duration(rand.IntN(1000))*time.Millisecond) || !d.resume(ctx, runID, token, payload) {
			return
		}
	}
}

// resume resumes a hook until that was accepted once. Before that it may have been without our knowledge, and
// then the run may be over, which is for it to know.
func (d *driver) resume(ctx context.Context, runID, token string, payload int) bool {
	body := map[string]any{"token": token, "payload": map[string]int{"payload": payload}}
	for {
		_, err := call[any](ctx, http.MethodPost, d.url+"/hooks/resume", body)
		if err == nil {
			d.events.add("hooks resumed")
			return true
		}
		d.events.add("resumptions that failed")
		if isStatus(err, http.StatusNotFound) {
			over, err := d.postgres.count(ctx, `SELECT count(*) FROM events WHERE run_id = $1 AND
				(type = 'hook_disposed' AND correlation_id IN
					(SELECT correlation_id FROM events WHERE run_id = $1 AND type = 'hook_created' AND data->>'token' = $2)
				OR type = 'run_completed')`, runID, token)
			if err == nil && over > 0 {
				return true
			}
		}
		if !pause(ctx, retryPause) {
			return false
		}
	}
}

// stream is a stream of a run, and what was read of it while it was written.
type stream struct {
	run, name string
	want      int

	// read and done are for the reader alone until it has ended.
	read []chunk
	done bool
}

// chunk is what a step writes: which execution of it, and which chunk of that.
type chunk struct {
	Mark string
	I    int
}

// follow reads a stream to its end, and comes back wherever it was cut off.
func (d *driver) follow(ctx context.Context, s *stream) {
	for {
		var err error
		if s.done, err = d.readStream(ctx, s); s.done {
			return
		}
		if err != nil {
			d.events.add("reads of streams that were cut off")
		}
		if !pause(ctx, retryPause) {
			return
		}
	}
}

// longestSilence is after how long without a chunk readers come back. Of the connections that the SDK's readers lose,
// 5.x does not hear of each, and then waits for ever.
const longestSilence = time.Minute

// awaitFollowing waits until all who read and resume have what they wanted.
func (d *driver) awaitFollowing(t *testing.T) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		d.following.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(harness.Timeout):
		t.Errorf("of app %s, streams have no end, or hooks cannot be resumed", d.name)
	}
}

// readStream reads on, and reports whether it came to the stream's end.
func (d *driver) readStream(ctx context.Context, s *stream) (done bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(longestSilence, cancel)
	defer silence.Stop()
	address := fmt.Sprintf("%s/runs/%s/stream?namespace=%s&startIndex=%d", d.url, s.run, url.QueryEscape(s.name), len(s.read))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return false, err
	}
	resp, err := streamClient.Do(req)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return false, &errStatus{status: resp.StatusCode}
	}
	for lines := bufio.NewReader(resp.Body); ; silence.Reset(longestSilence) {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return true, nil
		}
		if err != nil {
			return false, err // a line without its end is read again
		}
		var c chunk
		if err := json.Unmarshal(line, &c); err != nil {
			return false, err
		}
		s.read = append(s.read, c)
	}
}

// streamClient has no time limit: streams take as long as they take.
var streamClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// effect is what a step has put on record.
type effect struct {
	RunID, Step, Mark string
}

// planOf is the ID of the plan to which something of that name belongs: stable-7.1.0.2 is of stable-7.1.
func planOf(name string) string {
	words := strings.SplitN(name, ".", 3)
	return strings.Join(words[:min(2, len(words))], ".")
}

// effects reads the record of an app, which outlives it.
type effects struct {
	path string
	read int64
}

// next are the effects since the last call. Of a line that is being written nothing is read.
func (e *effects) next() (list []effect) {
	f, err := os.Open(e.path)
	if err != nil {
		return nil // there is none yet
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.NewSectionReader(f, e.read, 1<<40))
	if err != nil {
		return nil
	}
	for line := range slices.Values(strings.SplitAfter(string(data), "\n")) {
		var entry effect
		if !strings.HasSuffix(line, "\n") || json.Unmarshal([]byte(line), &entry) != nil {
			break
		}
		list = append(list, entry)
		e.read += int64(len(line))
	}
	return list
}

// problems says what is wrong with a stream: each execution of the step writes its chunks in order, from the first
// on, and one of them has written them all.
func (s *stream) problems(chunks []chunk) (problems []string) {
	next := map[string]int{}
	for i, c := range chunks {
		if planOf(c.Mark) != planOf(s.name) || c.I != next[c.Mark] {
			problems = append(problems, fmt.Sprintf("%s: chunk %d is %v; want its number %d", s.name, i, c, next[c.Mark]))
		}
		next[c.Mark] = c.I + 1
	}
	for _, n := range next {
		if n == s.want {
			return problems
		}
	}
	return append(problems, fmt.Sprintf("%s: nobody wrote all %d chunks: %v", s.name, s.want, next))
}

func TestStreamProblems(t *testing.T) {
	t.Parallel()
	s := &stream{name: "plan1.1.0", want: 2}
	const a, b = "plan1.1.0#a", "plan1.1.0#b"
	for _, c := range []struct {
		chunks []chunk
		good   bool
	}{
		{nil, false},
		{[]chunk{{a, 0}, {a, 1}}, true},
		{[]chunk{{a, 0}, {b, 0}, {b, 1}}, true},
		{[]chunk{{a, 0}, {b, 0}, {a, 1}}, true},
		{[]chunk{{a, 0}}, false},
		{[]chunk{{a, 0}, {b, 0}}, false},
		{[]chunk{{a, 1}, {a, 0}}, false},
		{[]chunk{{a, 0}, {a, 0}, {a, 1}}, false},
		{[]chunk{{a, 0}, {a, 1}, {a, 1}}, false},
		{[]chunk{{a, 0}, {a, 1}, {"plan2.1.0#c", 0}}, false},
	} {
		if got := s.problems(c.chunks); len(got) == 0 != c.good {
			t.Errorf("%v: problems %v, good is %v", c.chunks, got, c.good)
		}
	}
}
