package handlers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// viaDashboard sends a request of the matrix with a browser's cookie, to a path that begins with prefix. Headers are in pairs.
func (h *matrixServer) viaDashboard(t *testing.T, prefix string, tr testRequest, s fixture, cookie string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	method, path, _ := strings.Cut(tr.route, " ")
	if tr.path != "" {
		path = s.fill(tr.path)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if tr.endless {
		cancel()
	}
	r := httptest.NewRequestWithContext(ctx, method, prefix+path, strings.NewReader(s.fill(tr.body)))
	r.Header.Set("Content-Type", "application/json")
	if cookie != "" {
		r.Header.Set("Cookie", "stepwell_session="+cookie)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.echo.ServeHTTP(w, r)
	return w
}

// native returns the requests of the matrix to the native API.
func native() (list []testRequest) {
	for _, tr := range testRequests {
		if strings.Contains(tr.route, " /v1/") {
			list = append(list, tr)
		}
	}
	return list
}

// TestForeignPagesChangeNothing tries every route that changes something with the cookie of an admin, as pages of other
// sites would. The matrix of roles tries all of them as the dashboard does.
func TestForeignPagesChangeNothing(t *testing.T) {
	t.Parallel()
	h := newMatrixServer(t)
	s := h.newFixture(t, "default")
	cookie := h.cookie(t, "default", h.keyTexts["default"][admin.RoleAdmin])
	before, tried := h.snapshot(t, "default"), 0
	for _, tr := range native() {
		if strings.HasPrefix(tr.route, "GET ") {
			continue
		}
		for name, header := range map[string][]string{
			"no header":      nil,
			"only ours":      {auth.UIHeader, "1"},
			"another origin": {auth.UIHeader, "1", "Origin", "https://attacker.example"},
			"null":           {auth.UIHeader, "1", "Origin", "null"},
			"another site":   {auth.UIHeader, "1", "Sec-Fetch-Site", "cross-site"},
			"same site":      {auth.UIHeader, "1", "Sec-Fetch-Site", "same-site"},
			"a form":         {"Sec-Fetch-Site", "same-origin", "Content-Type", "text/plain"},
			"without ours":   {"Sec-Fetch-Site", "same-origin"},
		} {
			tried++
			if got := h.viaDashboard(t, "/ui/default", tr, s, cookie, header...); got.Code != http.StatusForbidden {
				t.Errorf("%s, %s: got %d %.200s, want 403", tr.route, name, got.Code, got.Body)
			}
		}
	}
	if diff := cmp.Diff(before, h.snapshot(t, "default")); diff != "" || tried < 200 {
		t.Errorf("%d requests changed something (-before +after):\n%s", tried, diff)
	}
}

// TestNoOtherPathAcceptsTheCookie sends an admin's cookie, as a page of the server itself could, to every route that
// needs a key.
func TestNoOtherPathAcceptsTheCookie(t *testing.T) {
	t.Parallel()
	h := newMatrixServer(t)
	s := h.newFixture(t, "default")
	cookie := h.cookie(t, "default", h.keyTexts["default"][admin.RoleAdmin])
	page := []string{auth.UIHeader, "1", "Sec-Fetch-Site", "same-origin"}
	for _, tr := range testRequests {
		if got := h.viaDashboard(t, "", tr, s, cookie, page...); got.Code != http.StatusUnauthorized {
			t.Errorf("%s: got %d %.200s, want 401", tr.route, got.Code, got.Body)
		}
		if strings.Contains(tr.route, " /sdk/") { // only paths below /v1 are rewritten
			if got := h.viaDashboard(t, "/ui/default", tr, s, cookie, page...); got.Code < 400 && !strings.Contains(got.Body.String(), "<!doctype html>") {
				t.Errorf("%s through the dashboard: got %d %.200s", tr.route, got.Code, got.Body)
			}
		}
	}
	hook := testRequest{route: "POST /hooks", path: "/hooks/default/" + s["token"], body: "{}"}
	with, without := h.viaDashboard(t, "", hook, s, cookie, page...), h.viaDashboard(t, "", hook, s, "")
	check.Equal(t, "a webhook with the cookie", with.Code, without.Code)
}

// TestAnswersOfTheDashboardHaveItsHeaders checks success and failure of every route that the dashboard uses, and the pages.
func TestAnswersOfTheDashboardHaveItsHeaders(t *testing.T) {
	t.Parallel()
	h := newMatrixServer(t)
	s := h.newFixture(t, "default")
	cookie := h.cookie(t, "default", h.keyTexts["default"][admin.RoleMetadata])
	requests := native()
	for _, path := range []string{"/ui/", "/ui/default/runs", "/ui/-/login", "/ui/-/session", "/ui/-/assets/none.js", "/ui/default/v1/none", "/ui/none/v1/runs"} {
		requests = append(requests, testRequest{route: "GET " + path})
	}
	requests = append(requests, testRequest{route: "POST /ui/-/session", body: "{"}, testRequest{route: "PATCH /ui/-/session"},
		testRequest{route: "DELETE /ui/default/v1/runs"})
	statuses := map[int]int{}
	for _, tr := range requests {
		prefix := ""
		if strings.Contains(tr.route, " /v1/") {
			prefix = "/ui/default"
		}
		for _, with := range []string{"", cookie} {
			got := h.viaDashboard(t, prefix, tr, s, with, auth.UIHeader, "1", "Sec-Fetch-Site", "same-origin")
			statuses[got.Code]++
			for name, want := range map[string]string{
				"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
				"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-", // no-store, or no-cache for the page
			} {
				if !strings.HasPrefix(got.Header().Get(name), want) {
					t.Errorf("%s %s: %d: %s is %q", tr.route, tr.path, got.Code, name, got.Header().Get(name))
				}
			}
			if prefix != "" && !strings.HasSuffix(got.Header().Get("Content-Security-Policy"), "sandbox") {
				t.Errorf("%s: the answer is no sandbox", tr.route)
			}
			for name := range got.Header() {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s: the answer has %s", tr.route, name)
				}
			}
		}
	}
	for _, status := range []int{200, 400, 401, 403, 404} {
		if statuses[status] == 0 {
			t.Errorf("no answer with status %d: %v", status, statuses)
		}
	}
}

// TestStreamsEndWithTheirSession follows events in a browser until its session ends, in each way.
func TestStreamsEndWithTheirSession(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *dashboard, admin.KeyID){
		"key revoked": func(t *testing.T, d *dashboard, id admin.KeyID) {
			if err := d.keys.Revoke(t.Context(), "default", id); err != nil {
				t.Error(err)
			}
			d.advance(access.CacheTime)
		},
		"key expired": func(t *testing.T, d *dashboard, _ admin.KeyID) { d.advance(2 * time.Hour) },
		"signed out": func(_ *testing.T, d *dashboard, _ admin.KeyID) {
			d.send(http.MethodDelete, "/ui/-/session", "")
		},
		"ended by an admin": func(t *testing.T, d *dashboard, _ admin.KeyID) {
			id := access.NewSessions(d.pool, "", d.clock).ID(d.cookie).String()
			r := httptest.NewRequest(http.MethodDelete, "/v1/ui/sessions/"+id, nil)
			r.Header.Set("Authorization", "Bearer "+environmentKey)
			w := httptest.NewRecorder()
			if d.echo.ServeHTTP(w, r); w.Code != http.StatusNoContent {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDashboard(t, nil)
			expires := d.clock().Add(time.Hour)
			key, text, err := d.keys.Mint(t.Context(), admin.Key{Project: "default", Name: "k", Role: admin.RoleRead, ExpiresAt: &expires})
			if err != nil {
				t.Fatal(err)
			}
			d.signIn(text)
			web := httptest.NewServer(d.echo)
			defer web.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r := check.Value(http.NewRequestWithContext(ctx, http.MethodGet, web.URL+"/ui/default/v1/events/stream", nil))(t)
			r.Header.Set("Cookie", "stepwell_session="+d.cookie)
			resp, err := web.Client().Do(r)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("got %v, %v", resp, err)
			}
			defer func() { _ = resp.Body.Close() }()
			end(t, d, key.ID)
			lines := bufio.NewReader(resp.Body)
			for err == nil {
				_, err = lines.ReadString('\n')
			}
			if ctx.Err() != nil {
				t.Errorf("the stream goes on a minute after its session; reading it: %v", err)
			}
			check.Equal(t, "the status", d.status("default"), http.StatusUnauthorized)
		})
	}
}

