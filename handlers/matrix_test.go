package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"
	"go.yaml.in/yaml/v3"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// response is a response, or the start of an endless one.
type response struct {
	status int
	body   string
	header http.Header
}

// send sends a request about the fixture with a key.
func (h *matrixServer) send(t *testing.T, tr testRequest, s fixture, key string) response {
	t.Helper()
	method, path, _ := strings.Cut(tr.route, " ")
	if tr.path != "" {
		path = s.fill(tr.path)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	native := strings.HasPrefix(path, "/v1/")
	session, browser := h.sessions[key]
	if browser = browser && native; browser {
		path = "/ui/" + url.PathEscape(string(session.project)) + path
	}
	r := check.Value(http.NewRequestWithContext(ctx, method, h.web.URL+path, bytes.NewReader(encode(t, s.fill(tr.body)))))(t)
	r.Header.Set("X-Request-Id", "same") // error bodies contain it
	if native {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(tr.header); i += 2 {
		r.Header.Set(tr.header[i], s.fill(tr.header[i+1]))
	}
	switch {
	case browser:
		r.Header.Set("Cookie", "stepwell_session="+session.cookie)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set(auth.UIHeader, "1")
	case key != "":
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := h.web.Client().Do(r)
	if err != nil {
		t.Fatalf("%s: %v", tr.route, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if tr.endless && resp.StatusCode == http.StatusOK {
		timer := time.AfterFunc(200*time.Millisecond, cancel) // existing data arrives immediately
		defer timer.Stop()
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil && (!tr.endless || !errors.Is(err, context.Canceled)) {
		t.Fatalf("%s: %v", tr.route, err)
	}
	return response{resp.StatusCode, string(body), resp.Header}
}

// rolesOf returns the roles that have a permission, according to the API's description.
func rolesOf(p auth.Permission) []admin.Role {
	return map[auth.Permission][]admin.Role{
		"admin": {"admin"}, "write": {"admin", "write"}, "read": {"admin", "write", "read"},
		"metadata": {"admin", "write", "read", "metadata"}, "invoke": {"admin", "write", "invoke"},
		"any":      {"admin", "write", "read", "metadata", "invoke"},
		"register": {"admin", "worker"}, "registered": {"admin", "write", "read", "metadata", "worker"},
	}[p]
}

// TestPermissionsMatchTheDocument checks that registration and openapi.yaml agree, that no route lacks a permission, and
// that the matrix has all routes.
func TestPermissionsMatchTheDocument(t *testing.T) {
	t.Parallel()
	h := newMatrixServer(t)
	permissions := h.auth.Permissions()
	documented, forCalls := documentedPermissions(t)
	if diff := cmp.Diff(forCalls, h.auth.ForCalls()); diff != "" {
		t.Errorf("routes for calls (-openapi.yaml +rest.go):\n%s", diff)
	}
	native, registered, tried := map[string]auth.Permission{}, map[string]bool{}, map[string]bool{}
	for route, p := range permissions {
		if strings.Contains(route, " /v1/") {
			native[route] = p
		}
		if rolesOf(p) == nil {
			t.Errorf("%s requires the unknown permission %q", route, p)
		}
	}
	if diff := cmp.Diff(documented, native); diff != "" {
		t.Errorf("permissions (-openapi.yaml +rest.go):\n%s", diff)
	}
	for _, r := range h.echo.Routes() {
		if keyed := strings.HasPrefix(r.Path, "/v1/") || strings.HasPrefix(r.Path, "/sdk/"); keyed &&
			r.Method != echo.RouteNotFound && r.Path != "/v1/openapi.json" && r.Path != "/v1/flows/schema" {
			registered[r.Method+" "+r.Path] = true
		}
	}
	for _, tr := range testRequests {
		tried[tr.route] = true
	}
	all := slices.Sorted(maps.Keys(permissions))
	check.Equal(t, "routes", all, slices.Sorted(maps.Keys(registered)))
	check.Equal(t, "routes", slices.Sorted(maps.Keys(tried)), all)
}

// documentedPermissions returns the permissions in openapi.yaml by route, and the routes that accept tokens of calls.
func documentedPermissions(t *testing.T) (permissions map[string]auth.Permission, forCalls []string) {
	t.Helper()
	data := check.Value(os.ReadFile("rest/openapi.yaml"))(t)
	var doc struct {
		Paths map[string]map[string]yaml.Node
	}
	check.NoError(t, yaml.Unmarshal(data, &doc))
	permissions = map[string]auth.Permission{}
	for path, item := range doc.Paths {
		for method, node := range item {
			var op struct {
				Role     auth.Permission `yaml:"x-stepwell-role"`
				Call     bool            `yaml:"x-stepwell-call"`
				Security *[]any          `yaml:"security"`
			}
			if method == "parameters" {
				continue
			}
			check.NoError(t, node.Decode(&op))
			if op.Security != nil && len(*op.Security) == 0 {
				continue // public
			}
			route := strings.ToUpper(method) + " " + strings.NewReplacer("{", ":", "}", "").Replace(path)
			permissions[route] = op.Role
			if op.Call {
				forCalls = append(forCalls, route)
			}
		}
	}
	slices.Sort(forCalls)
	return permissions, forCalls
}

// projects are the projects of a test server, each with the other one.
var projects = map[entities.Project]entities.Project{entities.DefaultProject: "shop", "shop": entities.DefaultProject}

// TestRolesCanUseOnlyTheirRoutes tries every route with every role of a project. Roles with the permission succeed; the
// others get a 403 that changes nothing. Roles that may not see payloads see none.
//
// It does so with keys, and with the sessions of browsers, which go through the dashboard.
func TestRolesCanUseOnlyTheirRoutes(t *testing.T) {
	t.Parallel()
	type door struct {
		project entities.Project
		browser bool
	}
	for d, name := range map[door]string{
		{"default", false}: "default", {"shop", false}: "shop", {"default", true}: "default in a browser", {"shop", true}: "shop in a browser",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			project := d.project
			m := matrix{matrixServer: newMatrixServer(t), project: project}
			if d.browser {
				m.enterAll(t)
			}
			m.shared = m.newFixture(t, project)
			before := m.snapshot(t, project)
			m.eachRole(false, func(tr testRequest, role admin.Role) { m.denied(t, tr, role) })
			check.Equal(t, "denied requests changed something", m.snapshot(t, project), before)
			for _, reads := range []bool{true, false} { // writes come last, because some change all runs
				m.eachRole(true, func(tr testRequest, role admin.Role) {
					if strings.HasPrefix(tr.route, "GET ") == reads {
						m.granted(t, tr, role)
					}
				})
			}
			if m.shown < 50 {
				t.Errorf("only %d responses had payloads", m.shown)
			}
			t.Logf("%d cells: %d requests to %d routes × %d roles",
				m.cells, len(testRequests), len(m.auth.Permissions()), len(admin.Roles()))
		})
	}
}

// matrix sends requests with a project's own keys.
type matrix struct {
	*matrixServer

	project      entities.Project
	shared       fixture
	cells, shown int
}

// eachRole calls do for each request and each role that has the permission, or lacks it.
func (m *matrix) eachRole(permitted bool, do func(testRequest, admin.Role)) {
	permissions := m.auth.Permissions()
	for _, tr := range testRequests {
		for _, role := range admin.Roles() {
			allowed := slices.Contains(rolesOf(tr.permission(permissions)), role) &&
				(!tr.operators || m.project == entities.DefaultProject) && (!tr.programs || m.sessions == nil)
			if allowed == permitted {
				do(tr, role)
			}
		}
	}
}

func (m *matrix) denied(t *testing.T, tr testRequest, role admin.Role) {
	t.Helper()
	m.cells++
	got := m.send(t, tr, m.shared, m.keyTexts[m.project][role])
	if got.status != http.StatusForbidden || !strings.Contains(got.body, "forbidden") ||
		strings.Contains(got.body, classified) || strings.Contains(got.body, tokenMark) {
		t.Errorf("%s by %s: got %d %.200s, want 403", tr.route, role, got.status, got.body)
	}
}

func (m *matrix) granted(t *testing.T, tr testRequest, role admin.Role) {
	t.Helper()
	m.cells++
	s := m.shared
	if !strings.HasPrefix(tr.route, "GET ") {
		s = m.newFixtureFor(t, m.project, tr.names) // because the request changes it
	}
	got := m.send(t, tr, s, m.keyTexts[m.project][role])
	// The fixture used the idempotency key with another request.
	keyed := strings.Contains(tr.body, "{idem}") || strings.Contains(tr.body, "{signalKey}")
	mismatch := got.status == http.StatusConflict && keyed
	if got.status >= 300 && !mismatch {
		t.Errorf("%s %s %s by %s: got %d %.300s, want success", tr.route, tr.path, tr.body, role, got.status, got.body)
	}
	if !strings.Contains(got.body, classified) && !strings.Contains(got.body, tokenMark) {
		return
	}
	if m.shown++; !slices.Contains(rolesOf(auth.Read), role) {
		t.Errorf("%s %s by %s shows a payload or token: %s", tr.route, tr.path, role, got.body)
	}
}

// TestOtherProjectsLearnAndChangeNothing tries every route with the IDs of a project, but without a key, with invalid
// keys, and with every role of another project. Responses reveal nothing, nothing changes, and existing IDs look like
// missing ones.
func TestOtherProjectsLearnAndChangeNothing(t *testing.T) {
	t.Parallel()
	for owner, other := range projects {
		t.Run(string(owner), func(t *testing.T) {
			t.Parallel()
			h := newMatrixServer(t)
			if owner == "shop" { // with sessions of browsers; default is tried with keys
				h.enterAll(t)
			}
			o := otherProject{matrixServer: h, owner: owner, other: other, ours: h.newFixture(t, owner), missing: h.missingIDs(), invalidKeys: h.invalidKeys(t, owner)}
			before := h.snapshot(t, owner)
			for _, tr := range testRequests {
				o.unauthorized(t, tr)
				for _, role := range admin.Roles() {
					o.foreign(t, tr, role)
				}
				after := h.snapshot(t, owner)
				check.Equal(t, fmt.Sprintf("%s changed something", tr.route), after, before)
				before = after
			}
			t.Logf("%d cells: %d requests to %d routes × (%d without a valid key + %d roles of another project)",
				o.cells, len(testRequests), len(h.auth.Permissions()), len(o.invalidKeys), len(admin.Roles()))
		})
	}
}

// invalidKeys returns missing, wrong, revoked and expired keys of a project.
func (h *matrixServer) invalidKeys(t *testing.T, project entities.Project) map[string]string {
	t.Helper()
	keys := map[string]string{"no key": "", "garbage": "garbage", "unknown key": "sw_" + strings.Repeat("x", 49)}
	var id admin.KeyID
	id, keys["revoked"] = h.mint(t, project, admin.RoleAdmin)
	check.NoError(t, h.keys.Revoke(t.Context(), project, id))
	id, keys["expired"] = h.mint(t, project, admin.RoleAdmin)
	h.exec(t, `UPDATE api_keys SET expires_at = now() - interval '1 s' WHERE id = $1`, id)
	return keys
}

// otherProject sends requests about a project with keys of another one.
type otherProject struct {
	*matrixServer

	owner, other  entities.Project
	ours, missing fixture
	invalidKeys   map[string]string
	cells         int
}

func (o *otherProject) unauthorized(t *testing.T, tr testRequest) {
	t.Helper()
	for name, key := range o.invalidKeys {
		o.cells++
		if got := o.send(t, tr, o.ours, key); got.status != http.StatusUnauthorized {
			t.Errorf("%s with %s: got %d %.200s, want 401", tr.route, name, got.status, got.body)
		}
	}
}

func (o *otherProject) foreign(t *testing.T, tr testRequest, role admin.Role) {
	t.Helper()
	o.cells++
	want := tr.foreign
	if !slices.Contains(rolesOf(tr.permission(o.auth.Permissions())), role) || tr.operators && o.other != entities.DefaultProject ||
		tr.programs && o.sessions != nil {
		want = http.StatusForbidden
	} else if tr.operators {
		return // operators may access all projects
	}
	key := o.keyTexts[o.other][role]
	got := o.send(t, tr, o.ours, key)
	if got.status != want {
		t.Errorf("%s %s by %s: got %d %.200s, want %d", tr.route, tr.path, role, got.status, got.body, want)
	}
	if got.status < 300 {
		if strings.Contains(got.body, classified) || tr.foreign == 200 && strings.Contains(got.body, o.ours["hook"]) {
			t.Errorf("%s %s by %s shows %.300s", tr.route, tr.path, role, got.body)
		}
		return
	}
	missing := o.send(t, tr, o.missing, key)
	if o.ours.replaceIDs(got.body, o.missing) != missing.body || got.status != missing.status {
		t.Errorf("%s %s: for existing IDs: %d %s, for missing ones: %d %s", tr.route, tr.path, got.status, got.body,
			missing.status, missing.body)
	}
}

// TestCursorsOfAnotherProjectRevealNothing checks that a list continues in the key's own project.
func TestCursorsOfAnotherProjectRevealNothing(t *testing.T) {
	t.Parallel()
	h := newMatrixServer(t)
	first, second := h.newFixture(t, "shop"), h.newFixture(t, "shop")
	lists := 0
	for _, tr := range testRequests {
		if !strings.HasPrefix(tr.route, "GET /v1/") || tr.foreign != 200 || tr.endless || tr.path != "" {
			continue
		}
		page := func(query string, key string) (string, string) {
			t.Helper()
			tr := tr
			_, path, _ := strings.Cut(tr.route, " ")
			tr.path = path + query
			got := h.send(t, tr, first, key)
			var list struct {
				Cursor string `yaml:"cursor"`
			}
			if err := yaml.Unmarshal([]byte(got.body), &list); err != nil || got.status != http.StatusOK &&
				!strings.Contains(got.body, "unknown parameter") {
				t.Fatalf("%s: %d %s: %v", tr.path, got.status, got.body, err)
			}
			return list.Cursor, got.body
		}
		cursor, _ := page("?limit=1", h.keyTexts["shop"][admin.RoleAdmin])
		if cursor == "" {
			continue // the list has a single page
		}
		lists++
		_, body := page("?cursor="+cursor, h.keyTexts["default"][admin.RoleAdmin])
		for _, s := range []fixture{first, second} {
			for word, value := range s {
				if word != "event" && word != "hookSeq" && strings.Contains(body, value) {
					t.Errorf("%s: %s of the other project is in %s", tr.route, word, body)
				}
			}
		}
	}
	if lists < 6 {
		t.Errorf("tried only %d lists", lists)
	}
}

// TestParentMustBeInTheSameProject checks it with a valid deployment.
func TestParentMustBeInTheSameProject(t *testing.T) {
	t.Parallel()
	h := newMatrixServer(t)
	ours, theirs := h.newFixture(t, entities.DefaultProject), h.newFixture(t, "shop")
	before := h.snapshot(t, entities.DefaultProject)
	for _, parent := range []string{ours["driven"], h.missingIDs()["driven"]} {
		got := h.send(t, testRequest{
			route: "POST /v1/runs", body: `{"workflow":"order","deployment":"{deployment}","parent":"` + parent + `"}`,
		}, theirs, h.keyTexts["shop"][admin.RoleWrite])
		if got.status != http.StatusNotFound || !strings.Contains(got.body, "run_not_found") {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	if diff := cmp.Diff(before, h.snapshot(t, entities.DefaultProject)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}
