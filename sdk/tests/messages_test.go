package tests

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

type (
	note struct{ Text string }
	paid struct{ Order string }
)

var (
	notes    = stepwell.NewInbox[note]("notes")
	progress = stepwell.NewStoreKey[int]("progress")
	payment  = stepwell.NewSignal[paid]("order.paid")
	approval = stepwell.NewApproval("approval")
	collect  = stepwell.NewWorkflow[string, string]("collect", stepwell.WithInbox(notes))
	settle   = stepwell.NewWorkflow[string, stepwell.Answer]("settle")
)

// collectNotes collects the texts of notes until one is empty.
func collectNotes(w *stepwell.Context, _ string) (string, error) {
	var texts []string
	for {
		n, err := notes.Receive(w)
		if err != nil || n.Text == "" {
			return strings.Join(texts, " "), err
		}
		texts = append(texts, n.Text)
		progress.Set(w, len(texts))
	}
}

// settleOrder waits for the payment of an order, and then asks.
func settleOrder(w *stepwell.Context, order string) (stepwell.Answer, error) {
	if _, err := payment.Wait(w, stepwell.Where("data.Order == %s", order)).Await(w); err != nil {
		return stepwell.Answer{}, err
	}
	return approval.Ask(w, stepwell.Question{Text: "Ship it?", Token: "ship-" + order})
}

func TestMessagesReachARunFromItsStart(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.serve(t, collect.Bind(collectNotes))
	c, ctx := s.client(t, "write"), t.Context()
	begin := func(options ...stepwell.StartOption) *stepwell.Run[string] {
		t.Helper()
		run, err := collect.Start(ctx, c, "", append(options, stepwell.RunKey("one"), stepwell.Join())...)
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	send := func(id, text string, options ...stepwell.SendOption) {
		t.Helper()
		if err := notes.Send(ctx, c, id, note{text}, options...); err != nil {
			t.Fatal(err)
		}
	}
	run := begin(notes.AtStart(note{"a"}, stepwell.MessageID("1")))
	send(run.ID(), "b", stepwell.MessageID("2"))
	send(run.ID(), "b", stepwell.MessageID("2"))
	if joined := begin(notes.AtStart(note{"a"}, stepwell.MessageID("1")), notes.AtStart(note{"c"})); joined.ID() != run.ID() {
		t.Fatalf("joined %s, want %s", joined.ID(), run.ID())
	}
	send(run.ID(), "")
	if out, err := run.Wait(ctx); err != nil || out != "a b c" {
		t.Errorf("got %q %v", out, err)
	}
	if n, ok, err := progress.Read(ctx, c, run.ID()); n != 3 || !ok || err != nil {
		t.Errorf("the store has %d %v %v", n, ok, err)
	}
	if _, ok, err := stepwell.NewStoreKey[int]("other").Read(ctx, c, run.ID()); ok || err != nil {
		t.Errorf("the store has another key: %v %v", ok, err)
	}
	err := notes.Send(ctx, c, run.ID(), note{"late"})
	if e := (*stepwell.APIError)(nil); !errors.As(err, &e) || e.Code != "run_ended" {
		t.Errorf("after the end: %v", err)
	}
}

func TestSignalsAndAnswersReachARun(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.serve(t, settle.Bind(settleOrder))
	c, ctx := s.client(t, "write"), t.Context()
	var runs []*stepwell.Run[stepwell.Answer]
	for _, order := range []string{"7", "8"} {
		run, err := settle.Start(ctx, c, order)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	// The run receives it, whether or not it waits for it yet.
	if err := payment.Send(ctx, c, paid{"7"}, stepwell.MessageID("payment-7"), stepwell.KeepFor(time.Second)); err != nil {
		t.Fatal(err)
	}
	awaitEvents(t, runs[0], "hook_created", 2) // of the signal, and of the question
	if err := approval.Answer(ctx, c, "ship-7", stepwell.Answer{Approved: true, By: "ann"}); err != nil {
		t.Fatal(err)
	}
	if a, err := runs[0].Wait(ctx); err != nil || !a.Approved || a.By != "ann" {
		t.Errorf("got %+v %v", a, err)
	}
	var asked struct {
		Question string
		Schema   struct {
			Ref string `json:"$ref"`
		}
		Outcome struct {
			Decision string
			By       []string
		}
	}
	s.admin(t, http.MethodGet, "/v1/runs/"+runs[0].ID()+"/hooks/approval", nil, &asked)
	if asked.Question != "Ship it?" || asked.Schema.Ref != "#/$defs/Answer" || asked.Outcome.Decision != "approved" || !slices.Equal(asked.Outcome.By, []string{"ann"}) {
		t.Errorf("people see %+v", asked)
	}
	if info, err := runs[1].Details(ctx); err != nil || slices.Contains([]stepwell.RunStatus{
		stepwell.StatusCompleted, stepwell.StatusFailed, stepwell.StatusCancelled,
	}, info.Status) {
		t.Errorf("the other run is %s %v", info.Status, err)
	}
}

var (
	withdraw = stepwell.NewUpdate[int, int]("withdraw")
	account  = stepwell.NewWorkflow[int, int]("account", stepwell.WithInbox(withdraw))
	empty    = stepwell.NewErrorKind[int]("empty")
)

// keepAccount takes withdrawals, and continues as another run after each, until one of 0.
func keepAccount(w *stepwell.Context, left int) (int, error) {
	for {
		u, err := withdraw.Receive(w)
		switch {
		case err != nil || u.Input == 0:
			return left, err
		case u.Input > left:
			err = u.Reject(w, empty.New(left))
		default:
			if left, err = stepwell.Do(w, "pay", func(context.Context) (int, error) { return left - u.Input, nil }); err != nil {
				return 0, err
			}
			if err = u.Reply(w, left); err == nil {
				return account.ContinueAs(w, left)
			}
		}
		if err != nil {
			return 0, err
		}
	}
}

// TestUpdatesAreAnsweredByARun, each once, though many come at the same time, twice each, and each answer is given by
// another run.
func TestUpdatesAreAnsweredByARun(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.serve(t, account.Bind(keepAccount))
	c, ctx := s.client(t, "write"), t.Context()
	const updates = 6
	run, err := account.Start(ctx, c, updates)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	left := map[string][]int{}
	for n := range 2 * updates {
		id := strconv.Itoa(n / 2)
		all.Go(func() {
			got, err := withdraw.Ask(ctx, c, run.ID(), 1, stepwell.MessageID(id))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			left[id] = append(left[id], got)
		})
	}
	all.Wait()
	seen := map[int]bool{}
	for id, got := range left {
		if len(got) != 2 || got[0] != got[1] || seen[got[0]] {
			t.Errorf("update %s got %v", id, got)
		}
		seen[got[0]] = true
	}
	if len(seen) != updates {
		t.Errorf("got the answers %v, want %d of them", left, updates)
	}
	_, err = withdraw.Ask(ctx, c, run.ID(), 5)
	if has, ok := empty.Find(err); !ok || has != 0 {
		t.Errorf("got %v, want that it is rejected", err)
	}
	_, err = withdraw.Ask(ctx, c, run.ID(), 0)
	if e := (*stepwell.APIError)(nil); !errors.As(err, &e) || e.Code != "unanswered" {
		t.Errorf("of the run that ends: got %v", err)
	}
	if out, err := run.Wait(ctx); out != 0 || err != nil {
		t.Errorf("got %d %v", out, err)
	}
}
