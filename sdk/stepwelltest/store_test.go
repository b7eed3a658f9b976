package stepwelltest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var balance = stepwell.NewStoreKey[int64]("balance")

// deposit is a step that adds to the balance, and fails in its first attempt after it has written.
var deposit = stepwell.NewStep[int64, int64]("deposit")

func depositing() stepwell.Definition {
	attempts := map[string]int{}
	return deposit.Bind(func(ctx context.Context, cents int64) (int64, error) {
		store, key := stepwell.Store(ctx), stepwell.IdempotencyKey(ctx)
		if attempts[key]++; attempts[key] == 1 {
			balance.Set(store, 1_000_000)
			return 0, errors.New("the bank is busy")
		}
		before, _ := balance.Get(store)
		balance.Update(store, func(n int64) int64 { return n + cents })
		return before, nil
	})
}

func TestAStoreWriteIsThereWithItsStepOrNot(t *testing.T) {
	t.Parallel()
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		if n, ok := balance.Get(w); ok {
			return "", fmt.Errorf("the store has %d at first", n)
		}
		balance.Set(w, 5)
		before, err := deposit.Run(w, 10)
		if err != nil {
			return "", err
		}
		after, _ := balance.Get(w)
		inline, err := stepwell.Do(w, "inline", func(ctx context.Context) (int64, error) {
			balance.Update(stepwell.Store(ctx), func(n int64) int64 { return n * 2 })
			n, _ := balance.Get(stepwell.Store(ctx))
			return n, nil
		})
		if err != nil {
			return "", err
		}
		if _, err := stepwell.Do(w, "failing", func(ctx context.Context) (int64, error) {
			balance.Set(stepwell.Store(ctx), -1)
			return 0, stepwell.Permanent(errors.New("no"))
		}); err == nil {
			return "", errors.New("it did not fail")
		}
		end, _ := balance.Get(w)
		return fmt.Sprint(before, after, inline, end), w.Sleep(time.Hour)
	})
	env.Register(depositing())
	env.RunUntilDone()
	if got, err := run.Result(); got != "5 15 30 30" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if n, ok := stepwelltest.Stored(env, balance, run.ID()); n != 30 || !ok {
		t.Errorf("outside it is %d, %v", n, ok)
	}
}

// TestWritesThatExceedTheStore fail a step for good, and block a workflow.
func TestWritesThatExceedTheStore(t *testing.T) {
	t.Parallel()
	text := stepwell.NewStoreKey[string]
	big := strings.Repeat("x", 1<<20-1) // with its quotes it has a byte too many
	for what, write := range map[string]func(stepwell.Storer){
		"the value of": func(s stepwell.Storer) { text("k").Set(s, big) },
		"is empty":     func(s stepwell.Storer) { text("").Set(s, "") },
		"invalid":      func(s stepwell.Storer) { text("a\x00").Set(s, "") },
		"a key of":     func(s stepwell.Storer) { text(strings.Repeat("ä", 257)).Set(s, "") },
		"257 keys": func(s stepwell.Storer) {
			for i := range 257 {
				text(fmt.Sprint(i)).Set(s, "")
			}
		},
	} {
		attempts := 0
		env, run := start(t, func(w *stepwell.Context) (string, error) {
			return stepwell.Do(w, "large", func(ctx context.Context) (string, error) {
				attempts++
				text("other").Set(stepwell.Store(ctx), "")
				text("other").Delete(stepwell.Store(ctx))
				write(stepwell.Store(ctx))
				return "", nil
			})
		})
		env.RunUntilDone()
		_, err := run.Result()
		if !stepwell.HasCode(err, "store_limit") || !strings.Contains(err.Error(), what) || attempts != 1 {
			t.Errorf("%s: after %d attempts got %v", what, attempts, err)
		}
		env, run = start(t, func(w *stepwell.Context) (string, error) {
			write(w)
			return "", nil
		})
		env.RunUntilDone()
		if _, err := run.Result(); !errors.Is(err, stepwelltest.ErrRunning) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: got %v, want a blocked run", what, err)
		}
	}
}

