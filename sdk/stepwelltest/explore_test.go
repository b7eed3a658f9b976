package stepwelltest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

// world is what an execution of the scenario can change: services, and the memory of the process.
type world struct {
	charged, refunded map[string]int // amounts by idempotency key
	mailed            map[string]bool
	parcels           map[string]bool

	counter int
	memory  map[string]string
	list    []string
}

// once does something once for each key. Without a key, it does it again each time.
func (d *world) once(done map[string]int, key string, amount int) string {
	if key == "" {
		d.counter++
		key = "without a key " + strconv.Itoa(d.counter)
	}
	done[key] = amount
	return "ref of " + strconv.Itoa(amount)
}

func (d *world) charge(key string, amount int) string { return d.once(d.charged, key, amount) }
func (d *world) refund(key string, amount int) string { return d.once(d.refunded, key, amount) }

func (d *world) mail(key, text string) {
	if key == "" {
		d.counter++
		key = "without a key " + strconv.Itoa(d.counter)
	}
	d.mailed[key+": "+text] = true
}

// key is the idempotency key of a step.
var key = stepwell.IdempotencyKey

// parts are the parts of the order's workflow. Each mutant replaces one.
type parts struct {
	charge  func(w *stepwell.W, d *world, p purchase) (string, error)
	reserve func(w *stepwell.W, d *world, p purchase) ([]string, error)
	refund  func(w *stepwell.W, d *world, amount int) error
	approve func(w *stepwell.W, d *world, p purchase) (bool, error)
	mail    func(w *stepwell.W, d *world, text string) error
}

func amountOf(p purchase) int { return 100 * len(p.Items) }

func rightParts() parts {
	return parts{
		charge: func(w *stepwell.W, d *world, p purchase) (string, error) {
			return stepwell.Do(w, "charge", func(ctx context.Context) (string, error) {
				return d.charge(key(ctx), amountOf(p)), nil
			})
		},
		reserve: func(w *stepwell.W, _ *world, p purchase) ([]string, error) {
			return stepwell.MapBy(w, p.Items, func(item string) string { return item },
				func(w *stepwell.W, item string) (string, error) { return reserve.Run(w, item) })
		},
		refund: func(w *stepwell.W, d *world, amount int) error {
			return stepwell.Exec(w, "refund", func(ctx context.Context) error {
				d.refund(key(ctx), amount)
				return nil
			})
		},
		approve: func(w *stepwell.W, _ *world, p purchase) (bool, error) {
			return approval.Open(w, stepwell.Token("approve-"+p.ID)).ReceiveWithin(w, time.Hour)
		},
		mail: func(w *stepwell.W, d *world, text string) error {
			return stepwell.Exec(w, "mail", func(ctx context.Context) error {
				d.mail(key(ctx), text)
				return nil
			})
		},
	}
}

// run is the order's workflow.
func (of parts) run(w *stepwell.W, d *world, p purchase) (out receipt, err error) {
	saga := w.Saga()
	defer saga.OnError(&err)
	if out.Paid, err = of.charge(w, d, p); err != nil {
		return out, err
	}
	saga.Add("charge", func(w *stepwell.W) error { return of.refund(w, d, amountOf(p)) })
	if out.Parcels, err = of.reserve(w, d, p); err != nil {
		return out, err
	}
	ok, err := of.approve(w, d, p)
	if err != nil {
		return out, err
	}
	out.Status = fmt.Sprint("approved: ", ok)
	return out, of.mail(w, d, strings.Join(out.Parcels, ", "))
}

