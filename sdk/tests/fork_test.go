package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
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

// forkRun is a run as the API shows it.
type forkRun struct {
	ID, Status string
	Output     string
	LastSeq    int
	ForkOf     struct {
		RunID  string `json:"runId"`
		Events int
	}
}

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
	log := s.logOf(t, run.ID())
	for at := 1; at < len(log); at++ {
		var fork forkRun
		got, err := s.request(t.Context(), adminKey, http.MethodPost, "/v1/runs/"+run.ID()+"/rerun",
			map[string]int{"at": at}, &fork)
		if err != nil {
			t.Fatal(err)
		}
		if !got.ok() { // only within the result of a step of the function
			if log[at-1].Type != "step_created" && log[at-1].Type != "step_started" || got.status != http.StatusConflict {
				t.Errorf("at %d, %s: %s", at, log[at-1].Type, got)
			}
			continue
		}
		ended := s.awaitEnd(t, fork.ID)
		if ended.Output != want || ended.ForkOf.RunID != run.ID() || ended.ForkOf.Events != at {
			t.Errorf("at %d: got %+v, want the output %q; its log is %v", at, ended, want, s.logOf(t, fork.ID))
		}
		for _, e := range log[:at] {
			mu.Lock()
			if n := executed[fork.ID+" "+e.CorrelationID]; e.Type == "step_completed" && n > 0 {
				t.Errorf("at %d: step %s was executed again", at, e.CorrelationID)
			}
			mu.Unlock()
		}
	}
}

// TestForkGoesOnFromTheFailure after the code was mended.
func TestForkGoesOnFromTheFailure(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var mu sync.Mutex
	broken, packed, priced := true, 0, 0
	s.serve(t, forkPack.Bind(func(_ context.Context, in string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		packed++
		return in, nil
	}), forked.Bind(func(w *stepwell.Context, in string) (string, error) {
		got, err := forkPack.Run(w, in)
		if err != nil {
			return "", err
		}
		return stepwell.Do(w, "price", func(context.Context) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			if priced++; broken {
				return "", stepwell.Permanent(errors.New("no price"))
			}
			return got + " priced", nil
		})
	}))
	run, err := forked.Start(t.Context(), s.client(t, "write"), "teapot")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Wait(t.Context()); err == nil {
		t.Fatal("the run has not failed")
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	var fork forkRun
	s.admin(t, http.MethodPost, "/v1/runs/"+run.ID()+"/rerun", map[string]string{"from": "failure"}, &fork)
	if got := s.awaitEnd(t, fork.ID); got.Output != "teapot priced" {
		t.Errorf("got %+v; its log is %v", got, s.logOf(t, fork.ID))
	}
	mu.Lock()
	defer mu.Unlock()
	if packed != 1 || priced != 2 {
		t.Errorf("packed %d times and priced %d times, want once and twice", packed, priced)
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

func (s *server) awaitEnd(t *testing.T, id string) (run forkRun) {
	t.Helper()
	var raw json.RawMessage
	s.admin(t, http.MethodGet, "/v1/runs/"+id+"/wait?timeout=60s", nil, &raw)
	if err := json.Unmarshal(raw, &run); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return run
}
