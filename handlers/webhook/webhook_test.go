package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/handlers/webhook"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func TestPayloadOfRequests(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	id := d.hook(t, "a token/é", entities.WebhookSpec{})
	path := "/hooks/a%20token%2F%C3%A9"
	for i, tt := range []struct {
		method, query, body string
		header              []string
		want                map[string]any
	}{
		{method: "GET", query: "?a=1&a=2&b", want: map[string]any{
			"query": map[string]any{"a": []any{"1", "2"}, "b": []any{""}},
		}},
		{method: "POST", body: ` {"n": 12345678901234567890, "a": "<\u0000>"} `,
			header: []string{"Content-Type", "application/json; charset=utf-8"},
			want: map[string]any{
				"contentType": "application/json; charset=utf-8",
				"headers":     map[string]any{"content-type": []any{"application/json; charset=utf-8"}},
				"body":        map[string]any{"n": json.Number("12345678901234567890"), "a": "<\x00>"},
			}},
		{method: "PUT", body: "null", header: []string{"Content-Type", "application/cloudevents+json"}, want: map[string]any{
			"contentType": "application/cloudevents+json", "body": nil,
			"headers": map[string]any{"content-type": []any{"application/cloudevents+json"}},
		}},
		{method: "POST", body: `{"half`, header: []string{"Content-Type", "application/json"}, want: map[string]any{
			"contentType": "application/json", "text": `{"half`,
			"headers": map[string]any{"content-type": []any{"application/json"}},
		}},
		{method: "PATCH", body: "a=b&c=%00", header: []string{"Content-Type", "application/x-www-form-urlencoded"},
			want: map[string]any{
				"contentType": "application/x-www-form-urlencoded", "text": "a=b&c=%00",
				"headers": map[string]any{"content-type": []any{"application/x-www-form-urlencoded"}},
			}},
		{method: "DELETE", body: "\xff\x00", header: []string{"Content-Type", "text/plain"}, want: map[string]any{
			"contentType": "text/plain", "bodyBase64": base64.StdEncoding.EncodeToString([]byte("\xff\x00")),
			"headers": map[string]any{"content-type": []any{"text/plain"}},
		}},
		{method: "POST", body: "abc", header: []string{"Content-Type", "image/png"}, want: map[string]any{
			"contentType": "image/png", "bodyBase64": "YWJj", "headers": map[string]any{"content-type": []any{"image/png"}},
		}},
		{method: "OPTIONS", header: []string{
			"Authorization", "Bearer sk", "Cookie", "session=1", "Proxy-Authorization", "Basic x", "Connection", "close, X-Hop",
			"X-Hop", "1", "Upgrade", "h2c", "X-Hub-Signature-256", "kept", "X-Twice", "1", "X-Twice", "2",
		}, want: map[string]any{
			"headers": map[string]any{"x-hub-signature-256": []any{"kept"}, "x-twice": []any{"1", "2"}},
		}},
	} {
		request := wantAccepted(t, d.call(tt.method, path+tt.query, tt.body, tt.header...))
		want := map[string]any{
			"request": request, "method": tt.method, "query": map[string]any{}, "headers": map[string]any{},
			"receivedAt": "2026-11-21T01:41:43.197Z",
		}
		for key, value := range tt.want {
			want[key] = value
		}
		list := d.received(t, id)
		if len(list) != i+1 {
			t.Fatalf("case %d: the run received %d payloads", i, len(list))
		}
		decoder := json.NewDecoder(strings.NewReader(list[i]))
		decoder.UseNumber()
		var got map[string]any
		check.NoError(t, decoder.Decode(&got))
		check.Equal(t, fmt.Sprintf("case %d", i), got, want)
	}
}

