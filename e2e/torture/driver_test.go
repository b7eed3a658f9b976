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

// driver acts as the users of an app: it starts runs, resumes their hooks, reads their streams, and retries what fails.
type driver struct {
	*app
	postgres *postgres
	seed     uint64
	// atOnce limits the number of open runs.
	atOnce int
	// events counts successes and failures by kind.
	events *counter

	// following tracks the goroutines that read streams and resume hooks, listening the one that finds new hooks.
	following, listening sync.WaitGroup

	mu      sync.Mutex
	number  uint64          // of the latest plan
	plans   map[string]plan // all attempted plans by ID
	started map[string]plan // plans with a known run, by run ID
	streams map[string]*stream
}

func newDriver(a *app, p *postgres, seed uint64, atOnce int, events *counter) *driver {
	return &driver{
		app: a, postgres: p, seed: seed, atOnce: atOnce, events: events,
		plans: map[string]plan{}, started: map[string]plan{}, streams: map[string]*stream{},
	}
}

// starters is the number of goroutines that start runs.
const starters = 3

// drive starts runs until ctx ends, but at least the given number. Hooks and streams are served until life ends.
func (d *driver) drive(ctx, life context.Context, least uint64) {
	var starting sync.WaitGroup
	enough := func() bool { return ctx.Err() != nil && d.latest() > least }
	for range starters {
		starting.Go(func() {
			for {
				p := d.nextPlan()
				if enough() {
					return
				}
				d.start(life, p)
				d.awaitCapacity(life, enough)
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

// awaitCapacity waits until fewer than atOnce runs are open, or enough have been started.
func (d *driver) awaitCapacity(ctx context.Context, enough func() bool) {
	for !enough() {
		open, err := d.postgres.count(ctx, `SELECT count(*) FROM runs WHERE completed_at IS NULL AND deployment_id = $1`, d.name)
		if err == nil && open < d.atOnce || !pause(ctx, retryPause) {
			return
		}
	}
}

// start starts a run of the plan. Each retry gets a new plan ID, because a failed attempt may still have created a run.
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

// track records a run and starts to read its streams.
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

// listen resumes every announced hook, including those of runs whose start seemed to fail.
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

// resumeAll sends all payloads of a hook in random order.
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

// resume resumes a hook until one attempt succeeds. A failed attempt may have taken effect, after which the run may
// have ended or disposed the hook; resume then stops, too.
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
			ended, err := d.postgres.count(ctx, `SELECT count(*) FROM events WHERE run_id = $1 AND
				(type = 'hook_disposed' AND correlation_id IN
					(SELECT correlation_id FROM events WHERE run_id = $1 AND type = 'hook_created' AND data->>'token' = $2)
				OR type = 'run_completed')`, runID, token)
			if err == nil && ended > 0 {
				return true
			}
		}
		if !pause(ctx, retryPause) {
			return false
		}
	}
}

// stream is a stream of a run, with the chunks that were read while it was written.
type stream struct {
	run, name string
	want      int

	// read and done belong to the reader until it has ended.
	read []chunk
	done bool
}

// chunk is a chunk written by a step: the mark of the execution, and the index within it.
type chunk struct {
	Mark string
	I    int
}

// follow reads a stream to its end, and continues after a broken connection.
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

// longestSilence is the time without a chunk after which readers reconnect. The SDK's 5.x line does not notice every
// broken connection, and would wait forever.
const longestSilence = time.Minute

// awaitFollowing waits until all streams are read and all hooks are resumed.
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
		t.Errorf("app %s: some streams did not end, or some hooks could not be resumed", d.name)
	}
}

// readStream continues to read a stream, and reports whether it reached the end.
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
			return false, err // an incomplete line is read again
		}
		var c chunk
		if err := json.Unmarshal(line, &c); err != nil {
			return false, err
		}
		s.read = append(s.read, c)
	}
}

// streamClient has no timeout, because streams may be long.
var streamClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// effect is the app's record of an executed step.
type effect struct {
	RunID, Step, Mark string
}

// planOf returns the plan ID in the name of a part: stable-7.1.0.2 belongs to stable-7.1.
func planOf(name string) string {
	words := strings.SplitN(name, ".", 3)
	return strings.Join(words[:min(2, len(words))], ".")
}

// effects reads the file in which an app records effects. The file survives restarts of the app.
type effects struct {
	path string
	read int64
}

// next returns the effects since the last call. It does not read incomplete lines.
func (e *effects) next() (list []effect) {
	f, err := os.Open(e.path)
	if err != nil {
		return nil // the file does not exist yet
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

// problems checks the chunks of a stream: each execution of the step writes its chunks in order from the first, and at
// least one execution writes all of them.
func (s *stream) problems(chunks []chunk) (problems []string) {
	next := map[string]int{}
	for i, c := range chunks {
		if planOf(c.Mark) != planOf(s.name) || c.I != next[c.Mark] {
			problems = append(problems, fmt.Sprintf("%s: chunk %d is %v; want index %d", s.name, i, c, next[c.Mark]))
		}
		next[c.Mark] = c.I + 1
	}
	for _, n := range next {
		if n == s.want {
			return problems
		}
	}
	return append(problems, fmt.Sprintf("%s: no execution wrote all %d chunks: %v", s.name, s.want, next))
}

func TestStreamProblemsFindsMissingAndMisorderedChunks(t *testing.T) {
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
