package stepwelltest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

type (
	purchase struct {
		ID    string
		Items []string
	}
	receipt struct {
		Paid    string
		Parcels []string
		Status  string
	}
)

var (
	order    = stepwell.NewWorkflow[purchase, receipt]("order")
	charge   = stepwell.NewStep[string, string]("charge", stepwell.Attempts(3))
	reserve  = stepwell.NewStep[string, string]("reserve")
	approval = stepwell.NewHook[bool]("approval")
)

func runOrder(w *stepwell.Context, p purchase) (out receipt, err error) {
	paid := charge.Go(w, p.ID)
	out.Parcels, err = stepwell.MapBy(w, p.Items, func(item string) string { return item },
		func(w *stepwell.Context, item string) (string, error) { return reserve.Run(w, item) }, stepwell.Concurrency(2))
	if err != nil {
		return out, err
	}
	if out.Paid, err = paid.Await(w); err != nil {
		return out, err
	}
	ok, err := approval.Open(w, stepwell.Token("approve-"+p.ID)).ReceiveWithin(w, 72*time.Hour)
	switch {
	case errors.Is(err, stepwell.ErrTimeout):
		out.Status = "expired"
	case err != nil:
		return out, err
	case ok:
		out.Status = "approved"
	}
	suffix, err := stepwell.Do(w, "suffix", func(context.Context) (string, error) { return "!", nil })
	out.Status += suffix
	return out, err
}

func newEnv(t *testing.T) *stepwelltest.Env {
	t.Helper()
	attempts := 0
	return stepwelltest.New(t, order.Bind(runOrder),
		charge.Bind(func(_ context.Context, id string) (string, error) {
			if attempts++; attempts == 1 {
				return "", errors.New("the bank is busy")
			}
			return "paid " + id, nil
		}),
		reserve.Bind(func(_ context.Context, item string) (string, error) {
			if item == "unicorn" {
				return "", stepwell.Fail("sold_out", "there are no unicorns")
			}
			return "parcel of " + item, nil
		}),
	)
}

func TestOrderIsApproved(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	run := stepwelltest.Start(env, order, purchase{"7", []string{"tea", "pot", "cup"}})
	env.Advance(time.Minute)
	env.Resume("approve-7", true)
	env.RunUntilDone()
	got, err := run.Result()
	if err != nil || got.Status != "approved!" || got.Paid != "paid 7" ||
		strings.Join(got.Parcels, ", ") != "parcel of tea, parcel of pot, parcel of cup" {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestDaysPassInAnInstant(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	start := env.Now()
	run := stepwelltest.Start(env, order, purchase{"7", nil})
	env.RunUntilDone()
	if got, err := run.Result(); err != nil || got.Status != "expired!" {
		t.Fatalf("got %+v, %v", got, err)
	}
	if passed := env.Now().Sub(start); passed < 72*time.Hour {
		t.Errorf("only %s passed", passed)
	}
}

func TestFailedStepFailsTheRun(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	run := stepwelltest.Start(env, order, purchase{"7", []string{"unicorn"}})
	env.RunUntilDone()
	if _, err := run.Result(); err == nil || !strings.Contains(err.Error(), "sold_out") {
		t.Fatalf("got %v, want the code of the step", err)
	}
}

func TestWorkflowThatIsNotDeterministicIsBlocked(t *testing.T) {
	t.Parallel()
	calls := 0
	flaky := stepwell.NewWorkflow[stepwell.None, string]("flaky")
	env := stepwelltest.New(t, flaky.Bind(func(w *stepwell.Context, _ stepwell.None) (string, error) {
		if calls++; calls%2 == 0 {
			w.Sleep(time.Second)
		}
		return charge.Run(w, "x")
	}), charge.Bind(func(context.Context, string) (string, error) { return "", nil }))
	run := stepwelltest.Start(env, flaky, stepwell.None{})
	env.RunUntilIdle()
	if _, err := run.Result(); !errors.Is(err, stepwelltest.ErrRunning) || !strings.Contains(err.Error(), "different answers") {
		t.Fatalf("got %v, want the two answers", err)
	}
}
