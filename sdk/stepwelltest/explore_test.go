package stepwelltest_test

import (
	"context"
	"strings"
	"testing"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

// TestEveryCrashFindsAPlantedBug tries orders with bugs. Those that need a crash must pass without one.
func TestEveryCrashFindsAPlantedBug(t *testing.T) {
	t.Parallel()
	stepwelltest.EveryCrash(t, ordersOf(rightParts()))
	for _, m := range mutants() {
		t.Run(m.bug, func(t *testing.T) {
			t.Parallel()
			of := rightParts()
			m.change(&of)
			failures := stepwelltest.Failures(t, func(t testing.TB) { stepwelltest.EveryCrash(t, ordersOf(of)) })
			if failures == "" {
				t.Fatal("the bug was not found")
			}
			if onlyByCrash := !strings.Contains(failures, "without a crash:"); onlyByCrash != m.needsCrash {
				t.Errorf("needs a crash: %t, want %t:\n%s", onlyByCrash, m.needsCrash, failures)
			}
		})
	}
}

// TestEveryCrashTriesEachPlace lists the places of a workflow with inline steps one after the other, a step that the
// server calls, and a child. The process has several commits in its first call.
func TestEveryCrashTriesEachPlace(t *testing.T) {
	t.Parallel()
	var crashes []string
	stepwelltest.EveryCrash(t, func(t testing.TB, env *stepwelltest.Env) {
		inline := func(w *stepwell.Context, name string) {
			if err := stepwell.Exec(w, name, func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		}
		env.Register(order.Bind(func(w *stepwell.Context, p purchase) (out receipt, err error) {
			inline(w, "a")
			inline(w, "b")
			if p.ID == "child" {
				return out, nil
			}
			later := reserve.Go(w, "tea", stepwell.Remote())
			inline(w, "c")
			if _, err := later.Await(w); err != nil {
				return out, err
			}
			return order.Child(w, purchase{ID: "child"}).Await(w)
		}))
		stepwelltest.Stub(env, reserve, func(context.Context, string) (string, error) { return "", nil })
		stepwelltest.Start(env, order, purchase{})
		env.RunUntilDone()
		_, crash, _ := strings.Cut(stepwelltest.Crash(env), " ")
		for range 26 { // without the leading zeros of run IDs
			crash = strings.ReplaceAll(crash, "wrun_0", "wrun_")
		}
		crashes = append(crashes, crash)
	})
	want := []string{
		"",
		"process died after inline step a of run wrun_1, before its result was recorded",
		"process died after commit 1 of an invocation of run wrun_1", // before b
		"process died after inline step b of run wrun_1, before its result was recorded",
		"process died after commit 2 of an invocation of run wrun_1", // before c, with the step for the server
		"process died after inline step c of run wrun_1, before its result was recorded",
		"answer of run wrun_1 was lost",
		"result of step reserve of run wrun_1 was lost",
		"answer of run wrun_1 was lost", // it starts the child
		"process died after inline step a of run wrun_2, before its result was recorded",
		"process died after commit 1 of an invocation of run wrun_2",
		"process died after inline step b of run wrun_2, before its result was recorded",
		"answer of run wrun_2 was lost",
		"answer of run wrun_1 was lost", // it completes the run
	}
	if got := strings.Join(crashes, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the crashes were\n%s", got)
	}
}

// TestACrashRepeatsOneOfParallelSteps has three inline steps in progress at a time, after one another.
func TestACrashRepeatsOneOfParallelSteps(t *testing.T) {
	t.Parallel()
	most := 0
	stepwelltest.EveryCrash(t, func(t testing.TB, env *stepwelltest.Env) {
		executed := 0
		env.Register(order.Bind(func(w *stepwell.Context, p purchase) (out receipt, err error) {
			out.Parcels, err = stepwell.Map(w, p.Items, func(w *stepwell.Context, item string) (string, error) {
				return stepwell.Do(w, "reserve", func(context.Context) (string, error) {
					executed++
					return item, nil
				})
			}, stepwell.Concurrency(3))
			return out, err
		}))
		stepwelltest.Start(env, order, purchase{Items: strings.Split("abcdef", "")})
		env.RunUntilDone()
		most = max(most, executed)
	})
	if most != 7 {
		t.Errorf("up to %d executions of 6 steps, want one more", most)
	}
}

// TestEveryOrderTriesEachOrder counts the orders in which results of inline steps and of others can come.
func TestEveryOrderTriesEachOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ inline, others, want int }{{3, 0, 6}, {0, 3, 6}, {2, 1, 6}, {2, 2, 24}, {1, 3, 24}} {
		orders := map[string]bool{}
		stepwelltest.EveryOrder(t, func(t testing.TB, env *stepwelltest.Env) {
			var came string
			env.Register(order.Bind(func(w *stepwell.Context, _ purchase) (out receipt, err error) {
				came = ""
				var all []*stepwell.Future[stepwell.None]
				for i := range c.inline + c.others {
					name := string(rune('a' + i))
					all = append(all, stepwell.Go(w, name, func(w *stepwell.Context) (none stepwell.None, err error) {
						if i < c.inline {
							err = stepwell.Exec(w, name, func(context.Context) error { return nil })
						} else {
							_, err = reserve.Run(w, name, stepwell.Remote())
						}
						came += name
						return none, err
					}))
				}
				_, err = stepwell.All(w, all...)
				return out, err
			}))
			stepwelltest.Stub(env, reserve, func(context.Context, string) (string, error) { return "", nil })
			stepwelltest.Start(env, order, purchase{})
			env.RunUntilDone()
			orders[came] = true
		})
		if len(orders) != c.want {
			t.Errorf("%d inline steps and %d others have %d orders, want %d: %v", c.inline, c.others, len(orders), c.want, orders)
		}
	}
}

