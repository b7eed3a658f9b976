package tests

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// gc is a workflow of TestGroundControl.
type gc = *stepwell.Workflow[string, string]

func gcWorkflow(name string, options ...stepwell.WorkflowOption) gc {
	return stepwell.NewWorkflow[string, string](name, options...)
}

var (
	gcEcho  = stepwell.NewStep[string, string]("echo")
	gcHook  = stepwell.NewHook[string]("end")
	gcNotes = stepwell.NewInbox[note]("notes")
	gcKey   = stepwell.NewStoreKey[int]("last")
	gcFirst = gcWorkflow("first")
	gcTimer = gcWorkflow("timer")
	gcTwice = gcWorkflow("twice")
	gcStore = gcWorkflow("store")
	gcInbox = gcWorkflow("inbox", stepwell.WithInbox(gcNotes))
	gcSleep = gcWorkflow("sleep")
	gcEnds  = gcWorkflow("ends")
	gcChild = gcWorkflow("child")
)

// TestGroundControl checks what went wrong in another engine, with a server and an app that keeps nothing between
// calls.
func TestGroundControl(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var firsts atomic.Int32
	s.serveTwice(t, "twice", func() []stepwell.Definition { return gcDefinitions(&firsts) })
	c := s.client(t, "write")
	for name, test := range map[string]func(*testing.T, *server, *stepwell.Client){
		"G1: what a workflow does first is replayed": func(t *testing.T, _ *server, c *stepwell.Client) {
			wantOutput(t, gcStart(t, c, gcFirst, ""), "1 second")
			if n := firsts.Load(); n != 1 {
				t.Errorf("what it does first was done %d times", n)
			}
		},
		"G2: a timer that is late is harmless":                        gcTimerIsHarmless,
		"G3: what follows a result happens once":                      gcResultsOfTwoCopies,
		"G4: what is stored last is kept":                             gcStoredLast,
		"G5: a message that nobody understands does not hang the run": gcUnknownMessage,
		"G6: the time of a run is limited":                            gcTimeout,
		"G7: a run can be cancelled right after its start":            gcCancelAtOnce,
		"G8: each end of a run decodes": func(t *testing.T, _ *server, c *stepwell.Client) {
			wantOutput(t, gcStart(t, c, gcEnds, ""), "output, details, cancelled, timeout")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, s, c)
		})
	}
}

// serveTwice serves an app that keeps no runs. Calls of one workflow and of its steps are made at two copies of the app
// at once; the first one's answer counts.
func (s *server) serveTwice(t *testing.T, workflow string, definitions func() []stepwell.Definition) {
	t.Helper()
	key := s.signingKey(t)
	var copies [2]http.Handler
	for i := range copies {
		app := stepwell.NewApp(stepwell.AppConfig{Name: "tests", Server: s.url(), SigningKeys: key, CacheBytes: -1})
		app.Register(definitions()...)
		h, err := app.Handler()
		if err != nil {
			t.Fatal(err)
		}
		copies[i] = h
	}
	function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the server has closed the connection
		}
		var other sync.WaitGroup
		if bytes.Contains(body, []byte(`"workflow":"`+workflow+`"`)) {
			again := r.Clone(r.Context())
			again.Body = io.NopCloser(bytes.NewReader(body))
			other.Go(func() { copies[1].ServeHTTP(httptest.NewRecorder(), again) })
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		copies[0].ServeHTTP(w, r)
		other.Wait()
	}))
	t.Cleanup(function.Close)
	s.admin(t, http.MethodPut, "/v1/deployments/tests", map[string]any{"url": function.URL}, nil)
}

