package handlers

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/ui"
)

const environmentKey = "environment-key-0123456789"

// dashboard is a server with the dashboard, and a browser's cookies.
type dashboard struct {
	t      *testing.T
	echo   *echo.Echo
	pool   *pgxpool.Pool
	keys   *access.Keys
	cookie string

	mu  sync.Mutex
	now time.Time
}

func (d *dashboard) clock() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

func (d *dashboard) advance(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = d.now.Add(by)
}

// recheck is how often the clients of streams are checked again.
const recheck = 50 * time.Millisecond

// newDashboard returns a server. Options may be changed before it starts.
func newDashboard(t *testing.T, change func(*Options)) *dashboard {
	t.Helper()
	pool := testdb.Pool(t)
	d := &dashboard{t: t, pool: pool, now: time.Now()}
	logger := slog.New(slog.DiscardHandler)
	hub := pg.NewHub(pool, migrations.DefaultSchema+".hints", logger)
	q := check.Value(queue.New(pool, migrations.DefaultSchema, hub))(t)
	d.keys = access.NewKeys(pool, d.clock)
	o := Options{
		Pool: pool, Log: eventlog.New(pool, hub, q, d.clock), Streams: read.NewStreams(pool, hub, d.clock), Queue: q,
		Keys: d.keys, APIKey: environmentKey, Recheck: recheck, Logger: logger, UI: ui.Files(),
		Stopping: context.Background(), Draining: context.Background(),
	}
	if change != nil {
		change(&o)
	}
	d.echo = New(o)
	return d
}

// send sends a request as the dashboard's page does, with more headers; an empty value removes one.
func (d *dashboard) send(method, path, body string, header ...string) *httptest.ResponseRecorder {
	d.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Stepwell-UI", "1")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if d.cookie != "" {
		r.Header.Set("Cookie", "stepwell_session="+d.cookie)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Del(header[i])
		if header[i+1] != "" {
			r.Header.Set(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	d.echo.ServeHTTP(w, r)
	return w
}

// signIn signs in and keeps the cookie.
func (d *dashboard) signIn(key string) *httptest.ResponseRecorder {
	d.t.Helper()
	w := d.send(http.MethodPost, "/ui/-/session", `{"key":"`+key+`"}`)
	for _, c := range w.Result().Cookies() {
		d.cookie = c.Value
	}
	return w
}

// status returns the status of a list of runs in the browser.
func (d *dashboard) status(project string) int {
	d.t.Helper()
	return d.send(http.MethodGet, "/ui/"+project+"/v1/runs", "").Code
}

func (d *dashboard) mint(project entities.Project, role admin.Role) (admin.KeyID, string) {
	d.t.Helper()
	if _, err := access.NewProjects(d.pool, d.clock).Put(d.t.Context(), project, nil); err != nil {
		d.t.Fatal(err)
	}
	k := admin.Key{Project: project, Name: "k", Role: role}
	if role == admin.RoleWorker {
		k.Deployments = "app"
	}
	k, text, err := d.keys.Mint(d.t.Context(), k)
	if err != nil {
		d.t.Fatal(err)
	}
	return k.ID, text
}

func TestSessionsHaveTheRightsOfTheirKeys(t *testing.T) {
	t.Parallel()
	d := newDashboard(t, nil)
	_, reader := d.mint("shop", admin.RoleRead)
	if d.status("default") != 401 {
		t.Error("the API needs no session")
	}
	if got := d.signIn(environmentKey); got.Code != 200 || d.status("default") != 200 || d.status("shop") != 401 {
		t.Fatalf("got %d %s", got.Code, got.Body)
	}
	first := d.cookie
	if got := d.signIn(reader); got.Code != 200 || d.status("default") != 200 || d.status("shop") != 200 {
		t.Fatalf("a second key: got %d %s", got.Code, got.Body)
	}
	if got := d.send(http.MethodGet, "/ui/default/v1/runs", "", "Cookie", "stepwell_session="+first); got.Code != 401 {
		t.Errorf("the cookie from before the sign-in: got %d, want 401", got.Code)
	}
	if got := d.send(http.MethodPost, "/ui/shop/v1/runs", `{"workflow":"order"}`); got.Code != 403 {
		t.Errorf("a role without the permission: got %d, want 403", got.Code)
	}
	var s struct {
		Open     bool
		Projects []struct{ Project, Role, Key string }
	}
	check.NoError(t, json.Unmarshal(d.send(http.MethodGet, "/ui/-/session", "").Body.Bytes(), &s))
	want := []struct{ Project, Role, Key string }{{"default", "admin", ""}, {"shop", "read", "k"}}
	if diff := cmp.Diff(want, s.Projects); diff != "" || s.Open {
		t.Errorf("open %t, (-want +got):\n%s", s.Open, diff)
	}
	if got := d.send(http.MethodDelete, "/ui/-/session", ""); got.Code != 204 || d.status("default") != 401 || d.status("shop") != 401 {
		t.Errorf("after signing out: got %d, %d, %d", got.Code, d.status("default"), d.status("shop"))
	}
}

func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*dashboard, admin.KeyID){
		"key revoked": func(d *dashboard, id admin.KeyID) {
			if err := d.keys.Revoke(t.Context(), "default", id); err != nil {
				t.Error(err)
			}
			d.advance(access.CacheTime)
		},
		"not used for a week": func(d *dashboard, _ admin.KeyID) { d.advance(7*24*time.Hour + time.Second) },
		"a month old": func(d *dashboard, _ admin.KeyID) {
			for range 10 {
				if d.status("default") != 200 {
					t.Error("a session that is used ended too early")
				}
				d.advance(72*time.Hour + time.Minute)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDashboard(t, nil)
			id, text := d.mint("default", admin.RoleRead)
			if d.signIn(text); d.status("default") != 200 {
				t.Fatal("cannot sign in")
			}
			if end(d, id); d.status("default") != 401 {
				t.Errorf("got %d, want 401", d.status("default"))
			}
		})
	}
}

