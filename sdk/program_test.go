package stepwell

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// The definitions of random programs.
var (
	randomChild  = NewWorkflow[string, string]("child")
	randomStep   = NewStep[string, int]("step", Attempts(3), Backoff(time.Minute, time.Hour))
	randomUndone = NewStep[string, int]("undone", Attempts(1))
	randomHook   = NewHook[int]("hook")
	randomInbox  = NewInbox[int]("inbox")
	randomKey    = NewStoreKey[int]("key")

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

func (x *performance) saw(w *Context, what string, values ...any) {
	x.trace = append(x.trace, fmt.Sprint(w.co.Scope.Path(), ": ", what, " ", values))
}

// run runs a program. Its error is one of the program, or that of a wait in a part that was cancelled.
func (x *performance) run(w *Context, p program) (n int, err error) {
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

func (x *performance) simple(w *Context, i instruction) (int, error) {
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
		return randomInbox.ReceiveWithin(w, minutes)
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
func (x *performance) several(w *Context, i instruction) (int, error) {
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
		a, b := randomStep.Go(w, "in"), DoGo(w, "do", x.executes(), pauses)
		n, err := a.Await(w)
		m, errB := b.Await(w)
		return n + m, errors.Join(err, errB)
	case "all":
		all, err := All(w, randomStep.Go(w, "a", Remote()), randomStep.Go(w, "b"), DoGo(w, "do", x.executes(), pauses))
		return len(all), err
	case "first":
		a, b := randomStep.Go(w, "in"), DoGo(w, "do", x.executes(), pauses)
		same := func(_ *Context, n int) (int, error) { return n, nil }
		return Select(w, On(a, same).Keep(), On(b, same), After(minutes, func(*Context) (int, error) { return -1, nil }))
	case "timer":
		t := w.Timer(minutes)
		_, err := randomStep.Run(w, "in")
		t.Cancel(w, "")
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

func (x *performance) nest(w *Context, i instruction) (n int, err error) {
	inner := func(n int) func(*Context) (int, error) {
		return func(w *Context) (int, error) { return x.run(w, i.then[n]) }
	}
	minutes := time.Duration(i.n) * time.Minute
	switch i.do {
	case "go": // may outlive its scope, and the workflow
		Go(w, "go", inner(0))
	case "await":
		return Go(w, "go", inner(0)).Await(w)
	case "within":
		return Go(w, "within", inner(0)).AwaitWithin(w, minutes)
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
		Go(w.Detached(), "go", func(w *Context) (int, error) {
			defer func() { x.flags[done] = true }()
			return x.run(w, i.then[0])
		})
		return 0, w.Until(func() bool { return x.flags[done] })
	default:
		return x.choose(w, i, inner)
	}
	return 0, nil
}

func (x *performance) choose(w *Context, i instruction, inner func(int) func(*Context) (int, error)) (n int, err error) {
	minutes := time.Duration(i.n) * time.Minute
	items := []int{3, 1, 2}[:min(i.n, 3)]
	each := func(w *Context, _ int) (int, error) { return inner(0)(w) }
	switch i.do {
	case "map":
		out, err := Map(w, items, each, Concurrency(1+i.n/2))
		return len(out), err
	case "mapBy":
		out, err := MapBy(w, items, strconv.Itoa, each, CollectErrors())
		return len(out), err
	case "saga":
		return WithSaga(w, func(w *Context, _ *Saga) (int, error) {
			_, _ = randomUndone.Run(w, "in", randomUndone.Undo(func(w *Context, _ string, out *int) error {
				_, err := inner(0)(w)
				x.saw(w, "undone", out != nil, err)
				return err
			}))
			if i.n == 0 {
				return 0, errFailed
			}
			return 0, w.Sleep(minutes)
		})
	default: // select
		a, b := randomStep.Go(w, "in"), Go(w, "go", inner(0))
		cases := []Case[int]{
			On(a, func(w *Context, n int) (int, error) { x.saw(w, "a", n); return inner(1)(w) }),
			On(b, func(*Context, int) (int, error) { return -1, nil }).Keep(),
			After(minutes, inner(2)),
		}
		return Select(w, cases[:2+i.n%2]...)
	}
}
