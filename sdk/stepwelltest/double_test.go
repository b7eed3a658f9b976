package stepwelltest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

var (
	shop     = stepwell.NewWorkflow[string, string]("shop")
	pay      = stepwell.NewStep[string, string]("pay", stepwell.Attempts(2))
	mail     = stepwell.NewStep[string, stepwell.None]("mail")
	decision = stepwell.NewHook[bool]("decision")
)

func runShop(w *stepwell.Context, id string) (string, error) {
	paid, err := pay.Run(w, id)
	if err != nil {
		return "", err
	}
	ok, err := decision.Open(w, stepwell.Token("decide-"+id)).ReceiveWithin(w, time.Hour)
	if err != nil {
		return "", err
	}
	_, err = mail.Run(w, fmt.Sprintf("%s: %t", paid, ok))
	return paid, err
}

func TestStubSpyAnswer(t *testing.T) {
	t.Parallel()
	env := New(t, shop.Bind(runShop), pay.Bind(func(context.Context, string) (string, error) { panic("the real one") }))
	Stub(env, pay, func(ctx context.Context, id string) (string, error) {
		return "paid " + id + " by " + stepwell.IdempotencyKey(ctx), nil
	})
	paid, mails := Spy(env, pay), Spy(env, mail)
	run := Start(env, shop, "7")
	env.RunUntilIdle()
	env.Resume("decide-7", true)
	env.RunUntilDone()
	want := "paid 7 by " + run.ID() + "/pay"
	if got, err := run.Result(); got != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if got := fmt.Sprint(paid.Calls(), mails.Calls()); got != "[7] ["+want+": true]" {
		t.Errorf("the calls are %s", got)
	}
}

func TestStepWithoutFunctionFailsWithItsName(t *testing.T) {
	t.Parallel()
	got := try(t, func(t *trial) {
		env := New(t, shop.Bind(runShop))
		Start(env, shop, "7")
		env.RunUntilDone()
	})
	if want := `step "pay" has no function: bind it in New, or use Stub`; !got.failed || got.report() != want {
		t.Errorf("failed: %t, got %q, want %q", got.failed, got.report(), want)
	}
}

func TestErrorsOfRunsHaveTheirCodeAndDetails(t *testing.T) {
	t.Parallel()
	declined := stepwell.NewErrorKind[string]("declined")
	env := New(t, shop.Bind(runShop))
	Stub(env, pay, func(context.Context, string) (string, error) { return "", declined.New("no money") })
	run := Start(env, shop, "7")
	env.RunUntilDone()
	_, err := run.Result()
	if details, ok := declined.Find(err); !ok || details != "no money" || !strings.HasPrefix(err.Error(), "run wrun_00000000000000000000000001 failed: declined") {
		t.Errorf("got %v", err)
	}
}

func TestInlineStepsExecuteOnce(t *testing.T) {
	t.Parallel()
	executed := 0
	env := New(t, shop.Bind(func(w *stepwell.Context, id string) (string, error) {
		return stepwell.Do(w, "count", func(context.Context) (string, error) {
			executed++
			return fmt.Sprint(id, executed), nil
		})
	}))
	run := Start(env, shop, "7-")
	env.RunUntilDone()
	if got, err := run.Result(); got != "7-1" || err != nil || executed != 1 {
		t.Errorf("got %q, %v; executed %d times", got, err, executed)
	}
}

// TestAYearPassesInAMillisecond lets a year pass, of the days in which nothing happens but a mail.
func TestAYearPassesInAMillisecond(t *testing.T) {
	t.Parallel()
	env := New(t, shop.Bind(func(w *stepwell.Context, id string) (string, error) {
		for month := range 12 {
			if _, err := mail.Run(w.Scope(fmt.Sprint(month)), id); err != nil {
				return "", err
			}
			w.SleepUntil(w.Now().AddDate(0, 1, 0))
		}
		return w.Now().Format(time.DateOnly), nil
	}))
	mails := Spy(env, mail)
	run := Start(env, shop, "7")
	env.RunUntilDone()
	if got, err := run.Result(); got != "2027-01-01" || err != nil || len(mails.Calls()) != 12 {
		t.Errorf("got %q, %v after %d mails", got, err, len(mails.Calls()))
	}
}
