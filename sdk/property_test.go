package stepwell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
	"github.com/stepwell-dev/stepwell/sdk/internal/memserver"
)

// play plays the run of a random program with random faults. It is the network between a server and processes.
type play struct {
	t       *testing.T
	seed    uint64
	random  *rand.Rand
	program program
	server  *memserver.Server
	run     *memserver.Run
	counter int // of executions
	bugs    int // how often the program still panics
	failed  int // calls in a row
	deploys bool

	panicked bool // in this call

	process *process
	active  *performance // that is executed now
	written []string     // what was observed by code whose effects are in the log
	commits int          // until the process dies; negative: never
	warm    int
}

// process is an app in a process of its own. In memory it has what it has kept.
type process struct {
	app     *App
	handler http.Handler
	kept    *performance
	keep    *keepHint
}

func (p *play) start(patched bool) *process {
	app := NewApp(AppConfig{
		Name: "test", Unsigned: "a test", Logger: slog.New(slog.DiscardHandler), Now: p.server.Now, Server: "http://server",
		HTTP: &http.Client{Transport: p}, StrictInputs: true,
	})
	app.serving.clockError = 0 // all pauses are virtual
	options := []WorkflowOption{WithInbox(randomInbox)}
	if p.seed%2 == 0 {
		options = append(options, BatchResults())
	}
	app.Register(NewWorkflow[None, string]("random", options...).Bind(func(w *Context, _ None) (string, error) {
		x := &performance{p: p, patched: patched}
		p.active = x
		w.OnEnd(func(w *Context, err error) { x.saw(w, "end", err) })
		n, err := x.run(w, p.program)
		return strconv.Itoa(n), err
	}), randomChild.Bind(func(w *Context, in string) (string, error) { return in, w.Sleep(time.Minute) }),
		randomStep.Bind(func(ctx context.Context, _ string) (int, error) { return p.execute(ctx) }),
		randomUndone.Bind(func(context.Context, string) (int, error) { p.counter++; return p.counter, nil }))
	handler, err := app.Handler()
	if err != nil {
		p.t.Fatal(err)
	}
	return &process{app: app, handler: handler}
}

func (p *play) stop(old *process) {
	old.app.serving.kept.drop()
}

func (p *play) execute(ctx context.Context) (int, error) {
	p.counter++
	if p.counter%4 == 0 {
		return 0, errors.New("it fails now and then")
	}
	randomKey.Set(Store(ctx), p.counter)
	return p.counter, nil
}

// Next implements engine.Inline.
func (p *play) Next(running []*engine.Operation) int { return p.random.IntN(len(running)) }

// Execute implements engine.Inline.
func (p *play) Execute(ctx context.Context, op *engine.Operation) (engine.Result, error) {
	return op.Execute(ctx), nil
}

// RoundTrip carries commands of a call to the server.
func (p *play) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(status int, v any) (*http.Response, error) {
		data, err := json.Marshal(v)
		return &http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader(data))}, err
	}
	if p.commits == 0 {
		return answer(http.StatusGone, nil)
	}
	p.commits--
	if p.random.IntN(2) == 0 {
		p.server.Happen()
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		return nil, err
	}
	choose := p.server.Choose
	p.server.Choose = nil // what happens beside the commands has happened above
	events, err := p.server.Command(p.run, body, after)
	p.server.Choose = choose
	if err != nil {
		p.t.Errorf("seed %d: %v\n%s", p.seed, err, body)
		return answer(http.StatusGone, nil)
	}
	p.written = slices.Clone(p.active.trace)
	if p.commits == 0 && p.random.IntN(2) == 0 { // it is written, but the process does not learn that
		return answer(http.StatusGone, nil)
	}
	return answer(http.StatusOK, map[string]any{"seq": len(p.run.Log), "events": events})
}

// ServeHTTP carries calls of the server to the process.
func (p *play) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var call map[string]any
	if err == nil {
		err = json.Unmarshal(body, &call)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	run := call["run"].(map[string]any)
	if call["type"] == "step" || run["id"] != p.run.ID {
		p.send(w, p.process, call)
		return
	}
	if p.deploys && p.random.IntN(3) == 0 { // another process, with the patches
		p.stop(p.process)
		p.process, p.deploys = p.start(true), false
	}
	if p.random.IntN(4) == 0 { // the call is doubled, and that answer is lost
		twin := p.start(p.seed%3 == 1 || p.seed%3 == 0 && !p.deploys)
		answer := httptest.NewRecorder()
		p.send(answer, twin, withoutCommands(call))
		p.check(answer)
		p.stop(twin)
	}
	p.call(w, call)
}

// withoutCommands returns the call of a server that takes no commands before the answer: of two copies of a call that
// write, the server refuses one.
func withoutCommands(call map[string]any) map[string]any {
	server := maps.Clone(call["server"].(map[string]any))
	server["features"] = slices.DeleteFunc(slices.Clone(server["features"].([]any)), func(name any) bool {
		return name == "commands"
	})
	call = maps.Clone(call)
	call["server"] = server
	return call
}

