package tests

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

var (
	training = stepwell.NewWorkflow[string, string]("training")
	train    = stepwell.NewStep[string, int]("train", stepwell.HeartbeatTimeout(8*time.Second),
		stepwell.AttemptTimeout(time.Hour), stepwell.Backoff(time.Millisecond, time.Millisecond))
)

// TestProgressOutlivesServersAndAttempts: an attempt says how far it is and hangs, and is given up. The next one goes
// on there, though its server is killed, and says how far it is to another one. It fails, and the last one knows.
func TestProgressOutlivesServersAndAttempts(t *testing.T) {
	t.Parallel()
	first := newServer(t)
	servers := []*server{first, first.beside(t)}
	client := first.client(t, "write")
	kept, began, killed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	work := func(ctx context.Context, _ string) (int, error) {
		at, _ := stepwell.LastProgress[int](ctx)
		if err := stepwell.Heartbeat(ctx, at+1); err != nil {
			return 0, err
		}
		switch at {
		case 0:
			<-ctx.Done() // it hangs
			if cause := context.Cause(ctx); !errors.Is(cause, stepwell.ErrStepCancelled) {
				return 0, fmt.Errorf("the context has ended with %w", cause)
			}
			return 0, stepwell.Heartbeat(ctx, 100) // nobody waits
		case 1:
			close(began)
			for again := time.NewTicker(time.Second); ; {
				select {
				case <-killed:
					return 0, errors.Join(errors.New("it fails"), stepwell.Heartbeat(ctx, 5))
				case <-again.C:
				}
				if err := stepwell.Heartbeat(ctx, at+1); err != nil {
					return 0, stepwell.Permanent(err)
				}
			}
		default:
			return at, nil
		}
	}
	app := stepwell.NewApp(stepwell.AppConfig{
		Name: "training", Server: balance(t, servers, kept), Unsigned: "a test in one process",
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	app.Register(train.Bind(work), training.Bind(func(w *stepwell.Context, in string) (string, error) {
		got, err := train.Run(w, in)
		return fmt.Sprintf("trained from %d", got), err
	}))
	h, err := app.Handler()
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(h)
	t.Cleanup(listener.Close)
	first.admin(t, http.MethodPut, "/v1/deployments/training", map[string]any{"url": listener.URL}, nil)
	run, err := training.Start(t.Context(), client, "model")
	if err != nil {
		t.Fatal(err)
	}
	<-began
	for _, s := range servers { // one of them has made the call
		<-kept
		if err := s.stop(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s.start(t)
	}
	close(killed)
	if out, err := run.Wait(t.Context()); err != nil || out != "trained from 5" {
		t.Errorf("got %q, %v", out, err)
	}
}
