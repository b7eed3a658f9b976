package tests

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// copied sends each call to several processes of an app at once. The first answer counts; the other copies go on.
type copied []http.Handler

// ServeHTTP implements [http.Handler].
func (all copied) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	answers := make(chan *httptest.ResponseRecorder, len(all))
	for _, h := range all {
		c := r.Clone(context.WithoutCancel(r.Context()))
		c.Body = io.NopCloser(bytes.NewReader(body))
		go func() {
			a := httptest.NewRecorder()
			h.ServeHTTP(a, c)
			answers <- a
		}()
	}
	a := <-answers
	w.WriteHeader(a.Code)
	_, _ = w.Write(a.Body.Bytes())
}

// TestCopiesOfACallWriteOneHistory: each call reaches four processes, which write the results of the steps during the
// call. Each step has another result in each process. The log of every run replays, and no call counts as a failure.
func TestCopiesOfACallWriteOneHistory(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var executed atomic.Int64
	next, count := stepwell.NewStep[int, int64]("next"), stepwell.NewWorkflow[int, []int64]("count")
	doCount := func(w *stepwell.Context, n int) (got []int64, err error) {
		for i := range n {
			v, err := next.Run(w, i)
			if err != nil {
				return nil, err
			}
			if got = append(got, v); v%2 == 0 { // what is next depends on the result
				if v, err = next.Run(w, -i); err != nil {
					return nil, err
				}
				got = append(got, v)
			}
		}
		return got, nil
	}
	newApp := func() *stepwell.App {
		app := stepwell.NewApp(stepwell.AppConfig{
			Name: "copies", Server: s.url(), Unsigned: "a test", Logger: slog.New(slog.DiscardHandler),
		})
		app.Register(count.Bind(doCount), next.Bind(func(context.Context, int) (int64, error) {
			return executed.Add(1), nil
		}))
		return app
	}
	var processes copied
	for range 4 {
		h, err := newApp().Handler()
		if err != nil {
			t.Fatal(err)
		}
		processes = append(processes, h)
	}
	function := httptest.NewServer(processes)
	t.Cleanup(function.Close)
	s.admin(t, http.MethodPut, "/v1/deployments/copies", map[string]any{"url": function.URL}, nil)
	c := s.client(t, "write")
	var runs []*stepwell.Run[[]int64]
	for range 10 {
		run, err := count.Start(t.Context(), c, 5)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	for _, run := range runs {
		if _, err := run.Wait(t.Context()); err != nil {
			t.Errorf("run %s: %v", run.ID(), err)
		}
		log, err := run.Log(t.Context())
		if err == nil {
			err = newApp().Replay(t.Context(), log)
		}
		if err != nil {
			t.Error(err)
		}
	}
}
