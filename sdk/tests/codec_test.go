package tests

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/embedded"
	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// marker is in all payloads of the deals.
const marker = "m4rk3r"

var (
	deal     = stepwell.NewWorkflow[string, string]("deal", stepwell.WithInbox(dealNote), stepwell.WithInbox(dealAsk))
	dealEcho = stepwell.NewWorkflow[string, string]("deal-echo")
	dealMany = stepwell.NewWorkflow[[]string, []string]("deal-many")
	dealNote = stepwell.NewInbox[string]("deal-notes")
	dealAsk  = stepwell.NewUpdate[string, string]("deal-questions")
	dealHook = stepwell.NewHook[string]("deal-hook")
	dealPaid = stepwell.NewSignal[string]("deal-paid")
	dealLast = stepwell.NewStoreKey[string]("deal-last")
	dealSaid = stepwell.NewStream[string]("deal-said")
	dealPay  = stepwell.NewStep[string, string]("deal-pay", stepwell.HeartbeatTimeout(time.Minute),
		stepwell.Backoff(10*time.Millisecond, time.Second))
	dealNo = stepwell.NewErrorKind[string]("deal-no")
)

// payDeal fails once, and then gives back what the first attempt has said of its progress.
func payDeal(ctx context.Context, in string) (string, error) {
	dealSaid.Write(stepwell.Streams(ctx), marker+" step")
	if before, ok := stepwell.LastProgress[string](ctx); ok {
		dealLast.Set(stepwell.Store(ctx), marker+" stored")
		return in + before, nil
	}
	return "", errors.Join(stepwell.Heartbeat(ctx, marker+" half"), errors.New(marker+" once"))
}

// makeDeal has a payload of each kind.
func makeDeal(w *stepwell.Context, in string) (out string, err error) {
	say := func(text string, err2 error) {
		out, err = out+" "+text, errors.Join(err, err2)
	}
	if in == marker {
		dealSaid.Write(w, marker+" workflow")
		say(dealNote.Receive(w))
		say(dealPay.Run(w, marker))
		last, _ := dealLast.Get(w)
		say(last, nil)
		say(stepwell.Do(w, "own", func(context.Context) (string, error) { return marker + " own", nil }))
		_, refused := stepwell.Do(w, "no", func(context.Context) (string, error) { return "", dealNo.New(marker + " no") })
		details, _ := dealNo.Find(refused)
		say(details, nil)
		say(dealEcho.Child(w, marker+" child").Await(w))
		say(dealHook.Open(w, stepwell.Token("deal-"+w.Info().Key)).Receive(w))
		paid, unpaid := dealPaid.Wait(w).Await(w)
		say(paid.Data, unpaid)
		dealLast.Set(w, marker+out)
		if err != nil {
			return out, err
		}
		return deal.ContinueAs(w, marker+out)
	}
	u, err := dealAsk.Receive(w)
	if err == nil {
		err = u.Reply(w, u.Input)
	}
	if err != nil {
		return "", err
	}
	if u, err = dealAsk.Receive(w); err == nil {
		err = u.Reject(w, dealNo.New(u.Input))
	}
	if err != nil {
		return "", err
	}
	last, _ := dealLast.Get(w)
	return last, nil
}

func dealDefinitions() []stepwell.Definition {
	return []stepwell.Definition{
		deal.Bind(makeDeal), dealPay.Bind(payDeal),
		dealEcho.Bind(func(_ *stepwell.Context, in string) (string, error) {
			if in == marker+" fail" {
				return "", dealNo.New(marker + " failed")
			}
			return in, nil
		}),
		dealMany.Bind(func(_ *stepwell.Context, in []string) ([]string, error) { return in, nil }),
	}
}

