package tests

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

var (
	transfers = stepwell.NewWorkflow[string, string]("transfers")
	wire      = stepwell.NewStep[string, string]("wire", stepwell.AtMostOnce())
	remark    = stepwell.NewStep[string, string]("remark", stepwell.Remote(), stepwell.Attempts(2))
)

// TestAKilledServersOnlyAttemptIsNotRepeated: the step that is called once at most fails, since nobody knows what it did,
// and one beside it is called again.
func TestAKilledServersOnlyAttemptIsNotRepeated(t *testing.T) {
	t.Parallel()
	killed := newServer(t)
	c := killed.client(t, "write")
	var wired, noted atomic.Int32
	began, dead := make(chan struct{}, 2), make(chan struct{})
	execute := func(count *atomic.Int32) func(context.Context, string) (string, error) {
		return func(_ context.Context, in string) (string, error) {
			if count.Add(1) == 1 {
				began <- struct{}{}
				<-dead
			}
			return in, nil
		}
	}
	app := stepwell.NewApp(stepwell.AppConfig{Name: "transfers", Unsigned: "a test in one process"})
	app.Register(wire.Bind(execute(&wired)), remark.Bind(execute(&noted)),
		transfers.Bind(func(w *stepwell.Context, in string) (string, error) {
			sent, written := wire.Go(w, in), remark.Go(w, in)
			if text, err := written.Await(w); err != nil {
				return text, err
			}
			return sent.Await(w)
		}))
	h, err := app.Handler()
	if err != nil {
		t.Fatal(err)
	}
	function := httptest.NewServer(h)
	t.Cleanup(function.Close)
	killed.admin(t, http.MethodPut, "/v1/deployments/transfers", map[string]any{"url": function.URL}, nil)
	run, err := transfers.Start(t.Context(), c, "all")
	if err != nil {
		t.Fatal(err)
	}
	for range cap(began) {
		<-began
	}
	if err := killed.stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	close(dead)
	other := killed.beside(t)
	_, err = transfers.Handle(connect(t, other.url(), adminKey), run.ID()).Wait(t.Context())
	wantUnknown(t, err)
	if n, m := wired.Load(), noted.Load(); n != 1 || m != 2 {
		t.Errorf("called %d times and %d times, want once and twice", n, m)
	}
	killed.start(t)
}

// wantUnknown checks that a run has failed since nobody knows what its step has done.
func wantUnknown(t *testing.T, err error) {
	t.Helper()
	if failed, ok := errors.AsType[*stepwell.RunFailedError](err); !ok || failed.Code != "no_answer" {
		t.Errorf("got %v", err)
	}
}

// TestAKilledWorkersOnlyAttemptIsNotRepeated, though another one asks for calls.
func TestAKilledWorkersOnlyAttemptIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	key, c := s.workerKey(t, "shifts@*"), s.client(t, "write")
	dying := startWorker(t, s.url(), key, "dying")
	run := begin(t, c, "once hang")
	dying.awaits(t, "begins hang")
	other := startWorker(t, s.url(), key, "other")
	if err := dying.stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, err := run.Wait(t.Context())
	wantUnknown(t, err)
	wantShift(t, begin(t, c, "once quick"), "other")
	if strings.Contains(other.Output(), "begins hang") {
		t.Error("the step is executed again")
	}
}