// ordersOf returns the scenario of two orders: one of them is approved, the other one asks for what is sold out.
func ordersOf(of parts) stepwelltest.Scenario {
	return func(t testing.TB, env *stepwelltest.Env) {
		d := &world{
			charged: map[string]int{}, refunded: map[string]int{}, mailed: map[string]bool{}, parcels: map[string]bool{},
			memory: map[string]string{},
		}
		env.Register(
			order.Bind(func(w *stepwell.W, p purchase) (receipt, error) { return of.run(w, d, p) }),
			reserve.Bind(func(ctx context.Context, item string) (string, error) {
				if item == "unicorn" {
					return "", stepwell.Fail("sold_out", "there are no unicorns")
				}
				d.parcels[key(ctx)] = true
				return "parcel of " + item, nil
			}),
		)
		good := stepwelltest.Start(env, order, purchase{"7", []string{"tea", "pot", "cup", "jug"}})
		bad := stepwelltest.Start(env, order, purchase{"8", []string{"unicorn"}})
		env.RunUntilIdle()
		stepwelltest.Answer(env, approval, "approve-7", true)
		env.RunUntilDone()

		got, err := good.Result()
		const parcels = "parcel of tea, parcel of pot, parcel of cup, parcel of jug"
		if err != nil || got.Status != "approved: true" || got.Paid != "ref of 400" || strings.Join(got.Parcels, ", ") != parcels {
			t.Errorf("got %+v, %v", got, err)
		}
		if _, err := bad.Result(); !stepwell.HasCode(err, "sold_out") {
			t.Errorf("got %v, want an order that was sold out", err)
		}
		total := 0
		for _, amount := range d.charged {
			total += amount
		}
		for _, amount := range d.refunded {
			total -= amount
		}
		if total != 400 || len(d.charged) != 2 || len(d.refunded) != 1 {
			t.Errorf("charged %v, refunded %v", d.charged, d.refunded)
		}
		if len(d.mailed) != 1 || len(d.parcels) != 4 {
			t.Errorf("mailed %v, parcels %v", d.mailed, d.parcels)
		}
	}
}

// mutant is an order with a bug.
type mutant struct {
	bug    string
	change func(*parts)
	// needsCrash is set if the bug does not show without a crash.
	needsCrash bool
}

func chargesBy(fn func(w *stepwell.W, d *world, p purchase) (string, error)) func(*parts) {
	return func(of *parts) { of.charge = fn }
}

func mutants() []mutant {
	return append(crashMutants(), append(chargeMutants(), otherMutants()...)...)
}

// crashMutants are right as long as nothing fails.
func crashMutants() []mutant {
	return []mutant{
		{"the charge has no key", chargesBy(func(w *stepwell.W, d *world, p purchase) (string, error) {
			return stepwell.Do(w, "charge", func(context.Context) (string, error) { return d.charge("", amountOf(p)), nil })
		}), true},
		{"the charge has another key each time", chargesBy(func(w *stepwell.W, d *world, p purchase) (string, error) {
			return stepwell.Do(w, "charge", func(ctx context.Context) (string, error) {
				return d.charge(key(ctx)+strconv.Itoa(len(d.charged)), amountOf(p)), nil
			})
		}), true},
		{"the refund has no key", func(of *parts) {
			of.refund = func(w *stepwell.W, d *world, amount int) error {
				return stepwell.Exec(w, "refund", func(context.Context) error {
					d.refund("", amount)
					return nil
				})
			}
		}, true},
		{"the charge goes on from what the process remembers", chargesBy(func(w *stepwell.W, d *world, p purchase) (string, error) {
			return stepwell.Do(w, "charge", func(ctx context.Context) (string, error) {
				if d.memory["charging"+p.ID] != "" {
					return "", stepwell.Fail("busy", "it is being charged")
				}
				d.memory["charging"+p.ID] = "yes"
				return d.charge(key(ctx), amountOf(p)), nil
			})
		}), true},
		{"the amount is a variable that an earlier step sets", chargesBy(func(w *stepwell.W, d *world, p purchase) (string, error) {
			amount := 0
			if err := stepwell.Exec(w, "quote", func(context.Context) error {
				amount = amountOf(p)
				return nil
			}); err != nil {
				return "", err
			}
			return stepwell.Do(w, "charge", func(ctx context.Context) (string, error) { // the bank ignores the second request
				if charged, ok := d.charged[key(ctx)]; ok {
					return d.charge(key(ctx), charged), nil
				}
				return d.charge(key(ctx), amount), nil
			})
		}), true},
		{"the mail has no key", func(of *parts) {
			of.mail = func(w *stepwell.W, d *world, text string) error {
				return stepwell.Exec(w, "mail", func(context.Context) error {
					d.mail("", text)
					return nil
				})
			}
		}, true},
		{"the text of the mail counts the attempts", func(of *parts) {
			of.mail = func(w *stepwell.W, d *world, text string) error {
				return stepwell.Exec(w, "mail", func(ctx context.Context) error {
					d.mail(key(ctx), fmt.Sprint(text, len(d.mailed)))
					return nil
				})
			}
		}, true},
		{"the output has the number of attempts", chargesBy(func(w *stepwell.W, d *world, p purchase) (string, error) {
			tries := 0
			return stepwell.Do(w, "charge", func(ctx context.Context) (string, error) {
				d.list = append(d.list, p.ID)
				for _, id := range d.list {
					if id == p.ID {
						tries++
					}
				}
				return d.charge(key(ctx), amountOf(p)) + strings.Repeat("!", tries-1), nil
			})
		}), true},
	}
}

