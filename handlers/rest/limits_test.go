package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// shop creates a project with limits and a deployment, and returns an admin key of it.
func (a api) shop(t *testing.T, limits string) (key string) {
	t.Helper()
	a.send(t, http.MethodPut, "/v1/projects/shop", `{"limits":`+limits+`}`, http.StatusOK)
	for _, project := range []entities.Project{"shop", entities.DefaultProject} {
		check.Value(a.queue.PutDeployment(t.Context(), project, "d", "https://shop.example.com"))(t)
	}
	return a.key(t, "", `{"project":"shop","name":"a","role":"admin"}`)["key"].(string)
}

// wantQuota expects a refusal.
func wantQuota(t *testing.T, what, code string, status int, answer object) {
	t.Helper()
	problem, _ := answer["error"].(object)
	if status != http.StatusTooManyRequests || problem["code"] != code {
		t.Errorf("%s: got %d %v, want 429 %s", what, status, answer, code)
	}
}

func TestProjectLimitsAreSetShownAndAudited(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, step := range []struct{ body, limits string }{
		{`{"limits":{"dailyStarts":3}}`, `{"dailyStarts":3,"startsToday":0}`},
		{`{}`, `{"dailyStarts":3,"startsToday":0}`},
		{`{"limits":{"storageBytes":100}}`, `{"dailyStarts":3,"startsToday":0,"storageBytes":100}`},
		{`{"limits":{"dailyStarts":null}}`, `{"storageBytes":100}`},
		{`{"limits":{"dailyStarts":0}}`, `{"dailyStarts":0,"startsToday":0,"storageBytes":100}`},
		{`{"limits":{"dailyStarts":0,"storageBytes":100}}`, `{"dailyStarts":0,"startsToday":0,"storageBytes":100}`},
		{`{"limits":{"dailyStarts":null,"storageBytes":null}}`, ``},
		{`{"limits":{"maxDepth":3,"maxDescendants":0}}`, `{"maxDepth":3,"maxDescendants":0}`},
		{`{"limits":{"maxDepth":null}}`, `{"maxDescendants":0}`},
	} {
		want := `{"name":"shop","createdAt":"` + at0 + `","limits":` + step.limits + `}`
		if step.limits == "" {
			want = `{"name":"shop","createdAt":"` + at0 + `"}`
		}
		p := a.send(t, http.MethodPut, "/v1/projects/shop", step.body, http.StatusOK)
		same(t, step.body, want, p)
		same(t, "list after "+step.body, want, a.get(t, "/v1/projects")["data"].([]any)[1])
	}
	for _, body := range []string{
		`{"limits":{"dailyStarts":-1}}`, `{"limits":{"dailyStarts":1.5}}`, `{"limits":{"dailyStarts":"1"}}`,
		`{"limits":{"dailyStarts":9223372036854775808}}`, `{"limits":{"starts":1}}`, `{"limits":null}`,
		`{"limits":{"maxDepth":10001}}`, `{"limits":{"maxDescendants":1000001}}`,
	} {
		a.wantRejected(t, http.MethodPut, "/v1/projects/shop", body, http.StatusBadRequest, "invalid_request")
	}
	var got []string
	for _, entry := range a.all(t, "/v1/audit?project=shop&order=asc", "100") {
		got = append(got, fmt.Sprint(entry["action"], " ", mustJSON(t, entry["detail"])))
	}
	want := []string{
		`project.create {}`,
		`project.limit {"dailyStarts":3,"maxDepth":null,"maxDescendants":null,"storageBytes":null}`,
		`project.limit {"dailyStarts":3,"maxDepth":null,"maxDescendants":null,"storageBytes":100}`,
		`project.limit {"dailyStarts":null,"maxDepth":null,"maxDescendants":null,"storageBytes":100}`,
		`project.limit {"dailyStarts":0,"maxDepth":null,"maxDescendants":null,"storageBytes":100}`,
		`project.limit {"dailyStarts":null,"maxDepth":null,"maxDescendants":null,"storageBytes":null}`,
		`project.limit {"dailyStarts":null,"maxDepth":3,"maxDescendants":0,"storageBytes":null}`,
		`project.limit {"dailyStarts":null,"maxDepth":null,"maxDescendants":0,"storageBytes":null}`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("audit: got %q, want %q", got, want)
	}
}

