package stepwell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// keeper is a server that is told about a call.
type keeper struct {
	keeps   int // the status of the answers
	kept    chan struct{}
	answers chan string
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.Header.Get("Authorization") != "Bearer token" || r.Header.Get("Stepwell-Invocation") != "rh_1":
		w.WriteHeader(http.StatusUnauthorized)
	case strings.HasSuffix(r.URL.Path, "/v1/runs/wrun_1/call/keep"):
		select {
		case k.kept <- struct{}{}:
		default:
		}
		w.WriteHeader(k.keeps)
		if k.keeps == http.StatusConflict {
			_, _ = io.WriteString(w, `{"error":{"code":"stale_invocation","message":"over"}}`)
		}
	case strings.HasSuffix(r.URL.Path, "/v1/runs/wrun_1/call/answer"):
		k.answers <- string(body)
		w.WriteHeader(http.StatusNoContent)
	}
}

// stepCall is a call of a step that its function may keep.
const stepCall = `{"type":"step","invocation":"rh_1","token":"token","server":{"features":["answer"]},` +
	`"run":{"id":"wrun_1"},"step":{"id":"s","name":"step","input":"in"}}`

// app returns an app with a step that tells the keeper about its calls, and its handler.
func (k *keeper) app(t *testing.T, fn func(context.Context, string) (string, error)) (*App, http.Handler) {
	t.Helper()
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	app, _ := newTestApp(NewStep[string, string]("step").Bind(fn))
	app.serving.server = server.URL
	h, err := app.Handler()
	if err != nil {
		t.Fatal(err)
	}
	return app, h
}

// TestCallsWithoutTheirServer closes the connection of a step's call. It goes on, and its answer comes by request, unless
// the server says that the call is over, or the app is stopped.
func TestCallsWithoutTheirServer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		keeps    int
		close    bool // the connection
		shutdown bool
		want     error // the cause with which the step's context ends
	}{
		"goes on":      {http.StatusNoContent, true, false, nil},
		"is over":      {http.StatusConflict, true, false, ErrStepCancelled},
		"was deleted":  {http.StatusNotFound, true, false, ErrStepCancelled},
		"without news": {http.StatusServiceUnavailable, true, false, nil},
		"is stopped":   {http.StatusNoContent, false, true, ErrShutdown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &keeper{tt.keeps, make(chan struct{}, 1), make(chan string, 1)}
			began, goOn := make(chan struct{}), make(chan struct{})
			var cause error
			app, h := k.app(t, func(ctx context.Context, in string) (string, error) {
				close(began)
				select {
				case <-goOn:
				case <-ctx.Done():
					cause = context.Cause(ctx)
				}
				return in, nil
			})
			ctx, closeConnection := context.WithCancel(t.Context())
			defer closeConnection()
			direct, served := httptest.NewRecorder(), make(chan struct{})
			go func() {
				defer close(served)
				h.ServeHTTP(direct, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(stepCall)))
			}()
			<-began
			if tt.close {
				closeConnection()
				<-k.kept // at once, and not after a second
			}
			if tt.shutdown {
				ended, cancel := context.WithCancel(context.Background())
				cancel()
				_ = app.Shutdown(ended)
			}
			if tt.want == nil {
				close(goOn)
				var got struct {
					Status      int
					ContentType string
					Body        string
				}
				if err := json.NewDecoder(bytes.NewBufferString(<-k.answers)).Decode(&got); err != nil ||
					got.Status != http.StatusOK || got.Body != "in" || got.ContentType != "application/json" {
					t.Errorf("the answer is %+v, %v", got, err)
				}
			}
			<-served
			if !errors.Is(cause, tt.want) {
				t.Errorf("the context of the step ended with %v, want %v", cause, tt.want)
			}
			if answered := direct.Body.Len() > 0; answered == tt.close {
				t.Errorf("the connection got %q", direct.Body)
			}
		})
	}
}

// TestLongCallsAreKept: the server is told about a call that takes long, and not about others.
func TestLongCallsAreKept(t *testing.T) {
	t.Parallel()
	k := &keeper{http.StatusNoContent, make(chan struct{}, 1), make(chan string, 1)}
	_, h := k.app(t, func(_ context.Context, in string) (string, error) {
		<-k.kept
		return in, nil
	})
	got := httptest.NewRecorder()
	began := time.Now()
	h.ServeHTTP(got, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(stepCall)))
	if got.Code != http.StatusOK || got.Body.String() != `"in"` || time.Since(began) < keepAfter {
		t.Errorf("answered %d %s after %s", got.Code, got.Body, time.Since(began))
	}
}

// TestAnswersAreSentWithPauses: a server that is away for long is not asked without a pause, and one that refuses the
// answer is not asked again.
func TestAnswersAreSentWithPauses(t *testing.T) {
	t.Parallel()
	away := &APIError{Status: http.StatusServiceUnavailable, RetryAfter: time.Hour}
	refused := &APIError{Status: http.StatusBadRequest}
	for name, answers := range map[string][]error{"taken": {away, away, nil}, "refused": {away, away, refused}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began, sent := time.Now(), 0
				err := deliver(t.Context(), func(context.Context) error {
					sent++
					return answers[sent-1]
				})
				if !errors.Is(err, answers[2]) || sent != len(answers) || time.Since(began) != 2*keepEvery {
					t.Errorf("got %v after %d tries in %s", err, sent, time.Since(began))
				}
			})
		})
	}
}