// TestRequestContinuesItsRun checks that the invocation is enqueued in the same transaction.
func TestRequestContinuesItsRun(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	id := d.hook(t, "T", entities.WebhookSpec{})
	d.append(t, entities.DefaultProject, eventlog.Request{
		RunID: id, Type: entities.EventRunStarted, SpecVersion: entities.SpecDriven,
	})
	check.NoError(t, d.queue.Discard(t.Context(), entities.DefaultProject, d.only(t)))
	wantAccepted(t, d.call("POST", "/hooks/T", ""))
	d.only(t)
	d.wantReceived(t, id, 1)
}

// only returns the only message in the queue.
func (d *testServer) only(t *testing.T) string {
	t.Helper()
	var ids []string
	rows := check.Value(d.pool.Query(t.Context(), `SELECT id FROM messages`))(t)
	for rows.Next() {
		var id string
		check.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	if rows.Err() != nil || len(ids) != 1 {
		t.Fatalf("the queue has %v, want one message; %v", ids, rows.Err())
	}
	return ids[0]
}

// TestUnusableTokensLookAlike checks that responses do not reveal whether a token was ever used.
func TestUnusableTokensLookAlike(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	none := entities.WebhookSpec{}
	id := d.hook(t, "disposed", none)
	d.append(t, entities.DefaultProject,
		eventlog.Request{RunID: id, Type: entities.EventHookDisposed, CorrelationID: "hook", SpecVersion: 2},
		opened(id, "plain", "no-webhook", nil))
	over := d.hook(t, "over", none)
	until := t0.Add(time.Hour)
	kept := opened(over, "kept", "retained", &entities.WebhookSpec{Verify: "github", Secret: "s"})
	kept.Data.TokenRetentionUntil = &until
	d.append(t, entities.DefaultProject, kept, ended(over))
	theirs := entities.NewRunID(t0)
	d.append(t, "stranger", created(theirs, entities.DriverServer), opened(theirs, "hook", "theirs", &none))

	want := d.call("POST", "/hooks/unknown", "{}", "X-Request-Id", "same")
	wantRejected(t, want, http.StatusNotFound, "not_found")
	paths := []string{"%00", "a%0Ab", "%C3", "%2E%2E", "%zz", strings.Repeat("x", 1025)}
	paths = append(paths, "disposed", "no-webhook", "over", "retained", "theirs", "unknown%2F")
	for _, path := range paths {
		r := httptest.NewRequest("POST", "/hooks/x", strings.NewReader("{}"))
		r.URL.RawPath = "/hooks/" + path
		r.Header.Set("X-Request-Id", "same")
		if path == "%zz" {
			r.URL.Path = "/hooks/%zz"
		}
		got := httptest.NewRecorder()
		d.ServeHTTP(got, r)
		if got.Code != want.Code || got.Body.String() != want.Body.String() {
			t.Errorf("%.50s: got %d %s, want %d %s", path, got.Code, got.Body, want.Code, want.Body)
		}
		check.Equal(t, fmt.Sprintf("%.50s: headers", path), got.Header(), want.Header())
	}
	check.Equal(t, "logged", d.logged.String(), "")
	d.wantReceived(t, id, 0)
	d.wantReceived(t, over, 0)
}

func mac(secret, text string) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(text))
	return hex.EncodeToString(h.Sum(nil))
}

func github(secret, body, delivery string) []string {
	return []string{"X-Hub-Signature-256", "sha256=" + mac(secret, body), "X-GitHub-Delivery", delivery}
}

