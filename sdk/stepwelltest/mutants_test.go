package stepwelltest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
func (d *world) refund(key string, amount int)        { d.once(d.refunded, key, amount) }

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
	charge  func(w *stepwell.Context, d *world, p purchase) (string, error)
	reserve func(w *stepwell.Context, d *world, p purchase) ([]string, error)
	refund  func(w *stepwell.Context, d *world, amount int) error
	approve func(w *stepwell.Context, d *world, p purchase) (bool, error)
	mail    func(w *stepwell.Context, d *world, text string) error
}

func amountOf(p purchase) int { return 100 * len(p.Items) }

func rightParts() parts {
	return parts{
		charge: func(w *stepwell.Context, d *world, p purchase) (string, error) {
			return stepwell.Do(w, "charge", func(ctx context.Context) (string, error) {
				return d.charge(key(ctx), amountOf(p)), nil
			})
		},
		reserve: func(w *stepwell.Context, _ *world, p purchase) ([]string, error) {
			return stepwell.MapBy(w, p.Items, func(item string) string { return item },
				func(w *stepwell.Context, item string) (string, error) { return reserve.Run(w, item) })
		},
		refund: func(w *stepwell.Context, d *world, amount int) error {
			return stepwell.Exec(w, "refund", func(ctx context.Context) error {
				d.refund(key(ctx), amount)
				return nil
			})
		},
		approve: func(w *stepwell.Context, _ *world, p purchase) (bool, error) {
			return approval.Open(w, stepwell.Token("approve-"+p.ID)).ReceiveWithin(w, time.Hour)
		},
		mail: func(w *stepwell.Context, d *world, text string) error {
			return stepwell.Exec(w, "mail", func(ctx context.Context) error {
				d.mail(key(ctx), text)
				return nil
			})
		},
	}
}

// run is the order's workflow.
func (of parts) run(w *stepwell.Context, d *world, p purchase) (receipt, error) {
	return stepwell.WithSaga(w, func(w *stepwell.Context, saga *stepwell.Saga) (out receipt, err error) {
		if out.Paid, err = of.charge(w, d, p); err != nil {
			return out, err
		}
		saga.Add("charge", func(w *stepwell.Context) error { return of.refund(w, d, amountOf(p)) })
		if out.Parcels, err = of.reserve(w, d, p); err != nil {
			return out, err
		}
		ok, err := of.approve(w, d, p)
		if err != nil {
			return out, err
		}
		out.Status = fmt.Sprint("approved: ", ok)
		return out, of.mail(w, d, strings.Join(out.Parcels, ", "))
	})
}