func chargeMutants() []mutant {
	charge := func(w *stepwell.W, d *world, p purchase, options ...stepwell.StepOption) (string, error) {
		return stepwell.Do(w, "charge", func(ctx context.Context) (string, error) {
			return d.charge(key(ctx), amountOf(p)), nil
		}, options...)
	}
	return []mutant{
		{"the charge is no step", chargesBy(func(_ *stepwell.W, d *world, p purchase) (string, error) {
			return d.charge("", amountOf(p)), nil
		}), false},
		{"the charge is not waited for", chargesBy(func(w *stepwell.W, d *world, p purchase) (string, error) {
			stepwell.DoGo(w, "charge", func(ctx context.Context) (string, error) {
				if p.ID == "8" {
					return "", errors.New("the bank is closed")
				}
				return d.charge(key(ctx), amountOf(p)), nil
			})
			return "ref of 400", nil
		}), false},
		{"the ID of the charge comes from the process", chargesBy(func(w *stepwell.W, d *world, p purchase) (string, error) {
			d.counter++
			return charge(w, d, p, stepwell.ID("charge-"+strconv.Itoa(d.counter)))
		}), false},
		{"the ID of the charge is random", chargesBy(func(w *stepwell.W, d *world, p purchase) (string, error) {
			return charge(w, d, p, stepwell.ID(strconv.FormatUint(rand.Uint64(), 36)))
		}), false},
		{"the result of the charge is a variable", chargesBy(func(w *stepwell.W, d *world, p purchase) (string, error) {
			var ref string
			err := stepwell.Exec(w, "charge", func(ctx context.Context) error {
				ref = d.charge(key(ctx), amountOf(p))
				return nil
			})
			return ref, err
		}), false},
		{"the process remembers that it has charged", chargesBy(func(w *stepwell.W, d *world, p purchase) (string, error) {
			if ref := d.memory[p.ID]; ref != "" {
				return ref, nil
			}
			ref, err := charge(w, d, p)
			d.memory[p.ID] = ref
			return ref, err
		}), false},
		{"only the first charge of a process is made", chargesBy(func(w *stepwell.W, d *world, p purchase) (string, error) {
			if d.counter++; d.counter > 2 {
				return "ref of 400", nil
			}
			return charge(w, d, p)
		}), false},
		{"two effects have one key", chargesBy(func(w *stepwell.W, d *world, p purchase) (string, error) {
			return stepwell.Do(w, "charge", func(context.Context) (string, error) { return d.charge("order", amountOf(p)), nil })
		}), false},
	}
}