func gcDefinitions(firsts *atomic.Int32) []stepwell.Definition {
	return []stepwell.Definition{
		gcEcho.Bind(func(_ context.Context, in string) (string, error) { return in, nil }),
		gcFirst.Bind(func(w *stepwell.Context, _ string) (string, error) {
			n, err := stepwell.Do(w, "first", func(context.Context) (int32, error) { return firsts.Add(1), nil })
			if err == nil {
				err = w.Sleep(time.Millisecond)
			}
			if err != nil {
				return "", err
			}
			return gcEcho.Run(w, string('0'+n)+" second", stepwell.Remote())
		}),
		gcTimer.Bind(func(w *stepwell.Context, token string) (string, error) {
			stale := w.Timer(time.Millisecond) // it ends while nobody waits for it
			if _, err := stepwell.Select(w,
				stepwell.On(gcEcho.Go(w, "fast"), func(_ *stepwell.Context, out string) (string, error) { return out, nil }),
				stepwell.On(stale, func(*stepwell.Context, time.Time) (string, error) { return "", nil }).Keep()); err != nil {
				return "", err
			}
			return gcHook.Open(w, stepwell.Token(token)).Receive(w)
		}),
		gcTwice.Bind(func(w *stepwell.Context, _ string) (string, error) {
			out := ""
			for range 3 {
				remote, err := gcEcho.Run(w, out+"r", stepwell.Remote())
				if err != nil {
					return "", err
				}
				if out, err = gcEcho.Run(w, remote+"i"); err != nil {
					return "", err
				}
			}
			return out, nil
		}),
		gcStore.Bind(func(w *stepwell.Context, how string) (string, error) {
			gcKey.Set(w, 7)
			if how == "failed" {
				return "", stepwell.Fail("no", "it failed")
			}
			return how, nil
		}),
		gcInbox.Bind(func(w *stepwell.Context, _ string) (string, error) {
			n, err := gcNotes.Receive(w)
			return n.Text, err
		}),
		gcSleep.Bind(sleepAndUndo),
		gcEnds.Bind(endsOfChildren),
		gcChild.Bind(func(w *stepwell.Context, how string) (string, error) {
			switch how {
			case "completes":
				return "output", nil
			case "fails":
				return "", errDeclined.New(declined{"details"})
			}
			return "", w.Sleep(time.Hour)
		}),
	}
}

// sleepAndUndo sleeps, and then undoes what it has done before.
func sleepAndUndo(w *stepwell.Context, _ string) (string, error) {
	return stepwell.WithSaga(w, func(w *stepwell.Context, saga *stepwell.Saga) (string, error) {
		saga.Add("sleep", func(w *stepwell.Context) error {
			gcKey.Set(w, -1)
			_, err := gcEcho.Run(w, "undone")
			return err
		})
		return "", w.Sleep(time.Hour)
	})
}

// endsOfChildren returns how children end.
func endsOfChildren(w *stepwell.Context, _ string) (string, error) {
	var ends []string
	for _, how := range []string{"completes", "fails", "is cancelled", "is late"} {
		var options []stepwell.ChildOption
		if how == "is late" {
			options = append(options, stepwell.Timeout(time.Millisecond), stepwell.TimeoutGrace(time.Minute))
		}
		child := gcChild.Child(w, how, options...)
		if how == "is cancelled" {
			child.Cancel(w, "not needed")
		}
		out, err := child.Await(w)
		failed, cancelled := (*stepwell.RunFailedError)(nil), (*stepwell.RunCancelledError)(nil)
		switch found, ok := errDeclined.Find(err); {
		case err == nil:
			ends = append(ends, out)
		case errors.As(err, &cancelled) && cancelled.RunID != "" && errors.Is(err, stepwell.ErrCancelled):
			ends = append(ends, "cancelled")
		case !errors.As(err, &failed) || failed.RunID == "":
			return "", err
		case ok:
			ends = append(ends, found.Reason)
		case errors.Is(err, stepwell.ErrTimeout):
			ends = append(ends, "timeout")
		}
	}
	return strings.Join(ends, ", "), nil
}

func gcStart(t *testing.T, c *stepwell.Client, w gc, in string, options ...stepwell.StartOption) *stepwell.Run[string] {
	t.Helper()
	run, err := w.Start(t.Context(), c, in, options...)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func wantOutput(t *testing.T, run *stepwell.Run[string], want string) {
	t.Helper()
	if got, err := run.Wait(t.Context()); got != want || err != nil {
		t.Errorf("got %q %v, want %q", got, err, want)
	}
}

// countEvents counts the events of a type in a run's log.
func countEvents(t *testing.T, run *stepwell.Run[string], kind string) (n int) {
	t.Helper()
	for e, err := range run.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == kind {
			n++
		}
	}
	return n
}

func gcTimerIsHarmless(t *testing.T, _ *server, c *stepwell.Client) {
	run := gcStart(t, c, gcTimer, "timer")
	awaitEvent(t, run, "hook_created")
	if err := gcHook.Resume(t.Context(), c, "timer", "fine"); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, run, "fine")
}

func gcResultsOfTwoCopies(t *testing.T, _ *server, c *stepwell.Client) {
	run := gcStart(t, c, gcTwice, "")
	wantOutput(t, run, "ririri")
	created, completed := countEvents(t, run, "step_created"), countEvents(t, run, "step_completed")
	if created != 6 || completed != 6 {
		t.Errorf("%d steps were dispatched and %d have a result, want 6", created, completed)
	}
}

