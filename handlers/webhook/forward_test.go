package webhook_test

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

// app creates a run of the Workflow SDK with a webhook, and registers its app unless it is nil.
func (d *testServer) app(t *testing.T, token string, app http.HandlerFunc) entities.RunID {
	t.Helper()
	if app != nil {
		server := httptest.NewServer(app)
		t.Cleanup(server.Close)
		d.register(t, server.URL+"/base/")
	}
	id := entities.NewRunID(t0)
	is := true
	d.append(t, entities.DefaultProject, created(id, entities.DriverClient), eventlog.Request{
		RunID: id, Type: entities.EventHookCreated, CorrelationID: "hook_1", SpecVersion: 3,
		Data: entities.EventData{Token: token, IsWebhook: &is},
	})
	return id
}

func (d *testServer) register(t testing.TB, url string) {
	t.Helper()
	check.Value(d.queue.PutDeployment(t.Context(), entities.DefaultProject, "shop", url))(t)
}

func TestRequestsAreForwardedToApps(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	type seen struct {
		Method, Target, Body string
		Header               map[string]string
	}
	calls := make(chan seen, 1)
	id := d.app(t, "a/b c", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s := seen{r.Method, r.RequestURI, string(body), map[string]string{}}
		for _, name := range []string{
			"Authorization", "Cookie", "Upgrade", "X-Mine", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
		} {
			if v := r.Header.Values(name); v != nil {
				s.Header[name] = strings.Join(v, "|")
			}
		}
		calls <- s
		w.Header().Set("Set-Cookie", "session=stolen")
		w.Header().Set("X-Answer", "app")
		w.WriteHeader(http.StatusMultiStatus)
		_, _ = io.WriteString(w, "from the app")
	})
	r := httptest.NewRequest("PUT", "/hooks/a%2Fb%20c?x=1&y=%2F", slow{strings.NewReader("hello")})
	for name, value := range map[string]string{
		"Authorization": "Bearer theirs", "Cookie": "a=b", "Connection": "Upgrade", "Upgrade": "websocket", "X-Mine": "1",
		"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "hooks.example.com",
	} {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	if w.Code != http.StatusMultiStatus || w.Body.String() != "from the app" || w.Header().Get("X-Answer") != "app" ||
		w.Header().Values("Set-Cookie") != nil || len(w.Header().Values("X-Content-Type-Options")) != 1 {
		t.Errorf("got %d %s %v", w.Code, w.Body, w.Header())
	}
	want := seen{"PUT", "/base/.well-known/workflow/v1/webhook/a%2Fb%20c?x=1&y=%2F", "hello", map[string]string{
		"Authorization": "Bearer theirs", "X-Mine": "1", "X-Forwarded-For": "203.0.113.7, 192.0.2.1",
		"X-Forwarded-Proto": "https", "X-Forwarded-Host": "hooks.example.com",
	}}
	check.Equal(t, "the app's request", <-calls, want)
	d.wantReceived(t, id, 0) // which is the app's to do
}

// sharedHeaders affect more than the response that has them.
var sharedHeaders = []string{
	"Set-Cookie", "NEL", "Report-To", "Reporting-Endpoints", "X-Accel-Redirect", "X-Accel-Buffering", "X-Sendfile",
	"X-LIGHTTPD-send-file", "Alt-Svc", "Strict-Transport-Security", "Clear-Site-Data", "Service-Worker-Allowed",
	"Accept-CH", "Public-Key-Pins",
}

// wantOwnHeaders checks that a response has the server's own headers once, and none that affects more than itself.
func wantOwnHeaders(t *testing.T, h http.Header) {
	t.Helper()
	for _, name := range sharedHeaders {
		if got := h.Values(name); got != nil {
			t.Errorf("the response has %s: %v", name, got)
		}
	}
	for _, name := range []string{"X-Content-Type-Options", "Referrer-Policy", "X-Request-Id"} {
		if got := h.Values(name); len(got) != 1 {
			t.Errorf("%s: got %v, want the server's", name, got)
		}
	}
	if got := h.Get("Content-Security-Policy"); !strings.HasPrefix(got, "sandbox") {
		t.Errorf("Content-Security-Policy: got %q, want the server's first", got)
	}
}