// ordersOf returns the scenario of two orders: one of them is approved, the other one asks for what is sold out.
func ordersOf(of parts) stepwelltest.Scenario {
	return func(t testing.TB, env *stepwelltest.Env) {
		d := &world{
			charged: map[string]int{}, refunded: map[string]int{}, mailed: map[string]bool{}, parcels: map[string]bool{},
			memory: map[string]string{},
		}
		env.Register(
			order.Bind(func(w *stepwell.Context, p purchase) (receipt, error) { return of.run(w, d, p) }),
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
		env.Resume("approve-7", true)
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

func chargesBy(fn func(w *stepwell.Context, d *world, p purchase) (string, error)) func(*parts) {
	return func(of *parts) { of.charge = fn }
}

func mutants() []mutant {
	return slices.Concat(crashMutants(), keyMutants(), chargeMutants(), effectMutants(), inputMutants())
}

// crashMutants are right as long as nothing fails.
func crashMutants() []mutant {
	return []mutant{
		{"the charge has no key", chargesBy(func(w *stepwell.Context, d *world, p purchase) (string, error) {
			return stepwell.Do(w, "charge", func(context.Context) (string, error) { return d.charge("", amountOf(p)), nil })
		}), true},
		{"the charge has another key each time", chargesBy(func(w *stepwell.Context, d *world, p purchase) (string, error) {
			return stepwell.Do(w, "charge", func(ctx context.Context) (string, error) {
				return d.charge(key(ctx)+strconv.Itoa(len(d.charged)), amountOf(p)), nil
			})
		}), true},
		{"the charge goes on from what the process remembers", chargesBy(func(w *stepwell.Context, d *world, p purchase) (string, error) {
			return stepwell.Do(w, "charge", func(ctx context.Context) (string, error) {
				if d.memory["charging"+p.ID] != "" {
					return "", stepwell.Fail("busy", "it is being charged")
				}
				d.memory["charging"+p.ID] = "yes"
				return d.charge(key(ctx), amountOf(p)), nil
			})
		}), true},
		{"the amount is a variable that an earlier step sets", chargesBy(func(w *stepwell.Context, d *world, p purchase) (string, error) {
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
		{"the output has the number of attempts", chargesBy(func(w *stepwell.Context, d *world, p purchase) (string, error) {
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

// keyMutants are right as long as nothing fails, too: an effect outside has no key, or not always the same contents.
func keyMutants() []mutant {
	return []mutant{
		{"the refund has no key", func(of *parts) {
			of.refund = func(w *stepwell.Context, d *world, amount int) error {
				return stepwell.Exec(w, "refund", func(context.Context) error {
					d.refund("", amount)
					return nil
				})
			}
		}, true},
		{"the mail has no key", func(of *parts) {
			of.mail = func(w *stepwell.Context, d *world, text string) error {
				return stepwell.Exec(w, "mail", func(context.Context) error {
					d.mail("", text)
					return nil
				})
			}
		}, true},
		{"the text of the mail counts the attempts", func(of *parts) {
			of.mail = func(w *stepwell.Context, d *world, text string) error {
				return stepwell.Exec(w, "mail", func(ctx context.Context) error {
					d.mail(key(ctx), fmt.Sprint(text, len(d.mailed)))
					return nil
				})
			}
		}, true},
	}
}

func chargeMutants() []mutant {
	charge := func(w *stepwell.Context, d *world, p purchase, options ...stepwell.DoOption) (string, error) {
		return stepwell.Do(w, "charge", func(ctx context.Context) (string, error) {
			return d.charge(key(ctx), amountOf(p)), nil
		}, options...)
	}
	return []mutant{
		{"the charge is no step", chargesBy(func(_ *stepwell.Context, d *world, p purchase) (string, error) {
			return d.charge("", amountOf(p)), nil
		}), false},
		{"the charge is not waited for", chargesBy(func(w *stepwell.Context, d *world, p purchase) (string, error) {
			stepwell.DoGo(w, "charge", func(ctx context.Context) (string, error) {
				if p.ID == "8" {
					return "", errors.New("the bank is closed")
				}
				return d.charge(key(ctx), amountOf(p)), nil
			})
			return "ref of 400", nil
		}), false},
		{"the ID of the charge comes from the process", chargesBy(func(w *stepwell.Context, d *world, p purchase) (string, error) {
			d.counter++
			return charge(w, d, p, stepwell.ID("charge-"+strconv.Itoa(d.counter)))
		}), false},
		{"the ID of the charge is random", chargesBy(func(w *stepwell.Context, d *world, p purchase) (string, error) {
			return charge(w, d, p, stepwell.ID(strconv.FormatUint(rand.Uint64(), 36)))
		}), false},
		{"the result of the charge is a variable", chargesBy(func(w *stepwell.Context, d *world, p purchase) (string, error) {
			var ref string
			err := stepwell.Exec(w, "charge", func(ctx context.Context) error {
				ref = d.charge(key(ctx), amountOf(p))
				return nil
			})
			return ref, err
		}), false},
		{"the process remembers that it has charged", chargesBy(func(w *stepwell.Context, d *world, p purchase) (string, error) {
			if ref := d.memory[p.ID]; ref != "" {
				return ref, nil
			}
			ref, err := charge(w, d, p)
			d.memory[p.ID] = ref
			return ref, err
		}), false},
		{"only the first charge of a process is made", chargesBy(func(w *stepwell.Context, d *world, p purchase) (string, error) {
			if d.counter++; d.counter > 2 {
				return "ref of 400", nil
			}
			return charge(w, d, p)
		}), false},
		{"two effects have one key", chargesBy(func(w *stepwell.Context, d *world, p purchase) (string, error) {
			return stepwell.Do(w, "charge", func(context.Context) (string, error) { return d.charge("order", amountOf(p)), nil })
		}), false},
	}
}

// effectMutants have an effect outside of steps.
func effectMutants() []mutant {
	return []mutant{
		{"the refund is no step", func(of *parts) {
			of.refund = func(_ *stepwell.Context, d *world, amount int) error {
				d.refund("", amount)
				return nil
			}
		}, false},
		{"the mail is no step", func(of *parts) {
			of.mail = func(_ *stepwell.Context, d *world, text string) error {
				d.mail("", text)
				return nil
			}
		}, false},
		{"a deferred function sends the mail", func(of *parts) {
			right := of.approve
			of.approve = func(w *stepwell.Context, d *world, p purchase) (bool, error) {
				defer d.mail("", "it waits")
				return right(w, d, p)
			}
		}, false},
	}
}

// inputMutants depend on what is not in the log.
func inputMutants() []mutant {
	return []mutant{
		{"items are reserved in the order of a map", func(of *parts) {
			of.reserve = func(w *stepwell.Context, _ *world, p purchase) (parcels []string, err error) {
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
			of.approve = func(w *stepwell.Context, d *world, p purchase) (bool, error) {
				d.counter++
				return approval.Open(w, stepwell.Token(fmt.Sprint("approve-", p.ID, d.counter/3))).Receive(w)
			}
		}, false},
		{"the hook's deadline comes from the clock", func(of *parts) {
			of.approve = func(w *stepwell.Context, _ *world, p purchase) (bool, error) {
				h := approval.Open(w, stepwell.Token("approve-"+p.ID))
				return stepwell.Select(w,
					stepwell.On(h, func(_ *stepwell.Context, approved bool) (bool, error) { return approved, nil }),
					stepwell.On(w.TimerAt(time.Now().Add(1000*time.Hour)), func(*stepwell.Context, time.Time) (bool, error) {
						return false, stepwell.ErrTimeout
					}))
			}
		}, false},
		{"the parcels are a variable of the process", func(of *parts) {
			right := of.reserve
			of.reserve = func(w *stepwell.Context, d *world, p purchase) ([]string, error) {
				parcels, err := right(w, d, p)
				d.list = append(d.list, parcels...)
				return d.list, err
			}
		}, false},
	}
}

// TestTheKitFindsWhatDiffersRarely has a workflow that ranges over a map with two keys, each time in a test of its own.
func TestTheKitFindsWhatDiffersRarely(t *testing.T) {
	t.Parallel()
	const tests = 100
	found := 0
	for range tests {
		_, err := result(t, func(w *stepwell.Context) (string, error) {
			for name := range map[string]bool{"a": true, "b": true} {
				if _, err := echo.Run(w, name); err != nil {
					return "", err
				}
			}
			return "", nil
		})
		if err != nil {
			found++
		}
	}
	if found < tests-5 { // 99 of 100 on average
		t.Errorf("found in %d of %d tests", found, tests)
	}
}
