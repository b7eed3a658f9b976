package rest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// deployed returns a server with a deployment.
func deployed(t *testing.T) api {
	t.Helper()
	a := newAPI(t)
	a.put(t, "shop", `{"url":"http://shop.test"}`)
	return a
}

func (a api) put(t *testing.T, id, body string) {
	t.Helper()
	a.send(t, http.MethodPut, "/v1/deployments/"+id, body, http.StatusOK)
}

// work counts the server's tasks for a run by kind.
func (a api) work(t *testing.T, id entities.RunID) map[message.Work]int {
	t.Helper()
	entries, _, err := a.queue.Messages(t.Context(), entities.DefaultProject, queue.Filter{RunID: id}, pg.Page{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[message.Work]int{}
	for _, e := range entries {
		counts[e.Work]++
	}
	return counts
}

func (a api) count(t *testing.T, table string) int {
	t.Helper()
	var n int
	check.NoError(t, a.pool.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
	return n
}

func TestStartRun(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	parent := a.driven(t, "order")
	body := `{"workflow":"order","input":{"b":1, "a":[1.0]},"deployment":"shop","idempotencyKey":"i","key":"k",
		"attributes":{"customer":"7"},"delay":"1h","timeout":"30m","parent":"` + string(parent) + `"}`
	got := a.post(t, "/v1/runs", body, http.StatusCreated)
	id, _ := got["id"].(string)
	want := `{"id":"` + id + `","workflow":"order","deployment":"shop","driver":"server","status":"pending",
		"attributes":{"customer":"7"},"key":"k","parentId":"` + string(parent) + `","rootId":"` + string(parent) + `",
		"depth":1,"createdAt":"` + at0 + `",
		"startAt":"2026-11-21T02:41:43.197Z","deadline":"2026-11-21T03:11:43.197Z","lastSeq":1,
		"input":{"a":[1],"b":1},"inputEncoding":"json"}`
	same(t, "started", want, got)
	same(t, "read", want, a.get(t, "/v1/runs/"+id))
	check.Equal(t, "work", a.work(t, entities.RunID(id)), map[message.Work]int{"run": 1, "deadline": 1})
	page, err := a.log.Events(t.Context(), entities.DefaultProject, entities.RunID(id), pg.Page{Limit: 9}, read.WithPayloads)
	if err != nil || len(page.Events) != 1 || string(page.Events[0].Payload) != `{"b":1, "a":[1.0]}` {
		t.Errorf("got %+v and error %v, want the unchanged input", page.Events, err)
	}
	same(t, "again", want, a.post(t, "/v1/runs", body, http.StatusOK))

	w := a.serve(http.MethodPost, "/v1/runs", `{"workflow":"order"}`)
	if at := w.Header().Get("Location"); !strings.HasPrefix(at, "/v1/runs/wrun_") || a.get(t, at)["inputEncoding"] != "none" {
		t.Errorf("got location %q", at)
	}
}

func TestStartTimes(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	for body, want := range map[string][2]any{
		`"startAt":"2026-11-21T03:41:43.1979+01:00"`:           {"2026-11-21T02:41:43.197Z", nil},
		`"startAt":"2026-11-21T00:00:00Z","timeout":"1h"`:      {"2026-11-21T00:00:00.000Z", "2026-11-21T02:41:43.197Z"},
		`"delay":"0s","timeout":"1ms"`:                         {at0, "2026-11-21T01:41:43.198Z"},
		`"timeout":"48h"`:                                      {nil, "2026-11-23T01:41:43.197Z"},
		`"startAt":"2026-11-22T01:41:43.197Z","timeout":"24h"`: {"2026-11-22T01:41:43.197Z", "2026-11-23T01:41:43.197Z"},
	} {
		got := a.post(t, "/v1/runs", `{"workflow":"w",`+body+`}`, http.StatusCreated)
		check.Equal(t, body, [2]any{got["startAt"], got["deadline"]}, want)
	}
}

func TestStartUsesNewestDeployment(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	want := func(body, deployment string) {
		t.Helper()
		if got := a.post(t, "/v1/runs", body, http.StatusCreated); got["deployment"] != deployment {
			t.Errorf("%s: got %v, want %s", body, got["deployment"], deployment)
		}
	}
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"order"}`, http.StatusNotFound, "deployment_not_found")
	a.put(t, "v1", `{"url":"http://v1.test","workflows":["order"]}`)
	a.put(t, "any", `{"url":"http://any.test"}`)
	want(`{"workflow":"order"}`, "v1")
	want(`{"workflow":"refund","deployment":"latest"}`, "any")
	a.put(t, "v2", `{"url":"http://v2.test","workflows":["order"]}`)
	want(`{"workflow":"order","deployment":"latest"}`, "v2")
	want(`{"workflow":"order","deployment":"v1"}`, "v1")
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"order","deployment":"v3"}`, 404, "deployment_not_found")

	// A repeated request finds its run even if the deployment is gone.
	body := `{"workflow":"order","idempotencyKey":"i"}`
	first := a.post(t, "/v1/runs", body, http.StatusCreated)
	for _, id := range []string{"v1", "v2", "any"} {
		a.do(t, http.MethodDelete, "/v1/deployments/"+id, "")
	}
	if again := a.post(t, "/v1/runs", body, http.StatusOK); again["id"] != first["id"] {
		t.Errorf("got %v, want %v", again["id"], first["id"])
	}
}

// TestRacingStartsUseTheNewestDeployment: another server registers deployments, and each start goes to one that is no
// older than the newest at its request. A removed deployment gets no run, however lately it had some.
func TestRacingStartsUseTheNewestDeployment(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	other := check.Value(queue.New(a.pool, migrations.DefaultSchema, a.hub))(t)
	var newest atomic.Int64
	put := func(n int64) {
		id := fmt.Sprintf("v%03d", n)
		if _, err := other.PutDeployment(t.Context(), entities.DefaultProject, id, "http://a.test", "order"); err != nil {
			t.Error(err)
		}
		newest.Store(n)
	}
	put(0)
	var racers sync.WaitGroup
	for range 8 {
		racers.Go(func() {
			for range 25 {
				least := newest.Load()
				got := a.post(t, "/v1/runs", `{"workflow":"order"}`, http.StatusCreated)
				if id := got["deployment"].(string); id < fmt.Sprintf("v%03d", least) {
					t.Errorf("a run went to %s when v%03d was there", id, least)
				}
			}
		})
	}
	for n := range int64(20) {
		put(n + 1)
	}
	racers.Wait()
	for n := range int64(20) {
		if err := other.RemoveDeployment(t.Context(), entities.DefaultProject, fmt.Sprintf("v%03d", n+1)); err != nil {
			t.Fatal(err)
		}
	}
	if got := a.post(t, "/v1/runs", `{"workflow":"order"}`, http.StatusCreated); got["deployment"] != "v000" {
		t.Errorf("a run went to %s, which is gone", got["deployment"])
	}
}

func TestIdempotencyKeyIdentifiesOneRequest(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	first := a.post(t, "/v1/runs", `{"workflow":"w","idempotencyKey":"i","input":{"a":1}}`, http.StatusCreated)
	again := a.post(t, "/v1/runs", `{ "input":{ "a" : 1 }, "workflow":"w","idempotencyKey":"i"}`, http.StatusOK)
	check.Equal(t, "again", again, first)
	for _, other := range []string{
		`"input":{"a":2}`, `"input":{"a":1},"delay":"1s"`, `"input":{"a":1},"startAt":"2026-11-22T01:41:43.197Z"`,
		`"input":{"a":1},"attributes":{"a":"b"}`, `"input":{"a":1},"deployment":"shop"`, `"input":null`, `"key":"k"`,
	} {
		a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"w","idempotencyKey":"i",`+other+`}`,
			http.StatusConflict, "idempotency_mismatch")
	}
	a.post(t, "/v1/runs", `{"workflow":"w","idempotencyKey":"j","startAt":"2026-11-22T01:41:43.197Z"}`, http.StatusCreated)
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"w","idempotencyKey":"j","startAt":"2026-11-23T01:41:43.197Z"}`,
		http.StatusConflict, "idempotency_mismatch")
	check.Equal(t, "runs", a.count(t, "runs"), 2)
}

