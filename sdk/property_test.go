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

// The definitions of random programs.
var (
	randomWorkflow = DeclareWorkflow[None, string]("random", WithInbox(randomInbox))
	randomChild    = DeclareWorkflow[string, string]("child")
	randomStep     = DeclareStep[string, int]("step", Attempts(3), Backoff(time.Minute, time.Hour))
	randomUndone   = DeclareStep[string, int]("undone", Attempts(1))
	randomHook     = NewHook[int]("hook")
	randomInbox    = NewInbox[int]("inbox")
	randomKey      = NewKey[int]("key")

	pauses = Backoff(time.Minute, time.Hour) // long enough not to be slept
)

// program is what a coroutine does, one after the other.
type program []instruction

type instruction struct {
	do   string
	n    int       // a small number with a meaning of its own
	then []program // what it does inside
}

func (i instruction) String() string {
	if len(i.then) == 0 {
		return fmt.Sprint(i.do, i.n)
	}
	return fmt.Sprint(i.do, i.n, i.then)
}

// simple instructions have none inside of them; nested maps the others to how many programs they have.
var (
	simple = strings.Fields("do do do step step step remote sleep receive receiveWithin next peek peek value store attribute" +
		" cancel both all first child fail panic defer timer undone")
	nested = map[string]int{
		"go": 1, "await": 1, "within": 1, "map": 1, "mapBy": 1, "select": 3, "patch": 2, "until": 1, "recover": 1, "saga": 1,
		"detached": 1, "loop": 1, "cancelGo": 1,
	}
	nestedNames = []string{
		"go", "await", "within", "map", "mapBy", "select", "patch", "until", "recover", "saga", "detached", "loop", "cancelGo",
	}
)

func randomProgram(random *rand.Rand, depth int) (p program) {
	for range 1 + random.IntN(3) {
		i := instruction{do: simple[random.IntN(len(simple))], n: random.IntN(4)}
		if depth > 0 && random.IntN(2) == 0 {
			i.do = nestedNames[random.IntN(len(nestedNames))]
			for range nested[i.do] {
				i.then = append(i.then, randomProgram(random, depth-1))
			}
		}
		p = append(p, i)
	}
	return p
}

// performance is one execution of a program: cold, or warm over several calls.
type performance struct {
	p       *play
	patched bool // the code has the patches
	trace   []string
	flags   []bool
}

func (x *performance) saw(w *W, what string, values ...any) {
	x.trace = append(x.trace, fmt.Sprint(w.co.Scope.Path(), ": ", what, " ", values))
}

// run runs a program. Its error is one of the program, or that of a wait in a part that was cancelled.
func (x *performance) run(w *W, p program) (n int, err error) {
	for _, i := range p {
		if len(i.then) > 0 {
			n, err = x.nest(w, i)
		} else {
			n, err = x.simple(w, i)
		}
		x.saw(w, i.do, n, err)
		if err != nil && (i.do == "fail" || errors.Is(err, ErrCancelled)) {
			return n, err
		}
	}
	return n, nil
}

const bug = "a bug that is mended later"

var errFailed = errors.New("the program has failed")

// executes returns the function of an inline step. Some attempts fail.
func (x *performance) executes() func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) { return x.p.execute(ctx) }
}

