package tests

import (
	"errors"
	"net/http"
	"slices"
	"strings"
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
