package stepwelltest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

type payment struct {
	Order  string
	Amount int
}

var (
	paid  = stepwell.NewSignal[payment]("order.paid")
	notes = stepwell.NewInbox[string]("notes")
)

func TestNthReceiveIsNthEvent(t *testing.T) {
	t.Parallel()
	vote := stepwell.NewHook[string]("vote")
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		h := vote.Open(w, stepwell.Token("t"))
		first, err := h.Receive(w)
		if err != nil {
			return "", err
		}
		w.Sleep(time.Hour) // meanwhile payloads come
		all := first
		for v, err := range h.All(w) {
			if err != nil {
				return "", err
			}
			if all += v; v == "." {
				break
			}
		}
		h.Close(w)
		h.Close(w) // changes nothing
		return all, w.Sleep(time.Second)
	})
	env.RunUntilIdle()
	for _, payload := range []string{"a", "b", "c", "."} {
		env.Resume("t", payload)
	}
	env.RunUntilDone()
	if got, err := run.Result(); got != "abc." || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if tokens := env.Tokens(run.ID()); len(tokens) > 0 {
		t.Errorf("the hook is still open: %q", tokens)
	}
}

func TestTokenThatIsTaken(t *testing.T) {
	t.Parallel()
	lock := stepwell.NewHook[string]("lock")
	env, first := start(t, func(w *stepwell.Context) (string, error) {
		_, err := lock.Open(w, stepwell.Token("the lock")).ReceiveWithin(w, time.Hour)
		taken := (*stepwell.TokenTakenError)(nil)
		if errors.As(err, &taken) {
			return taken.Token + " of " + taken.RunID, nil
		}
		return "", err
	})
	second := stepwelltest.Start(env, stepwell.NewWorkflow[stepwell.None, string]("test"), stepwell.None{})
	env.RunUntilIdle()
	if got, err := second.Result(); got != "the lock of "+first.ID() || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestATokenIsOnDiskBeforeItIsMailed(t *testing.T) {
	t.Parallel()
	reply := stepwell.NewHook[string]("reply")
	mailed := ""
	var run *stepwelltest.Run[string]
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		h := reply.Open(w)
		if _, err := stepwell.Do(w, "mail", func(context.Context) (string, error) {
			mailed = h.Token()
			return "", nil
		}); err != nil {
			return "", err
		}
		return h.Receive(w)
	})
	env.RunUntilIdle()
	tokens := env.Tokens(run.ID())
	if len(tokens) != 1 || mailed != tokens[0] || len(mailed) < 26 {
		t.Fatalf("mailed %q, and the open hooks have %q", mailed, tokens)
	}
	if log := logged(run); strings.Join(log[2:6], ", ") !=
		"step_created reply-token, step_completed reply-token, hook_created reply, step_created mail" {
		t.Errorf("the log is %q", log)
	}
	env.Resume(mailed, "hello")
	env.RunUntilDone()
	if got, err := run.Result(); got != "hello" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestApprovals(t *testing.T) {
	t.Parallel()
	approval := stepwell.NewApproval("approval")
	for name, c := range map[string]struct {
		expires time.Duration
		answer  any
		want    string
	}{
		"it is approved":     {time.Hour, stepwell.Answer{Approved: true, By: "ann", Comment: "fine"}, "true ann fine false"},
		"it is refused":      {0, stepwell.Answer{By: "bob"}, "false bob  false"},
		"nobody answers":     {time.Hour, nil, "false   true"},
		"an answer in JSON":  {time.Hour, map[string]any{"approved": true}, "true   false"},
		"what is no answer":  {time.Hour, 7, "undecodable"},
		"what is no object":  {0, []string{"yes"}, "undecodable"},
		"nobody, and a step": {time.Minute, nil, "false   true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, run := start(t, func(w *stepwell.Context) (string, error) {
				a, err := approval.Ask(w, stepwell.Question{Text: "Ship it?", Token: "ship", Expires: c.expires})
				if stepwell.HasCode(err, "undecodable") {
					return "undecodable", nil
				}
				return fmt.Sprint(a.Approved, " ", a.By, " ", a.Comment, " ", a.Expired), err
			})
			env.RunUntilIdle()
			if c.answer != nil {
				env.Resume("ship", c.answer)
			}
			env.RunUntilDone()
			if got, err := run.Result(); got != c.want || err != nil {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
			metadata := ""
			for _, e := range run.Log().Events {
				if e.Type == "hook_created" {
					metadata = string(e.Payload)
				}
			}
			if !strings.Contains(metadata, "Ship it?") || strings.Contains(metadata, "expiresAt") != (c.expires > 0) {
				t.Errorf("lists show %s", metadata)
			}
			const form = `"properties":{"approved":{"type":"boolean"},"by":{"type":"string"},"comment":{"type":"string"}},"required":["approved"]`
			if !strings.Contains(metadata, form) {
				t.Errorf("forms are made of %s", metadata)
			}
		})
	}
}

