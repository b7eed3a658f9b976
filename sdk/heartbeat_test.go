package stepwell

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// beatServer is a server that gets heartbeats: the transport of requests to it.
type beatServer struct {
	mu     sync.Mutex
	status int
	bodies []string
	at     []time.Time
}

func (s *beatServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") != "Bearer token" ||
		!strings.HasSuffix(r.URL.Path, "/v1/runs/wrun_1/call/heartbeat") {
		return nil, errors.New("unexpected: " + r.URL.Path)
	}
	body, err := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies, s.at = append(s.bodies, string(body)), append(s.at, time.Now())
	answer := ""
	if s.status == http.StatusConflict {
		answer = `{"error":{"code":"stale_invocation","message":"over"}}`
	}
	return &http.Response{
		StatusCode: s.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer)), Request: r,
	}, err
}

// become changes the status of further answers, and returns how many heartbeats have come.
func (s *beatServer) become(status int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
	return len(s.bodies)
}

// call calls a step with this function.
func (s *beatServer) call(t *testing.T, fn func(context.Context) error) {
	t.Helper()
	app, _ := newTestApp(NewStep[string, None]("step").Bind(func(ctx context.Context, _ string) (None, error) {
		return None{}, fn(ctx)
	}))
	app.serving.server, app.serving.http = "http://stepwell.test", &http.Client{Transport: s}
	h, err := app.Handler()
	if err != nil {
		t.Fatal(err)
	}
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(
		`{"type":"step","invocation":"rh_1","token":"token","server":{"features":["heartbeat"]},`+
			`"run":{"id":"wrun_1"},"step":{"id":"s","name":"step","input":"in","progress":{"rows":3}}}`)))
}

// TestHeartbeatsAreCoalesced: a loop of heartbeats sends one in a second, with the newest progress.
func TestHeartbeatsAreCoalesced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &beatServer{status: http.StatusNoContent}
		s.call(t, func(ctx context.Context) error {
			for n := range 1000 { // ten seconds
				if err := Heartbeat(ctx, n); err != nil {
					t.Errorf("heartbeat %d: %v", n, err)
				}
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		})
		if n := len(s.at); n != 10 || s.bodies[0] != `{"progress":0}` || s.bodies[1] != `{"progress":109}` &&
			s.bodies[1] != `{"progress":110}` {
			t.Fatalf("sent %d heartbeats: %q", n, s.bodies)
		}
		for i := range s.at[1:] {
			if pause := s.at[i+1].Sub(s.at[i]); pause < time.Second {
				t.Errorf("heartbeat %d came %s after the one before", i+1, pause)
			}
		}
	})
}

// TestTheLastProgressOfAnAttemptIsSent if there is another attempt.
func TestTheLastProgressOfAnAttemptIsSent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		want string // the last request
	}{
		"it fails":          {errors.New("busy"), `{"progress":2}`},
		"it fails for good": {Permanent(errors.New("no")), `{"progress":1}`},
		"it succeeds":       {nil, `{"progress":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &beatServer{status: http.StatusNoContent}
				s.call(t, func(ctx context.Context) error {
					return errors.Join(Heartbeat(ctx, 1), Heartbeat(ctx, 2), tt.err)
				})
				time.Sleep(time.Minute)
				if got := s.bodies[len(s.bodies)-1]; got != tt.want || len(s.bodies) > 2 {
					t.Errorf("sent %q, want %s at last", s.bodies, tt.want)
				}
			})
		})
	}
}

// TestHeartbeatSaysThatNobodyWaits, and no more than that while no server can be reached.
func TestHeartbeatSaysThatNobodyWaits(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{
		http.StatusNoContent: nil, http.StatusConflict: ErrStepCancelled, http.StatusGone: ErrStepCancelled,
		http.StatusServiceUnavailable: nil,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &beatServer{status: status}
				s.call(t, func(ctx context.Context) error {
					if err := Heartbeat(ctx, nil); !errors.Is(err, want) {
						t.Errorf("got error %v, want %v", err, want)
					}
					if cause := context.Cause(ctx); !errors.Is(cause, want) {
						t.Errorf("the context has ended with %v, want %v", cause, want)
					}
					sent := s.become(http.StatusNoContent)
					time.Sleep(2 * beatEvery)
					if again := s.become(http.StatusNoContent) > sent; again != (status == http.StatusServiceUnavailable) {
						t.Errorf("sent again: %v", again)
					}
					return nil
				})
			})
		})
	}
}

// TestProgressHasALimitAndAType.
func TestProgressHasALimitAndAType(t *testing.T) {
	t.Parallel()
	s := &beatServer{status: http.StatusNoContent}
	s.call(t, func(ctx context.Context) error {
		if err := Heartbeat(ctx, strings.Repeat("x", mostProgress)); err == nil || len(s.bodies) > 0 {
			t.Errorf("a progress that is too large was sent: %v", err)
		}
		if got, ok := LastProgress[struct{ Rows int }](ctx); !ok || got.Rows != 3 {
			t.Errorf("got progress %+v, %v", got, ok)
		}
		if got, ok := LastProgress[[]string](ctx); ok {
			t.Errorf("an object is the list %q", got)
		}
		return nil
	})
	if got, ok := LastProgress[int](t.Context()); ok || Heartbeat(t.Context(), 1) != nil {
		t.Errorf("outside a step: got progress %d", got)
	}
}
