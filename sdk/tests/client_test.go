package tests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

type vote struct{ Approved bool }

type declined struct{ Reason string }

var (
	approve     = stepwell.NewWorkflow[string, string]("approve")
	poll        = stepwell.NewWorkflow[int, []vote]("poll")
	decision    = stepwell.NewHook[vote]("decision")
	errDeclined = stepwell.NewErrorKind[declined]("card_declined")
)

// approveOrder waits for a vote at the hook with its input as the token.
func approveOrder(w *stepwell.Context, order string) (string, error) {
	v, err := decision.Open(w, stepwell.Token(order)).Receive(w)
	if err != nil {
		return "", err
	}
	if !v.Approved {
		return "", errDeclined.New(declined{"not approved"})
	}
	return "shipped " + order, nil
}

// resume sends a vote as soon as the hook is open.
func resume(t *testing.T, c *stepwell.Client, run *stepwell.Run[string], token string, v vote) {
	t.Helper()
	awaitEvent(t, run, "hook_created")
	if err := decision.Resume(t.Context(), c, token, v); err != nil {
		t.Fatal(err)
	}
}

// awaitEvent waits for an event of a type.
func awaitEvent[O any](t *testing.T, run *stepwell.Run[O], kind string) {
	t.Helper()
	awaitEvents(t, run, kind, 1)
}

// awaitEvents waits for n events of a type.
func awaitEvents[O any](t *testing.T, run *stepwell.Run[O], kind string, n int) {
	t.Helper()
	if err := hasEvents(t.Context(), run, kind, n); err != nil {
		t.Fatal(err)
	}
}

// hasEvents waits until the log of a run has n events of a type.
func hasEvents[O any](ctx context.Context, run *stepwell.Run[O], kind string, n int) error {
	for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) { // between requests
		left, ended := n, false
		for e, err := range run.Events(ctx) {
			if err != nil {
				return err
			}
			if e.Type == kind {
				left--
			}
			if ended = slices.Contains([]string{"run_completed", "run_failed", "run_cancelled"}, e.Type); left == 0 {
				return nil
			}
		}
		if ended {
			return fmt.Errorf("run %s has ended without %s", run.ID(), kind)
		}
	}
	return ctx.Err()
}