// TestAppsCannotSetHeadersOfTheOrigin: neither in the final response, nor by having an informational one clear the
// server's headers.
func TestAppsCannotSetHeadersOfTheOrigin(t *testing.T) {
	t.Parallel()
	for name, informs := range map[string]bool{"plain": false, "after early hints": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newTestServer(t)
			d.app(t, "T", func(w http.ResponseWriter, _ *http.Request) {
				if informs {
					w.Header().Set("Link", "</x.css>; rel=preload")
					w.WriteHeader(http.StatusEarlyHints)
				}
				for _, name := range sharedHeaders {
					w.Header().Set(name, "x")
				}
				w.Header().Set("X-Request-Id", "theirs")
				w.Header().Set("X-Content-Type-Options", "theirs")
				_, _ = io.WriteString(w, "<script>")
			})
			front := httptest.NewServer(d)
			t.Cleanup(front.Close)
			response := check.Value(http.Get(front.URL + "/hooks/T"))(t) //nolint:noctx // a test
			defer func() { _ = response.Body.Close() }()
			if response.StatusCode != http.StatusOK {
				t.Errorf("got %s", response.Status)
			}
			wantOwnHeaders(t, response.Header)
		})
	}
}

// TestResponsesOfAppsAreStreamed checks that the response is not buffered.
func TestResponsesOfAppsAreStreamed(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	goOn := make(chan struct{})
	d.app(t, "T", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "one\n")
		_ = http.NewResponseController(w).Flush()
		<-goOn
		_, _ = io.WriteString(w, "two\n")
	})
	front := httptest.NewServer(d)
	t.Cleanup(front.Close)
	response := check.Value(http.Get(front.URL + "/hooks/T"))(t) //nolint:noctx // a test
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewReader(response.Body)
	if line, err := lines.ReadString('\n'); line != "one\n" || err != nil {
		t.Fatalf("got %q, %v", line, err)
	}
	close(goOn)
	if rest, err := io.ReadAll(lines); string(rest) != "two\n" || err != nil {
		t.Errorf("got %q, %v", rest, err)
	}
}

func TestUnreachableApps(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	d.app(t, "T", nil)
	refused := func() {
		t.Helper()
		w := d.call("POST", "/hooks/T", "x")
		wantRejected(t, w, http.StatusBadGateway, "app_unreachable")
		if strings.Contains(w.Body.String(), "127.0.0.1") {
			t.Errorf("the response contains the app's address: %s", w.Body)
		}
	}
	refused() // it is not registered
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	d.register(t, away.URL)
	refused()
	cut := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(cut.Close)
	d.register(t, cut.URL)
	refused()
	if strings.Contains(d.logged.String(), "/hooks/T") {
		t.Errorf("the log contains the token: %s", d.logged)
	}
}

// TestAppsAtForbiddenAddressesAreNotCalled checks that only the log has the reason.
func TestAppsAtForbiddenAddressesAreNotCalled(t *testing.T) {
	t.Parallel()
	d := newTestServer(t, func(o *handlers.Options) { o.Allowed = egress.Allowed{} })
	d.app(t, "T", func(http.ResponseWriter, *http.Request) { t.Error("the app was called") })
	w := d.call("POST", "/hooks/T", "x")
	wantRejected(t, w, http.StatusBadGateway, "app_unreachable")
	if strings.Contains(w.Body.String(), "127.0.0.1") {
		t.Errorf("the response contains the app's address: %s", w.Body)
	}
	if !strings.Contains(d.logged.String(), "the server does not call 127.0.0.1") {
		t.Errorf("the log lacks the reason: %s", d.logged)
	}
}

// TestNotFoundByAppLooksLikeUnknownToken checks a hook that was disposed meanwhile.
func TestNotFoundByAppLooksLikeUnknownToken(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	d.app(t, "T", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	id := []string{"X-Request-Id", "same"}
	got, want := d.call("POST", "/hooks/T", "x", id...), d.call("POST", "/hooks/unknown", "x", id...)
	if got.Code != http.StatusNotFound || got.Body.String() != want.Body.String() ||
		!cmp.Equal(got.Header(), want.Header()) {
		t.Errorf("got %d %s %v, want %d %s %v", got.Code, got.Body, got.Header(), want.Code, want.Body, want.Header())
	}
}
