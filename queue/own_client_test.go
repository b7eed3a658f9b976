package queue

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/world"
)

// fakeWorld is a [World] whose deliveries have the body "with run", and which acknowledges whatever it is answered.
type fakeWorld struct {
	*Queue

	broken  atomic.Bool // Body fails
	timeout atomic.Bool // a proxy before the app answers
}

func (w *fakeWorld) Body(_ context.Context, _ Delivery, after int64) ([]byte, int64, error) {
	if w.broken.Load() {
		return nil, 0, errors.New("the database is away")
	}
	return []byte("with run"), after + 1, nil
}

func (w *fakeWorld) Answer(ctx context.Context, d Delivery, _ []byte) error {
	return w.Acknowledge(ctx, d.Project, d.Topic, d.Lease)
}

// ownClient starts an app with a client of its own, which acknowledges each call by its answer, and a worker that knows
// it.
func ownClient(t *testing.T) (*app, *replica, *Worker, *fakeWorld) {
	t.Helper()
	fake := &fakeWorld{}
	a := newApp(t, func(w http.ResponseWriter, _ *http.Request, _ call) {
		if fake.timeout.Load() {
			w.WriteHeader(http.StatusGatewayTimeout)
			return
		}
		w.Header().Set(world.Header, "1")
		w.Header().Set("Content-Type", world.MIME)
		_, _ = w.Write([]byte("commit"))
	})
	r := open(t, testdb.New(t))
	r.register(t, deployment, a.URL)
	fake.Queue = r.Queue
	w := r.worker(t, func(o *WorkerOptions) { o.World = fake })
	wantBody(t, a, r, "body")
	wantBody(t, a, r, "with run")
	return a, r, w, fake
}

// wantBody sends a message with the body "body" about a run, and checks what is delivered.
func wantBody(t *testing.T, a *app, r *replica, want string) {
	t.Helper()
	id := r.send(t, ofRun("wrun_1"))
	c := a.next(t)
	if string(c.Body) != want || c.Header.Get(world.Header) != "1" || c.id() != id {
		t.Errorf("got %q with %s %q, want %q", c.Body, world.Header, c.Header.Get(world.Header), want)
	}
	if kind := c.Header.Get("Content-Type"); (kind == world.MIME) != (want == "with run") {
		t.Errorf("got Content-Type %s with %q", kind, c.Body)
	}
	r.gone(t, id)
}

func TestMessageWithoutRunIsPlain(t *testing.T) {
	t.Parallel()
	a, r, _, _ := ownClient(t)
	id := r.send(t)
	if c := a.next(t); string(c.Body) != "body" {
		t.Errorf("got %q", c.Body)
	}
	r.gone(t, id)
}

// TestDeliveryIsPlainWithoutTheLog: if the log cannot be read, or there is no memory for it, the message does not wait.
func TestDeliveryIsPlainWithoutTheLog(t *testing.T) {
	t.Parallel()
	a, r, w, fake := ownClient(t)
	fake.broken.Store(true)
	wantBody(t, a, r, "body")
	fake.broken.Store(false)
	free, err := w.memory.take(t.Context(), project, maxRunBody<<10)
	if err != nil {
		t.Fatal(err)
	}
	wantBody(t, a, r, "body")
	free()
	wantBody(t, a, r, "with run")
	if free, ok := w.memory.try(project, w.memory.Most(shareFactor)); ok {
		free()
	} else {
		t.Error("the deliveries have kept memory")
	}
}

// TestTimeoutOfAProxyIsAFailure: its answer is not that of another client, after which the message would be delivered
// again at once, beside the function that still works.
func TestTimeoutOfAProxyIsAFailure(t *testing.T) {
	t.Parallel()
	a, r, _, fake := ownClient(t)
	fake.timeout.Store(true)
	id := r.send(t, ofRun("wrun_1"))
	a.next(t)
	if got := r.failed(t, id, 1); got.DeliveryCount != 1 || !strings.Contains(got.LastError, "504") {
		t.Errorf("delivery %d failed with %q, want the first one with 504", got.DeliveryCount, got.LastError)
	}
	if n := len(a.calls); n > 0 {
		t.Errorf("the message was delivered again at once, %d times", n)
	}
}
