package stepwelltest_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// loser has something that is cancelled because something else comes first.
type loser struct {
	run  func(w *stepwell.Context) (string, error)
	want string // an event of the log
	none string // no event of the log
}

func slow(w *stepwell.Context) (string, error) { return stuck.Run(w, "") }

func losersOfSelect() map[string]loser {
	return map[string]loser{
		"the step of a select": {
			run: func(w *stepwell.Context) (string, error) {
				return stepwell.Select(w,
					on(stuck.Go(w, ""), ""),
					stepwell.After(time.Minute, func(*stepwell.Context) (string, error) { return "", nil }))
			},
			want: "step_failed stuck",
		},
		"the timer of a select": {
			run: func(w *stepwell.Context) (string, error) {
				return stepwell.Select(w,
					on(echo.Go(w, ""), ""),
					stepwell.After(time.Minute, func(*stepwell.Context) (string, error) { return "", nil }))
			},
			want: "wait_cancelled wait",
		},
		"a case that is kept": {
			run: func(w *stepwell.Context) (string, error) {
				return stepwell.Select(w,
					on(stuck.Go(w, ""), "").Keep(),
					stepwell.After(time.Minute, func(*stepwell.Context) (string, error) { return "", nil }))
			},
			none: "step_failed stuck",
		},
		"several cases": {
			run: func(w *stepwell.Context) (string, error) {
				return stepwell.Select(w, on(echo.Go(w, ""), ""), on(stuck.Go(w, ""), ""), on(w.Timer(time.Hour), "").Keep())
			},
			want: "step_failed stuck", none: "wait_cancelled wait",
		},
	}
}

func losersOfTime() map[string]loser {
	return map[string]loser{
		"a step that is not awaited longer": {
			run: func(w *stepwell.Context) (string, error) {
				_, err := stuck.Go(w, "").AwaitWithin(w, time.Minute)
				if !errors.Is(err, stepwell.ErrTimeout) {
					return "", err
				}
				return "", nil
			},
			want: "step_failed stuck",
		},
		"what was begun within": {
			run: func(w *stepwell.Context) (string, error) {
				_, err := stepwell.Go(w, "within", slow).AwaitWithin(w, time.Minute)
				if !errors.Is(err, stepwell.ErrTimeout) {
					return "", err
				}
				return "", nil
			},
			want: "step_failed within.stuck",
		},
	}
}

func losersOfCoroutines() map[string]loser {
	return map[string]loser{
		"the other items of a map": {
			run: func(w *stepwell.Context) (string, error) {
				_, err := stepwell.Map(w, []string{"bad", "good"}, func(w *stepwell.Context, in string) (string, error) {
					if in == "bad" {
						return echo.Run(w, in)
					}
					return slow(w)
				})
				if err == nil || !strings.Contains(err.Error(), "it is bad") {
					return "", errors.New("want the first error")
				}
				return "", nil
			},
			want: "step_failed map.1.stuck",
		},
		"a coroutine that is cancelled": {
			run: func(w *stepwell.Context) (string, error) {
				f := stepwell.Go(w, "slow", slow)
				w.Sleep(time.Second)
				f.Cancel(w, "not needed")
				_, err := f.Await(w)
				if !errors.Is(err, stepwell.ErrCancelled) {
					return "", err
				}
				return "", nil
			},
			want: "step_failed slow.stuck",
		},
		"a signal that nobody waits for": {
			run: func(w *stepwell.Context) (string, error) {
				return stepwell.Select(w, on(echo.Go(w, ""), ""), on(paid.Wait(w), ""))
			},
			want: "hook_disposed order%2Epaid",
		},
	}
}

func TestLosersAreCancelled(t *testing.T) {
	t.Parallel()
	all := losersOfSelect()
	maps.Copy(all, losersOfTime())
	maps.Copy(all, losersOfCoroutines())
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, run := start(t, func(w *stepwell.Context) (string, error) {
				if _, err := c.run(w); err != nil {
					return "", err
				}
				return echo.Run(w, "done") // so that all is written before the end
			})
			env.RunUntilDone()
			if got, err := run.Result(); got != "done" || err != nil {
				t.Fatalf("got %q, %v", got, err)
			}
			log := logged(run)
			if c.want != "" && !slices.Contains(log, c.want) || c.none != "" && slices.Contains(log, c.none) {
				t.Errorf("want %q and not %q in the log %q", c.want, c.none, log)
			}
		})
	}
}
