package stepwell

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// streamServer is a server that takes chunks: the transport of requests to it.
type streamServer struct {
	mu       sync.Mutex
	statuses []int // of the next requests; then 204
	answer   string
	writes   []streamWrite
	at       []time.Time
}

func (s *streamServer) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil || !strings.HasSuffix(r.URL.Path, "/v1/runs/wrun_1/call/stream") {
		return nil, fmt.Errorf("unexpected: %s (%w)", r.URL.Path, err)
	}
	var w streamWrite
	if err := json.Unmarshal(body, &w); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes, s.at = append(s.writes, w), append(s.at, time.Now())
	status := http.StatusNoContent
	if len(s.statuses) > 0 {
		status, s.statuses = s.statuses[0], s.statuses[1:]
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(s.answer)), Request: r,
	}, nil
}

// call calls a step with this function, and returns the answer.
func (s *streamServer) call(t *testing.T, features string, fn func(context.Context) error) *httptest.ResponseRecorder {
	t.Helper()
	app, _ := newTestApp(NewStep[string, None]("step").Bind(func(ctx context.Context, _ string) (None, error) {
		return None{}, fn(ctx)
	}))
	app.serving.server, app.serving.http, app.serving.sendEvery = "http://stepwell.test", &http.Client{Transport: s}, sendEvery
	h, err := app.Handler()
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(
		`{"type":"step","invocation":"rh_1","token":"token","server":{"features":[`+features+`]},`+
			`"run":{"id":"wrun_1"},"step":{"id":"s","name":"step","input":"in"}}`)))
	return w
}

var numbers = NewStream[int]("numbers")

// TestChunksAreSentTogether: ten requests in a second at most, with all chunks in their order, before the step's answer.
// A request that no server has answered is sent again.
func TestChunksAreSentTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &streamServer{statuses: []int{http.StatusNoContent, http.StatusServiceUnavailable}}
		w := s.call(t, `"stream"`, func(ctx context.Context) error {
			for n := range 100 { // a second
				numbers.Write(Streams(ctx), n)
				time.Sleep(10 * time.Millisecond)
			}
			numbers.Close(Streams(ctx))
			return ctx.Err()
		})
		if n := len(s.writes); w.Code != http.StatusOK || n < 10 || n > 13 {
			t.Fatalf("answered %d after %d requests", w.Code, n)
		}
		if first, again := s.writes[1], s.writes[2]; fmt.Sprint(first) != fmt.Sprint(again) {
			t.Errorf("sent %v, and then %v", first, again)
		}
		next := int64(0)
		for i, w := range s.writes {
			if i == 1 {
				continue // it is sent again
			}
			alone := w.Close && len(w.Chunks) == 0 // the end came after the last chunk was sent
			if w.From != next || w.Stream != "numbers" || w.Step != "" ||
				!alone && (len(w.Chunks) == 0 || string(w.Chunks[0]) != fmt.Sprint(next)) {
				t.Fatalf("request %d is %+v, want chunks from %d", i, w, next)
			}
			next += int64(len(w.Chunks))
			if i > 2 && i < len(s.writes)-1 && s.at[i].Sub(s.at[i-1]) < sendEvery {
				t.Errorf("request %d comes %s after the one before", i, s.at[i].Sub(s.at[i-1]))
			}
		}
		if next != 100 || !s.writes[len(s.writes)-1].Close {
			t.Errorf("sent %d chunks; the last request is %+v", next, s.writes[len(s.writes)-1])
		}
	})
}

// TestChunksThatCannotBeSentFailTheAttempt: for good if the server refuses them, or takes none; else it is repeated.
func TestChunksThatCannotBeSentFailTheAttempt(t *testing.T) {
	t.Parallel()
	always := make([]int, 100)
	for i := range always {
		always[i] = http.StatusServiceUnavailable
	}
	for name, tt := range map[string]struct {
		features string
		statuses []int
		want     int
		code     string
	}{
		"refused":          {`"stream"`, []int{http.StatusConflict}, http.StatusUnprocessableEntity, "stream_limit"},
		"not offered":      {`"heartbeat"`, nil, http.StatusUnprocessableEntity, "unsupported"},
		"the call is over": {`"stream"`, []int{http.StatusGone}, http.StatusInternalServerError, ""},
		"no server":        {`"stream"`, always, http.StatusInternalServerError, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &streamServer{statuses: tt.statuses, answer: `{"error":{"code":"stream_limit","message":"too much"}}`}
				w := s.call(t, tt.features, func(ctx context.Context) error {
					numbers.Write(Streams(ctx), 1)
					<-ctx.Done()
					numbers.Write(Streams(ctx), 2)
					return ctx.Err()
				})
				if w.Code != tt.want || !strings.Contains(w.Body.String(), tt.code) {
					t.Errorf("got %d %s", w.Code, w.Body)
				}
			})
		})
	}
}

// TestWritersWaitForTheServer: a step cannot have more than some MiB on its way.
func TestWritersWaitForTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, texts := &streamServer{}, NewStream[string]("texts")
		w := s.call(t, `"stream"`, func(ctx context.Context) error {
			began := time.Now()
			for range 30 {
				texts.Write(Streams(ctx), strings.Repeat("x", 200_000))
			}
			if took := time.Since(began); took < time.Second/2 {
				t.Errorf("6 MB were written in %s", took)
			}
			return ctx.Err()
		})
		if w.Code != http.StatusOK || len(s.writes) < 15 || len(s.writes) > 16 {
			t.Errorf("answered %d after %d requests", w.Code, len(s.writes))
		}
	})
}
