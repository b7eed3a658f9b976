package tests

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

var (
	forked    = stepwell.NewWorkflow[string, string]("forked")
	forkPack  = stepwell.NewStep[string, string]("pack")
	forkPrice = stepwell.NewStep[string, string]("price")
	forkKid   = stepwell.NewWorkflow[string, string]("kid")
)

// TestForksEndAsTheOriginal at each position of a log, with a step that the server calls, steps within the call, some at
// once, a sleep, random numbers and a child. No step that is finished there is executed again, and a child that is open
// is started again.
func TestForksEndAsTheOriginal(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var mu sync.Mutex
	executed := map[string]int{}
	count := func(ctx context.Context, in string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		info := stepwell.Info(ctx)
		executed[info.Run.ID+" "+info.ID]++
		return in + "!", nil
	}
	work := func(w *stepwell.Context, in string) (string, error) {
		first, err := forkPack.Run(w, in+fmt.Sprint(w.Rand().IntN(1000)))
		if err != nil {
			return "", err
		}
		own, err := stepwell.Do(w, "own", func(ctx context.Context) (string, error) { return count(ctx, "own") })
		if err != nil {
			return "", err
		}
		if err := w.Sleep(20 * time.Millisecond); err != nil {
			return "", err
		}
		prices, err := stepwell.MapBy(w, []string{"a", "b", "c"}, func(item string) string { return item },
			func(w *stepwell.Context, item string) (string, error) { return forkPrice.Run(w, item+w.UUID()) })
		if err != nil {
			return "", err
		}
		kid, err := forkKid.Child(w, "kid").Await(w)
		return fmt.Sprint(first, own, prices, kid), err
	}
	kid := func(_ *stepwell.Context, in string) (string, error) { return in + "!", nil }
	s.serve(t, forkKid.Bind(kid), forkPack.Bind(count), forkPrice.Bind(count), forked.Bind(work))
	run, err := forked.Start(t.Context(), s.client(t, "write"), "order")
	if err != nil {
		t.Fatal(err)
	}
	want, err := run.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log, children := s.logOf(t, run.ID()), 0
	for at := 1; at < len(log); at++ {
		fork, err := run.Fork(t.Context(), stepwell.ForkOptions{At: int64(at)})
		if err != nil { // only within the result of a step of the function
			if log[at-1].Type != "step_created" && log[at-1].Type != "step_started" ||
				!stepwell.HasCode(err, "fork_refused") {
				t.Errorf("at %d, %s: %v", at, log[at-1].Type, err)
			}
			continue
		}
		got, err := fork.Wait(t.Context())
		details, read := fork.Details(t.Context())
		if of := details.ForkOf; got != want || err != nil || read != nil || of.RunID != run.ID() || of.Events != int64(at) {
			t.Errorf("at %d: got %q, %v, want %q; %+v; its log is %v", at, got, err, want, details, s.logOf(t, fork.ID()))
		} else {
			children += of.Children
		}
		for _, e := range log[:at] {
			mu.Lock()
			if n := executed[fork.ID()+" "+e.CorrelationID]; e.Type == "step_completed" && n > 0 {
				t.Errorf("at %d: step %s was executed again", at, e.CorrelationID)
			}
			mu.Unlock()
		}
	}
	if children == 0 {
		t.Error("no fork says that a child was open")
	}
}

// TestForksGoOnFromTheFailure after the code was mended: one of a run, and those of all others.
func TestForksGoOnFromTheFailure(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var mu sync.Mutex
	broken, packed, priced := true, 0, 0
	s.serve(t, forkPack.Bind(func(_ context.Context, in string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		packed++
		return in, nil
	}), forkPrice.Bind(func(_ context.Context, in string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if priced++; broken {
			return "", stepwell.Fail("no_price", "nobody knows")
		}
		return in + " priced", nil
	}), forked.Bind(func(w *stepwell.Context, in string) (string, error) {
		got, err := forkPack.Run(w, in)
		if err != nil {
			return "", err
		}
		return forkPrice.Run(w, got, stepwell.Remote())
	}))
	c, ctx := s.client(t, "write"), t.Context()
	runs, err := forked.StartAll(ctx, c, []string{"teapot", "cup", "spoon"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stepwell.WaitAll(ctx, runs); err == nil {
		t.Fatal("the runs have not failed")
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	once := stepwell.ForkOptions{IdempotencyKey: "mended"}
	fork, err := runs[0].Fork(ctx, once)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := fork.Wait(ctx); got != "teapot priced" || err != nil {
		t.Errorf("got %q, %v; its log is %v", got, err, s.logOf(t, fork.ID()))
	}
	if again, err := runs[0].Fork(ctx, once); err != nil || again.ID() != fork.ID() {
		t.Errorf("repeated, it is %v, %v", again, err)
	}
	others := stepwell.RunFilter{Workflow: forked.Name(), ErrorCode: "no_price"}
	batch := stepwell.ForkAllOptions{IdempotencyKey: "batch", DryRun: true}
	if all, err := c.ForkAll(ctx, others, batch); err != nil || all.Matched != 3 || all.Done != 0 {
		t.Errorf("a dry run: %+v, %v", all, err)
	}
	batch.DryRun = false
	if all, err := c.ForkAll(ctx, others, batch); err != nil || all.Done != 3 || len(all.RunIDs) != 3 {
		t.Errorf("got %+v, %v", all, err)
	}
	if all, err := c.ForkAll(ctx, others, batch); err != nil || all.Matched != 0 {
		t.Errorf("repeated: %+v, %v", all, err)
	}
	for f, err := range c.Runs(ctx, stepwell.RunFilter{Workflow: forked.Name()}) {
		if err != nil || f.ForkOf == nil {
			continue
		}
		if got, err := forked.Handle(c, f.ID).Wait(ctx); !strings.HasSuffix(got, " priced") || err != nil {
			t.Errorf("fork %s: got %q, %v", f.ID, got, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if packed != 3 || priced != 7 {
		t.Errorf("packed %d times and priced %d times, want 3 and 7", packed, priced)
	}
}

// logged is an event as the API shows it.
type logged struct{ Type, CorrelationID string }

func (s *server) logOf(t *testing.T, id string) []logged {
	t.Helper()
	var page struct{ Data []logged }
	s.admin(t, http.MethodGet, "/v1/runs/"+id+"/events?order=asc&limit=1000", nil, &page)
	return slices.Clip(page.Data)
}