func (x *performance) simple(w *W, i instruction) (int, error) {
	minutes := time.Duration(i.n) * time.Minute
	switch i.do {
	case "do":
		return Do(w, "do", x.executes(), Attempts(i.n+1), pauses)
	case "step":
		return randomStep.Run(w, "in")
	case "remote":
		return randomStep.Run(w, "in", Remote())
	case "undone":
		return randomUndone.Run(w, "in")
	case "sleep":
		return 0, w.Sleep(minutes)
	case "receive":
		return randomHook.Open(w).Receive(w)
	case "receiveWithin":
		return randomHook.Open(w).ReceiveWithin(w, minutes)
	case "next":
		return randomInbox.NextWithin(w, minutes)
	case "peek":
		stored, _ := randomKey.Get(w)
		k, _ := w.Attribute("k")
		x.saw(w, "sees", w.Now().Format(time.TimeOnly), w.UUID(), w.Rand().IntN(100), len(x.trace), stored, k)
	case "value":
		return Value(w, "value", func() int { x.p.counter++; return x.p.counter }), nil
	case "store":
		randomKey.Update(w, func(n int) int { return n + 1 })
	case "attribute":
		w.SetAttribute("k", strconv.Itoa(len(x.trace)))
	case "child":
		out, err := randomChild.Child(w, "in").Await(w)
		return len(out), err
	case "fail":
		if i.n == 0 {
			return 0, errFailed
		}
	case "panic":
		if x.p.bugs > 0 {
			x.p.bugs--
			x.p.panicked = true
			panic(bug)
		}
	default:
		return x.several(w, i)
	}
	return 0, nil
}

// several does what has to do with several operations.
func (x *performance) several(w *W, i instruction) (int, error) {
	minutes := time.Duration(i.n) * time.Minute
	switch i.do {
	case "cancel":
		f := []*Future[int]{randomStep.Go(w, "in", Remote()), DoGo(w, "do", x.executes(), pauses), randomStep.Go(w, "in")}[i.n%3]
		if i.n == 3 {
			if err := w.Sleep(time.Second); err != nil {
				return 0, err
			}
		}
		f.Cancel(w, "not needed")
		return f.Await(w)
	case "both":
		a, b, err := Both(w, randomStep.Go(w, "in"), DoGo(w, "do", x.executes(), pauses))
		return a + b, err
	case "all":
		all, err := All(w, randomStep.Go(w, "a", Remote()), randomStep.Go(w, "b"), DoGo(w, "do", x.executes(), pauses))
		return len(all), err
	case "first":
		a, b := randomStep.Go(w, "in"), DoGo(w, "do", x.executes(), pauses)
		switch First(w, Keep(a), b, w.Timer(minutes)) {
		case a:
			return a.Await(w)
		case b:
			return b.Await(w)
		}
		return -1, nil
	case "timer":
		t := w.Timer(minutes)
		_, err := randomStep.Run(w, "in")
		t.Cancel(w)
		return 0, err
	default: // defer
		defer func() {
			x.saw(w, "deferred", w.UUID()) // not while the workflow only waits
			_, err := Do(w.Detached(), "deferred", x.executes(), pauses)
			x.saw(w, "deferred", err)
		}()
		return 0, w.Sleep(minutes)
	}
}

func (x *performance) nest(w *W, i instruction) (n int, err error) {
	inner := func(n int) func(*W) (int, error) {
		return func(w *W) (int, error) { return x.run(w, i.then[n]) }
	}
	minutes := time.Duration(i.n) * time.Minute
	switch i.do {
	case "go": // may outlive its scope, and the workflow
		Go(w, "go", inner(0))
	case "await":
		return Go(w, "go", inner(0)).Await(w)
	case "within":
		return Within(w, minutes, inner(0))
	case "cancelGo":
		f := Go(w, "go", inner(0))
		if err := w.Sleep(minutes); err != nil {
			return 0, err
		}
		f.Cancel(w, "not needed")
		return f.Await(w)
	case "patch":
		if x.patched && w.Patched("patch") {
			return x.run(w, i.then[1])
		}
		return x.run(w, i.then[0])
	case "recover":
		defer func() {
			if v := recover(); v != nil {
				if v != bug { // a suspension cannot be seen
					x.p.t.Errorf("seed %d: recovered %v", x.p.seed, v)
				}
				panic(v)
			}
		}()
		return x.run(w, i.then[0])
	case "detached":
		return x.run(w.Detached(), i.then[0])
	case "loop":
		for n := range i.n {
			if _, err := x.run(w.Scope(strconv.Itoa(n)), i.then[0]); err != nil {
				return n, err
			}
		}
		return 0, nil
	case "until":
		done := len(x.flags)
		x.flags = append(x.flags, false)
		Go(w.Detached(), "go", func(w *W) (int, error) {
			defer func() { x.flags[done] = true }()
			return x.run(w, i.then[0])
		})
		return 0, w.Until(func() bool { return x.flags[done] })
	default:
		return x.choose(w, i, inner)
	}
	return 0, nil
}

