package queue

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/sdk/signature"
)

// signers makes a signer of keys that the test sets, at a time that it sets.
type signers struct {
	*Signer

	mu    sync.Mutex
	at    time.Time
	keys  []admin.SigningKeySecret
	err   error
	reads int
	log   *logs
}

func newSigners() *signers {
	s := &signers{at: time.Unix(1_000_000, 0), log: &logs{}}
	s.Signer = &Signer{
		read: func(context.Context, entities.Project) ([]admin.SigningKeySecret, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.reads++
			return s.keys, s.err
		},
		now: func() time.Time {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.at
		},
		logger: slog.New(slog.NewTextHandler(s.log, nil)), projects: map[entities.Project]*projectKeys{},
	}
	return s
}

// after lets time pass, and something happen.
func (s *signers) after(d time.Duration, change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = s.at.Add(d)
	if change != nil {
		change()
	}
}

// wantKeys expects calls to be signed with so many keys, after so many readings of them.
func (s *signers) wantKeys(t *testing.T, what string, keys, reads int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x.test", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.sign(r, project, nil); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	got := strings.Count(r.Header.Get("Signature-Input"), "keyid=")
	s.mu.Lock()
	defer s.mu.Unlock()
	if got != keys || s.reads != reads {
		t.Errorf("%s: got %d signatures after %d readings, want %d after %d", what, got, s.reads, keys, reads)
	}
}

// TestKeysAreReadEveryFewSeconds, and no more often.
func TestKeysAreReadEveryFewSeconds(t *testing.T) {
	t.Parallel()
	s := newSigners()
	const told = "calls are not signed"
	s.wantKeys(t, "no keys", 0, 1)
	if !s.log.contains(told) {
		t.Error("the log does not say that there are no keys")
	}
	one := []admin.SigningKeySecret{{ID: "skey_1", Secret: admin.NewSigningSecret()}}
	s.after(keysTime-1, func() { s.keys = one })
	s.wantKeys(t, "a new key too early", 0, 1)
	s.after(1, nil)
	s.wantKeys(t, "a new key", 1, 2)
	s.after(keysTime, func() { s.keys = append(one, one...) })
	s.wantKeys(t, "another", 2, 3)
	s.after(keysTime, func() { s.keys = nil })
	s.wantKeys(t, "none any more", 0, 4)
	s.after(keysTime, nil)
	s.wantKeys(t, "still none", 0, 5)
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if n := strings.Count(s.log.b.String(), told); n != 2 {
		t.Errorf("the log says so %d times, want once for each time that it came to be", n)
	}
}

// TestKeysAreReadOnceForAll who need them at the same time.
func TestKeysAreReadOnceForAll(t *testing.T) {
	t.Parallel()
	s := newSigners()
	s.keys = []admin.SigningKeySecret{{ID: "skey_1", Secret: admin.NewSigningSecret()}}
	var running sync.WaitGroup
	var signed atomic.Int64
	for range 50 {
		running.Go(func() {
			if keys, err := s.Signer.keys(t.Context(), project); err == nil && len(keys) == 1 {
				signed.Add(1)
			}
		})
	}
	running.Wait()
	if s.reads != 1 || signed.Load() != 50 {
		t.Errorf("got %d readings for %d", s.reads, signed.Load())
	}
}

// TestKeysThatCannotBeRead: a call is rather not made than made without its signature, and that is no delivery.
func TestKeysThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := newSigners()
	s.err = errors.New("the database is away")
	fail := func(what string, reads int) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x.test", nil)
		if err != nil {
			t.Fatal(err)
		}
		err = s.sign(r, project, nil)
		if f := failureOf(delivery{DeliveryCount: 3}, err); !errors.Is(err, s.err) || f.reached || f.after > firstBackoff || s.reads != reads {
			t.Errorf("%s: got %v, %+v after %d readings, want %d", what, err, f, s.reads, reads)
		}
	}
	fail("at first", 1)
	s.after(keysPause-1, nil)
	fail("too early to look again", 1)
	s.after(1, nil)
	fail("again", 2)
	s.after(keysPause, func() {
		s.err, s.keys = nil, []admin.SigningKeySecret{{ID: "k", Secret: admin.NewSigningSecret()}}
	})
	s.wantKeys(t, "at last", 1, 3)
}