func TestKeyIsUniqueAmongUnfinishedRuns(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	body := `{"workflow":"w","key":"k"}`
	first := a.post(t, "/v1/runs", body, http.StatusCreated)["id"].(string)
	a.wantRejected(t, http.MethodPost, "/v1/runs", body, http.StatusConflict, "key_taken")
	_, answer := a.do(t, http.MethodPost, "/v1/runs", `{"workflow":"w","key":"k","onConflict":"reject"}`)
	if details := answer["error"].(object)["details"].(object); details["runId"] != first || details["key"] != "k" {
		t.Errorf("details: got %v, want run %s", details, first)
	}
	join := `{"workflow":"w","key":"k","onConflict":"join","input":2}`
	if got := a.post(t, "/v1/runs", join, http.StatusOK); got["id"] != first || got["inputEncoding"] != "none" {
		t.Errorf("join: got %v, want run %s unchanged", got, first)
	}
	a.post(t, "/v1/runs", `{"workflow":"other","key":"k"}`, http.StatusCreated)
	a.post(t, "/v1/runs/"+first+"/cancel", "", http.StatusOK)
	if got := a.post(t, "/v1/runs", join, http.StatusCreated); got["id"] == first {
		t.Error("joined a run that has ended")
	}
}

func TestParentMustNotHaveEnded(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"w","parent":"wrun_x"}`, http.StatusNotFound, "run_not_found")
	ended := a.driven(t, "w")
	a.event(t, ended, entities.EventRunCompleted)
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"w","parent":"`+string(ended)+`"}`, http.StatusGone, "run_ended")
	check.Equal(t, "runs", a.count(t, "runs"), 1)
}

