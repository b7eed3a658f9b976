package stepwell

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// waiting is a workflow that logs, waits for a timer, and logs again.
func waiting(ended *int) Definition {
	return workflowOf(func(w *Context) (string, error) {
		defer func() { *ended++ }()
		w.Log().Info("before")
		out, err := do(w, "step", func(context.Context) (string, error) { return "x", nil })
		if err != nil {
			return "", err
		}
		w.Log().Info("between")
		w.Sleep(time.Hour)
		w.Log().Info("after")
		return out, nil
	})
}

func TestWarmCallGoesOn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(since, keep map[string]any)
		status int
	}{
		{"kept", func(map[string]any, map[string]any) {}, http.StatusOK},
		{"another position", func(c, _ map[string]any) { c["since"] = 99 }, http.StatusPreconditionFailed},
		{"another process", func(c, _ map[string]any) { c["keep"] = "x" }, http.StatusPreconditionFailed},
		{"a lost answer", func(c, _ map[string]any) { c["events"] = []any{} }, http.StatusPreconditionFailed},
	} {
		ended := 0
		app, lines := newTestApp(waiting(&ended))
		f := newFake(t, app)
		first := f.invoke(nil)
		if first.Keep == nil || ended != 0 || fmt.Sprint(first.Await.Any) != "[wait:wait]" {
			t.Fatalf("got %s, %d ended", first.body, ended)
		}
		f.happen("wait_completed", "wait", nil)
		changes := map[string]any{"since": first.Keep.Seq, "keep": first.Keep.By, "events": f.events(first.Keep.Seq)}
		test.change(changes, nil)
		second := f.call(t.Context(), changes)
		if second.status != test.status || ended != 1 {
			t.Fatalf("%s: got %d %s, %d ended", test.name, second.status, second.body, ended)
		}
		if second.status != http.StatusOK { // the server sends the whole log
			second = f.call(t.Context(), map[string]any{"known": first.Keep.Seq})
		}
		if second.types() != "complete" || strings.Count(lines.String(), "before") != 1 ||
			strings.Count(lines.String(), "between") != 1 ||
			strings.Count(lines.String(), "after") != 1 {
			t.Errorf("%s: got %s, logged\n%s", test.name, second.types(), lines)
		}
	}
}

func TestNothingIsLeftAfterEviction(t *testing.T) { //nolint:paralleltest // it counts goroutines
	const runs = 1_000
	before := runtime.NumGoroutine()
	ended := 0
	app, _ := newTestApp(waiting(&ended))
	f := newFake(t, app)
	app.serving.server = ""
	f.invoke(nil)
	app.serving.kept.bytes = 50 * app.serving.kept.size
	for i := range runs {
		f.call(t.Context(), map[string]any{"run": map[string]any{"id": fmt.Sprint("wrun_", i), "workflow": "test"}})
	}
	k := &app.serving.kept
	if kept := k.order.Len(); kept < 40 || k.size > k.bytes || ended != runs+1-kept {
		t.Errorf("%d runs with %d bytes are kept, and %d have ended", kept, k.size, ended)
	}
	app.serving.kept.now = func() time.Time { return time.Now().Add(time.Hour) }
	app.serving.kept.sweepOld()
	if ended != runs+1 || app.serving.kept.size != 0 || app.serving.kept.sweep != nil {
		t.Errorf("%d have ended, %d bytes are kept", ended, app.serving.kept.size)
	}
	for range 1000 { // goroutines that have ended may still be counted
		if runtime.NumGoroutine() <= before+20 { // connections of the server
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

func TestLongLogIsRead(t *testing.T) {
	t.Parallel()
	hook := NewHook[string]("hook")
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		h := hook.Open(w, Token("t"))
		var all []string
		for range 3 {
			v, err := h.Receive(w)
			if err != nil {
				return "", err
			}
			all = append(all, v)
		}
		return strings.Join(all, " "), nil
	}))
	f := newFake(t, app)
	f.invoke(nil)
	for _, v := range []string{"a", "b", "c"} {
		f.happen("hook_received", "hook", v)
	}
	second := f.log[len(f.log)-2]
	second["payload"], second["truncated"] = nil, true
	got := f.call(t.Context(), map[string]any{"events": f.events(0)[:3], "after": 3})
	if got.types() != "complete" || got.Commands[0]["output"] != "a large c" {
		t.Errorf("got %s", got.body)
	}
	app.serving.server = ""
	if got := f.call(t.Context(), map[string]any{"after": 3}); got.Error.Code != codeUnsupported {
		t.Errorf("without a server: got %s", got.body)
	}
}

// TestConnectionsAreKept sends as many requests at once twice. The second time, few of them open a connection.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	const requests = 20
	var opened atomic.Int32
	var all sync.WaitGroup // of the requests that are in progress together
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		all.Done()
		all.Wait()
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	for range 2 {
		all.Add(requests)
		var sent sync.WaitGroup
		for range requests {
			sent.Go(func() {
				resp, err := defaultClient().Get(s.URL)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			})
		}
		sent.Wait()
	}
	if n := opened.Load(); n > requests+requests/2 {
		t.Errorf("%d connections were opened for twice %d requests", n, requests)
	}
}