func TestSignaturesAreRequired(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	id := d.hook(t, "T", entities.WebhookSpec{Verify: "github", Secret: "gh-secret"})
	call := func(header ...string) *httptest.ResponseRecorder { return d.call("POST", "/hooks/T", "{}", header...) }
	put := func(values ...admin.SecretValue) {
		t.Helper()
		check.Value(d.secrets.Put(t.Context(), entities.DefaultProject, "gh-secret", values))(t)
	}
	got := call(github("old", "{}", "1")...)
	wantRejected(t, got, http.StatusServiceUnavailable, "unverifiable")
	if strings.Contains(got.Body.String(), "gh-secret") || !strings.Contains(d.logged.String(), "gh-secret") {
		t.Errorf("the response names the secret, or the log does not: %s; %s", got.Body, d.logged)
	}
	check.Value(d.secrets.Put(t.Context(), "stranger", "gh-secret", []admin.SecretValue{"theirs"}))(t)
	wantRejected(t, call(github("theirs", "{}", "1")...), http.StatusServiceUnavailable, "unverifiable")

	put("old")
	wantRejected(t, call(), http.StatusUnauthorized, "wrong_signature")
	wantRejected(t, call(github("theirs", "{}", "1")...), http.StatusUnauthorized, "wrong_signature")
	wantRejected(t, call(github("old", "{ }", "1")...), http.StatusUnauthorized, "wrong_signature")
	d.wantReceived(t, id, 0)
	wantAccepted(t, call(github("old", "{}", "1")...))
	put("old", "new")
	wantAccepted(t, call(github("old", "{}", "2")...))
	wantAccepted(t, call(github("new", "{}", "3")...))
	put("new")
	wantRejected(t, call(github("old", "{}", "4")...), http.StatusUnauthorized, "wrong_signature")
	d.wantReceived(t, id, 3)
	if text := d.logged.String(); strings.Contains(text, "/hooks/T") {
		t.Errorf("the log contains the token: %s", text)
	}
}

// TestSlackURLVerification checks that a signed handshake is answered and not recorded.
func TestSlackURLVerification(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	id := d.hook(t, "T", entities.WebhookSpec{Verify: "slack", Secret: "s"})
	check.Value(d.secrets.Put(t.Context(), entities.DefaultProject, "s", []admin.SecretValue{"k"}))(t)
	call := func(secret, body string, at time.Time) *httptest.ResponseRecorder {
		stamp := strconv.FormatInt(at.Unix(), 10)
		return d.call("POST", "/hooks/T", body, "Content-Type", "application/json",
			"X-Slack-Request-Timestamp", stamp, "X-Slack-Signature", "v0="+mac(secret, "v0:"+stamp+":"+body))
	}
	challenge := `{"type":"url_verification","challenge":"3eZbrw1a"}`
	if got := call("k", challenge, t0); got.Code != http.StatusOK || got.Body.String() != "3eZbrw1a" {
		t.Errorf("got %d %s", got.Code, got.Body)
	}
	wantRejected(t, call("other", challenge, t0), http.StatusUnauthorized, "wrong_signature")
	wantRejected(t, call("k", "{}", t0.Add(-6*time.Minute)), http.StatusUnauthorized, "wrong_signature")
	d.wantReceived(t, id, 0)
	event := `{"type":"event_callback","event_id":"Ev1","challenge":"x"}`
	first := wantAccepted(t, call("k", event, t0))
	check.Equal(t, "the retry has ID", wantAccepted(t, call("k", event, t0.Add(time.Minute))), first)
	d.wantReceived(t, id, 1)
}

// TestDeliveryIsRecordedOnce checks concurrent retries.
func TestDeliveryIsRecordedOnce(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	id := d.hook(t, "T", entities.WebhookSpec{Verify: "github", Secret: "s"})
	other := opened(id, "other", "T2", &entities.WebhookSpec{})
	d.append(t, entities.DefaultProject, other)
	check.Value(d.secrets.Put(t.Context(), entities.DefaultProject, "s", []admin.SecretValue{"k"}))(t)
	var mu sync.Mutex
	names := map[string]int{}
	var racers sync.WaitGroup
	for range 12 {
		racers.Go(func() {
			w := d.call("POST", "/hooks/T", "{}", github("k", "{}", "72d3162e")...)
			mu.Lock()
			defer mu.Unlock()
			names[fmt.Sprint(w.Code, w.Body)]++
		})
	}
	racers.Wait()
	if len(names) != 1 {
		t.Errorf("concurrent retries got %v", names)
	}
	d.wantReceived(t, id, 1)

	// Without a scheme, the idempotency key and the body identify the delivery.
	first := wantAccepted(t, d.call("POST", "/hooks/T2", "a", "Idempotency-Key", "72d3162e"))
	check.Equal(t, "the retry has ID", wantAccepted(t, d.call("POST", "/hooks/T2", "a", "Idempotency-Key", "72d3162e")), first)
	wantRejected(t, d.call("POST", "/hooks/T2", "b", "Idempotency-Key", "72d3162e"), http.StatusConflict,
		"idempotency_mismatch")
	hostile := strings.Repeat("\xff", 5000)
	first = wantAccepted(t, d.call("POST", "/hooks/T2", "a", "Webhook-Id", hostile))
	check.Equal(t, "the retry has ID", wantAccepted(t, d.call("POST", "/hooks/T2", "a", "Webhook-Id", hostile)), first)
	wantAccepted(t, d.call("POST", "/hooks/T2", "a"))
	wantAccepted(t, d.call("POST", "/hooks/T2", "a"))
	d.wantReceived(t, id, 5)
}