func TestInvalidStartsAreRejected(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	for _, body := range []string{
		``, `{}`, `[]`, `{"workflow":""}`, `{"workflow":1}`, `{"workflow":"a\u0000"}`, `{"workflow":"` + strings.Repeat("x", 1025) + `"}`,
		`{"workflow":"w","delay":"1h","startAt":"2026-11-22T01:41:43.197Z"}`, `{"workflow":"w","delay":"-1s"}`,
		`{"workflow":"w","delay":"1"}`, `{"workflow":"w","delay":"87601h"}`, `{"workflow":"w","startAt":"tomorrow"}`,
		`{"workflow":"w","startAt":null}`, `{"workflow":"w","startAt":"2036-11-30T00:00:00Z"}`, `{"workflow":"w","timeout":"0s"}`,
		`{"workflow":"w","timeout":"x"}`, `{"workflow":"w","timeoutGrace":"1m"}`,
		`{"workflow":"w","timeout":"1h","timeoutGrace":"x"}`, `{"workflow":"w","onConflict":"join"}`, `{"workflow":"w","key":"k","onConflict":"steal"}`,
		`{"workflow":"w","key":"a\u0000"}`, `{"workflow":"w","idempotencyKey":"` + strings.Repeat("x", 1025) + `"}`,
		`{"workflow":"w","deployment":"a/b"}`, `{"workflow":"w","attributes":{"$a":"1"}}`, `{"workflow":"w","attributes":{"a":null}}`,
		`{"workflow":"w","runId":"wrun_1"}`, `{"workflow":"w","Input":1}`, `{"workflow":"w","parent":"a b"}`,
		`{"workflow":"w","input":}`, `{"workflow":"w","input":1}x`,
	} {
		a.wantRejected(t, http.MethodPost, "/v1/runs", body, http.StatusBadRequest, "invalid_request")
	}
	for _, table := range []string{"runs", "events", "messages"} {
		check.Equal(t, table, a.count(t, table), 0)
	}
}

// TestConcurrentStartsCreateOneRun checks requests with the same idempotency key, the same key, and both.
func TestConcurrentStartsCreateOneRun(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	for name, tt := range map[string]struct {
		body string
		want map[int]int
	}{
		"idempotency key": {`{"workflow":"a","idempotencyKey":"i"}`, map[int]int{201: 1, 200: racers - 1}},
		"key":             {`{"workflow":"b","key":"k"}`, map[int]int{201: 1, 409: racers - 1}},
		"key, to join":    {`{"workflow":"c","key":"k","onConflict":"join"}`, map[int]int{201: 1, 200: racers - 1}},
		"both":            {`{"workflow":"d","key":"k","idempotencyKey":"j"}`, map[int]int{201: 1, 200: racers - 1}},
	} {
		statuses, answers := a.race(t, "/v1/runs", tt.body)
		if diff := cmp.Diff(tt.want, statuses); diff != "" {
			t.Errorf("%s (-want +got):\n%s%v", name, diff, answers)
		}
		seen := map[any]bool{}
		for _, answer := range answers {
			if id, ok := answer["id"]; ok {
				seen[id] = true
			}
		}
		if len(seen) != 1 {
			t.Errorf("%s: got runs %v, want one", name, seen)
		}
	}
	check.Equal(t, "runs", a.count(t, "runs"), 4)
}