// code makes a code with a key and returns the status and the code.
func (d *dashboard) code(key string) (int, string) {
	d.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/v1/ui/codes", nil)
	r.Header.Set("Authorization", "Bearer "+key)
	w := httptest.NewRecorder()
	d.echo.ServeHTTP(w, r)
	var made struct{ Code string }
	_ = json.Unmarshal(w.Body.Bytes(), &made)
	return w.Code, made.Code
}

// redeem signs in with a code and keeps the cookie.
func (d *dashboard) redeem(code string) *httptest.ResponseRecorder {
	d.t.Helper()
	w := d.send(http.MethodPost, "/ui/-/session", `{"code":"`+code+`"}`)
	for _, c := range w.Result().Cookies() {
		d.cookie = c.Value
	}
	return w
}

func TestCodesOpenTheirProjectOnce(t *testing.T) {
	t.Parallel()
	d := newDashboard(t, nil)
	_, reader := d.mint("shop", admin.RoleRead)
	_, code := d.code(reader)
	if got := d.redeem(code); got.Code != 200 || d.status("shop") != 200 || d.status("default") != 401 {
		t.Fatalf("got %d %s", got.Code, got.Body)
	}
	if got := d.send(http.MethodPost, "/ui/shop/v1/signals/paid", `{"data":1}`); got.Code != 403 {
		t.Errorf("more than the role of the key: got %d, want 403", got.Code)
	}
	d.cookie = ""
	if got := d.redeem(code); got.Code != 401 || d.cookie != "" {
		t.Errorf("a second time: got %d, want 401", got.Code)
	}
	_, code = d.code(environmentKey)
	if got := d.redeem(code); got.Code != 200 || d.status("default") != 200 {
		t.Errorf("of the environment's key: got %d %s", got.Code, got.Body)
	}
	if got := d.send(http.MethodPost, "/ui/default/v1/ui/codes", ""); got.Code != 403 || strings.Contains(got.Body.String(), `"code":"`+code) {
		t.Errorf("made by a session: got %d %s, want 403", got.Code, got.Body)
	}
	for body := range map[string]bool{`{"code":""}`: true, `{}`: true, `{"code":"a","key":"b"}`: true, `[]`: true} {
		if got := d.send(http.MethodPost, "/ui/-/session", body); got.Code != 400 {
			t.Errorf("%s: got %d, want 400", body, got.Code)
		}
	}
}