func (x *performance) choose(w *W, i instruction, inner func(int) func(*W) (int, error)) (n int, err error) {
	minutes := time.Duration(i.n) * time.Minute
	items := []int{3, 1, 2}[:min(i.n, 3)]
	each := func(w *W, _ int) (int, error) { return inner(0)(w) }
	switch i.do {
	case "map":
		out, err := Map(w, items, each, Limit(1+i.n/2))
		return len(out), err
	case "mapBy":
		out, err := MapBy(w, items, strconv.Itoa, each, CollectErrors())
		return len(out), err
	case "saga":
		err := func() (err error) {
			saga := w.Saga()
			defer saga.OnError(&err)
			_, _ = randomUndone.Run(w, "in", randomUndone.Undo(func(w *W, _ string, out int) error {
				_, err := inner(0)(w)
				x.saw(w, "undone", out, err)
				return err
			}))
			if i.n == 0 {
				return errFailed
			}
			return w.Sleep(minutes)
		}()
		return 0, err
	default: // select
		a, b := randomStep.Go(w, "in"), Go(w, "go", inner(0))
		cases := []Case[int]{
			OnResult(a, func(w *W, n int, err error) (int, error) { x.saw(w, "a", n, err); return inner(1)(w) }),
			On(b, func(*W, int) (int, error) { return -1, nil }).Keep(),
			After(minutes, inner(2)),
			When(func() bool { n, _ := randomKey.Get(w); return n > 3 }, func(*W) (int, error) { return -2, nil }),
		}
		return Select(w, cases[:2+i.n%3]...)
	}
}

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

	process  *process
	active   *performance // that is executed now
	written  []string     // what was observed by code whose effects are in the log
	commits  int          // until the process dies; negative: never
	accepted int64        // position that the server knows to be kept
	warm     int
}

// process is an app in a process of its own. In memory it has what it has kept.
type process struct {
	app     *App
	handler http.Handler
	kept    *performance
	keep    *keepHint
}

func (p *play) start(patched bool) *process {
	app := NewApp("test", Logger(slog.New(slog.DiscardHandler)), Clock(p.server.Now), Server("http://server"),
		HTTPClient(&http.Client{Transport: p}), StrictInputs())
	app.serving.pauses, app.serving.clockError = 0, 0 // all pauses are virtual
	options := []WorkflowOption{WithInbox(randomInbox)}
	if p.seed%2 == 0 {
		options = append(options, Checkpoint(Batch))
	}
	app.Register(DeclareWorkflow[None, string]("random", options...).Bind(func(w *W, _ None) (string, error) {
		x := &performance{p: p, patched: patched}
		p.active = x
		w.OnEnd(func(w *W, err error) { x.saw(w, "end", err) })
		n, err := x.run(w, p.program)
		return strconv.Itoa(n), err
	}), randomChild.Bind(func(w *W, in string) (string, error) { return in, w.Sleep(time.Minute) }),
		randomStep.Bind(func(ctx context.Context, _ string) (int, error) { return p.execute(ctx) }),
		randomUndone.Bind(func(context.Context, string) (int, error) { p.counter++; return p.counter, nil }))
	handler, err := app.Handler(Unsigned("a test"))
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
// answers get lost, processes die at each commit and before it, attempts of steps fail, things happen during calls, bugs
// are mended and patches deployed. Each call must observe what the one before has observed and written, in the same
// order, and the run must end.
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
