package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func TestDebouncedStarts(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	const rule = `"debounce":{"key":"customer-7","quiet":"10s","max":"10m"}`
	first := a.post(t, "/v1/runs", `{"workflow":"sync","input":{"a":1},"attributes":{"b":"c"},`+rule+`}`, http.StatusAccepted)
	id := first["id"].(string)
	form := func(count, bytes int, more string) string {
		return fmt.Sprintf(`{"id":%q,"status":"collecting","workflow":"sync","count":%d,"bytes":%d,"firstAt":%q,
			"lastAt":%q,"dueAt":"2026-11-21T01:41:53.197Z","debounce":{"key":"customer-7","quiet":"10s","max":"10m","keep":"last"}
			%s}`,
			id, count, bytes, at0, at0, more)
	}
	same(t, "first", form(1, 7, `,"attributes":{"b":"c"}`), first)
	body := `{"workflow":"sync","input":{"a":22},"key":"k","timeout":"30m","deployment":"shop","idempotencyKey":"i",` + rule + `}`
	second := form(2, 8, `,"key":"k","timeout":"30m","deployment":"shop"`)
	for range 2 { // the second is a repetition
		same(t, "another", second, a.post(t, "/v1/runs", body, http.StatusAccepted))
	}
	a.wantRejected(t, http.MethodPost, "/v1/runs", strings.Replace(body, "22", "23", 1), http.StatusConflict, "idempotency_mismatch")
	for _, path := range []string{"/v1/runs/" + id, "/v1/runs/" + id + "/wait?timeout=0s"} {
		same(t, path, second, a.send(t, http.MethodGet, path, "", http.StatusAccepted))
	}
	for method, path := range map[string]string{http.MethodGet: "/why", http.MethodPost: "/cancel"} {
		a.wantRejected(t, method, "/v1/runs/"+id+path, "", http.StatusNotFound, "run_collecting")
	}
	if list := a.all(t, "/v1/collections", "1"); len(list) != 1 || list[0]["id"] != id {
		t.Errorf("got the collections %v", list)
	}
	if why := fmt.Sprint(a.get(t, "/v1/collections/"+id)["why"]); !strings.Contains(why, "kind:collecting") || !strings.Contains(why, "2 so far") {
		t.Errorf("got the reasons %s", why)
	}

	// Who waits for the run hears of its start.
	ended := make(chan object)
	go func() { ended <- a.get(t, "/v1/runs/"+id+"/wait?timeout=60s") }()
	run := a.post(t, "/v1/collections/"+id+"/flush", "", http.StatusCreated)
	same(t, "flushed", `{"id":"`+id+`","workflow":"sync","deployment":"shop","driver":"server","status":"pending",
		"attributes":{"$collected":"debounce"},"key":"k","createdAt":"`+at0+`","deadline":"2026-11-21T02:11:43.197Z","lastSeq":1,"input":{"a":22},
		"inputEncoding":"json"}`, run)
	if again := a.post(t, "/v1/runs", body, http.StatusOK); again["id"] != id {
		t.Errorf("repeated after the start: got %v", again)
	}
	a.post(t, "/v1/runs/"+id+"/cancel", "", http.StatusOK)
	if got := <-ended; got["status"] != "cancelled" {
		t.Errorf("the wait ended with %v", got)
	}
	a.wantRejected(t, http.MethodPost, "/v1/collections/"+id+"/flush", "", http.StatusNotFound, "collection_not_found")
}

