package tests

import (
	"errors"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

var (
	echo = stepwell.NewWorkflow[string, string]("echo")
	sums = stepwell.NewWorkflow[[]int, int]("sums")
)

// TestDebouncedStartsAreOneRun with the last input.
func TestDebouncedStartsAreOneRun(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.serve(t, echo.Bind(func(_ *stepwell.Context, in string) (string, error) { return in, nil }))
	c := s.client(t, "write")
	var runs []*stepwell.Run[string]
	for _, in := range []string{"first", "last"} {
		run, err := echo.Start(t.Context(), c, in,
			stepwell.Debounced(stepwell.DebounceRule{Key: "c7", Quiet: 2 * time.Second, Max: time.Minute}), stepwell.Attribute("customer", "7"))
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	if runs[0].ID() != runs[1].ID() {
		t.Fatalf("got the runs %s and %s, want one", runs[0].ID(), runs[1].ID())
	}
	if got, err := runs[0].Wait(t.Context()); err != nil || got != "last" {
		t.Errorf("got %q, %v; want the last input", got, err)
	}
	info, err := runs[0].Details(t.Context())
	if err != nil || info.Attributes["$collected"] != "debounce" || info.Attributes["customer"] != "7" {
		t.Errorf("got the attributes %v, %v", info.Attributes, err)
	}
}

// TestBatchStartsOneRun with the list of its items.
func TestBatchStartsOneRun(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.serve(t, sums.Bind(func(_ *stepwell.Context, in []int) (sum int, err error) {
		for _, n := range in {
			sum = 10*sum + n
		}
		return sum, nil
	}))
	c := s.client(t, "write")
	var last *stepwell.Run[int]
	for n := 1; n <= 3; n++ {
		run, err := stepwell.StartBatched(t.Context(), c, sums, n, stepwell.BatchRule{Size: 3, Wait: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if last != nil && last.ID() != run.ID() {
			t.Errorf("item %d is in another run", n)
		}
		last = run
		if info, err := run.Details(t.Context()); n < 3 && (err != nil || info.Status != stepwell.StatusCollecting) {
			t.Errorf("after item %d: got the status %s, %v", n, info.Status, err)
		}
	}
	if got, err := last.Wait(t.Context()); err != nil || got != 123 {
		t.Errorf("got %d, %v; want 123", got, err)
	}
}

// TestLimitsOfAStart make a run wait, or refuse it.
func TestLimitsOfAStart(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.serve(t, approve.Bind(approveOrder))
	c := s.client(t, "write")
	s.admin(t, "PUT", "/v1/limits/stripe", map[string]any{"perKey": 1}, nil)
	use := stepwell.Limits(stepwell.LimitUse{Limit: "stripe", Key: "c7"})
	holder := start(t, c, "order-1", use)
	awaitEvent(t, holder, "hook_created")
	waiter := start(t, c, "order-2", use, stepwell.Priority(time.Minute))
	var slots struct {
		Held, Waiting []struct{ RunID string }
	}
	s.admin(t, "GET", "/v1/limits/stripe/slots?key=c7", nil, &slots)
	if len(slots.Held) != 1 || slots.Held[0].RunID != holder.ID() || len(slots.Waiting) != 1 || slots.Waiting[0].RunID != waiter.ID() {
		t.Errorf("got %+v, want %s with the slot and %s that waits", slots, holder.ID(), waiter.ID())
	}
	_, err := approve.Start(t.Context(), c, "order-3", stepwell.Limits(stepwell.LimitUse{Limit: "unknown"}))
	if e, ok := errors.AsType[*stepwell.APIError](err); !ok || e.Code != "limit_not_found" {
		t.Errorf("got %v, want limit_not_found", err)
	}
	resume(t, c, holder, "order-1", vote{true})
	resume(t, c, waiter, "order-2", vote{true})
	if got, err := waiter.Wait(t.Context()); err != nil || got != "shipped order-2" {
		t.Errorf("got %q, %v", got, err)
	}
}