// encrypted returns a codec with keys of these IDs, the first of which encrypts.
func encrypted(t *testing.T, ids ...string) stepwell.Codec {
	t.Helper()
	keys := map[string][]byte{}
	for _, id := range ids {
		keys[id] = bytes.Repeat([]byte(id)[:1], 32)
	}
	c, err := stepwell.NewAESGCM(ids[0], keys)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// makeDeals makes a deal, and calls during while the deal waits for its hook.
func makeDeals(t *testing.T, c *stepwell.Client, during func()) {
	t.Helper()
	ctx := t.Context()
	run := must[*stepwell.Run[string]](t)(deal.Start(ctx, c, marker, stepwell.RunKey("one"), stepwell.Once("once"),
		dealNote.AtStart(marker+" note", stepwell.MessageID("1"))))
	again := must[*stepwell.Run[string]](t)(deal.Start(ctx, c, marker, stepwell.RunKey("one"), stepwell.Once("once"),
		dealNote.AtStart(marker+" note", stepwell.MessageID("1"))))
	if again.ID() != run.ID() {
		t.Errorf("the repeated start began %s, want %s", again.ID(), run.ID())
	}
	awaitEvents(t, run, "hook_created", 3) // with those of the inboxes
	during()
	for range 2 { // the second one is a repetition
		if err := dealHook.Resume(ctx, c, "deal-one", marker+" hook", stepwell.MessageID("1")); err != nil {
			t.Error(err)
		}
	}
	if err := dealPaid.Send(ctx, c, marker+" signal", stepwell.KeepFor(time.Minute)); err != nil {
		t.Fatal(err)
	}
	said := ""
	for chunk, err := range dealSaid.Follow(ctx, c, run.ID(), 0) {
		said += must[string](t)(chunk, err) + ","
	}
	if want := strings.ReplaceAll("M workflow,M step,M step,", "M", marker); said != want {
		t.Errorf("the stream has %q, want %q", said, want)
	}
	var next string
	for next == "" {
		next = must[stepwell.RunDetails](t)(run.Details(ctx)).ContinuedAs
	}
	if got, err := dealAsk.Ask(ctx, c, next, marker+" question"); got != marker+" question" || err != nil {
		t.Errorf("the answer is %q, %v", got, err)
	}
	_, rejected := dealAsk.Ask(ctx, c, next, marker+" rejected")
	if details, ok := dealNo.Find(rejected); !ok || details != marker+" rejected" {
		t.Errorf("the rejection is %v", rejected)
	}
	want := strings.ReplaceAll("M M note MM half M stored M own M no M child M hook M signal", "M", marker)
	if got, err := run.Wait(ctx); err != nil || got != want {
		t.Errorf("got  %q, %v\nwant %q", got, err, want)
	}
	if got, ok, err := dealLast.Read(ctx, c, next); got != want || !ok || err != nil {
		t.Errorf("the store has %q, %v", got, err)
	}
	_, err := dealEcho.Execute(ctx, c, marker+" fail")
	if details, ok := dealNo.Find(err); !ok || details != marker+" failed" || !strings.Contains(err.Error(), "deal-no") {
		t.Errorf("the run failed with %v, whose details are %q", err, details)
	}
}

// hides fails the test if a payload of a deal, or its key, is anywhere in the schema's tables.
func hides(t *testing.T, schema string) {
	t.Helper()
	encoded := 0
	for row := range strings.Lines(must[string](t)(harness.Rows(t.Context(), databaseURL, schema))) {
		if strings.Contains(row, marker) || strings.Contains(row, hex.EncodeToString([]byte(marker))) {
			t.Errorf("the server has %s", row)
		}
		if strings.Contains(row, "$codec") || strings.Contains(row, hex.EncodeToString([]byte("$codec"))) {
			encoded++
		}
	}
	if encoded < 20 {
		t.Errorf("only %d rows have encoded payloads", encoded)
	}
}

// TestServersDoNotSeeEncodedPayloads in each way in which apps are called, with all calls of workflows doubled, and a
// server that is killed.
func TestServersDoNotSeeEncodedPayloads(t *testing.T) {
	t.Parallel()
	client := func(t *testing.T, s *server) *stepwell.Client {
		t.Helper()
		return must[*stepwell.Client](t)(stepwell.NewClient(stepwell.ClientConfig{
			URL: s.url(), APIKey: adminKey, Codec: encrypted(t, "b", "a"),
		}))
	}
	config := func(t *testing.T, s *server) stepwell.AppConfig {
		t.Helper()
		return stepwell.AppConfig{Name: "deals", Build: "1", Server: s.url(), Codec: encrypted(t, "a", "b"),
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	}
	killed := func(t *testing.T, s *server) func() {
		t.Helper()
		return func() {
			if err := s.stop(syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			s.start(t)
		}
	}
	t.Run("called", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		c := config(t, s)
		c.Unsigned = "a test in one process"
		var twice copied
		for range 2 {
			app := stepwell.NewApp(c)
			app.Register(dealDefinitions()...)
			twice = append(twice, must[http.Handler](t)(app.Handler()))
		}
		function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.Header.Get("Idempotency-Key"), "/") { // of a step
				twice[0].ServeHTTP(w, r)
			} else {
				twice.ServeHTTP(w, r)
			}
		}))
		t.Cleanup(function.Close)
		announced := stepwell.NewApp(c)
		announced.Register(dealDefinitions()...)
		if err := announced.Announce(t.Context(), client(t, s), function.URL); err != nil {
			t.Fatal(err)
		}
		makeDeals(t, client(t, s), killed(t, s))
		wantBatchAndFork(t, s, client(t, s))
		hides(t, s.schema)
	})
	t.Run("working", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		app := stepwell.NewApp(config(t, s))
		app.Register(dealDefinitions()...)
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- app.Work(ctx) }()
		for registered := false; !registered; {
			registered = must[reply](t)(s.request(ctx, adminKey, http.MethodGet, "/v1/deployments/deals@1", nil, nil)).ok()
		}
		makeDeals(t, client(t, s), killed(t, s))
		hides(t, s.schema)
		if end(); <-ended != nil {
			t.Error("the worker did not end")
		}
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		schema := newSchema()
		app := stepwell.NewApp(stepwell.AppConfig{Name: "deals", Build: "1", Codec: encrypted(t, "a", "b")})
		app.Register(dealDefinitions()...)
		makeDeals(t, must[*stepwell.Client](t)(stepwell.NewClient(stepwell.ClientConfig{
			URL: embedded.URL, HTTP: embedServer(t, schema, app).Client(), Codec: encrypted(t, "b", "a"),
		})), func() {})
		hides(t, schema)
	})
}

