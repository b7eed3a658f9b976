package engine

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/signing/signingtest"
)

func forbidLoopback(o *queue.WorkerOptions) { o.Allowed = egress.Allowed{} }

// TestForbiddenFunctionsAreNotCalled: the address is refused before the call, and no attempt is counted.
func TestForbiddenFunctionsAreNotCalled(t *testing.T) {
	t.Parallel()
	f := serve(t, func(c *functionCall) { c.reply(map[string]any{"type": "complete", "output": 42}) })
	d := newServer(t, testdb.New(t))
	d.register(t, deployment, f.URL)
	strict := d.worker(t, forbidLoopback, d.works)
	id := d.startRun(t, `{}`)
	var reason string
	var count int
	testdb.Eventually(t, "the invocation is refused", func() bool {
		d.Scan(t, `SELECT last_error, delivery_count FROM messages WHERE run_id = $1 AND work = 'run'`, []any{id}, &reason, &count)
		return reason != ""
	})
	if !strings.Contains(reason, "the server does not call 127.0.0.1") || count != 0 {
		t.Errorf("got reason %q and %d deliveries, want a refusal and 0", reason, count)
	}
	stopWorker(t, strict)
	d.worker(t, d.works)
	d.Exec(t, `UPDATE messages SET due_at = now() WHERE run_id = $1`, id)
	d.WakeTimer(nil)
	d.wantEnd(t, id, entities.RunCompleted, `42`)
}

// TestCallsOfFunctionsAreSigned if the project has signing keys: invocations and steps.
func TestCallsOfFunctionsAreSigned(t *testing.T) {
	t.Parallel()
	d := newServer(t, testdb.New(t))
	secret := d.newKey(t, project)
	var verified sync.Map
	f := serve(t, func(c *functionCall) {
		if c.Type == "step" {
			_, _ = io.WriteString(c.w, `"done"`)
			return
		}
		if !c.has("step_completed", "s") {
			c.reply(map[string]any{"type": "runStep", "id": "s"})
			return
		}
		c.reply(map[string]any{"type": "complete", "output": 42})
	})
	inner := f.Config.Handler
	f.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		verified.Store(r.Header.Get("Stepwell-Invocation"), errors.Join(signingtest.Verify(r, b, secret)))
		r.Body = io.NopCloser(bytes.NewReader(b))
		inner.ServeHTTP(w, r)
	})
	d.register(t, deployment, f.URL)
	wantAll := func(want error, calls int) {
		t.Helper()
		n := 0
		verified.Range(func(invocation, result any) bool {
			n++
			if err, _ := result.(error); !errors.Is(err, want) {
				t.Errorf("invocation %s: got %v, want %v", invocation, err, want)
			}
			return true
		})
		if n < calls {
			t.Errorf("got %d calls, want at least %d", n, calls)
		}
		verified.Clear()
	}
	signing := d.worker(t, func(o *queue.WorkerOptions) {
		o.Handlers, o.Signer = d.runs.Handlers(), d.NewSigner(time.Now, o.Logger)
	})
	d.wantEnd(t, d.startRun(t, `{}`), entities.RunCompleted, `42`)
	wantAll(nil, 3)
	stopWorker(t, signing)

	d.Exec(t, `DELETE FROM signing_keys`)
	d.worker(t, func(o *queue.WorkerOptions) {
		o.Handlers, o.Signer = d.runs.Handlers(), d.NewSigner(time.Now, o.Logger)
	})
	d.wantEnd(t, d.startRun(t, `{}`), entities.RunCompleted, `42`)
	wantAll(signingtest.ErrUnsigned, 3)
}

// TestStepsAreSentOnce over HTTP/1. HTTP/2 repeats only what has not been executed.
func TestStepsAreSentOnce(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		f := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		f.EnableHTTP2 = http2
		f.StartTLS()
		t.Cleanup(f.Close)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URL, strings.NewReader("text"))
		if err != nil {
			t.Fatal(err)
		}
		req = sentOnce(req)
		resp, err := f.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if _, err := req.GetBody(); (err == nil) != http2 {
			t.Errorf("HTTP/2: %t; got %v", http2, err)
		}
	}
}

// newKey creates a signing key for the project and returns its secret.
func (r *replica) newKey(t *testing.T, p entities.Project) string {
	t.Helper()
	_, s, err := admin.NewSigningKeys(r.pool, time.Now).Create(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return s.Reveal()
}