// TestEveryOrderFindsAPlantedRace has the first of several parts win. The bug is in a place that only one of the orders
// of an inline step, two steps and a message comes to.
func TestEveryOrderFindsAPlantedRace(t *testing.T) {
	t.Parallel()
	scenario := func(race bool) stepwelltest.Scenario {
		return func(t testing.TB, env *stepwelltest.Env) {
			env.Register(order.Bind(func(w *stepwell.Context, _ purchase) (out receipt, err error) {
				var came []string
				part := func(name string, fn func(w *stepwell.Context) error) *stepwell.Future[stepwell.None] {
					return stepwell.Go(w, name, func(w *stepwell.Context) (stepwell.None, error) {
						defer func() { came = append(came, name) }()
						return stepwell.None{}, fn(w)
					})
				}
				step := func(w *stepwell.Context) error { _, err := reserve.Run(w, "tea", stepwell.Remote()); return err }
				inline := func(w *stepwell.Context) error {
					return stepwell.Exec(w, "inline", func(context.Context) error { return nil })
				}
				_, err = stepwell.All(w, part("a", step), part("b", inline), part("c", step),
					part("d", func(w *stepwell.Context) error {
						_, err := approval.Open(w, stepwell.Token("approve")).Receive(w)
						return err
					}))
				if got := strings.Join(came, ""); race && got == "bdca" {
					out.Status = got
				}
				return out, err
			}))
			stepwelltest.Stub(env, reserve, func(context.Context, string) (string, error) { return "", nil })
			run := stepwelltest.Start(env, order, purchase{})
			env.ResumeWhenOpen("approve", true)
			env.RunUntilDone()
			if _, err := run.Result(); err != nil {
				t.Error(err)
			}
		}
	}
	stepwelltest.EveryOrder(t, scenario(false))
	failures := stepwelltest.Failures(t, func(t testing.TB) { stepwelltest.EveryOrder(t, scenario(true)) })
	if !strings.Contains(failures, `"Status":"bdca"`) {
		t.Errorf("the race was not found: %s", failures)
	}
}

// TestEveryOrderTriesRandomOrdersOfMany has more orders than the limit.
func TestEveryOrderTriesRandomOrdersOfMany(t *testing.T) {
	t.Parallel()
	orders := map[string]bool{}
	executions := 0
	stepwelltest.EveryOrder(t, func(t testing.TB, env *stepwelltest.Env) {
		executions++
		var came string
		env.Register(order.Bind(func(w *stepwell.Context, p purchase) (out receipt, err error) {
			_, err = stepwell.Map(w, p.Items, func(w *stepwell.Context, item string) (string, error) { return reserve.Run(w, item) })
			return out, err
		}))
		stepwelltest.Stub(env, reserve, func(_ context.Context, item string) (string, error) {
			came += item
			return "", nil
		})
		stepwelltest.Start(env, order, purchase{Items: strings.Split("abcdefgh", "")})
		env.RunUntilDone()
		orders[came] = true
	}, stepwelltest.Executions(100), stepwelltest.Seed(1))
	first := 0
	for came := range orders {
		if strings.HasPrefix(came, "abc") {
			first++
		}
	}
	if executions != 125 || len(orders) < 110 || len(orders)-first < 15 {
		t.Errorf("%d executions of %d orders, of which %d begin with abc", executions, len(orders), first)
	}
}