func start(t *testing.T, c *stepwell.Client, order string, options ...stepwell.StartOption) *stepwell.Run[string] {
	t.Helper()
	run, err := approve.Start(t.Context(), c, order, options...)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// cutter is a proxy that loses the answers of some requests.
type cutter struct {
	*httputil.ReverseProxy

	// lose is asked for each request whether its answer gets lost.
	lose func(*http.Request) bool
}

// newCutter returns the address of a proxy before the server.
func newCutter(t *testing.T, s *server, lose func(*http.Request) bool) string {
	t.Helper()
	target, err := url.Parse(s.url())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(target)
	pass.ErrorLog = log.New(io.Discard, "", 0) // servers are killed
	p := &http.Server{Handler: cutter{pass, lose}}
	go func() { _ = p.Serve(l) }()
	t.Cleanup(func() { _ = p.Close() })
	return "http://" + l.Addr().String()
}

// ServeHTTP passes the request on, and perhaps closes the connection instead of answering.
func (c cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !c.lose(r) {
		c.ReverseProxy.ServeHTTP(w, r)
		return
	}
	out := r.Clone(r.Context())
	out.RequestURI = ""
	c.Director(out)
	if resp, err := http.DefaultTransport.RoundTrip(out); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	panic(http.ErrAbortHandler)
}

// once loses the answer of the first request with a method.
func once(method string) (lose func(*http.Request) bool, lost func() bool) {
	var n atomic.Int32
	return func(r *http.Request) bool { return r.Method == method && n.Add(1) == 1 }, func() bool { return n.Load() > 1 }
}

func TestStartIsRepeatedSafely(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.serve(t, approve.Bind(approveOrder))
	lose, repeated := once(http.MethodPost)
	direct, c := s.client(t, "write"), connect(t, newCutter(t, s, lose), adminKey)

	run := start(t, c, "order-1", stepwell.Attribute("customer", "7"))
	if !repeated() {
		t.Error("the start was not sent again")
	}
	var ids []string
	for r, err := range direct.Runs(t.Context(), stepwell.RunFilter{Attributes: map[string]string{"customer": "7"}}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	if !slices.Equal(ids, []string{run.ID()}) {
		t.Errorf("got the runs %v, want only %s", ids, run.ID())
	}
}

// TestALostPayloadCountsOnce also holds for signals and messages, whose requests have IDs of the same kind.
func TestALostPayloadCountsOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.serve(t, poll.Bind(func(w *stepwell.Context, voters int) (votes []vote, err error) {
		h := decision.Open(w, stepwell.Token("poll"))
		for range voters {
			v, err := h.Receive(w)
			if err != nil {
				return nil, err
			}
			votes = append(votes, v)
		}
		return votes, nil
	}))
	var sent atomic.Int32
	c := connect(t, newCutter(t, s, func(r *http.Request) bool {
		return r.URL.Path == "/v1/hooks/poll/resume" && sent.Add(1)%2 == 1
	}), adminKey)
	run, err := poll.Start(t.Context(), c, 2)
	if err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, run, "hook_created")
	if err := decision.Resume(t.Context(), c, "poll", vote{true}); err != nil || sent.Load() != 2 {
		t.Fatalf("sent %d times: %v", sent.Load(), err)
	}
	// The last payload ends the run and closes the hook. Perhaps the second attempt comes later than that.
	err = decision.Resume(t.Context(), c, "poll", vote{false})
	if e := (*stepwell.APIError)(nil); err != nil && (!errors.As(err, &e) || !e.Uncertain) {
		t.Errorf("the last payload: %v", err)
	}
	got, err := run.Wait(t.Context())
	if want := []vote{{true}, {false}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v %v, want %v", got, err, want)
	}
}

func TestWaitsOutliveRestarts(t *testing.T) {
	t.Parallel()
	once := stepwell.Once("a")
	for name, wait := range map[string]func(context.Context, *stepwell.Client) (string, error){
		"Wait": func(ctx context.Context, c *stepwell.Client) (string, error) {
			run, err := approve.Start(ctx, c, "order-1", once)
			if err != nil {
				return "", err
			}
			return run.Wait(ctx)
		},
		"Execute": func(ctx context.Context, c *stepwell.Client) (string, error) {
			return approve.Execute(ctx, c, "order-1", once)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.serve(t, approve.Bind(approveOrder))
			polls := make(chan struct{}, 100)
			c := connect(t, newCutter(t, s, func(r *http.Request) bool {
				if r.URL.Query().Has("timeout") || r.Header.Get("Prefer") != "" {
					polls <- struct{}{}
				}
				return false
			}), adminKey)
			result := make(chan error, 1)
			go func() {
				out, err := wait(t.Context(), c)
				if err == nil && out != "shipped order-1" {
					err = fmt.Errorf("got %q", out)
				}
				result <- err
			}()
			for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
				<-polls
				if err := s.stop(how); err != nil {
					t.Fatal(err)
				}
				<-polls // it is refused, so at least one request meets no server
				s.start(t)
			}
			other := s.client(t, "write")
			resume(t, other, start(t, other, "order-1", once), "order-1", vote{true})
			if err := <-result; err != nil {
				t.Fatal(err)
			}
			runs := 0
			for _, err := range other.Runs(t.Context(), stepwell.RunFilter{}) {
				if runs++; err != nil {
					t.Fatal(err)
				}
			}
			if runs != 1 {
				t.Errorf("%d runs were started", runs)
			}
		})
	}
}

