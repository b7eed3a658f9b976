package stepwell

import (
	"cmp"
	"container/list"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// serving is how an app serves calls.
type serving struct {
	server string
	http   *http.Client
	signed bool // calls are verified
	strict bool
	// process names this process in hints to the server.
	process  string
	kept     keptRuns
	underWay *callsUnderWay
	// pauses is how long attempts of an inline step may be apart in one call, all in all.
	pauses time.Duration
	// beatEvery is how far apart heartbeats are sent.
	beatEvery time.Duration
	// sendEvery is how far apart requests that write to streams are.
	sendEvery         time.Duration
	clockError        time.Duration
	aroundSteps       []func(context.Context, StepInfo, func(context.Context) error) error
	aroundInvocations []func(context.Context, InvocationInfo, func(context.Context) error) error
}

func newServing(c AppConfig) serving {
	pauses, beats, sends := time.Second, beatEvery, sendEvery
	if c.Now != nil {
		pauses, beats, sends = 0, 0, 0
	}
	return serving{
		server: cmp.Or(c.Server, os.Getenv("STEPWELL_URL")), http: cmp.Or(c.HTTP, defaultClient()), strict: c.StrictInputs,
		process: rand.Text(), pauses: pauses, beatEvery: beats, sendEvery: sends, clockError: clockError,
		aroundSteps: c.InterceptSteps, aroundInvocations: c.InterceptInvocations,
		underWay: &callsUnderWay{by: map[callID]*sharedCall{}},
		kept: keptRuns{
			bytes: cmp.Or(c.CacheBytes, 64<<20),
			now:   time.Now, //nolint:forbidigo // the age is real time
			byRun: map[string]*list.Element{}, order: list.New(),
		},
	}
}

// errNotKept asks the server for the whole log.
var errNotKept = errors.New("the run is not kept")

// codes of errors that block a run.
const (
	codePanic       = "panic"
	codeMisuse      = "misuse"
	codeStuck       = "stuck"
	codeDiverged    = "diverged"
	codeUnsupported = "unsupported"
	codeBlocked     = "blocked"
)

// required are the features that a server must have. Those that make runs faster, or survive more, may be missing.
var required = []string{
	"seen", "at", "known", "firstAttempt", "retryAfter", "await", "cancelStep", "cancelWait", "cancel", "store", "inbox",
}

// invoke runs the workflow as far as it goes. An error means that the run is blocked: nothing is recorded.
func (a *App) invoke(ctx context.Context, c call) (got answer, err error) {
	d, ok := a.workflows[c.Run.Workflow]
	if !ok {
		return answer{}, &failure{
			Message: fmt.Sprintf("app %s has no workflow %q: register it with Bind", a.name, c.Run.Workflow),
			Code:    "unknown_workflow",
		}
	}
	var missing []string
	for _, feature := range required {
		if !slices.Contains(c.Server.Features, feature) {
			missing = append(missing, feature)
		}
	}
	if len(missing) > 0 {
		return answer{}, &failure{Code: codeUnsupported, Message: fmt.Sprintf(
			"the server does not offer %s, which this SDK needs: upgrade the server", strings.Join(missing, ", "))}
	}
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	host := a.newHost(c, lost)
	if c.After > 0 {
		if host == nil {
			return answer{}, &failure{Code: codeUnsupported, Message: "the log is longer than the call: set STEPWELL_URL, " +
				"so that the rest can be read"}
		}
		rest, err := host.Read(ctx, c.After)
		if err != nil {
			return answer{}, fmt.Errorf("read the log: %w", err)
		}
		c.Events = append(c.Events, rest...)
	}
	x, err := a.execution(d, c)
	if err != nil {
		return answer{}, err
	}
	x.begin(ctx, c, host)
	x.sender = a.newSender(ctx, host, x.offers("stream"), func(error) {})
	if c.Type == typeCheck {
		defer x.engine.Close()
		return x.advance(ctx, c)
	}
	info := InvocationInfo{x.info, c.Attempt, len(c.Events), x.warm, c.trace}
	err = around(ctx, info, a.serving.aroundInvocations, func(ctx context.Context) (err error) {
		if got, err = x.advance(ctx, c); err == nil {
			err = x.written()
		}
		return err
	})
	if err != nil || got.Keep == nil {
		x.engine.Close()
	} else {
		a.serving.kept.put(c.Run.ID, x)
	}
	return got, err
}

// execution returns the execution that a call goes on with: one that is kept, or a new one.
func (a *App) execution(d Definition, c call) (*execution, error) {
	if c.Type == typeCheck {
		return a.newExecution(d, c), nil
	}
	kept := a.serving.kept.take(c.Run.ID)
	if c.Since == 0 {
		if kept != nil {
			kept.engine.Close()
		}
		return a.newExecution(d, c), nil
	}
	if kept == nil {
		return nil, errNotKept
	}
	e := kept.engine
	if c.Keep != a.serving.process || c.Since != e.Last() || e.Resume(c.Events) != nil {
		e.Close()
		return nil, errNotKept
	}
	kept.warm = true
	return kept, nil
}

func (a *App) newExecution(d Definition, c call) *execution {
	e := engine.New(c.Events, engine.Config{
		Strict: a.serving.strict, Listen: listenEvery,
		Size: func(command any) int { return grown(a.codec, sizeOf(command)) },
		Differs: func(op *engine.Operation, logged engine.Event) {
			a.logger.Warn("the input of a step is not the one in the log: make it from the workflow's input and results only",
				"run", c.Run.ID, "workflow", c.Run.Workflow, "step", op.ID, "place", op.Place,
				"log", string(logged.Payload), "code", string(op.Input))
		},
	})
	x := &execution{
		engine: e, app: a, info: infoOf(c), options: d.options,
		store: values{}, attributes: values{}, inboxes: map[string]bool{}, randoms: randoms{}, chunks: map[string]int64{},
	}
	x.root = &cancelScope{exec: x, run: true}
	if x.seed = c.Run.ID; len(c.Events) > 0 {
		x.seed = cmp.Or(c.Events[0].Data.Fork.Seed, x.seed)
		for key, value := range c.Events[0].Data.Attributes {
			data, _ := json.Marshal(value) // texts always encode
			x.attributes[key] = entry{data, func() int64 { return 0 }}
		}
	}
	if len(c.Events) > 0 && c.Events[0].Data.ContinuedFrom != "" {
		x.takeOver(c.Events)
	}
	e.Observe = x.observe
	e.SetExecuted(c.Known)
	e.Begin(d.name, func(co *engine.Coroutine) {
		root := &Context{exec: x, co: co, scope: x.root}
		x.output, x.failed = d.workflow(root, c.Run.Input)
		root.end(x.failed)
	})
	return x
}

// begin prepares an execution for a call.
func (x *execution) begin(ctx context.Context, c call, host *callHost) {
	x.attempt, x.features, x.hooksURL = c.Attempt, c.Server.Features, c.HooksURL
	x.deadline, _ = ctx.Deadline()
	x.engine.Host, x.host = nil, host
	if host != nil && x.offers("commands") {
		x.engine.Host = host
	}
}

// advance executes the workflow as far as it goes.
func (x *execution) advance(ctx context.Context, c call) (answer, error) {
	got, done, err := x.engine.Advance(ctx)
	if err != nil {
		return x.stopped(c, got, err)
	}
	out := answer{Commands: orEmpty(got.Commands), Open: got.Open, Seen: x.engine.Last()}
	if done {
		if isBlocked(x.failed) {
			if got.Results {
				return out, nil // they would happen again; the next call is blocked
			}
			f := encodeError(x.failed)
			f.Code = cmp.Or(f.Code, codeBlocked)
			return answer{}, &f
		}
		if isContinuation(x.failed) && !x.offers("continueAs") {
			return answer{}, &failure{Code: codeUnsupported, Message: "the server does not offer continueAs: upgrade it"}
		}
		out.Commands = append(out.Commands, x.ending(x.output, x.failed))
		return out, nil
	}
	out.Await = got.Await
	if k := &x.app.serving.kept; x.offers("keep") && k.bytes > 0 && x.engine.CanResume() {
		out.Keep = &keepHint{x.engine.Last(), x.app.serving.process, keepAge.String()}
	}
	return out, nil
}

// written sends what the workflow has written to streams. What the server refuses blocks the run.
func (x *execution) written() error {
	err := x.sender.end()
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	return err
}

// stopped returns what a call is answered that could not go on. If inline steps have results that are not written, they
// are the answer: otherwise these steps would happen again. The next call, which follows at once, then says why.
func (x *execution) stopped(c call, got engine.Answer, err error) (answer, error) {
	p, isPanic := errors.AsType[*engine.Panic](err)
	undecodable, isUndecodable := errors.AsType[*undecodableError](err)
	if isPanic && x.options.failRuns && !isUndecodable {
		f := panicFailure(p.Value, p.Stack)
		return answer{Commands: append(got.Commands, x.ending(nil, f)), Open: got.Open}, nil
	}
	if got.Results {
		return answer{Commands: got.Commands, Open: got.Open, Seen: x.engine.Last()}, nil
	}
	if d, ok := errors.AsType[*engine.Divergence](err); ok {
		d.Run, d.Deployment, d.Registered = c.Run.ID, c.Run.Deployment, x.app.has
		return answer{}, &failure{Message: d.Error(), Code: codeDiverged}
	}
	if m, ok := errors.AsType[*engine.MisuseError](err); ok {
		return answer{}, &failure{Message: m.Error(), Code: codeMisuse}
	}
	if isUndecodable {
		return answer{}, &failure{Message: undecodable.Error(), Code: codeUndecodable}
	}
	if errors.Is(err, engine.ErrStale) {
		return answer{}, errStale
	}
	if s, ok := errors.AsType[*engine.Stuck](err); ok {
		return answer{}, &failure{s.Error(), codeStuck, stackDetails(s.Stack)}
	}
	if !isPanic {
		return answer{}, err
	}
	return answer{}, panicFailure(p.Value, p.Stack)
}

// has reports whether the app has a step or workflow with the name.
func (a *App) has(name string) bool {
	_, step := a.steps[name]
	_, workflow := a.workflows[name]
	return step || workflow
}

// keepHint tells the server that this process can go on with the events after a position.
type keepHint struct {
	Seq int64  `json:"seq"`
	By  string `json:"by"`
	For string `json:"for"`
}

// ending returns the command that ends the run.
func (x *execution) ending(output json.RawMessage, err error) any {
	if x.endsCancelled(err) {
		return map[string]any{"type": "cancelled"}
	}
	if c, ok := errors.AsType[*continuation](err); ok {
		return x.continuing(c)
	}
	if err != nil {
		return map[string]any{"type": "fail", "error": encodeError(err)}
	}
	return completion{"complete", output}
}

// completion is the command that completes the run.
type completion struct {
	Type   string          `json:"type"`
	Output json.RawMessage `json:"output"`
}

// keptRuns has the executions of runs that wait for their next call, those that were used last at the front.
type keptRuns struct {
	bytes int // how many they may have together
	now   func() time.Time

	mu    sync.Mutex
	byRun map[string]*list.Element
	order *list.List // of *keptRun
	size  int
	sweep *time.Timer // set while something is kept
}

type keptRun struct {
	id    string
	x     *execution
	bytes int
	until time.Time
}

// keepAge is how long a run is kept after a call.
const keepAge = time.Minute

// take removes an execution and returns it; nil if the run is not kept.
func (k *keptRuns) take(runID string) *execution {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, ok := k.byRun[runID]
	if !ok {
		return nil
	}
	return k.remove(e).x
}

func (k *keptRuns) remove(e *list.Element) *keptRun {
	run := k.order.Remove(e).(*keptRun)
	delete(k.byRun, run.id)
	k.size -= run.bytes
	return run
}

// put keeps an execution. It ends others that are too large or too old.
func (k *keptRuns) put(runID string, x *execution) {
	run := &keptRun{runID, x, x.engine.Bytes() + coroutineBytes, k.now().Add(keepAge)}
	k.mu.Lock()
	var over []*keptRun
	if e, ok := k.byRun[runID]; ok {
		over = append(over, k.remove(e))
	}
	k.byRun[runID] = k.order.PushFront(run)
	k.size += run.bytes
	over = append(over, k.excess()...)
	if k.sweep == nil {
		k.sweep = time.AfterFunc(keepAge, k.sweepOld)
	}
	k.mu.Unlock()
	end(over)
}

// coroutineBytes is about how much memory the coroutines of a run take.
const coroutineBytes = 16 << 10

// excess removes what is too much or too old, the oldest first.
func (k *keptRuns) excess() (over []*keptRun) {
	for e := k.order.Back(); e != nil; e = k.order.Back() {
		if k.size <= k.bytes && k.now().Before(e.Value.(*keptRun).until) {
			break
		}
		over = append(over, k.remove(e))
	}
	return over
}

// sweepOld ends executions that nobody has used for long.
func (k *keptRuns) sweepOld() {
	k.mu.Lock()
	over := k.excess()
	k.sweep = nil
	if k.order.Len() > 0 {
		k.sweep = time.AfterFunc(keepAge, k.sweepOld)
	}
	k.mu.Unlock()
	end(over)
}

func end(runs []*keptRun) {
	for _, run := range runs {
		run.x.engine.Close()
	}
}
