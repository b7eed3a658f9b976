package pull

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func newTestWorkers() *Workers[string] { return NewWorkers(func(string) string { return "owner" }) }

// lost is the fate of a call of which nobody has heard.
func lost(context.Context) (Fate, error) { return FateLost, nil }

// join begins a request of a worker of the app, without waiting.
func join(t *testing.T, w *Workers[string], id string, slots int, hand ...string) *WorkPoll[string] {
	t.Helper()
	p, err := w.Join("app", id, slots, hand)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ask makes a request of a worker that does not wait, and returns the IDs of the calls it gets and of those that are
// over.
func ask(t *testing.T, w *Workers[string], id string, hand ...string) (got, over []string) {
	t.Helper()
	p := join(t, w, id, 1, hand...)
	calls, over := p.Take()
	p.Leave()
	for _, c := range calls {
		got = append(got, c.ID)
	}
	return got, append(over, p.Unknown...)
}

// outcome is what a call led to.
type outcome struct {
	Answer

	err error
}

// call begins a call at a place.
func call(ctx context.Context, p *Place[string], c Call, fate func(context.Context) (Fate, error)) <-chan outcome {
	ended := make(chan outcome, 1)
	go func() {
		a, err := p.Call(ctx, c, fate)
		p.Release(true)
		ended <- outcome{a, err}
	}()
	synctest.Wait()
	return ended
}

func wantIDs(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// TestCallsWithoutAnAnswer end when their worker was silent for so long, in whatever way.
func TestCallsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	kept := func(n int, then Fate) func(context.Context) (Fate, error) {
		return func(context.Context) (Fate, error) {
			if n--; n >= 0 {
				return FateKept, nil
			}
			return then, nil
		}
	}
	away := 1
	for name, tt := range map[string]struct {
		fate  func(context.Context) (Fate, error)
		after func(*testing.T, *Workers[string]) // the worker has got the call; nil for one that does not ask
		took  time.Duration
		want  error
	}{
		"it never asks":         {lost, nil, Silence, ErrNotTaken},
		"it dies with the call": {lost, func(*testing.T, *Workers[string]) {}, Silence, ErrLost},
		"another server kept it": {
			kept(2, FateLost), func(*testing.T, *Workers[string]) {}, Silence + 2*keptEvery, ErrLost,
		},
		"another has its answer": {kept(1, FateOver), func(*testing.T, *Workers[string]) {}, Silence + keptEvery, ErrOver},
		"the database is away": {
			func(context.Context) (Fate, error) {
				if away--; away >= 0 {
					return FateLost, errors.New("away")
				}
				return FateLost, nil
			}, func(*testing.T, *Workers[string]) {}, Silence + keptEvery, ErrLost,
		},
		"it asks once more": {lost, func(t *testing.T, w *Workers[string]) {
			time.Sleep(Silence - time.Second)
			ask(t, w, "a", "c")
		}, 2*Silence - time.Second, ErrLost},
		"its connection ends": {lost, func(t *testing.T, w *Workers[string]) {
			join(t, w, "a", 2, "c").Lose(nil)
			if n := w.Free("app"); n != 0 {
				t.Errorf("a worker whose connection has ended has room for %d calls", n)
			}
		}, cutSilence, ErrLost},
		"the answer to its request does not arrive": {lost, func(t *testing.T, w *Workers[string]) {
			join(t, w, "a", 1).Lose([]Call{{ID: "c"}})
		}, 0, ErrNotTaken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorkers()
				ask(t, w, "a")
				begun := time.Now()
				ended := call(t.Context(), w.Reserve("app"), Call{ID: "c"}, tt.fate)
				if tt.after != nil {
					got, _ := ask(t, w, "a")
					wantIDs(t, "the call", got, "c")
					tt.after(t, w)
				}
				o, took := <-ended, time.Since(begun)
				if w.Free("app") > 0 {
					t.Error("the worker is expected to have room")
				}
				if !errors.Is(o.err, tt.want) || took != tt.took {
					t.Errorf("got %v after %s, want %v after %s", o.err, took, tt.want, tt.took)
				}
				time.Sleep(2 * Silence)
				synctest.Wait()
				if len(w.apps)+len(w.calls)+len(w.owned) > 0 {
					t.Errorf("left: %v %v %v", w.apps, w.calls, w.owned)
				}
			})
		})
	}
}

// TestTheWarmWorkerIsPreferred if it has room. Otherwise the answer is that of a process that does not keep the run.
func TestTheWarmWorkerIsPreferred(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorkers()
		for _, id := range []string{"a", "b"} {
			ask(t, w, id)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first := call(ctx, w.Reserve("app"), Call{ID: "1", Keep: "b"}, lost)
		got, _ := ask(t, w, "b")
		wantIDs(t, "the warm worker", got, "1")
		o := <-call(ctx, w.Reserve("app"), Call{ID: "2", Keep: "b"}, lost)
		if o.Status != http.StatusPreconditionFailed || o.err != nil {
			t.Errorf("without room: got %+v", o)
		}
		cancel()
		<-first
		if _, over := ask(t, w, "b", "1"); !slices.Contains(over, "1") {
			t.Errorf("the call is not over: %v", over)
		}
	})
}

