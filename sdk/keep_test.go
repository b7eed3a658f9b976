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
			server := httptest.NewServer(k)
			t.Cleanup(server.Close)
			began, goOn := make(chan struct{}), make(chan struct{})
			var cause error
			step := DeclareStep[string, string]("step")
			app, _ := newTestApp(step.Bind(func(ctx context.Context, in string) (string, error) {
				close(began)
				select {
				case <-goOn:
				case <-ctx.Done():
					cause = context.Cause(ctx)
				}
				return in, nil
			}))
			app.serving.server = server.URL
			h, err := app.Handler(Unsigned("a test"))
			if err != nil {
				t.Fatal(err)
			}
			call := `{"type":"step","invocation":"rh_1","token":"token","server":{"features":["answer"]},` +
				`"run":{"id":"wrun_1"},"step":{"id":"s","name":"step","input":"in"}}`
			ctx, closeConnection := context.WithCancel(t.Context())
			defer closeConnection()
			direct, served := httptest.NewRecorder(), make(chan struct{})
			go func() {
				defer close(served)
				h.ServeHTTP(direct, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(call)))
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
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	step := DeclareStep[string, string]("step")
	app, _ := newTestApp(step.Bind(func(ctx context.Context, in string) (string, error) {
		<-k.kept
		return in, nil
	}))
	app.serving.server = server.URL
	h, err := app.Handler(Unsigned("a test"))
	if err != nil {
		t.Fatal(err)
	}
	call := `{"type":"step","invocation":"rh_1","token":"token","server":{"features":["answer"]},` +
		`"run":{"id":"wrun_1"},"step":{"id":"s","name":"step","input":"in"}}`
	got := httptest.NewRecorder()
	began := time.Now()
	h.ServeHTTP(got, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(call)))
	if got.Code != http.StatusOK || got.Body.String() != `"in"` || time.Since(began) < keepAfter {
		t.Errorf("answered %d %s after %s", got.Code, got.Body, time.Since(began))
	}
}