// TestJoinAlwaysReturnsARun checks requests that join a run while it ends.
func TestJoinAlwaysReturnsARun(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	for range 5 {
		first := a.post(t, "/v1/runs", `{"workflow":"w","key":"k","onConflict":"join"}`, http.StatusCreated)["id"].(string)
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.post(t, "/v1/runs/"+first+"/cancel", "", http.StatusOK)
		}()
		statuses, answers := a.race(t, "/v1/runs", `{"workflow":"w","key":"k","onConflict":"join"}`)
		<-done
		if statuses[200]+statuses[201] != racers || statuses[201] > 1 {
			t.Errorf("got %v %v", statuses, answers)
		}
		a.post(t, "/v1/runs/cancel", `{"workflow":"w"}`, http.StatusOK)
	}
}

// TestFailedStartLeavesNoTrace checks a failure of the last write, which is the first task.
func TestFailedStartLeavesNoTrace(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	a.exec(t, `ALTER TABLE messages ADD CONSTRAINT none CHECK (work <> 'deadline') NOT VALID`)
	body := `{"workflow":"w","key":"k","idempotencyKey":"i","attributes":{"a":"b"},"timeout":"1h"}`
	a.wantRejected(t, http.MethodPost, "/v1/runs", body, http.StatusInternalServerError, "internal")
	for _, table := range []string{"runs", "events", "run_attributes", "messages", "river_job"} {
		check.Equal(t, table, a.count(t, table), 0)
	}
	a.exec(t, `ALTER TABLE messages DROP CONSTRAINT none`)
	a.post(t, "/v1/runs", body, http.StatusCreated)
}

func TestRerunServerDrivenRun(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	parent := a.driven(t, "w")
	first := a.post(t, "/v1/runs", `{"workflow":"w","input":{"a":1},"attributes":{"a":"b"},"delay":"1h","timeout":"2h",
		"idempotencyKey":"i","parent":"`+string(parent)+`"}`, http.StatusCreated)["id"].(string)
	a.do(t, http.MethodPatch, "/v1/runs/"+first+"/attributes", `{"attributes":{"a":"changed"}}`)
	a.put(t, "new", `{"url":"http://new.test","workflows":["w"]}`)
	path := "/v1/runs/" + first + "/rerun"
	form := func(id any, deployment string) string {
		return `{"id":"` + id.(string) + `","workflow":"w","deployment":"` + deployment + `","driver":"server","status":"pending",
			"attributes":{"a":"b"},"createdAt":"` + at0 + `","deadline":"2026-11-21T03:41:43.197Z","lastSeq":1,
			"input":{"a":1},"inputEncoding":"json"}`
	}
	again := a.post(t, path, "", http.StatusCreated)
	same(t, "rerun", form(again["id"], "shop"), again)
	fixed := a.post(t, path, `{"deployment":"latest","idempotencyKey":"r"}`, http.StatusCreated)
	same(t, "rerun on another deployment", form(fixed["id"], "new"), fixed)
	if got := a.post(t, path, `{"deployment":"latest","idempotencyKey":"r"}`, http.StatusOK); got["id"] != fixed["id"] {
		t.Errorf("repeated: got %v, want %v", got["id"], fixed["id"])
	}
	a.wantRejected(t, http.MethodPost, path, `{"idempotencyKey":"r"}`, http.StatusConflict, "idempotency_mismatch")
	a.wantRejected(t, http.MethodPost, path, `{"deployment":"none"}`, http.StatusNotFound, "deployment_not_found")
	a.wantRejected(t, http.MethodPost, path, `{"input":1}`, http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodPost, "/v1/runs/wrun_x/rerun", "", http.StatusNotFound, "run_not_found")
	if again["id"] == first || again["id"] == fixed["id"] {
		t.Error("a rerun has the ID of another run")
	}
}

func TestRerunNeedsTheRunsKey(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	first := a.post(t, "/v1/runs", `{"workflow":"w","key":"k"}`, http.StatusCreated)["id"].(string)
	path := "/v1/runs/" + first + "/rerun"
	a.wantRejected(t, http.MethodPost, path, "", http.StatusConflict, "key_taken")
	a.post(t, "/v1/runs/"+first+"/cancel", "", http.StatusOK)
	if got := a.post(t, path, "", http.StatusCreated); got["key"] != "k" {
		t.Errorf("got key %v", got["key"])
	}
}

