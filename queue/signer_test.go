package queue

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue/signing/signingtest"
)

// signers is a signer whose keys and clock the test sets.
type signers struct {
	*Signer

	mu    sync.Mutex
	at    time.Time
	keys  []admin.SigningKeySecret
	err   error
	reads int
	log   *testdb.Log
}

func newSigners() *signers {
	s := &signers{at: time.Unix(1_000_000, 0), log: &testdb.Log{}}
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

// after advances the clock and then calls change.
func (s *signers) after(d time.Duration, change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = s.at.Add(d)
	if change != nil {
		change()
	}
}

// wantKeys checks the number of keys that sign a call, and how often the keys were read.
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

// TestSigningKeysAreCachedForSeconds also checks that the log mentions missing keys once.
func TestSigningKeysAreCachedForSeconds(t *testing.T) {
	t.Parallel()
	s := newSigners()
	const warning = "calls are not signed"
	s.wantKeys(t, "no keys", 0, 1)
	if !s.log.Contains(warning) {
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
	if n := s.log.Count(warning); n != 2 {
		t.Errorf("the log says so %d times, want once for each change", n)
	}
}

func TestSigningKeysAreReadOnceForConcurrentCalls(t *testing.T) {
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

// TestUnreadableSigningKeysDelayTheDelivery: no call is made without its signature, and the attempt does not count as a
// delivery.
func TestUnreadableSigningKeysDelayTheDelivery(t *testing.T) {
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
		if f := (Delivery{DeliveryCount: 3}).Failure(err); !errors.Is(err, s.err) || f.Reached || f.After > firstBackoff || s.reads != reads {
			t.Errorf("%s: got %v, %+v after %d readings, want %d", what, err, f, s.reads, reads)
		}
	}
	fail("at first", 1)
	s.after(keysPause-1, nil)
	fail("too early to read again", 1)
	s.after(1, nil)
	fail("again", 2)
	s.after(keysPause, func() {
		s.err, s.keys = nil, []admin.SigningKeySecret{{ID: "k", Secret: admin.NewSigningSecret()}}
	})
	s.wantKeys(t, "at last", 1, 3)
}

// verified is the result of verifying a call: it is unsigned, or signed by one of the keys.
type verified struct {
	err  error
	body int
}

// verifyingApp starts an app that verifies its calls and acknowledges nothing.
func verifyingApp(t *testing.T, key string) (*app, chan verified) {
	t.Helper()
	got := make(chan verified, 100)
	a := newApp(t, func(w http.ResponseWriter, r *http.Request, c call) {
		got <- verified{signingtest.Verify(r, c.Body, key), len(c.Body)}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	return a, got
}

// newKey creates a signing key of the project and returns its secret.
func (r *replica) newKey(t *testing.T, p entities.Project) string {
	t.Helper()
	_, s, err := admin.NewSigningKeys(r.pool, time.Now).Create(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return s.Reveal()
}

// TestDeliveriesAreSigned: calls are signed with all keys of their project, and no other's.
func TestDeliveriesAreSigned(t *testing.T) {
	t.Parallel()
	r := open(t, testdb.New(t))
	first := r.newKey(t, project)
	second := r.newKey(t, project)
	foreign := r.newKey(t, "another")
	r.worker(t, func(o *WorkerOptions) { o.Signer = r.NewSigner(time.Now, o.Logger) })
	for name, tt := range map[string]struct {
		key  string
		body string
		want error
	}{
		"first": {first, "x", nil}, "second": {second, "x", nil}, "foreign": {foreign, "x", signingtest.ErrWrong},
		"large": {second, strings.Repeat("x", 3*smallBody), nil}, "empty": {first, "", nil},
	} {
		a, got := verifyingApp(t, tt.key)
		r.register(t, name, a.URL+"/base")
		r.send(t, body(tt.body), func(m *message.Message) { m.DeploymentID = name })
		if v := testdb.Receive(t, "a call", got); !errors.Is(v.err, tt.want) || v.body != len(tt.body) {
			t.Errorf("%s: got %v with %d bytes, want %v", name, v.err, v.body, tt.want)
		}
	}
}