// wantBatchAndFork checks that a run of a batch has its items, and that a fork of one has its payloads.
func wantBatchAndFork(t *testing.T, s *server, c *stepwell.Client) {
	t.Helper()
	var batched *stepwell.Run[[]string]
	for _, item := range []string{"1", "2"} {
		batched = must[*stepwell.Run[[]string]](t)(stepwell.StartBatched(t.Context(), c, dealMany, marker+item,
			stepwell.BatchRule{Size: 2, Wait: time.Minute}))
	}
	want := fmt.Sprint([]string{marker + "1", marker + "2"})
	if got, err := batched.Wait(t.Context()); err != nil || fmt.Sprint(got) != want {
		t.Errorf("the batch has %q, %v", got, err)
	}
	var fork struct{ ID string }
	s.admin(t, http.MethodPost, "/v1/runs/"+batched.ID()+"/rerun", map[string]int{"at": 2}, &fork)
	if got, err := dealMany.Handle(c, fork.ID).Wait(t.Context()); err != nil || fmt.Sprint(got) != want {
		t.Errorf("the fork has %q, %v", got, err)
	}
}

// TestAMissingKeyHoldsRuns: a run that was started with a key that the app lacks is blocked, and ends when the app has
// it. So does a step that another deployment executes, however many attempts it has. Plain payloads stay readable.
func TestAMissingKeyHoldsRuns(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	plain, secret := s.client(t, "write"), must[*stepwell.Client](t)(stepwell.NewClient(stepwell.ClientConfig{
		URL: s.url(), APIKey: adminKey, Codec: encrypted(t, "b", "a"),
	}))
	once := stepwell.NewStep[string, string]("once", stepwell.Attempts(1), stepwell.Deployment("tests"))
	asking := stepwell.NewWorkflow[string, string]("asking")
	serve := func(name string, c stepwell.Codec, definitions ...stepwell.Definition) {
		app := stepwell.NewApp(stepwell.AppConfig{Name: name, Unsigned: "a test", Server: s.url(), Codec: c,
			Logger: slog.New(slog.DiscardHandler)})
		app.Register(definitions...)
		f := httptest.NewServer(must[http.Handler](t)(app.Handler()))
		t.Cleanup(f.Close)
		s.admin(t, http.MethodPut, "/v1/deployments/"+name, map[string]any{"url": f.URL}, nil)
	}
	makeAsking := asking.Bind(func(w *stepwell.Context, in string) (string, error) { return once.Run(w, in) })
	doOnce := once.Bind(func(_ context.Context, in string) (string, error) { return in, nil })
	serve("tests", encrypted(t, "a"), doOnce)
	serve("asking", encrypted(t, "a"), makeAsking)

	run := must[*stepwell.Run[string]](t)(asking.Start(t.Context(), secret, marker, stepwell.Deployment("asking")))
	old := must[*stepwell.Run[string]](t)(asking.Start(t.Context(), plain, marker, stepwell.Deployment("asking")))
	if _, err := old.Wait(t.Context()); !stepwell.HasCode(err, "codec_failed") {
		t.Errorf("a client without the codec got %v", err)
	}
	if got, err := asking.Handle(secret, old.ID()).Wait(t.Context()); got != marker || err != nil {
		t.Errorf("a run of a plain input has %q, %v", got, err)
	}
	var blocked *stepwell.RunBlocked
	for blocked == nil {
		blocked = must[stepwell.RunDetails](t)(run.Details(t.Context())).Blocked
	}
	if blocked.Code != "codec_failed" || !strings.Contains(blocked.Message, `no key "b": add it`) {
		t.Errorf("it is blocked with %+v", blocked)
	}
	serve("asking", encrypted(t, "b", "a"), makeAsking)
	awaitEvents(t, run, "step_created", 1)
	for refused := false; !refused; {
		got := must[reply](t)(s.request(t.Context(), adminKey, http.MethodGet, "/v1/runs/"+run.ID()+"/why", nil, nil))
		refused = strings.Contains(got.String(), `no key`)
	}
	serve("tests", encrypted(t, "b", "a"), doOnce)
	if got, err := run.Wait(t.Context()); got != marker || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