// TestAnAnswerCountsOnce: that of the right run, by the worker that has the call. A second call of the same delivery, such
// as one with the whole log, tells the first that it is dealt with.
func TestAnAnswerCountsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorkers()
		ask(t, w, "a")
		p := w.Reserve("app")
		give := func() <-chan outcome {
			ended := make(chan outcome)
			go func() {
				a, err := p.Call(t.Context(), Call{ID: "c", Run: "r"}, lost)
				ended <- outcome{a, err}
			}()
			synctest.Wait()
			return ended
		}
		ended := give()
		if _, ok := w.Answer("owner", "r", "c", Answer{}); ok {
			t.Error("a call was answered that nobody has taken")
		}
		ask(t, w, "a")
		for _, of := range [][3]string{{"other", "r", "c"}, {"owner", "other", "c"}, {"owner", "r", "other"}} {
			if _, ok := w.Answer(of[0], of[1], of[2], Answer{}); ok {
				t.Errorf("%v was answered", of)
			}
		}
		first, ok := w.Answer("owner", "r", "c", Answer{Status: 412})
		if _, again := w.Answer("owner", "r", "c", Answer{Status: 200}); !ok || again {
			t.Errorf("answered %t, again %t", ok, again)
		}
		if o := <-ended; o.Status != 412 {
			t.Errorf("got %+v", o)
		}
		if got, over := ask(t, w, "a", "c"); len(got) > 0 || !slices.Contains(over, "c") || w.Free("app") != 1 {
			t.Errorf("got %v, over %v, room for %d", got, over, w.Free("app"))
		}
		ended = give()
		if counts, err := first(t.Context()); !counts || err != nil {
			t.Errorf("the first answer counts: %t %v", counts, err)
		}
		ask(t, w, "a")
		second, _ := w.Answer("owner", "r", "c", Answer{Status: 200})
		<-ended
		p.Release(false)
		if counts, err := second(t.Context()); counts || err != nil {
			t.Errorf("the second answer counts: %t %v", counts, err)
		}
	})
}

// TestAPollIsEndedByTheNext of the same worker, which gets what comes. One with calls in hand waits for a second.
func TestAPollIsEndedByTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorkers()
		earlier := join(t, w, "a", 1)
		later := join(t, w, "a", 1)
		earlier.Wait(nil)
		ended := call(t.Context(), w.Reserve("app"), Call{ID: "c"}, lost)
		later.Wait(nil)
		if calls, _ := earlier.Take(); len(calls) > 0 {
			t.Errorf("the earlier poll got %v", calls)
		}
		earlier.Leave()
		calls, _ := later.Take()
		if len(calls) != 1 {
			t.Errorf("the later poll got %v", calls)
		}
		later.Leave()
		begun := time.Now()
		working := join(t, w, "a", 1, "c")
		working.Wait(nil)
		if took := time.Since(begun); took != workingWait {
			t.Errorf("waited for %s", took)
		}
		working.Leave()
		<-ended
	})
}

// TestWorkersAreBounded for each owner.
func TestWorkersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorkers()
		for n := range MaxWorkers {
			ask(t, w, fmt.Sprint(n))
		}
		if _, err := w.Join("app", "more", 1, nil); !errors.Is(err, ErrTooMany) {
			t.Errorf("got %v", err)
		}
		ask(t, w, "0") // it is known
		time.Sleep(2 * Silence)
		synctest.Wait()
		ask(t, w, "more")
	})
}

// TestWorkersRace for calls: each call is taken once, and no worker has more than it has slots for.
func TestWorkersRace(t *testing.T) {
	t.Parallel()
	const calls, workers, slots = 500, 8, 3
	w := newTestWorkers()
	var taken sync.Map
	var answered atomic.Int64
	stop := make(chan struct{})
	var working, calling sync.WaitGroup
	for n := range workers {
		working.Go(func() {
			var mu sync.Mutex
			hand := map[string]bool{}
			for {
				select {
				case <-stop:
					return
				default:
				}
				mu.Lock()
				ids := []string{}
				for id := range hand {
					ids = append(ids, id)
				}
				mu.Unlock()
				p := join(t, w, fmt.Sprint("w", n), slots, ids...)
				p.Wait(stop)
				got, _ := p.Take()
				p.Leave()
				mu.Lock()
				for _, c := range got {
					if _, twice := taken.LoadOrStore(c.ID, n); twice {
						t.Errorf("%s was taken twice", c.ID)
					}
					hand[c.ID] = true
				}
				if len(hand) > slots {
					t.Errorf("%d calls for %d slots", len(hand), slots)
				}
				mu.Unlock()
				for _, c := range got {
					working.Go(func() {
						mu.Lock()
						delete(hand, c.ID)
						mu.Unlock()
						if _, ok := w.Answer("owner", "", c.ID, Answer{Status: 200}); ok {
							answered.Add(1)
						}
					})
				}
			}
		})
	}
	for n := range calls {
		calling.Go(func() {
			var p *Place[string]
			for p == nil {
				p = w.Reserve("app")
				time.Sleep(time.Millisecond)
			}
			if _, err := p.Call(t.Context(), Call{ID: fmt.Sprint(n)}, lost); err != nil {
				t.Errorf("call %d: %v", n, err)
			}
			p.Release(true)
		})
	}
	calling.Wait()
	close(stop)
	working.Wait()
	if answered.Load() != calls {
		t.Errorf("%d of %d calls were answered", answered.Load(), calls)
	}
}