func TestCodesEnd(t *testing.T) {
	t.Parallel()
	d := newDashboard(t, nil)
	id, text := d.mint("default", admin.RoleRead)
	_, code := d.code(text)
	d.advance(access.CodeTime + time.Millisecond)
	if got := d.redeem(code); got.Code != 401 {
		t.Errorf("an old code: got %d, want 401", got.Code)
	}
	_, code = d.code(text)
	check.NoError(t, d.keys.Revoke(t.Context(), "default", id))
	if got := d.redeem(code); got.Code != 401 {
		t.Errorf("of a revoked key: got %d, want 401", got.Code)
	}
	_, code = d.code(environmentKey)
	other := access.NewSessions(d.pool, "another-key-0123456789", d.clock)
	if _, err := other.Redeem(t.Context(), code); !errors.Is(err, admin.ErrSessionNotFound) {
		t.Errorf("of an environment's key that has changed: got %v", err)
	}
	_, worker := d.mint("default", admin.RoleWorker)
	if status, _ := d.code(worker); status != 403 {
		t.Errorf("of a role that can do nothing there: got %d, want 403", status)
	}
	for range 20 {
		d.redeem("wrong")
	}
	if got := d.redeem("wrong"); got.Code != 429 {
		t.Errorf("tried too often: got %d, want 429", got.Code)
	}
}

// TestSessionsOfOtherProjectsStayOpen ends one project of a session that has opened two.
func TestSessionsOfOtherProjectsStayOpen(t *testing.T) {
	t.Parallel()
	d := newDashboard(t, nil)
	_, owner := d.mint("shop", admin.RoleAdmin)
	d.signIn(environmentKey)
	d.signIn(owner)
	list := func(project string) (ids []string) {
		var found struct {
			Data []struct {
				ID      string
				Current bool
			}
		}
		got := d.send(http.MethodGet, "/ui/"+url.PathEscape(project)+"/v1/ui/sessions", "")
		check.NoError(t, json.Unmarshal(got.Body.Bytes(), &found))
		for _, s := range found.Data {
			if s.Current {
				ids = append(ids, s.ID)
			}
		}
		return ids
	}
	shop, own := list("shop"), list("default")
	if len(shop) != 1 || len(own) != 1 || shop[0] != own[0] {
		t.Fatalf("got %v and %v, want this session twice", shop, own)
	}
	if got := d.send(http.MethodDelete, "/ui/shop/v1/ui/sessions/"+shop[0], ""); got.Code != 204 {
		t.Errorf("got %d %s", got.Code, got.Body)
	}
	if d.status("shop") != 401 || d.status("default") != 200 {
		t.Errorf("got %d and %d, want 401 and 200", d.status("shop"), d.status("default"))
	}
}
