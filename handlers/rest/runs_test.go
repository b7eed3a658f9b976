package rest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func TestServerDrivenRun(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	parent := a.driven(t, "order")
	id := a.driven(t, "order", data(func(d *entities.EventData) {
		d.Attributes = map[string]string{"customer": "7"}
		d.UniqueKey, d.ParentID, d.Detached, d.Deadline, d.StartAt = "order-7", parent, true, &later, &later
	}))
	path := "/v1/runs/" + string(id)
	brief := `{"id":"` + string(id) + `","workflow":"order","deployment":"shop","driver":"server","status":"pending",
		"attributes":{"customer":"7"},"key":"order-7","parentId":"` + string(parent) + `","rootId":"` + string(parent) + `",
		"depth":1,"createdAt":"` + at0 + `",
		"startAt":"2026-11-21T02:41:43.197Z","deadline":"2026-11-21T02:41:43.197Z","lastSeq":1`
	same(t, "list", `[`+brief+`}]`, a.get(t, "/v1/runs?limit=1")["data"])
	same(t, "one", brief+`,"input":{"n":7},"inputEncoding":"json"}`, a.get(t, path))
	same(t, "without payloads", brief+`}`, a.get(t, path+"?payloads=false"))
	same(t, "children", `[`+brief+`}]`, a.get(t, "/v1/runs/"+string(parent)+"/children")["data"])

	a.event(t, id, entities.EventRunStarted)
	a.event(t, id, entities.EventRunCompleted, with(`null`))
	got := a.get(t, path)
	for key, want := range map[string]any{
		"status": "completed", "startedAt": at0, "completedAt": at0, "output": nil, "outputEncoding": "json", "lastSeq": 3.0,
	} {
		if have, ok := got[key]; !ok || have != want {
			t.Errorf("%s: got %v, want %v", key, have, want)
		}
	}
	if _, ok := got["startAt"]; ok {
		t.Error("the run has ended and still has a start time")
	}
}

func TestClientDrivenRun(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.sdkRun(t, "order")
	same(t, "pending", `{"id":"`+string(id)+`","workflow":"order","deployment":"shop","driver":"client",
		"status":"pending","attributes":{},"createdAt":"`+at0+`","lastSeq":1,"inputEncoding":"opaque"}`,
		a.get(t, "/v1/runs/"+string(id)))
}

func TestFailedRun(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for payload, want := range map[string]string{
		`{"message":"no","code":"declined","details":{"a":[1]},"more":1}`: `{"code":"E","message":"no","details":{"a":[1]}}`,
		`{"name":"Error","message":"no","stack":"at f"}`:                  `{"code":"E","message":"no","details":{"stack":"at f"}}`,
		`"no"`:           `{"code":"E","message":"no"}`,
		`{"message":1}`:  `{"code":"E"}`,
		`[]`:             `{"code":"E"}`,
		"devl\xffopaque": `{"code":"E"}`,
		``:               `{"code":"E"}`,
	} {
		id := a.driven(t, "order")
		a.event(t, id, entities.EventRunFailed, with(payload), data(func(d *entities.EventData) { d.ErrorCode = "E" }))
		same(t, payload, want, a.get(t, "/v1/runs/"+string(id))["error"])
	}
	same(t, "list", `{"code":"E"}`, a.get(t, "/v1/runs?limit=1")["data"].([]any)[0].(object)["error"])
	id := a.driven(t, "order")
	a.event(t, id, entities.EventRunFailed, with(`{"message":"no","code":"declined"}`))
	same(t, "code of the function", `{"code":"declined","message":"no"}`, a.get(t, "/v1/runs/"+string(id))["error"])
}