func TestAWebhookIsAnsweredByTheWorkflow(t *testing.T) {
	t.Parallel()
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		hook := stepwell.OpenWebhook(w, "pay", stepwell.Verify(stepwell.Stripe, "stripe"), stepwell.RespondWithin(10*time.Second))
		if want := "https://stepwell.test/hooks/" + hook.Token(); hook.URL(w) != want || len(hook.Token()) < 26 {
			return "", errors.New("the URL is " + hook.URL(w))
		}
		r, err := hook.Receive(w)
		if err != nil {
			return "", err
		}
		event, err := stepwell.DecodeJSON[payment](r)
		if err != nil {
			return "", err
		}
		if err := r.Respond(w, http.StatusAccepted, map[string]int{"amount": event.Amount}); err != nil {
			return "", err
		}
		if _, err := hook.ReceiveWithin(w, time.Hour); !errors.Is(err, stepwell.ErrTimeout) {
			return "", fmt.Errorf("got %w", err)
		}
		return fmt.Sprint(r.Method, " ", r.Verified, " ", r.Header.Get("X-Mine"), " ", event.Order), nil
	})
	env.RunUntilIdle()
	request := env.Request(env.Tokens(run.ID())[0], http.Header{"x-mine": {"1"}}, payment{"7", 120})
	env.RunUntilIdle()
	if status, body := request.Response(); status != http.StatusAccepted || string(body) != `{"amount":120}` {
		t.Errorf("the sender got %d %s", status, body)
	}
	env.RunUntilDone()
	if got, err := run.Result(); got != "POST stripe 1 7" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestSignalsWithConditions(t *testing.T) {
	t.Parallel()
	env, run := start(t, func(w *stepwell.Context) (string, error) {
		one, err := paid.Wait(w, stepwell.Where("data.Order == %s", `7" || true`), stepwell.Where("data.Amount > %d", 10)).
			Await(w)
		if err != nil {
			return "", err
		}
		earlier, err := paid.Wait(w, stepwell.LookBack(time.Hour)).Await(w)
		if err != nil {
			return "", err
		}
		later := paid.Subscribe(w)
		a, err := later.Receive(w)
		if err != nil {
			return "", err
		}
		b, err := later.Receive(w)
		return fmt.Sprint(one.Data.Amount, earlier.Data.Amount, a.Data.Amount, b.Data.Amount, one.Signal), err
	})
	env.RunUntilIdle()
	for i, order := range []string{"7", `7" || true`, `7" || true`} {
		stepwelltest.Signal(env, paid, payment{order, 10 + i}, time.Minute)
	}
	env.RunUntilIdle()
	stepwelltest.Signal(env, paid, payment{"8", 20}, 0)
	stepwelltest.Signal(env, paid, payment{"9", 21}, 0)
	env.RunUntilDone()
	if got, err := run.Result(); got != "11 10 20 21 order.paid" && got != "11 10 20 21order.paid" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if n := strings.Count(strings.Join(logged(run), " "), "hook_disposed"); n != 2 {
		t.Errorf("%d hooks were closed, want those of the two waits", n)
	}
}