// TestRerunClientDrivenRun checks that a message starts the new run, as for every run of the Workflow SDK.
func TestRerunClientDrivenRun(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	first := a.sdkRun(t, "w", func(r *eventlog.Request) {
		r.Extra = []byte("\xa1\x61x\x01")
		r.Data.Attributes, r.Data.AllowReserved = map[string]string{"$a": "b"}, true
	})
	got := a.post(t, "/v1/runs/"+string(first)+"/rerun", `{"idempotencyKey":"r"}`, http.StatusCreated)
	id := entities.RunID(got["id"].(string))
	if got["driver"] != "client" || got["status"] != "pending" || got["inputEncoding"] != "opaque" {
		t.Errorf("got %v", got)
	}
	event := func(id entities.RunID) entities.Event {
		t.Helper()
		page, err := a.log.Events(t.Context(), entities.DefaultProject, id, pg.Page{Limit: 9}, read.WithPayloads)
		if err != nil || len(page.Events) != 1 {
			t.Fatalf("got %d events and error %v", len(page.Events), err)
		}
		e := page.Events[0]
		e.RunID, e.Data.IdempotencyKey, e.Data.RequestDigest = "", "", ""
		return e
	}
	check.Equal(t, "the first event", event(id), event(first))
	check.Equal(t, "messages", a.work(t, id), map[message.Work]int{"": 1})
	sent, _, err := a.queue.Messages(t.Context(), entities.DefaultProject, queue.Filter{RunID: id}, pg.Page{Limit: 1})
	if err != nil || len(sent) != 1 || a.count(t, "messages WHERE begins_run AND id = '"+sent[0].ID+"'") != 1 {
		t.Errorf("the message does not begin a run: %+v, error %v", sent, err)
	}
	a.post(t, "/v1/runs/"+string(first)+"/rerun", `{"idempotencyKey":"r"}`, http.StatusOK)
	check.Equal(t, "messages", a.count(t, "messages"), 1)
}

// startAndWait starts a run, and prefers to wait for its end.
func (a api) startAndWait(t *testing.T, body string) (answered chan *httptest.ResponseRecorder) {
	t.Helper()
	answered = make(chan *httptest.ResponseRecorder, 1)
	r := httptest.NewRequest(http.MethodPost, "/v1/runs", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Prefer", "respond-async, wait=600")
	go func() {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		answered <- w
	}()
	return answered
}

// TestStartsWaitForTheEnd: the ends of many runs, which come as soon as the runs are there, are noticed by those who
// have started them, and by those who have repeated the start. Nothing polls here.
func TestStartsWaitForTheEnd(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	a.log.EndPoll = time.Hour
	const runs = 32
	statuses := map[int]int{}
	var waiting []chan *httptest.ResponseRecorder
	for n := range runs {
		waiting = append(waiting, a.startAndWait(t, fmt.Sprintf(`{"workflow":"w","idempotencyKey":"%d"}`, n/2)))
	}
	for ended := 0; ended < runs/2; {
		for _, run := range a.all(t, "/v1/runs?status=pending", "100") {
			a.event(t, entities.RunID(run["id"].(string)), entities.EventRunCompleted, with(`"done"`))
			ended++
		}
	}
	for _, answered := range waiting {
		w := <-answered
		statuses[w.Code]++
		if got := w.Body.String(); !strings.Contains(got, `"output":"done"`) || w.Header().Get("Preference-Applied") != "wait" {
			t.Errorf("got %d %v %s, want a run that has ended", w.Code, w.Header(), got)
		}
	}
	if statuses[http.StatusCreated] != runs/2 || statuses[http.StatusOK] != runs/2 {
		t.Errorf("got statuses %v", statuses)
	}
}

// TestStartsDoNotWaitForAServerThatStops, and answer with the unfinished run.
func TestStartsDoNotWaitForAServerThatStops(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	answered := a.startAndWait(t, `{"workflow":"w"}`)
	a.drain()
	if w := <-answered; w.Code != http.StatusCreated || !strings.Contains(w.Body.String(), `"status":"pending"`) ||
		w.Header().Get("Location") == "" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}