// TestLiveViewEndsWithItsSession: who signs out is told nothing any more.
func TestLiveViewEndsWithItsSession(t *testing.T) {
	t.Parallel()
	d := newDashboard(t, nil)
	d.signIn(environmentKey)
	server := httptest.NewServer(d.echo)
	t.Cleanup(server.Close)
	r := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/ui/default/v1/live?topics=true", nil))(t)
	r.Header.Set("Cookie", "stepwell_session="+d.cookie)
	answer := check.Value(server.Client().Do(r))(t)
	defer func() { _ = answer.Body.Close() }()
	line := func(text string) {
		t.Helper()
		lines := bufio.NewScanner(answer.Body)
		for lines.Scan() && lines.Text() != text {
		}
		if lines.Text() != text {
			t.Fatalf("%d, no %q: %v", answer.StatusCode, text, lines.Err())
		}
	}
	line("event: hello")
	if got := d.send(http.MethodDelete, "/ui/-/session", ""); got.Code != http.StatusNoContent {
		t.Fatalf("sign out: got %d", got.Code)
	}
	if _, err := io.ReadAll(answer.Body); err == nil {
		t.Error("the stream has a regular end")
	}
}

// TestAnotherEnvironmentKeyVoidsSessions starts a second server on the database.
func TestAnotherEnvironmentKeyVoidsSessions(t *testing.T) {
	t.Parallel()
	d := newDashboard(t, nil)
	d.signIn(environmentKey)
	for key, want := range map[string]int{environmentKey: 1, "another-key-0123456789": 0, "": 0} {
		opened, err := access.NewSessions(d.pool, key, d.clock).Opened(t.Context(), d.cookie)
		if err != nil || len(opened) != want {
			t.Errorf("%q: got %v, %v, want %d", key, opened, err, want)
		}
	}
	rows := check.Value(d.pool.Query(t.Context(), `
		SELECT count(*) FROM sessions s, session_keys k WHERE s::text || k::text ~ $1 OR position($2::bytea IN s.id) > 0`,
		d.cookie+"|"+environmentKey, []byte(d.cookie)))(t)
	if n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int]); err != nil || n != 0 {
		t.Errorf("the database has the cookie or the key: %d, %v", n, err)
	}
}