// TestSignalsWaitForRuns that have started before them, for a minute; for later ones they must be kept.
func TestSignalsWaitForRuns(t *testing.T) {
	t.Parallel()
	listen := stepwell.NewWorkflow[time.Duration, string]("listen")
	env := stepwelltest.New(t, listen.Bind(func(w *stepwell.Context, pause time.Duration) (string, error) {
		if pause > 0 {
			if err := w.Sleep(pause); err != nil {
				return "", err
			}
		}
		a, b := paid.Wait(w), paid.Wait(w, stepwell.Where("data.Amount > %d", 1))
		one, err := a.Await(w)
		if err != nil {
			return "", err
		}
		two, err := b.Await(w)
		if err != nil {
			return "", err
		}
		three, err := paid.Wait(w).Await(w)
		return one.Data.Order + two.Data.Order + three.Data.Order, err
	}))
	start := func(pause time.Duration) *stepwelltest.Run[string] { return stepwelltest.Start(env, listen, pause) }
	before, slow := start(0), start(61*time.Second)
	stepwelltest.Signal(env, paid, payment{"early", 2}, 0)
	after := start(0)
	env.RunUntilIdle()
	env.Advance(62 * time.Second)
	stepwelltest.Signal(env, paid, payment{"first", 2}, 0)
	env.RunUntilIdle()
	stepwelltest.Signal(env, paid, payment{"second", 2}, 0)
	env.RunUntilDone()
	for run, want := range map[*stepwelltest.Run[string]]string{
		before: "earlyearlyfirst", after: "firstfirstsecond", slow: "firstfirstsecond",
	} {
		if got, err := run.Result(); got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

// withNotes returns an environment with a workflow that has an inbox, and a run of it.
func withNotes(t *testing.T, fn func(w *stepwell.Context) (string, error)) (*stepwelltest.Env, *stepwelltest.Run[string]) {
	t.Helper()
	workflow := stepwell.NewWorkflow[stepwell.None, string]("noting", stepwell.WithInbox(notes))
	env := stepwelltest.New(t, echo.Bind(execute),
		workflow.Bind(func(w *stepwell.Context, _ stepwell.None) (string, error) { return fn(w) }))
	return env, stepwelltest.Start(env, workflow, stepwell.None{})
}

// collect reads the inbox until it gets a full stop.
func collect(w *stepwell.Context) (all string, _ error) {
	for note, err := range notes.Messages(w).All(w) {
		if err != nil || note == "." {
			return all, err
		}
		out, err := echo.Run(w, note)
		if err != nil {
			return all, err
		}
		all += out
	}
	return all, nil
}

func TestNothingSentAfterStartIsLost(t *testing.T) {
	t.Parallel()
	env, run := withNotes(t, func(w *stepwell.Context) (string, error) {
		if _, err := echo.Run(w, "something else first"); err != nil {
			return "", err
		}
		if err := w.Sleep(time.Hour); err != nil {
			return "", err
		}
		return collect(w)
	})
	stepwelltest.Send(env, notes, run.ID(), "a", "") // the workflow was not called yet
	env.Advance(time.Minute)
	stepwelltest.Send(env, notes, run.ID(), "b", "") // it sleeps
	env.Advance(time.Hour)
	stepwelltest.Send(env, notes, run.ID(), ".", "") // it waits
	env.RunUntilDone()
	if got, err := run.Result(); got != "ab" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestOneMessageAtATime(t *testing.T) {
	t.Parallel()
	var taken string
	env, run := withNotes(t, func(w *stepwell.Context) (string, error) {
		taken = ""
		began := w.Now()
		for note, err := range notes.Messages(w).All(w) {
			if err != nil {
				return "", err
			}
			taken += fmt.Sprint(note, " after ", w.Now().Sub(began).Truncate(time.Minute), ", ")
			if note == "." {
				break
			}
			if err := w.Sleep(time.Minute); err != nil {
				return "", err
			}
		}
		return taken, nil
	})
	for _, note := range []string{"a", "b", "."} {
		stepwelltest.Send(env, notes, run.ID(), note, "")
	}
	env.RunUntilDone()
	if got, err := run.Result(); got != "a after 0s, b after 1m0s, . after 2m0s, " || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestAMessageIDCountsOnce(t *testing.T) {
	t.Parallel()
	env, run := withNotes(t, collect)
	for _, id := range []string{"m1", "m2", "m1"} {
		stepwelltest.Send(env, notes, run.ID(), "("+id+")", id)
	}
	stepwelltest.Send(env, notes, run.ID(), ".", "")
	env.RunUntilDone()
	if got, err := run.Result(); got != "(m1)(m2)" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestWhatDoesNotDecodeDoesNotHang(t *testing.T) {
	t.Parallel()
	env, run := withNotes(t, collect)
	stepwelltest.Send(env, stepwell.NewInbox[map[string]string]("notes"), run.ID(), map[string]string{"no": "text"}, "")
	env.RunUntilDone()
	if _, err := run.Result(); !stepwell.HasCode(err, "undecodable") {
		t.Errorf("got %v, want the code undecodable", err)
	}
	// A workflow can skip it.
	env, run = withNotes(t, func(w *stepwell.Context) (string, error) {
		for {
			note, err := notes.ReceiveWithin(w, time.Hour)
			if !stepwell.HasCode(err, "undecodable") {
				return note, err
			}
		}
	})
	stepwelltest.Send(env, stepwell.NewInbox[int]("notes"), run.ID(), 7, "")
	stepwelltest.Send(env, notes, run.ID(), "readable", "")
	env.RunUntilDone()
	if got, err := run.Result(); got != "readable" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestInboxOfAChildIsOpenedByIt(t *testing.T) {
	t.Parallel()
	child := stepwell.NewWorkflow[stepwell.None, string]("child", stepwell.WithInbox(notes))
	env, run := start(t, func(w *stepwell.Context) (string, error) { return child.Child(w, stepwell.None{}).Await(w) })
	env.Register(child.Bind(func(w *stepwell.Context, _ stepwell.None) (string, error) { return collect(w) }))
	env.RunUntilIdle()
	for _, note := range []string{"x", "."} {
		stepwelltest.Send(env, notes, env.Children()[0], note, "")
	}
	env.RunUntilDone()
	if got, err := run.Result(); got != "x" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