func TestErrorsAreTyped(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.serve(t, approve.Bind(approveOrder))
	c := s.client(t, "write")

	run := start(t, c, "order-1", stepwell.RunKey("one"))
	_, err := approve.Start(t.Context(), c, "order-2", stepwell.RunKey("one"))
	taken := (*stepwell.APIError)(nil)
	if !errors.As(err, &taken) || taken.Code != "key_taken" || taken.Status != 409 || taken.RequestID == "" {
		t.Errorf("a taken key: %v", err)
	}
	if joined := start(t, c, "order-2", stepwell.RunKey("one"), stepwell.Join()); joined.ID() != run.ID() {
		t.Errorf("joined %s, want %s", joined.ID(), run.ID())
	}
	first, again := start(t, c, "order-3", stepwell.Once("a")), start(t, c, "order-3", stepwell.Once("a"))
	if first.ID() != again.ID() {
		t.Errorf("one key started %s and %s", first.ID(), again.ID())
	}

	resume(t, c, run, "order-1", vote{false})
	_, err = run.Wait(t.Context())
	failed := (*stepwell.RunFailedError)(nil)
	if !errors.As(err, &failed) || failed.RunID != run.ID() || !errors.Is(err, errDeclined) {
		t.Errorf("the run's error: %v", err)
	}
	if d, ok := errDeclined.Find(err); !ok || d.Reason != "not approved" {
		t.Errorf("the error's details: %+v %v", d, ok)
	}
	if other := stepwell.NewErrorKind[declined]("other"); errors.Is(err, other) {
		t.Error("the error is of another kind, too")
	}

	_, err = approve.Handle(c, "wrun_01JD5A8R8D0000000000000000").Wait(t.Context())
	if e := (*stepwell.APIError)(nil); !errors.As(err, &e) || e.Code != "run_not_found" {
		t.Errorf("an unknown run: %v", err)
	}
	_, err = approve.Handle(s.client(t, "invoke"), run.ID()).Details(t.Context())
	if err != nil {
		t.Error(err)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.serve(t, approve.Bind(approveOrder))
	lose, _ := once(http.MethodPost)
	direct := s.client(t, "write")
	run := start(t, direct, "order-1", stepwell.Delay(time.Hour), stepwell.Timeout(time.Hour))
	info, err := run.Details(t.Context())
	if err != nil || info.Status != stepwell.StatusPending || info.Deadline.IsZero() || string(info.Input) != `"order-1"` {
		t.Errorf("got %+v %v", info, err)
	}
	c := connect(t, newCutter(t, s, lose), adminKey) // which loses the first answer
	if err := approve.Handle(c, run.ID()).Cancel(t.Context(), "ordered twice", 0); err != nil {
		t.Fatal(err)
	}
	_, err = run.Wait(t.Context())
	if e := (*stepwell.RunCancelledError)(nil); !errors.As(err, &e) || e.Reason != "ordered twice" {
		t.Errorf("got %v", err)
	}
}

// TestRunsComePageByPage reads more runs than a page has.
func TestRunsComePageByPage(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.serve(t, approve.Bind(approveOrder))
	c := s.client(t, "write")
	want := map[string]bool{}
	for range 101 {
		want[start(t, c, "later", stepwell.Delay(time.Hour)).ID()] = true
	}
	runs := c.Runs(t.Context(), stepwell.RunFilter{Workflow: "approve", Status: stepwell.StatusPending})
	for range 2 { // a second loop begins with the first page again
		got := map[string]bool{}
		for r, err := range runs {
			if err != nil {
				t.Fatal(err)
			}
			got[r.ID] = true
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %d runs, want %d", len(got), len(want))
		}
	}
}

func TestTheContextEndsAWait(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.serve(t, approve.Bind(approveOrder))
	run := start(t, s.client(t, "write"), "order-1")
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	polled := make(chan struct{}, 1)
	c := connect(t, newCutter(t, s, func(*http.Request) bool {
		polled <- struct{}{}
		return false
	}), adminKey)
	go func() {
		<-polled
		cancel(reason)
	}()
	if _, err := approve.Handle(c, run.ID()).Wait(ctx); !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
}