func TestBodySizeIsLimited(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	id := d.hook(t, "T", entities.WebhookSpec{})
	most := strings.Repeat("x", webhook.MaxBody)
	for path, unread := range map[string]int{
		"/hooks/T": http.StatusRequestEntityTooLarge, "/hooks/unknown": http.StatusNotFound, // its body is not read
	} {
		wantRejected(t, d.call("POST", path, most+"x"), http.StatusRequestEntityTooLarge, "too_large")
		w := httptest.NewRecorder()
		d.ServeHTTP(w, httptest.NewRequest("POST", path, slow{strings.NewReader(most + "x")}))
		if w.Code != unread {
			t.Errorf("%s: got %d %s, want %d", path, w.Code, w.Body, unread)
		}
	}
	d.wantReceived(t, id, 0)
	wantAccepted(t, d.call("POST", "/hooks/T", most))
	d.wantReceived(t, id, 1)
}

func TestRequestRatesAreLimited(t *testing.T) {
	t.Parallel()
	d := newTestServer(t, func(o *handlers.Options) { o.HookRates = webhook.Rates{Token: 1, Project: 2} })
	id := d.hook(t, "T", entities.WebhookSpec{})
	d.hook(t, "other", entities.WebhookSpec{})
	d.hook(t, "more", entities.WebhookSpec{})
	for range 2 {
		wantAccepted(t, d.call("POST", "/hooks/T", ""))
	}
	for _, path := range []string{"/hooks/T", "/hooks/%54"} {
		w := d.call("POST", path, "")
		wantRejected(t, w, http.StatusTooManyRequests, "too_many_requests")
		check.Equal(t, "Retry-After", w.Header().Get("Retry-After"), "1")
	}
	for i := range 100 {
		wantRejected(t, d.call("POST", "/hooks/"+strconv.Itoa(i), ""), http.StatusNotFound, "not_found")
	}
	for range 2 {
		wantAccepted(t, d.call("POST", "/hooks/other", ""))
	}
	wantRejected(t, d.call("POST", "/hooks/more", ""), http.StatusTooManyRequests, "too_many_requests")
	d.wantReceived(t, id, 2)
}

// TestStrangersBehindATrustedProxyAreToldApart: one who tries tokens does not use up the rate of the others.
func TestStrangersBehindATrustedProxyAreToldApart(t *testing.T) {
	t.Parallel()
	d := newTestServer(t, func(o *handlers.Options) {
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
		o.HookRates.Address = 1
	})
	try := func(client string) int {
		r := httptest.NewRequest(http.MethodPost, "/hooks/none", nil)
		r.RemoteAddr = "198.51.100.1:4444"
		r.Header.Set("X-Forwarded-For", "192.0.2.9, "+client) // the client may write what is on the left
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		return w.Code
	}
	for try("203.0.113.1") == http.StatusNotFound {
	}
	check.Equal(t, "the stranger", try("203.0.113.1"), http.StatusTooManyRequests)
	check.Equal(t, "another one", try("203.0.113.2"), http.StatusNotFound)
}