func TestListRunsByFilters(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	tagged := func(key, value string) func(*eventlog.Request) {
		return data(func(d *entities.EventData) { d.Attributes = map[string]string{key: value, "all": "x"} })
	}
	keyed := data(func(d *entities.EventData) { d.UniqueKey = "k" })
	one, two := a.sdkRun(t, "order", tagged("c", "1")), a.driven(t, "order", tagged("c", "2"), keyed)
	a.event(t, two, entities.EventRunCancelled)
	three := a.driven(t, "refund", tagged("c é&=", "1"))
	four := a.driven(t, "order", keyed, data(func(d *entities.EventData) { d.ParentID = three }))
	for query, want := range map[string][]entities.RunID{
		"":                                              {four, three, two, one},
		"order=asc":                                     {one, two, three, four},
		"order=desc&workflow=order":                     {four, two, one},
		"workflow=none":                                 {},
		"status=cancelled":                              {two},
		"status=pending&workflow=order":                 {four, one},
		"key=k":                                         {four, two},
		"key=k&workflow=refund":                         {},
		"parentId=" + string(three):                     {four},
		"attribute.c=1":                                 {one},
		"attribute.all=x":                               {three, two, one},
		"attribute.all=x&attribute.c=2":                 {two},
		"attribute.all=x&workflow=order":                {two, one},
		"attribute.all=x&key=k":                         {two},
		"attribute.c+%C3%A9%26%3D=1":                    {three},
		"attribute.all=x&status=pending":                {three, one},
		"createdAfter=2026-11-21T01:41:43.197Z":         {four, three, two, one},
		"createdAfter=2026-11-21T01:41:43.1971Z":        {},
		"createdBefore=2026-11-21T01:41:43.197Z":        {},
		"createdBefore=2026-11-21T01:41:43.1971Z":       {four, three, two, one},
		"createdBefore=2026-11-21T02:41:43.198%2B01:00": {four, three, two, one},
		"createdAfter=2026-11-21T01:41:43Z&createdBefore=2026-11-21T01:42:00Z&status=cancelled": {two},
	} {
		for _, limit := range []string{"1", "2", "1000"} {
			check.Equal(t, fmt.Sprintf("%s, %s to a page", query, limit), ids(a.all(t, "/v1/runs?"+query, limit)), want)
		}
	}
}

// TestCursorsSurviveChanges checks cursors while runs are added and deleted.
func TestCursorsSurviveChanges(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	one, two, three := a.driven(t, "w"), a.driven(t, "w"), a.driven(t, "w")
	first := a.get(t, "/v1/runs?limit=2")
	if diff := cmp.Diff([]any{string(three), string(two)}, []any{
		first["data"].([]any)[0].(object)["id"], first["data"].([]any)[1].(object)["id"],
	}); diff != "" {
		t.Fatalf("first page (-want +got):\n%s", diff)
	}
	a.driven(t, "w")
	a.exec(t, `DELETE FROM runs WHERE id = $1`, two)
	rest := a.all(t, "/v1/runs?cursor="+url.QueryEscape(first["cursor"].(string)), "2")
	if got := ids(rest); !slices.Equal(got, []entities.RunID{one}) {
		t.Errorf("got %v, want %v", got, one)
	}
}

func TestInvalidRunQueriesAreRejected(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, query := range []string{
		"status=lost", "status=none", "limit=0", "order=up", "cursor=x", "createdAfter=yesterday", "createdBefore=2026-11-21",
		"createdAfter=2026-11-21T01:00:00Z&createdBefore=2026-11-21T00:00:00Z", "attribute.=1",
		"attribute=1", "attributes.a=1", "parentId=a/b", "workflow=a&workflow=b",
		"attribute.1=1&attribute.2=1&attribute.3=1&attribute.4=1&attribute.5=1&attribute.6=1&attribute.7=1&attribute.8=1&attribute.9=1",
	} {
		a.wantRejected(t, http.MethodGet, "/v1/runs?"+query, "", http.StatusBadRequest, "invalid_request")
	}
	for _, path := range []string{"", "/attributes", "/children", "/wait", "/steps", "/steps/s", "/hooks", "/hooks/h", "/waits",
		"/streams", "/streams/s", "/streams/s/tail"} {
		a.wantRejected(t, http.MethodGet, "/v1/runs/wrun_x"+path, "", http.StatusNotFound, "run_not_found")
		a.wantRejected(t, http.MethodGet, "/v1/runs/a%00b"+path, "", http.StatusBadRequest, "invalid_request")
	}
}

