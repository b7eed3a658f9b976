package stepwelltest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

// tillInput is the input with which the till is started, and continues.
type tillInput struct {
	Cents int
	// Open is an update that was read and not answered.
	Open *stepwell.Update[int, int]
}

var (
	withdraw = stepwell.NewUpdate[int, int]("withdraw")
	till     = stepwell.NewWorkflow[tillInput, int]("till", stepwell.WithInbox(withdraw))
	tooPoor  = stepwell.NewErrorKind[int]("too_poor")
)

// keepTill takes withdrawals: one of 0 ends the run, and one of 13 is answered by the next run.
func keepTill(w *stepwell.Context, in tillInput) (int, error) {
	if in.Open != nil {
		if err := in.Open.Reply(w, in.Cents); err != nil {
			return 0, err
		}
	}
	for {
		u, err := withdraw.Receive(w)
		switch {
		case err != nil:
		case u.Input == 0:
			return in.Cents, nil
		case u.Input == 13:
			return till.ContinueAs(w, tillInput{in.Cents, &u})
		case u.Input > in.Cents:
			err = u.Reject(w, tooPoor.New(in.Cents))
		default:
			in.Cents, err = stepwell.Do(w, "pay", func(context.Context) (int, error) { return in.Cents - u.Input, nil })
			if err == nil {
				err = u.Reply(w, in.Cents)
			}
		}
		if err != nil {
			return 0, err
		}
	}
}

// TestUpdatesAreAnswered, each once, in their order, by the run or the next one, also if each process dies once. A
// rejected one is answered with the workflow's error.
func TestUpdatesAreAnswered(t *testing.T) {
	t.Parallel()
	stepwelltest.EveryCrash(t, func(tb testing.TB, e *stepwelltest.Env) {
		e.Register(till.Bind(keepTill))
		run := stepwelltest.Start(e, till, tillInput{Cents: 100})
		for _, input := range []int{30, 90, 13, 20, 20, 0, 7} {
			stepwelltest.Ask(e, withdraw, run.ID(), input, fmt.Sprint("w", input))
		}
		e.RunUntilDone()
		if got, err := run.Result(); got != 50 || err != nil {
			tb.Errorf("got %d %v, want 50", got, err)
		}
		answers := ""
		for _, id := range []string{"w30", "w90", "w13", "w20", "w7"} {
			output, answered, err := stepwelltest.Answer(e, withdraw, run.ID(), id)
			answers += fmt.Sprintln(id, output, answered, err)
			if has, ok := tooPoor.Find(err); ok != (id == "w90") || ok && has != 70 {
				tb.Errorf("%s: found %d %v in %v", id, has, ok, err)
			}
		}
		const want = "w30 70 true <nil>\nw90 0 true run %s rejected update w90: too_poor\nw13 70 true <nil>\n" +
			"w20 50 true <nil>\nw7 0 false"
		if !strings.HasPrefix(answers, fmt.Sprintf(want, run.ID())) || !strings.Contains(answers, "unanswered") {
			tb.Errorf("got\n%s", answers)
		}
	})
}

// TestUpdateIsAnsweredOnce: a second answer is an error, and one that is too large leaves the update open.
func TestUpdateIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	ask := stepwell.NewUpdate[string, string]("ask")
	flow := stepwell.NewWorkflow[string, string]("answers", stepwell.WithInbox(ask))
	e := stepwelltest.New(t, flow.Bind(func(w *stepwell.Context, _ string) (string, error) {
		u, err := ask.Receive(w)
		if err != nil {
			return "", err
		}
		large := u.Reply(w, strings.Repeat("x", 1<<20))
		first := u.Reject(w, errors.New("no"))
		second := u.Reply(w, "yes")
		return fmt.Sprint(large, " ", first, " ", second), nil
	}))
	run := stepwelltest.Start(e, flow, "")
	if _, answered, err := stepwelltest.Answer(e, ask, run.ID(), "u"); answered || err != nil {
		t.Errorf("before: %v %v", answered, err)
	}
	stepwelltest.Ask(e, ask, run.ID(), "may I?", "u")
	e.RunUntilDone()
	if got, err := run.Result(); !strings.HasPrefix(got, "answer_too_large") || !strings.Contains(got, " <nil> already_answered") || err != nil {
		t.Errorf("got %q %v", got, err)
	}
	if _, _, err := stepwelltest.Answer(e, ask, run.ID(), "u"); err == nil || !strings.HasSuffix(err.Error(), "rejected update u: no") {
		t.Errorf("got %v", err)
	}
}