func TestBatchedStarts(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	body := func(input, key string) string {
		return `{"workflow":"import","input":` + input + `,"idempotencyKey":"` + key + `","batch":{"size":3,"wait":"1m","bytes":100}}`
	}
	first := a.post(t, "/v1/runs", body(`1`, "a"), http.StatusAccepted)
	id := first["id"].(string)
	same(t, "first", `{"id":"`+id+`","status":"collecting","workflow":"import","count":1,"bytes":3,"firstAt":"`+at0+`",
		"lastAt":"`+at0+`","dueAt":"2026-11-21T01:42:43.197Z","batch":{"size":3,"wait":"1m","bytes":100}}`, first)
	a.post(t, "/v1/runs", body(`[2]`, "b"), http.StatusAccepted)
	if run := a.post(t, "/v1/runs", body(`{"c":3}`, "c"), http.StatusCreated); run["id"] != id || fmt.Sprint(run["input"]) != "[1 [2] map[c:3]]" {
		t.Errorf("the last start: got %v", run)
	}
	for _, repeated := range []string{body(`1`, "a"), body(`{"c":3}`, "c")} {
		if got := a.post(t, "/v1/runs", repeated, http.StatusOK); got["id"] != id {
			t.Errorf("repeated: got %v", got)
		}
	}
	other := a.post(t, "/v1/runs", body(`4`, "d"), http.StatusAccepted)["id"].(string)
	a.send(t, http.MethodDelete, "/v1/collections/"+other, "", http.StatusNoContent)
	a.wantRejected(t, http.MethodGet, "/v1/runs/"+other, "", http.StatusNotFound, "run_not_found")
	a.wantRejected(t, http.MethodGet, "/v1/runs/"+other+"/wait", "", http.StatusNotFound, "run_not_found")
	a.wantRejected(t, http.MethodGet, "/v1/collections/"+other, "", http.StatusNotFound, "collection_not_found")
	a.wantRejected(t, http.MethodDelete, "/v1/collections/"+other, "", http.StatusNotFound, "collection_not_found")
	check.Equal(t, "runs", a.count(t, "runs"), 1)
}

// TestWaitSeesTheDropOfItsRun waits for a run that will never be.
func TestWaitSeesTheDropOfItsRun(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	a.log.EndPoll = 10 * time.Millisecond
	id := a.post(t, "/v1/runs", `{"workflow":"w","batch":{"size":3,"wait":"1m"}}`, http.StatusAccepted)["id"].(string)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.wantRejected(t, http.MethodGet, "/v1/runs/"+id+"/wait?timeout=60s", "", http.StatusNotFound, "run_not_found")
	}()
	a.send(t, http.MethodDelete, "/v1/collections/"+id, "", http.StatusNoContent)
	<-done
}

func TestInvalidCollectedStartsAreRejected(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	const debounce, batch = `"debounce":{"quiet":"10s"}`, `"batch":{"size":3,"wait":"1m"}`
	for _, fields := range []string{
		debounce + `,` + batch, debounce + `,"key":"k","onConflict":"join"`, batch + `,"key":"k","onConflict":"reject"`,
		debounce + `,"delay":"1s"`, batch + `,"startAt":"2026-11-22T01:41:43.197Z"`, batch + `,"parent":"wrun_1"`,
		batch + `,"inbox":["a"]`, debounce + `,"attributes":{"$a":"b"}`, debounce + `,"timeout":"x"`,
		debounce + `,"deployment":"a/b"`, `"debounce":{}`, `"debounce":{"quiet":"1"}`, `"debounce":{"quiet":"10s","max":"5s"}`,
		`"debounce":{"quiet":"10s","keep":"some"}`, `"debounce":{"quiet":"10s","size":3}`, `"batch":{"size":3}`,
		`"batch":{"wait":"1m"}`, `"batch":{"size":1001,"wait":"1m"}`, `"batch":{"size":3,"wait":"1m","bytes":8388609}`,
		`"batch":{"size":3,"wait":"1m","bytes":1},"input":1`,
	} {
		a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"w",`+fields+`}`, http.StatusBadRequest, "invalid_request")
	}
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"",`+batch+`}`, http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodPost, "/v1/runs", `{"workflow":"w","deployment":"none",`+batch+`}`,
		http.StatusNotFound, "deployment_not_found")
	check.Equal(t, "collections", a.count(t, "collections"), 0)
}
