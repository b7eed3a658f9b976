package handlers

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
)

// TestMatrixOfCallCredentials tries every route with the tokens of calls: of the run's own active invocation, which
// allows the routes for calls and nothing else, and of others, which allow nothing and change nothing.
func TestMatrixOfCallCredentials(t *testing.T) {
	t.Parallel()
	h := newMatrixServer(t)
	secret := check.Value(admin.ServerKey(t.Context(), pg.NewPool(h.pool), "calls"))(t)
	key, soon := token.Key(secret), time.Now().Add(time.Hour)
	s := h.newFixture(t, entities.DefaultProject).aboutDriven()
	other := h.newFixture(t, entities.DefaultProject).aboutDriven()
	own := token.Call{Project: entities.DefaultProject, RunID: entities.RunID(s["driven"]), Invocation: s["lease"]}
	ended, stranger, foreign := own, own, own
	ended.Invocation = "rh_ended"
	stranger.RunID, stranger.Invocation = entities.RunID(other["driven"]), other["lease"]
	foreign.Project = "shop"
	valid := key.SignCall("", own, soon)
	invalid := map[string]string{
		"expired":      key.SignCall("", own, time.Now().Add(-time.Second)),
		"forged":       token.Key("a key of somebody else").SignCall("", own, soon),
		"no MAC":       valid[:len(valid)-43],
		"of a drain":   key.Sign(selfPrefix, "", soon),
		"of something": key.Sign(token.CallPrefix, "", soon),
	}
	forCalls := h.auth.ForCalls()
	before := h.snapshot(t, entities.DefaultProject)
	expect := func(tr testRequest, name, text string, status int) {
		t.Helper()
		if got := h.send(t, tr, s, text); got.status != status || strings.Contains(got.body, classified) {
			t.Errorf("%s %s, %s: got %d %.200s, want %d", tr.route, tr.path, name, got.status, got.body, status)
		}
	}
	for _, tr := range callRequests() {
		allowed := slices.Contains(forCalls, tr.route)
		ofEnded := map[bool]int{true: http.StatusConflict, false: http.StatusForbidden}[allowed]
		ofForeign := ofEnded
		if strings.HasPrefix(tr.route, "POST ") && allowed {
			ofForeign = http.StatusNotFound // its project has no such run
		}
		expect(tr, "ended invocation", key.SignCall("", ended, soon), ofEnded)
		expect(tr, "run of another project", key.SignCall("", foreign, soon), ofForeign)
		expect(tr, "another run", key.SignCall("", stranger, soon), http.StatusForbidden)
		for name, text := range invalid {
			expect(tr, name, text, http.StatusUnauthorized)
		}
		if !allowed {
			expect(tr, "own run", valid, http.StatusForbidden)
		}
	}
	check.Equal(t, "refused requests changed something", h.snapshot(t, entities.DefaultProject), before)
	h.tryOwnRun(t, s, valid, forCalls)
	h.exec(t, `UPDATE messages SET due_at = now() - interval '1 s' WHERE lease = $1`, s["lease"])
	for _, tr := range callRequests() {
		if slices.Contains(forCalls, tr.route) {
			expect(tr, "expired lease", valid, http.StatusConflict)
		}
	}
}

// tryOwnRun tries the routes for calls with the token of the run's active invocation.
func (h *matrixServer) tryOwnRun(t *testing.T, s fixture, valid string, forCalls []string) {
	t.Helper()
	tried := 0
	for _, tr := range callRequests() {
		if !slices.Contains(forCalls, tr.route) {
			continue
		}
		tried++
		if got := h.send(t, tr, s, valid); got.status >= http.StatusMultipleChoices {
			t.Errorf("%s %s: got %d %s, want success", tr.route, tr.path, got.status, got.body)
		}
		tr.header = []string{"Stepwell-Invocation", "rh_other"}
		got := h.send(t, tr, s, valid)
		check.Equal(t, tr.route+" that names another invocation is refused", got.status == http.StatusBadRequest, strings.HasPrefix(tr.route, "POST "))
	}
	if tried < len(forCalls) {
		t.Errorf("tried %d requests to %d routes for calls", tried, len(forCalls))
	}
}

// callRequests returns the requests of the matrix without the name of the invocation, which the token has.
func callRequests() []testRequest {
	requests := slices.Clone(testRequests)
	for i := range requests {
		if slices.Contains(requests[i].header, "{lease}") {
			requests[i].header = nil
		}
	}
	return requests
}

// aboutDriven returns a copy of the fixture whose runs are all the one that the server drives.
func (s fixture) aboutDriven() fixture {
	s = maps.Clone(s)
	for _, run := range []string{"run", "done", "failed"} {
		s[run] = s["driven"]
	}
	return s
}