func TestWaitForRun(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.driven(t, "order")
	path := "/v1/runs/" + string(id)
	if got := a.get(t, path+"/wait?timeout=1ms"); got["status"] != "pending" || got["inputEncoding"] != "json" {
		t.Errorf("got %v, want the unfinished run", got)
	}
	answered := make(chan object, 1)
	go func() { answered <- a.get(t, path+"/wait?timeout=60s") }()
	a.event(t, id, entities.EventRunCompleted, with(`"done"`))
	select {
	case got := <-answered:
		if got["status"] != "completed" || got["output"] != "done" {
			t.Errorf("got %v, want the run with its output", got)
		}
	case <-time.After(30 * time.Second):
		t.Error("timeout: the request did not notice the end")
	}
	for _, timeout := range []string{"61s", "-1s", "5", "x"} {
		a.wantRejected(t, http.MethodGet, path+"/wait?timeout="+timeout, "", http.StatusBadRequest, "invalid_request")
	}
}

// TestBlockedRuns: a run that its function refuses shows why, alone and in lists.
func TestBlockedRuns(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.driven(t, "order")
	a.driven(t, "order")
	a.exec(t, `
		UPDATE messages SET blocked = '{"code":"diverged","message":"order.go:41"}', delivery_count = 3, first_failed_at = $2
		WHERE run_id = $1 AND work = 'run'`, id, at0)
	want := object{"code": "diverged", "message": "order.go:41", "since": at0, "attempts": 3.0}
	check.Equal(t, "blocked", any(a.get(t, "/v1/runs/"+string(id))["blocked"]), any(want))
	for _, run := range a.all(t, "/v1/runs", "10") {
		if _, blocked := run["blocked"]; blocked != (run["id"] == string(id)) {
			t.Errorf("got %v in the list", run)
		}
	}
	reader := a.key(t, "", `{"name":"k","role":"metadata"}`)["key"].(string)
	for _, path := range []string{"/v1/runs/" + string(id), "/v1/runs"} {
		if _, got := a.as(t, reader, http.MethodGet, path, ""); strings.Contains(mustJSON(t, got), "order.go") ||
			!strings.Contains(mustJSON(t, got), "diverged") {
			t.Errorf("%s shows to a key without payloads: %v", path, got)
		}
	}
	a.event(t, id, entities.EventRunCancelled)
	if blocked := a.get(t, "/v1/runs/"+string(id))["blocked"]; blocked != nil {
		t.Errorf("the run has ended, but is blocked: %v", blocked)
	}
}

// TestCountsTellWhatARunHas: each kind is counted, and no more than 1,000 of it.
func TestCountsTellWhatARunHas(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.driven(t, "order")
	path := "/v1/runs/" + string(id) + "/counts"
	none := `{"count":0,"more":false}`
	of := func(steps, hooks, messages string) string {
		return `{"steps":` + steps + `,"hooks":` + hooks + `,"waits":` + none + `,"children":` + none + `,"streams":` + none +
			`,"values":` + none + `,"messages":` + messages + `}`
	}
	one := `{"count":1,"more":false}`
	same(t, "a new run", of(none, none, one), a.get(t, path))
	a.event(t, id, entities.EventHookCreated, on("h"), token("t", false))
	a.exec(t, `INSERT INTO steps (run_id, id, name, status, attempt, spec_version, created_seq, created_at, updated_at)
		SELECT $1, 's' || i, 'charge', 'pending', 1, 6, 10 + i, now(), now() FROM generate_series(1, 1001) i`, id)
	same(t, "a long run", of(`{"count":1000,"more":true}`, one, one), a.get(t, path))
}