// TestForeignPagesAreRefused tries every way in which a page of another site, or no page, can send a request.
func TestForeignPagesAreRefused(t *testing.T) {
	t.Parallel()
	d := newDashboard(t, func(o *Options) { o.PublicURL = "https://stepwell.example/a/b" })
	d.signIn(environmentKey)
	refused := map[string][]string{
		"no browser":        {"Sec-Fetch-Site", ""},
		"another site":      {"Sec-Fetch-Site", "cross-site"},
		"same site":         {"Sec-Fetch-Site", "same-site"},
		"typed":             {"Sec-Fetch-Site", "none"},
		"another origin":    {"Sec-Fetch-Site", "", "Origin", "https://attacker.example"},
		"no origin":         {"Sec-Fetch-Site", "", "Origin", "null"},
		"another port":      {"Sec-Fetch-Site", "", "Origin", "https://stepwell.example:444"},
		"a form":            {"Content-Type", "application/x-www-form-urlencoded"},
		"a form of text":    {"Content-Type", "text/plain"},
		"without a header":  {"Stepwell-UI", ""},
		"wrong header":      {"Stepwell-UI", "0"},
		"both, but foreign": {"Sec-Fetch-Site", "cross-site", "Origin", "https://stepwell.example"},
	}
	accepted := map[string][]string{
		"the page":                           nil,
		"the page, in an old browser":        {"Sec-Fetch-Site", "", "Origin", "https://stepwell.example"},
		"the page, in an old browser, local": {"Sec-Fetch-Site", "", "Origin", "http://example.com"},
	}
	paths := map[string]string{
		"POST /ui/default/v1/signals/paid": `{"data":1}`, "POST /a/b/ui/default/v1/signals/paid": `{"data":1}`,
		"PUT /ui/default/v1/projects/shop": `{}`, "POST /ui/-/session": `{"key":"` + environmentKey + `"}`,
	}
	for route, body := range paths {
		method, path, _ := strings.Cut(route, " ")
		for name, header := range refused {
			if got := d.send(method, path, body, header...); got.Code != 403 {
				t.Errorf("%s, %s: got %d %s, want 403", route, name, got.Code, got.Body)
			}
		}
		for name, header := range accepted {
			got := d.send(method, path, body, header...)
			if got.Code >= 300 {
				t.Errorf("%s, %s: got %d %s", route, name, got.Code, got.Body)
			}
			for _, c := range got.Result().Cookies() {
				d.cookie = c.Value
			}
		}
	}
	if got := d.send(http.MethodDelete, "/ui/-/session", "", "Sec-Fetch-Site", "cross-site"); got.Code != 403 || d.status("default") != 200 {
		t.Errorf("signing out: got %d, want 403", got.Code)
	}
}

// TestOtherPathsSeeNoCookie sends the cookie to every other surface.
func TestOtherPathsSeeNoCookie(t *testing.T) {
	t.Parallel()
	d := newDashboard(t, nil)
	d.signIn(environmentKey)
	for _, path := range []string{"/v1/runs", "/sdk/v2/runs", "/metrics", "/ui/../v1/runs", "/ui/default/sdk/v2/runs"} {
		got := d.send(http.MethodGet, path, "")
		if got.Code == 200 && !strings.Contains(got.Body.String(), "<!doctype html>") {
			t.Errorf("%s: got %d %.100s", path, got.Code, got.Body)
		}
	}
	if got := d.send(http.MethodGet, "/ui/default/v1/runs", "", "Cookie", "", "Authorization", "Bearer "+environmentKey); got.Code != 401 {
		t.Errorf("a key at the dashboard's API: got %d, want 401", got.Code)
	}
	if got := d.send(http.MethodGet, "/v1/runs", "", "Authorization", "Bearer "+environmentKey); got.Code != 200 {
		t.Errorf("a key at the API: got %d, want 200", got.Code)
	}
}

// TestFailedSignInsAreLimited for each address and prefix. What is right is not refused, or a stranger behind the same
// proxy would keep everybody out.
func TestFailedSignInsAreLimited(t *testing.T) {
	t.Parallel()
	d := newDashboard(t, nil)
	_, worker := d.mint("default", admin.RoleWorker)
	if got := d.signIn(worker); got.Code != 403 {
		t.Errorf("a role that can do nothing there: got %d, want 403", got.Code)
	}
	for n := range 20 {
		if got := d.signIn("wrong"); got.Code != 401 {
			t.Fatalf("attempt %d: got %d, want 401", n, got.Code)
		}
	}
	if got := d.signIn("wrong"); got.Code != 429 || got.Header().Get("Retry-After") != "3" {
		t.Errorf("got %d, Retry-After %q, want 429 and 3", got.Code, got.Header().Get("Retry-After"))
	}
	_, reader := d.mint("default", admin.RoleRead)
	for range 21 { // keys that are listed with the prefix of a right one
		d.signIn(reader[:9] + "wrong")
	}
	if got := d.signIn(reader[:9] + "other"); got.Code != 429 {
		t.Errorf("a wrong key with the attacked prefix: got %d, want 429", got.Code)
	}
	for name, key := range map[string]string{"attacked": reader, "of the environment": environmentKey} {
		if got := d.signIn(key); got.Code != 200 {
			t.Errorf("the key %s: got %d, want 200", name, got.Code)
		}
	}
	if got := d.signIn("another wrong one"); got.Code != 401 {
		t.Errorf("another prefix: got %d, want 401", got.Code)
	}
	d.advance(3 * time.Second)
	if got := d.signIn("wrong"); got.Code != 401 {
		t.Errorf("after a while: got %d, want 401", got.Code)
	}
	d.advance(time.Minute)
	var mu sync.Mutex
	var racers sync.WaitGroup
	answers := map[int]int{}
	for range 40 {
		racers.Go(func() {
			got := d.send(http.MethodPost, "/ui/-/session", `{"code":"wrong"}`)
			mu.Lock()
			defer mu.Unlock()
			answers[got.Code]++
		})
	}
	if racers.Wait(); answers[401] != 20 || answers[429] != 20 {
		t.Errorf("40 at once: got %v, want 20 of each", answers)
	}
}