// verified is what an app makes of a call: whether it is unsigned, or by which of the keys it is signed.
type verified struct {
	err  error
	body int
}

// guarded is an app that verifies its calls, and acknowledges nothing.
func guarded(t *testing.T, keys ...string) (*app, chan verified) {
	t.Helper()
	parsed, err := signature.ParseKeys(strings.Join(keys, ","))
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan verified, 100)
	a := newApp(t, func(w http.ResponseWriter, r *http.Request, c call) {
		got <- verified{signature.Verify(r, c.Body, time.Now(), parsed...), len(c.Body)}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	return a, got
}

// newKey makes a signing key of the project and returns its secret.
func (r *replica) newKey(t *testing.T, p entities.Project) string {
	t.Helper()
	_, s, err := admin.NewSigningKeys(r.pool, time.Now).Create(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return s.Reveal()
}

// TestDeliveriesAreSigned by all keys of their project, and by no other's.
func TestDeliveriesAreSigned(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	first := r.newKey(t, project)
	second := r.newKey(t, project)
	foreign := r.newKey(t, "another")
	r.worker(t, func(o *WorkerOptions) { o.Signer = NewSigner(r.Queue, time.Now, o.Logger) })
	for name, tt := range map[string]struct {
		key  string
		body string
		want error
	}{
		"first": {first, "x", nil}, "second": {second, "x", nil}, "foreign": {foreign, "x", signature.ErrWrong},
		"large": {second, strings.Repeat("x", 3*smallBody), nil}, "empty": {first, "", nil},
	} {
		a, got := guarded(t, tt.key)
		r.register(t, name, a.URL+"/base")
		r.send(t, body(tt.body), func(m *entities.Message) { m.DeploymentID = name })
		if v := receive(t, "a call", got); !errors.Is(v.err, tt.want) || v.body != len(tt.body) {
			t.Errorf("%s: got %v with %d bytes, want %v", name, v.err, v.body, tt.want)
		}
	}
}

// TestCallsOfFunctionsAreSigned: invocations and steps. Without keys they are not.
func TestCallsOfFunctionsAreSigned(t *testing.T) {
	t.Parallel()
	d := openDriven(t, testdb.New(t))
	secret := d.newKey(t, project)
	keys, err := signature.ParseKeys(secret)
	if err != nil {
		t.Fatal(err)
	}
	var verdicts sync.Map
	f := serve(t, func(c *turn) {
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
		verdicts.Store(r.Header.Get("Stepwell-Invocation"), errors.Join(signature.Verify(r, b, time.Now(), keys...)))
		r.Body = io.NopCloser(bytes.NewReader(b))
		inner.ServeHTTP(w, r)
	})
	d.register(t, deployment, f.URL)
	wantAll := func(want error, calls int) {
		t.Helper()
		n := 0
		verdicts.Range(func(invocation, verdict any) bool {
			n++
			if err, _ := verdict.(error); !errors.Is(err, want) {
				t.Errorf("invocation %s: got %v, want %v", invocation, err, want)
			}
			return true
		})
		if n < calls {
			t.Errorf("got %d calls, want at least %d", n, calls)
		}
		verdicts.Clear()
	}
	signing := d.worker(t, func(o *WorkerOptions) { o.Runs, o.Signer = d.runs, NewSigner(d.Queue, time.Now, o.Logger) })
	d.wantEnd(t, d.begin(t, `{}`), entities.RunCompleted, `42`)
	wantAll(nil, 3)
	stop(t, signing)

	d.exec(t, `DELETE FROM signing_keys`)
	d.worker(t, func(o *WorkerOptions) { o.Runs, o.Signer = d.runs, NewSigner(d.Queue, time.Now, o.Logger) })
	d.wantEnd(t, d.begin(t, `{}`), entities.RunCompleted, `42`)
	wantAll(signature.ErrUnsigned, 3)
}