// call calls the process, and loses the answer now and then.
func (p *play) call(w http.ResponseWriter, call map[string]any) {
	call["token"] = "swct_1"
	server := call["server"].(map[string]any)
	server["features"] = append(server["features"].([]any), "keep")
	p.panicked = false
	p.commits = p.random.IntN(5) - 1
	if p.failed > 1 {
		p.commits = -1
	}
	all := call["events"]
	if keep := p.process.keep; keep != nil && p.random.IntN(4) > 0 {
		call["since"], call["keep"] = keep.Seq, keep.By
		call["events"] = p.run.Log[keep.Seq:]
		p.active = p.process.kept
	}
	answer := httptest.NewRecorder()
	p.send(answer, p.process, call)
	if answer.Code == http.StatusPreconditionFailed {
		delete(call, "since")
		call["events"] = all
		answer = httptest.NewRecorder()
		p.send(answer, p.process, call)
	} else if call["since"] != nil {
		p.warm++
	}
	p.check(answer)
	if p.random.IntN(3) == 0 {
		p.server.Happen() // during the call
	}
	p.acknowledge(w, answer)
}

// acknowledge passes an answer on to the server, or loses it.
func (p *play) acknowledge(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	var got struct{ Keep *keepHint }
	_ = json.Unmarshal(answer.Body.Bytes(), &got) // errors have none
	p.process.keep, p.process.kept = got.Keep, p.active
	if answer.Code != http.StatusOK || p.failed < 2 && p.random.IntN(4) == 0 {
		if p.failed++; p.random.IntN(2) == 0 {
			w.WriteHeader(memserver.StatusLost)
		} else {
			w.WriteHeader(http.StatusBadGateway)
		}
		return
	}
	p.failed = 0
	if !p.panicked { // what was observed before a panic is not all written
		p.written = slices.Clone(p.active.trace)
	}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(answer.Body.Bytes()) // a recorder
}

func (p *play) send(w http.ResponseWriter, to *process, call map[string]any) {
	body, err := json.Marshal(call)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx := engine.WithInline(p.t.Context(), p)
	to.handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(body)))
}

// check checks that the execution has observed what is in the log.
func (p *play) check(answer *httptest.ResponseRecorder) {
	p.t.Helper()
	body := answer.Body.String()
	if answer.Code != http.StatusOK && !strings.Contains(body, "stale_invocation") && !strings.Contains(body, bug) {
		p.fail("the call was answered %d: %s", answer.Code, body)
	}
	got := p.active.trace
	if n := min(len(got), len(p.written)); !slices.Equal(got[:n], p.written[:n]) ||
		answer.Code == http.StatusOK && len(got) < len(p.written) {
		p.fail("the code has observed\n%s\nafter\n%s", strings.Join(got, "\n"), strings.Join(p.written, "\n"))
	}
}

func (p *play) fail(format string, args ...any) {
	p.t.Helper()
	log, _ := json.MarshalIndent(p.run.Log, "", " ") // it was made from JSON
	p.t.Fatalf("seed %d: %s\nprogram %v\nlog %s", p.seed, fmt.Sprintf(format, args...), p.program, log)
}

var (
	programs  = flag.Int("programs", 300, "how many random programs are run")
	firstSeed = flag.Uint64("seed", 0, "of the first random program")
)

// TestReplayIsAFunctionOfTheLog runs random workflows with random histories. Their calls are cold or warm and doubled;
// answers get lost, processes die at each commit and before it, attempts of steps fail, things happen during calls,
// bugs are mended and patches deployed. Each call must observe what the one before has observed and written, in the
// same order, and the run must end.
func TestReplayIsAFunctionOfTheLog(t *testing.T) {
	t.Parallel()
	warm, invocations := 0, 0
	for seed := *firstSeed; seed < *firstSeed+uint64(*programs); seed++ {
		random := rand.New(rand.NewPCG(seed, 2))
		p := &play{
			t: t, seed: seed, random: random, program: randomProgram(random, 3), deploys: seed%3 == 0, bugs: random.IntN(3),
			server: memserver.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		}
		p.play()
		warm, invocations = warm+p.warm, invocations+p.run.Invocations
	}
	t.Logf("%d programs, %d invocations, %d of them warm", *programs, invocations, warm)
	if warm < *programs/4 {
		t.Errorf("only %d invocations were warm", warm)
	}
}

// play runs the program to its end.
func (p *play) play() {
	p.server.Function, p.server.Choose = p, p.random.IntN
	p.process = p.start(p.seed%3 == 1)
	defer func() { p.stop(p.process) }()
	p.run = p.server.Start("random", json.RawMessage("{}"))
	p.server.OpenInbox(p.run, "inbox")
	for round := 0; p.run.Status == "running"; round++ {
		p.server.Advance(time.Duration(p.random.IntN(60)) * time.Minute)
		if round == 40 {
			p.server.RunUntilDone()
		}
		if round > 80 {
			p.fail("the run does not end: %s", p.run.LastError)
		}
		switch p.random.IntN(4) {
		case 0:
			_ = p.server.Send(p.run, "inbox", "", json.RawMessage(strconv.Itoa(round))) // it may have ended
		case 1:
			if p.seed%5 == 0 && round > 4 {
				p.server.Cancel(p.run, "enough", 1000*time.Hour)
			}
		default:
			for _, token := range p.run.Tokens() {
				_ = p.server.Resume(token, json.RawMessage(strconv.Itoa(round))) // it is open
			}
		}
	}
}
