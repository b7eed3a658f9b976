package stepwelltest_test

import (
	"context"
	"testing"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var (
	Order  = stepwell.NewWorkflow[int, string]("order")
	Charge = stepwell.NewStep[int, string]("charge")
	Pack   = stepwell.NewStep[string, string]("pack")
)

func orderWorkflow(w *stepwell.Context, cents int) (string, error) {
	payment, packed := Charge.Go(w, cents), Pack.Go(w, "teapot")
	if _, err := payment.Await(w); err != nil {
		return "", err
	}
	return packed.Await(w)
}

// orderScenario is executed many times, so everything that it changes is its own.
func orderScenario(t testing.TB, env *stepwelltest.Env) {
	charged := map[string]int{}
	env.Register(Order.Bind(orderWorkflow),
		Charge.Bind(func(ctx context.Context, cents int) (string, error) {
			charged[stepwell.IdempotencyKey(ctx)] = cents // as a bank does: once for each key
			return "paid", nil
		}),
		Pack.Bind(func(_ context.Context, item string) (string, error) { return "a parcel with a " + item, nil }))
	run := stepwelltest.Start(env, Order, 2500)
	env.RunUntilDone()
	if parcel, err := run.Result(); parcel != "a parcel with a teapot" || err != nil || len(charged) != 1 {
		t.Errorf("got %q, %v, and charged %v", parcel, err, charged)
	}
}

func TestOrderSurvivesEveryCrash(t *testing.T) { stepwelltest.EveryCrash(t, orderScenario) }

func TestOrderIsRightInEveryOrder(t *testing.T) { stepwelltest.EveryOrder(t, orderScenario) }