func otherMutants() []mutant {
	return []mutant{
		{"the refund is no step", func(of *parts) {
			of.refund = func(_ *stepwell.W, d *world, amount int) error {
				d.refund("", amount)
				return nil
			}
		}, false},
		{"the mail is no step", func(of *parts) {
			of.mail = func(_ *stepwell.W, d *world, text string) error {
				d.mail("", text)
				return nil
			}
		}, false},
		{"a deferred function sends the mail", func(of *parts) {
			right := of.approve
			of.approve = func(w *stepwell.W, d *world, p purchase) (bool, error) {
				defer d.mail("", "it waits")
				return right(w, d, p)
			}
		}, false},
		{"items are reserved in the order of a map", func(of *parts) {
			of.reserve = func(w *stepwell.W, _ *world, p purchase) (parcels []string, err error) {
				items := map[string]bool{}
				for i := range 20 {
					items[p.Items[i%len(p.Items)]+strings.Repeat(" ", i)] = true
				}
				for item := range items {
					parcel, err := reserve.Run(w, item)
					if err != nil {
						return nil, err
					}
					parcels = append(parcels, parcel)
				}
				return parcels, nil
			}
		}, false},
		{"the hook's token comes from the process", func(of *parts) {
			of.approve = func(w *stepwell.W, d *world, p purchase) (bool, error) {
				d.counter++
				return approval.Open(w, stepwell.Token(fmt.Sprint("approve-", p.ID, d.counter/3))).Receive(w)
			}
		}, false},
		{"the hook's deadline comes from the clock", func(of *parts) {
			of.approve = func(w *stepwell.W, _ *world, p purchase) (bool, error) {
				h := approval.Open(w, stepwell.Token("approve-"+p.ID))
				if stepwell.First(w, h, w.TimerAt(time.Now().Add(1000*time.Hour))) == stepwell.Awaitable(h) {
					return h.Receive(w)
				}
				return false, stepwell.ErrTimeout
			}
		}, false},
		{"the parcels are a variable of the process", func(of *parts) {
			right := of.reserve
			of.reserve = func(w *stepwell.W, d *world, p purchase) ([]string, error) {
				parcels, err := right(w, d, p)
				d.list = append(d.list, parcels...)
				return d.list, err
			}
		}, false},
	}
}

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
		inline := func(w *stepwell.W, name string) {
			if err := stepwell.Exec(w, name, func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		}
		env.Register(order.Bind(func(w *stepwell.W, p purchase) (out receipt, err error) {
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

// TestEveryOrderTriesEachOrder counts the orders in which results of inline steps and of others can come: those of others
// come before the inline ones, which begin with a commit, or after them.
func TestEveryOrderTriesEachOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ inline, others, want int }{{3, 0, 6}, {0, 3, 6}, {2, 1, 4}, {2, 2, 12}, {1, 3, 24}} {
		orders := map[string]bool{}
		stepwelltest.EveryOrder(t, func(t testing.TB, env *stepwelltest.Env) {
			var came string
			env.Register(order.Bind(func(w *stepwell.W, _ purchase) (out receipt, err error) {
				came = ""
				var all []*stepwell.Future[stepwell.None]
				for i := range c.inline + c.others {
					name := string(rune('a' + i))
					all = append(all, stepwell.Go(w, name, func(w *stepwell.W) (none stepwell.None, err error) {
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
// of two inline steps, two steps and a message comes to.
func TestEveryOrderFindsAPlantedRace(t *testing.T) {
	t.Parallel()
	scenario := func(race bool) stepwelltest.Scenario {
		return func(t testing.TB, env *stepwelltest.Env) {
			env.Register(order.Bind(func(w *stepwell.W, _ purchase) (out receipt, err error) {
				var came []string
				part := func(name string, fn func(w *stepwell.W) error) *stepwell.Future[stepwell.None] {
					return stepwell.Go(w, name, func(w *stepwell.W) (stepwell.None, error) {
						defer func() { came = append(came, name) }()
						return stepwell.None{}, fn(w)
					})
				}
				step := func(w *stepwell.W) error { _, err := reserve.Run(w, "tea", stepwell.Remote()); return err }
				inline := func(w *stepwell.W) error {
					return stepwell.Exec(w, "inline", func(context.Context) error { return nil })
				}
				_, err = stepwell.All(w, part("a", step), part("b", inline), part("c", step), part("d", inline),
					part("e", func(w *stepwell.W) error {
						_, err := approval.Open(w, stepwell.Token("approve")).Receive(w)
						return err
					}))
				if got := strings.Join(came, ""); race && got == "dbeca" {
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
	if !strings.Contains(failures, `"Status":"dbeca"`) {
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
		env.Register(order.Bind(func(w *stepwell.W, p purchase) (out receipt, err error) {
			_, err = stepwell.Map(w, p.Items, func(w *stepwell.W, item string) (string, error) { return reserve.Run(w, item) })
			return out, err
		}))
		stepwelltest.Stub(env, reserve, func(_ context.Context, item string) (string, error) {
			came += item
			return "", nil
		})
		stepwelltest.Start(env, order, purchase{Items: strings.Split("abcdefgh", "")})
		env.RunUntilDone()
		orders[came] = true
	}, stepwelltest.Limit(100), stepwelltest.Seed(1))
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
