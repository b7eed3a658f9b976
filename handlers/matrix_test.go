package handlers

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"
	"go.yaml.in/yaml/v3"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// reply is an answer, or its beginning if it does not end.
type reply struct {
	status int
	body   string
}

// try makes the request of a trial, with the words of a scene, by a key.
func (h *house) try(t *testing.T, tr trial, s scene, key string) reply {
	t.Helper()
	method, path, _ := strings.Cut(tr.route, " ")
	if tr.path != "" {
		path = s.told(tr.path)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, h.web.URL+path, bytes.NewReader(encode(t, s.told(tr.body))))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Request-Id", "same") // it is in what errors tell
	if strings.HasPrefix(path, "/v1/") {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(tr.header); i += 2 {
		r.Header.Set(tr.header[i], s.told(tr.header[i+1]))
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := h.web.Client().Do(r)
	if err != nil {
		t.Fatalf("%s: %v", tr.route, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if tr.endless && resp.StatusCode == http.StatusOK {
		timer := time.AfterFunc(200*time.Millisecond, cancel) // what there is comes at once
		defer timer.Stop()
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil && (!tr.endless || !errors.Is(err, context.Canceled)) {
		t.Fatalf("%s: %v", tr.route, err)
	}
	return reply{resp.StatusCode, string(body)}
}

// rolesOf are the roles that may, by what the API's description says; the SDK's routes have no other.
func rolesOf(needs auth.Permission) []entities.Role {
	return map[auth.Permission][]entities.Role{
		"admin": {"admin"}, "write": {"admin", "write"}, "read": {"admin", "write", "read"},
		"metadata": {"admin", "write", "read", "metadata"}, "invoke": {"admin", "write", "invoke"}, "any": entities.Roles(),
	}[needs]
}

// TestRoutesNeedWhatTheDocumentSays: registration and openapi.yaml agree, no route is without, and the matrix has all.
func TestRoutesNeedWhatTheDocumentSays(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	needs := h.auth.Permissions()
	described := map[string]auth.Permission{}
	for route, said := range documentedNeeds(t) {
		described[route] = said
	}
	native, registered, tried := map[string]auth.Permission{}, map[string]bool{}, map[string]bool{}
	for route, n := range needs {
		if strings.Contains(route, " /v1/") {
			native[route] = n
		}
		if rolesOf(n) == nil {
			t.Errorf("%s needs %q, which is nothing", route, n)
		}
	}
	if diff := cmp.Diff(described, native); diff != "" {
		t.Errorf("what operations need (-openapi.yaml +routes.go):\n%s", diff)
	}
	for _, r := range h.echo.Routes() {
		if below := strings.HasPrefix(r.Path, "/v1/") || strings.HasPrefix(r.Path, "/sdk/"); below &&
			r.Method != echo.RouteNotFound && r.Path != "/v1/openapi.json" {
			registered[r.Method+" "+r.Path] = true
		}
	}
	for _, tr := range trials {
		tried[tr.route] = true
	}
	all := slices.Sorted(maps.Keys(needs))
	if diff := cmp.Diff(slices.Sorted(maps.Keys(registered)), all); diff != "" {
		t.Errorf("routes (-of echo +with what they need):\n%s", diff)
	}
	if diff := cmp.Diff(all, slices.Sorted(maps.Keys(tried))); diff != "" {
		t.Errorf("routes (-registered +in the matrix):\n%s", diff)
	}
}

// documentedNeeds are the roles of openapi.yaml, by routes.
func documentedNeeds(t *testing.T) map[string]auth.Permission {
	t.Helper()
	data, err := os.ReadFile("rest/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]yaml.Node
	}
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	needs := map[string]auth.Permission{}
	for path, item := range doc.Paths {
		for method, node := range item {
			var op struct {
				Role     auth.Permission `yaml:"x-stepwell-role"`
				Security *[]any     `yaml:"security"`
			}
			if method == "parameters" {
				continue
			}
			if err := node.Decode(&op); err != nil {
				t.Fatal(err)
			}
			if op.Security != nil && len(*op.Security) == 0 {
				continue // for everyone
			}
			needs[strings.ToUpper(method)+" "+strings.NewReplacer("{", ":", "}", "").Replace(path)] = op.Role
		}
	}
	return needs
}

// projects are those of a house, each of which is tried, with the other one for strangers.
var projects = map[entities.Project]entities.Project{entities.DefaultProject: "shop", "shop": entities.DefaultProject}

// TestMatrixOfOwners has every role of a project try every route: those who may get what they ask for, the others a 403
// that changes nothing. Who may not see payloads sees none.
func TestMatrixOfOwners(t *testing.T) {
	t.Parallel()
	for project := range projects {
		t.Run(string(project), func(t *testing.T) {
			t.Parallel()
			m := matrix{house: newHouse(t), project: project}
			m.shared = m.scene(t, project)
			before := m.holdings(t, project)
			m.eachRole(false, func(tr trial, role entities.Role) { m.denied(t, tr, role) })
			if diff := cmp.Diff(before, m.holdings(t, project)); diff != "" {
				t.Errorf("those who may not have changed something (-before +after):\n%s", diff)
			}
			for _, reads := range []bool{true, false} { // some of the others change all runs there are
				m.eachRole(true, func(tr trial, role entities.Role) {
					if strings.HasPrefix(tr.route, "GET ") == reads {
						m.granted(t, tr, role)
					}
				})
			}
			if m.shown < 50 {
				t.Errorf("payloads were shown %d times only, to those who may see them", m.shown)
			}
			t.Logf("%d cells: %d requests to %d routes × %d roles",
				m.cells, len(trials), len(m.auth.Permissions()), len(entities.Roles()))
		})
	}
}

// matrix is the requests of a project's own keys.
type matrix struct {
	*house

	project      entities.Project
	shared       scene
	cells, shown int
}

// eachRole does something with each request and each role that may make it, or may not.
func (m *matrix) eachRole(may bool, do func(trial, entities.Role)) {
	needs := m.auth.Permissions()
	for _, tr := range trials {
		for _, role := range entities.Roles() {
			allowed := slices.Contains(rolesOf(needs[tr.route]), role) &&
				(!tr.operators || m.project == entities.DefaultProject)
			if allowed == may {
				do(tr, role)
			}
		}
	}
}

func (m *matrix) denied(t *testing.T, tr trial, role entities.Role) {
	t.Helper()
	m.cells++
	got := m.try(t, tr, m.shared, m.texts[m.project][role])
	if got.status != http.StatusForbidden || !strings.Contains(got.body, "forbidden") {
		t.Errorf("%s by %s: got %d %.200s, want 403", tr.route, role, got.status, got.body)
	}
}

func (m *matrix) granted(t *testing.T, tr trial, role entities.Role) {
	t.Helper()
	m.cells++
	s := m.shared
	if !strings.HasPrefix(tr.route, "GET ") {
		s = m.scene(t, m.project) // which it changes
	}
	got := m.try(t, tr, s, m.texts[m.project][role])
	// What has the idempotency key was another request.
	keyed := strings.Contains(tr.body, "{idem}") || strings.Contains(tr.body, "{signalKey}")
	mismatch := got.status == http.StatusConflict && keyed
	if got.status >= 300 && !mismatch {
		t.Errorf("%s %s %s by %s: got %d %.300s, though it may", tr.route, tr.path, tr.body, role, got.status, got.body)
	}
	if !strings.Contains(got.body, classified) && !strings.Contains(got.body, tokenMark) {
		return
	}
	if m.shown++; !slices.Contains(rolesOf(auth.Read), role) {
		t.Errorf("%s %s by %s shows what it may not: %s", tr.route, tr.path, role, got.body)
	}
}

// TestMatrixOfStrangers has everybody else try every route with the IDs of a project: without a key, with keys that
// are good no more, and with every role of another project. Nothing is shown, nothing changes, and what is there looks
// like what is not.
func TestMatrixOfStrangers(t *testing.T) {
	t.Parallel()
	for owner, stranger := range projects {
		t.Run(string(owner), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			o := outside{house: h, owner: owner, stranger: stranger, ours: h.scene(t, owner), ghost: h.ghost(), nobody: h.nobody(t, owner)}
			for _, tr := range trials {
				before := h.holdings(t, owner)
				o.unknown(t, tr)
				for _, role := range entities.Roles() {
					o.foreign(t, tr, role)
				}
				if diff := cmp.Diff(before, h.holdings(t, owner)); diff != "" {
					t.Errorf("%s changed something (-before +after):\n%s", tr.route, diff)
				}
			}
			t.Logf("%d cells: %d requests to %d routes × (%d without a good key + %d roles of another project)",
				o.cells, len(trials), len(h.auth.Permissions()), len(o.nobody), len(entities.Roles()))
		})
	}
}

// nobody has what is no good key, or not any more, to a project.
func (h *house) nobody(t *testing.T, project entities.Project) map[string]string {
	t.Helper()
	keys := map[string]string{"no key": "", "garbage": "garbage", "what looks like a key": "sw_" + strings.Repeat("x", 49)}
	var id entities.KeyID
	id, keys["revoked"] = h.mint(t, project, entities.RoleAdmin)
	if err := h.keys.Revoke(t.Context(), project, id); err != nil {
		t.Fatal(err)
	}
	id, keys["expired"] = h.mint(t, project, entities.RoleAdmin)
	h.exec(t, `UPDATE api_keys SET expires_at = now() - interval '1 s' WHERE id = $1`, id)
	return keys
}

// outside is the requests of those whom a project is none of their business.
type outside struct {
	*house

	owner, stranger entities.Project
	ours, ghost     scene
	nobody          map[string]string
	cells           int
}

func (o *outside) unknown(t *testing.T, tr trial) {
	t.Helper()
	for name, key := range o.nobody {
		o.cells++
		if got := o.try(t, tr, o.ours, key); got.status != http.StatusUnauthorized {
			t.Errorf("%s with %s: got %d %.200s, want 401", tr.route, name, got.status, got.body)
		}
	}
}

func (o *outside) foreign(t *testing.T, tr trial, role entities.Role) {
	t.Helper()
	o.cells++
	want := tr.foreign
	if !slices.Contains(rolesOf(o.auth.Permissions()[tr.route]), role) || tr.operators && o.stranger != entities.DefaultProject {
		want = http.StatusForbidden
	} else if tr.operators {
		return // who looks after the whole installation is no stranger
	}
	key := o.texts[o.stranger][role]
	got := o.try(t, tr, o.ours, key)
	if got.status != want {
		t.Errorf("%s %s by %s: got %d %.200s, want %d", tr.route, tr.path, role, got.status, got.body, want)
	}
	if got.status < 300 {
		if strings.Contains(got.body, classified) || tr.foreign == 200 && strings.Contains(got.body, o.ours["hook"]) {
			t.Errorf("%s %s by %s shows %.300s", tr.route, tr.path, role, got.body)
		}
		return
	}
	if never := o.try(t, tr, o.ghost, key); o.ours.forget(got.body, o.ghost) != never.body || got.status != never.status {
		t.Errorf("%s %s: what is there: %d %s, what is not: %d %s", tr.route, tr.path, got.status, got.body,
			never.status, never.body)
	}
}

// TestCursorsOfAnotherProjectLeadNowhere.
func TestCursorsOfAnotherProjectLeadNowhere(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	first, second := h.scene(t, "shop"), h.scene(t, "shop")
	lists := 0
	for _, tr := range trials {
		if !strings.HasPrefix(tr.route, "GET /v1/") || tr.foreign != 200 || tr.endless || tr.path != "" {
			continue
		}
		page := func(query string, key string) (string, string) {
			t.Helper()
			tr := tr
			_, path, _ := strings.Cut(tr.route, " ")
			tr.path = path + query
			got := h.try(t, tr, first, key)
			var list struct {
				Cursor string `yaml:"cursor"`
			}
			if err := yaml.Unmarshal([]byte(got.body), &list); err != nil || got.status != http.StatusOK &&
				!strings.Contains(got.body, "unknown parameter") {
				t.Fatalf("%s: %d %s: %v", tr.path, got.status, got.body, err)
			}
			return list.Cursor, got.body
		}
		cursor, _ := page("?limit=1", h.texts["shop"][entities.RoleAdmin])
		if cursor == "" {
			continue // it is on one page always
		}
		lists++
		_, body := page("?cursor="+cursor, h.texts["default"][entities.RoleAdmin])
		for _, s := range []scene{first, second} {
			for word, value := range s {
				if word != "event" && word != "hookSeq" && strings.Contains(body, value) {
					t.Errorf("%s: %s of the other project is in %s", tr.route, word, body)
				}
			}
		}
	}
	if lists < 6 {
		t.Errorf("tried %d lists only", lists)
	}
}

// TestARunOfAnotherProjectIsNoParent, also for who has a deployment to start runs on.
func TestARunOfAnotherProjectIsNoParent(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ours, theirs := h.scene(t, entities.DefaultProject), h.scene(t, "shop")
	before := h.holdings(t, entities.DefaultProject)
	for _, parent := range []string{ours["driven"], h.ghost()["driven"]} {
		got := h.try(t, trial{
			route: "POST /v1/runs", body: `{"workflow":"order","deployment":"{deployment}","parent":"` + parent + `"}`,
		}, theirs, h.texts["shop"][entities.RoleWrite])
		if got.status != http.StatusNotFound || !strings.Contains(got.body, "run_not_found") {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	if diff := cmp.Diff(before, h.holdings(t, entities.DefaultProject)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}