func TestReadsOfTheStoreReplay(t *testing.T) {
	t.Parallel()
	// The second attempt of the step and the end of the sleep are in the log before the workflow is called. So the
	// workflow writes before it sees the result of the step, but behind it in the log.
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		f := deposit.Go(w, 10)
		w.Sleep(time.Second)
		balance.Set(w, 1)
		if _, err := f.Await(w); err != nil {
			return "", err
		}
		n, _ := balance.Get(w)
		w.Sleep(time.Minute)
		again, _ := balance.Get(w)
		balance.Delete(w)
		_, there := balance.Get(w)
		return fmt.Sprint(n, again, there), w.Sleep(time.Minute)
	})
	env.Register(depositing())
	env.RunUntilDone()
	if got, err := run.Result(); got != "1 1 false" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if n, ok := stepwelltest.Stored(env, balance, run.ID()); ok {
		t.Errorf("outside it is %d after it was deleted", n)
	}
}

func TestValueThatDoesNotDecodeBlocksTheRun(t *testing.T) {
	t.Parallel()
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		stepwell.NewStoreKey[string]("balance").Set(w, "text")
		balance.Get(w)
		return "", nil
	})
	env.RunUntilDone()
	if _, err := run.Result(); !errors.Is(err, stepwelltest.ErrRunning) {
		t.Errorf("got %v, want a blocked run", err)
	}
}

func TestAttributesAreThoseThatWereSeen(t *testing.T) {
	t.Parallel()
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		_, before := w.Attribute("carrier")
		w.SetAttribute("carrier", "snail")
		w.SetAttribute("carrier", "snail")
		w.Sleep(time.Hour)
		got, _ := w.Attribute("carrier")
		w.SetAttribute("carrier", "pigeon")
		w.SetAttribute("speed", "fast")
		w.RemoveAttribute("carrier")
		_, after := w.Attribute("carrier")
		return fmt.Sprint(before, got, after), w.Sleep(time.Hour)
	})
	env.RunUntilDone()
	if got, err := run.Result(); got != "falsesnailfalse" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got := env.Attributes(run.ID()); len(got) != 1 || got["speed"] != "fast" {
		t.Errorf("the run has the attributes %v", got)
	}
}

func TestNowNeverGoesBack(t *testing.T) {
	t.Parallel()
	_, err := result(t, func(w *stepwell.Context) (string, error) {
		last := w.Now()
		for i := range 4 {
			switch i {
			case 0:
				w.Sleep(time.Hour)
			case 1:
				_, _ = stepwell.Do(w, "do", func(context.Context) (string, error) { return "", nil })
			default:
				_, _ = echo.Run(w, "x")
			}
			if w.Now().Before(last) {
				return "", fmt.Errorf("it went back from %s to %s", last, w.Now())
			}
			last = w.Now()
		}
		return "", nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestScopesDoNotDisturbEachOthersRandom(t *testing.T) {
	t.Parallel()
	draw := func(noise int) string {
		got, err := result(t, func(w *stepwell.Context) (string, error) {
			inner, err := stepwell.Go(w, "inner", func(w *stepwell.Context) (string, error) { return w.UUID(), nil }).Await(w)
			for range noise {
				w.Rand().Uint64()
			}
			scoped := w.Scope("loop").UUID()
			if w.Detached().UUID() == w.UUID() || inner == scoped {
				return "", errors.New("two IDs are equal")
			}
			return inner + scoped, err
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if a, b := draw(0), draw(3); a != b {
		t.Errorf("numbers of one scope changed those of others: %s and %s", a, b)
	}
}

// TestAttributesAtTheStartStay has a child that changes an attribute which its parent has given it. Its replay must
// begin with the old value.
func TestAttributesAtTheStartStay(t *testing.T) {
	t.Parallel()
	child := stepwell.NewWorkflow[stepwell.None, string]("child")
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		return child.Child(w, stepwell.None{}, stepwell.Attribute("stage", "new")).Await(w)
	})
	env.Register(child.Bind(func(w *stepwell.Context, _ stepwell.None) (string, error) {
		before, _ := w.Attribute("stage")
		w.SetAttribute("stage", "paid")
		err := w.Sleep(time.Hour)
		after, _ := w.Attribute("stage")
		return before + ", " + after, err
	}))
	env.RunUntilDone()
	if got, err := run.Result(); got != "new, paid" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