// TestStartQuotaRefusesOnlyNewRuns checks that what is under way goes on beyond the limit, and other projects too.
func TestStartQuotaRefusesOnlyNewRuns(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	key := a.shop(t, `{"dailyStarts":2}`)
	start := func(body string) (int, object) { t.Helper(); return a.as(t, key, http.MethodPost, "/v1/runs", body) }
	const first = `{"workflow":"order","idempotencyKey":"1","key":"order-1"}`
	status, parent := start(first)
	if status != http.StatusCreated {
		t.Fatalf("got %d %v", status, parent)
	}
	status, second := start(`{"workflow":"order"}`)
	if status != http.StatusCreated {
		t.Fatalf("got %d %v", status, second)
	}
	status, got := start(`{"workflow":"order"}`)
	wantQuota(t, "start", "start_quota", status, got)
	same(t, "details", `{"used":2,"limit":2}`, got["error"].(object)["details"])
	id := parent["id"].(string)
	status, got = a.as(t, key, http.MethodPost, "/v1/runs/"+second["id"].(string)+"/rerun", "")
	wantQuota(t, "rerun", "start_quota", status, got)

	if status, got := start(first); status != http.StatusOK || got["id"] != id {
		t.Errorf("repeated: got %d %v", status, got)
	}
	if status, got := start(`{"workflow":"order","key":"order-1"}`); status != http.StatusConflict {
		t.Errorf("key taken: got %d %v", status, got)
	}
	if status, got := start(`{"workflow":"order","key":"order-1","onConflict":"join"}`); status != http.StatusOK || got["id"] != id {
		t.Errorf("join: got %d %v", status, got)
	}
	status, got = start(`{"workflow":"order","parent":"` + id + `"}`)
	wantQuota(t, "child", "start_quota", status, got)
	for typ, correlation := range map[entities.EventType]string{entities.EventRunStarted: "", entities.EventStepCreated: "step_1"} {
		r := eventlog.Request{RunID: entities.RunID(id), Type: typ, CorrelationID: correlation, SpecVersion: 3}
		if correlation != "" {
			r.Data.StepName = "s"
		}
		if _, err := a.log.Append(t.Context(), "shop", r); err != nil {
			t.Errorf("append %s: %v", typ, err)
		}
	}
	if status, got := a.as(t, key, http.MethodPost, "/v1/signals/paid", `{}`); status/100 != 2 {
		t.Errorf("signal: got %d %v", status, got)
	}
	a.send(t, http.MethodPost, "/v1/runs", `{"workflow":"order"}`, http.StatusCreated)
	shop := a.get(t, "/v1/projects")["data"].([]any)[1].(object)
	same(t, "use", `{"dailyStarts":2,"startsToday":2}`, shop["limits"])
}

// TestRacingStartsDoNotExceedTheQuota starts runs from many goroutines on one server (I4).
func TestRacingStartsDoNotExceedTheQuota(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	key := a.shop(t, `{"dailyStarts":10}`)
	var started, refused atomic.Int64
	var goroutines sync.WaitGroup
	for range 40 {
		goroutines.Go(func() {
			switch status, _ := a.as(t, key, http.MethodPost, "/v1/runs", `{"workflow":"order"}`); status {
			case http.StatusCreated:
				started.Add(1)
			case http.StatusTooManyRequests:
				refused.Add(1)
			}
		})
	}
	goroutines.Wait()
	if started.Load() != 10 || refused.Load() != 30 {
		t.Errorf("%d started and %d refused, want 10 and 30", started.Load(), refused.Load())
	}
}

func TestStorageQuotaRefusesOnlyNewRuns(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	key := a.shop(t, `{"storageBytes":1000}`)
	check.Value(a.pool.Exec(t.Context(),
		`UPDATE projects SET stored_bytes = 1000, stored_at = $1 WHERE name = 'shop'`, t0))(t)
	status, got := a.as(t, key, http.MethodPost, "/v1/runs", `{"workflow":"order"}`)
	wantQuota(t, "start", "storage_quota", status, got)
	a.send(t, http.MethodPost, "/v1/runs", `{"workflow":"order"}`, http.StatusCreated)
	shop := a.get(t, "/v1/projects")["data"].([]any)[1].(object)
	same(t, "use", `{"storageBytes":1000,"storedBytes":1000,"storedAt":"`+at0+`"}`, shop["limits"])
	if _, p := a.do(t, http.MethodPut, "/v1/projects/shop", `{"limits":{"storageBytes":1001}}`); p["limits"] == nil {
		t.Fatalf("got %v", p)
	}
}

// TestPausedProjectStartsNothing: starts are told when to come again, reading and cancelling work, and all is audited
// once.
func TestPausedProjectStartsNothing(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for range 2 {
		if status, p := a.do(t, http.MethodPut, "/v1/projects/paused", `{"paused":true}`); status != http.StatusOK ||
			p["pausedAt"] != at0 {
			t.Fatalf("pause: got %d %v", status, p)
		}
	}
	paused := a.key(t, "", `{"project":"paused","name":"a","role":"admin"}`)["key"].(string)
	check.Value(a.queue.PutDeployment(t.Context(), "paused", "d", "https://shop.example.com"))(t)
	w := a.serve(http.MethodPost, "/v1/runs", `{"workflow":"order"}`, "Authorization", "Bearer "+paused)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "30" ||
		!strings.Contains(w.Body.String(), "project_paused") {
		t.Errorf("start: got %d, Retry-After %q: %s", w.Code, w.Header().Get("Retry-After"), w.Body)
	}
	id := newRunID() // it was started before
	a.exec(t, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, created_at, updated_at)
		VALUES ($1, 'paused', 'd', 'order', 'pending', 3, 1, $2, $2)`, id, t0)
	path := "/v1/runs/" + string(id)
	a.sendAs(t, paused, http.MethodGet, path, "", http.StatusOK)
	if status, p := a.as(t, paused, http.MethodPost, path+"/cancel", `{}`); status != http.StatusOK || p["status"] != "cancelled" {
		t.Errorf("cancel: got %d %v", status, p)
	}
	for range 2 {
		if status, p := a.do(t, http.MethodPut, "/v1/projects/paused", `{"paused":false}`); status != http.StatusOK ||
			p["pausedAt"] != nil {
			t.Fatalf("resume: got %d %v", status, p)
		}
	}
	var got []string
	for _, entry := range a.all(t, "/v1/audit?project=paused&order=asc", "100") {
		if strings.HasPrefix(entry["action"].(string), "project.") {
			got = append(got, entry["action"].(string))
		}
	}
	if strings.Join(got, " ") != "project.create project.pause project.resume" {
		t.Errorf("audit: got %q", got)
	}
}