func gcStoredLast(t *testing.T, _ *server, c *stepwell.Client) {
	for _, how := range []string{"completed", "failed"} {
		run := gcStart(t, c, gcStore, how)
		_, err := run.Wait(t.Context())
		if failed := stepwell.HasCode(err, "no"); failed != (how == "failed") {
			t.Errorf("%s: got %v", how, err)
		}
		if n, ok, err := gcKey.Read(t.Context(), c, run.ID()); n != 7 || !ok || err != nil {
			t.Errorf("%s: the store has %d %v %v", how, n, ok, err)
		}
	}
}

func gcUnknownMessage(t *testing.T, s *server, c *stepwell.Client) {
	run := gcStart(t, c, gcInbox, "")
	err := stepwell.NewInbox[note]("letters").Send(t.Context(), c, run.ID(), note{"x"})
	if e := (*stepwell.APIError)(nil); !errors.As(err, &e) || e.Code != "inbox_not_found" {
		t.Errorf("a message to no inbox: got %v", err)
	}
	s.admin(t, http.MethodPost, "/v1/runs/"+run.ID()+"/inbox/notes", map[string]any{"payload": []int{1, 2}}, nil)
	if _, err := run.Wait(t.Context()); !stepwell.HasCode(err, "undecodable") {
		t.Errorf("got %v", err)
	}
}

// gcTimeout: a run fails at the end of its time, at once or after it has compensated.
func gcTimeout(t *testing.T, _ *server, c *stepwell.Client) {
	for grace, undone := range map[time.Duration]int{0: 0, time.Hour: 1} {
		options := []stepwell.StartOption{stepwell.Timeout(time.Second)}
		if grace > 0 {
			options = append(options, stepwell.TimeoutGrace(grace))
		}
		run := gcStart(t, c, gcSleep, "", options...)
		if _, err := run.Wait(t.Context()); !stepwell.HasCode(err, "timeout") {
			t.Errorf("with a grace of %s got %v", grace, err)
		}
		if n := countEvents(t, run, "step_completed"); n != undone {
			t.Errorf("with a grace of %s, %d compensations, want %d", grace, n, undone)
		}
	}
}

// TestARemoteStepInProgressIsUndone when its run is cancelled during its call, and the step succeeds all the same.
func TestARemoteStepInProgressIsUndone(t *testing.T) {
	t.Parallel()
	called, compensating, release := make(chan struct{}, 1), make(chan struct{}, 9), make(chan struct{})
	charge := stepwell.NewStep[string, string]("charge")
	refund := stepwell.NewStep[string, string]("refund")
	pay := gcWorkflow("pay")
	s := newServer(t)
	s.serve(t,
		charge.Bind(func(context.Context, string) (string, error) {
			called <- struct{}{}
			<-release
			return "charged", nil
		}),
		refund.Bind(func(_ context.Context, in string) (string, error) { return in + " back", nil }),
		pay.Bind(func(w *stepwell.Context, _ string) (string, error) {
			return stepwell.WithSaga(w, func(w *stepwell.Context, saga *stepwell.Saga) (string, error) {
				paid := charge.Go(w, "", stepwell.Remote(), charge.Undo(func(w *stepwell.Context, _ string, out *string) error {
					_, err := refund.Run(w, *out)
					return err
				}))
				saga.Add("tell", func(*stepwell.Context) error {
					compensating <- struct{}{}
					return nil
				})
				return paid.Await(w)
			})
		}))
	run := gcStart(t, s.client(t, "write"), pay, "")
	<-called
	if err := run.Cancel(t.Context(), "a mistake", time.Hour); err != nil {
		t.Fatal(err)
	}
	<-compensating
	close(release)
	_, err := run.Wait(t.Context())
	if e := (*stepwell.RunCancelledError)(nil); !errors.As(err, &e) {
		t.Errorf("got %v, want a cancelled run", err)
	}
	var results []string
	for e, err := range run.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == "step_completed" && strings.Contains(string(e.Payload), "charged") {
			results = append(results, string(e.Payload))
		}
	}
	if got := strings.Join(results, " "); got != `"charged" "charged back"` {
		t.Errorf("the steps have the results %s; want a charge and its refund", got)
	}
}

// gcCancelAtOnce: whether the run was called before or not, and with a delay it was not.
func gcCancelAtOnce(t *testing.T, _ *server, c *stepwell.Client) {
	for _, grace := range []time.Duration{0, time.Hour} {
		for _, delay := range []time.Duration{0, time.Hour} {
			run := gcStart(t, c, gcSleep, "", stepwell.Delay(delay))
			if err := run.Cancel(t.Context(), "a mistake", grace); err != nil {
				t.Fatal(err)
			}
			_, err := run.Wait(t.Context())
			if e := (*stepwell.RunCancelledError)(nil); !errors.As(err, &e) || e.Reason != "a mistake" {
				t.Errorf("with a grace of %s and a delay of %s got %v", grace, delay, err)
			}
		}
	}
}