func TestOpenServersNeedNoSignIn(t *testing.T) {
	t.Parallel()
	d := newDashboard(t, func(o *Options) { o.APIKey, o.Open, o.Local = "", true, true })
	local := []string{"X-Test", "1"}
	request := func(host, method, path, body string, header ...string) int {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Host = host
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		d.echo.ServeHTTP(w, r)
		return w.Code
	}
	check.Equal(t, "the status", request("127.0.0.1:8788", http.MethodGet, "/ui/default/v1/runs", "", local...), 200)
	for name, got := range map[string]int{
		"another project": request("127.0.0.1:8788", http.MethodGet, "/ui/shop/v1/runs", ""),
		"a rebound name":  request("attacker.example", http.MethodGet, "/ui/default/v1/runs", ""),
		"no page":         request("127.0.0.1:8788", http.MethodPost, "/ui/default/v1/signals/paid", "{}"),
	} {
		if got != 401 && got != 403 {
			t.Errorf("%s: got %d", name, got)
		}
	}
}

func TestPagesAndFiles(t *testing.T) {
	t.Parallel()
	d := newDashboard(t, func(o *Options) { o.PublicURL = "https://stepwell.example/a/b/" })
	for _, path := range []string{"/ui/", "/ui/default/runs/wrun_1/log", "/a/b/ui/", "/a/b/ui/shop/runs"} {
		got := d.send(http.MethodGet, path, "")
		h := got.Header()
		if got.Code != 200 || !strings.Contains(got.Body.String(), `content="/a/b"`) || strings.Contains(got.Body.String(), "{{") ||
			!strings.Contains(h.Get("Content-Security-Policy"), "trusted-types 'none'") || h.Get("Cache-Control") != "no-cache" ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: got %d %v %.300s", path, got.Code, h, got.Body)
		}
		if got := d.send(http.MethodGet, path, "", "If-None-Match", h.Get("ETag")); got.Code != 304 {
			t.Errorf("%s: again: got %d, want 304", path, got.Code)
		}
	}
	page := d.send(http.MethodGet, "/ui/", "").Body.String()
	_, script, _ := strings.Cut(page, `src="/a/b`)
	script, _, _ = strings.Cut(script, `"`)
	got := d.send(http.MethodGet, script, "", "Accept-Encoding", "gzip")
	if got.Code != 200 || got.Header().Get("Content-Encoding") != "gzip" || !strings.Contains(got.Header().Get("Cache-Control"), "immutable") ||
		!strings.Contains(got.Header().Get("Content-Type"), "javascript") {
		t.Errorf("%s: got %d %v", script, got.Code, got.Header())
	}
	if got := d.send(http.MethodGet, "/ui/-/assets/app-OLD.js", ""); got.Code != 404 {
		t.Errorf("a file of another version: got %d, want 404", got.Code)
	}
	for _, path := range []string{"/", "/ui", "/a/b/"} {
		if got := d.send(http.MethodGet, path, ""); got.Code != 302 || got.Header().Get("Location") != "/a/b/ui/" {
			t.Errorf("%s: got %d %s", path, got.Code, got.Header().Get("Location"))
		}
	}
	cookie := d.signIn(environmentKey).Header().Get("Set-Cookie")
	for _, part := range []string{"Path=/a/b/ui", "HttpOnly", "Secure", "SameSite=Strict", "Max-Age=2592000"} {
		if !strings.Contains(cookie, part) {
			t.Errorf("the cookie %q has no %s", cookie, part)
		}
	}
	answer := d.send(http.MethodGet, "/ui/default/v1/runs", "").Header()
	if answer.Get("Cache-Control") != "no-store" || !strings.Contains(answer.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("the API answers with %v", answer)
	}
	without := newDashboard(t, func(o *Options) { o.UI = nil })
	for path := range maps.Keys(map[string]bool{"/": true, "/ui/": true, "/ui/default/v1/runs": true}) {
		if got := without.send(http.MethodGet, path, ""); got.Code != 404 {
			t.Errorf("without the dashboard: %s: got %d, want 404", path, got.Code)
		}
	}
}
