package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

const racers = 8

// race posts a request concurrently, and counts the responses by status.
func (a api) race(t *testing.T, path, body string) (statuses map[int]int, answers []object) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	statuses = map[int]int{}
	for range racers {
		all.Go(func() {
			status, answer := a.do(t, http.MethodPost, path, body)
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
			answers = append(answers, answer)
		})
	}
	all.Wait()
	return statuses, answers
}

func (a api) post(t *testing.T, path, body string, want int) object {
	t.Helper()
	return a.send(t, http.MethodPost, path, body, want)
}

func TestCancelRun(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for name, id := range map[string]entities.RunID{"of the server": a.driven(t, "w"), "of a client": a.sdkRun(t, "w")} {
		path := "/v1/runs/" + string(id)
		got := a.post(t, path+"/cancel", `{"reason":"twice"}`, http.StatusOK)
		if got["status"] != "cancelled" || got["cancelReason"] != "twice" || got["completedAt"] != at0 {
			t.Errorf("%s: got %v", name, got)
		}
		check.Equal(t, fmt.Sprintf("%s: repeated", name), a.post(t, path+"/cancel", `{"reason":"again"}`, http.StatusOK), got)
	}
	done := a.driven(t, "w")
	a.event(t, done, entities.EventRunCompleted)
	path := "/v1/runs/" + string(done) + "/cancel"
	a.wantRejected(t, http.MethodPost, path, "", http.StatusGone, "run_ended")
	_, answer := a.do(t, http.MethodPost, path, "")
	check.Equal(t, "details: status", answer["error"].(object)["details"].(object)["status"], "completed")
	a.wantRejected(t, http.MethodPost, "/v1/runs/wrun_x/cancel", "", http.StatusNotFound, "run_not_found")
	for _, body := range []string{`{"reason":"a\u0000"}`, `{"reason":"` + strings.Repeat("x", 1025) + `"}`, `{"why":"x"}`, `[]`} {
		a.wantRejected(t, http.MethodPost, "/v1/runs/"+string(a.driven(t, "w"))+"/cancel", body, 400, "invalid_request")
	}
}

// TestCancelWithGrace asks a run that has started, and shows when it is ended. Others end at once or cannot be asked.
func TestCancelWithGrace(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	running := a.driven(t, "w")
	a.event(t, running, entities.EventRunStarted)
	path := "/v1/runs/" + string(running)
	got := a.post(t, path+"/cancel", `{"reason":"twice","grace":"1m"}`, http.StatusOK)
	if got["status"] != "running" || got["forcedAt"] != "2026-11-21T01:42:43.197Z" || got["completedAt"] != nil {
		t.Errorf("got %v, want it asked", got)
	}
	got = a.post(t, path+"/cancel", `{"grace":"1s"}`, http.StatusOK)
	if got["forcedAt"] != "2026-11-21T01:41:44.197Z" {
		t.Errorf("got %v, want a shorter grace", got)
	}
	if got = a.post(t, path+"/cancel", `{"grace":"0s"}`, http.StatusOK); got["status"] != "cancelled" {
		t.Errorf("got %v, want it cancelled at once", got)
	}
	if got := a.post(t, path+"/cancel", `{"grace":"1m"}`, http.StatusOK); got["status"] != "cancelled" {
		t.Errorf("got %v, want it unchanged", got)
	}
	pending := a.driven(t, "w")
	if got := a.post(t, "/v1/runs/"+string(pending)+"/cancel", `{"grace":"1m"}`, http.StatusOK); got["status"] != "cancelled" {
		t.Errorf("got %v, want it cancelled at once", got)
	}
	a.wantRejected(t, http.MethodPost, "/v1/runs/"+string(a.sdkRun(t, "w"))+"/cancel", `{"grace":"1m"}`,
		http.StatusConflict, "grace_unsupported")
	for _, body := range []string{`{"grace":"soon"}`, `{"grace":"-1s"}`, `{"grace":60}`, `{"grace":"100000h"}`} {
		a.wantRejected(t, http.MethodPost, "/v1/runs/"+string(a.driven(t, "w"))+"/cancel", body, 400, "invalid_request")
	}
}

func TestCancelMatchingRuns(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	var orders []any
	for i := range 5 {
		orders = append(orders, string(a.driven(t, "order", data(func(d *entities.EventData) {
			d.Attributes = map[string]string{"n": fmt.Sprint(i)}
		}))))
	}
	refund := a.driven(t, "refund")
	done := a.driven(t, "order")
	a.event(t, done, entities.EventRunCompleted)
	want := func(body string, matched, cancelled int, more bool, ids ...any) {
		t.Helper()
		if ids == nil {
			ids = []any{}
		}
		got := a.post(t, "/v1/runs/cancel", body, http.StatusOK)
		expected := object{"matched": float64(matched), "cancelled": float64(cancelled), "more": more, "runIds": ids}
		check.Equal(t, body, got, expected)
	}
	want(`{"workflow":"order","dryRun":true}`, 5, 0, false, orders...)
	want(`{"workflow":"order","dryRun":true,"limit":2}`, 2, 0, true, orders[:2]...)
	want(`{"createdBefore":"`+at0+`","dryRun":true}`, 0, 0, false)
	want(`{"createdAfter":"`+at0+`","dryRun":true}`, 6, 0, false, append(orders[:5:5], string(refund))...)
	want(`{"attributes":{"n":"3"},"reason":"wrong"}`, 1, 1, false, orders[3])
	want(`{"workflow":"order","status":"running"}`, 0, 0, false)
	want(`{"workflow":"order","limit":3}`, 3, 3, true, orders[0], orders[1], orders[2])
	want(`{"workflow":"order"}`, 1, 1, false, orders[4])
	want(`{"workflow":"order"}`, 0, 0, false)
	if got := a.get(t, "/v1/runs/"+orders[3].(string)); got["cancelReason"] != "wrong" {
		t.Errorf("got %v, want it cancelled with a reason", got)
	}
	if got := ids(a.all(t, "/v1/runs?status=pending", "10")); len(got) != 1 || got[0] != refund {
		t.Errorf("remaining: %v, want %v", got, refund)
	}
	if got := ids(a.all(t, "/v1/runs?status=completed", "10")); len(got) != 1 || got[0] != done {
		t.Errorf("completed: %v, want %v", got, done)
	}
	for _, body := range []string{
		`{}`, ``, `{"dryRun":true}`, `{"reason":"x"}`, `{"attributes":{}}`, `{"workflow":"w","limit":0}`,
		`{"workflow":"w","limit":1001}`, `{"workflow":"w","limit":null}`, `{"status":"completed"}`, `{"status":"lost"}`, `{"createdBefore":"now"}`,
		`{"createdBefore":null}`, `{"workflow":"w","reason":"a\u0000"}`, `{"workflow":["w"]}`, `{"parentId":"a/b"}`,
	} {
		a.wantRejected(t, http.MethodPost, "/v1/runs/cancel", body, http.StatusBadRequest, "invalid_request")
	}
}

// TestConcurrentBulkCancels checks that each run is counted once.
func TestConcurrentBulkCancels(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	const runs = 20
	for range runs {
		a.driven(t, "order")
	}
	statuses, answers := a.race(t, "/v1/runs/cancel", `{"workflow":"order"}`)
	cancelled := 0.0
	for _, answer := range answers {
		n, _ := answer["cancelled"].(float64)
		cancelled += n
	}
	if statuses[http.StatusOK] != racers || cancelled != runs {
		t.Errorf("got %v, and %v cancelled; want %d", statuses, cancelled, runs)
	}
}

func TestSetAttributes(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.sdkRun(t, "w", data(func(d *entities.EventData) { d.Attributes = map[string]string{"keep": "1", "drop": "2"} }))
	path := "/v1/runs/" + string(id) + "/attributes"
	status, got := a.do(t, http.MethodPatch, path, `{"attributes":{"drop":null,"none":null,"new":"é"}}`)
	if diff := cmp.Diff(object{"attributes": object{"keep": "1", "new": "é"}}, got); status != http.StatusOK || diff != "" {
		t.Errorf("got %d (-want +got):\n%s", status, diff)
	}
	check.Equal(t, "read again", a.get(t, path), got)
	for _, body := range []string{
		``, `{}`, `{"attributes":{}}`, `{"attributes":null}`, `{"attributes":{"a":1}}`, `{"attributes":{"$a":"1"}}`,
		`{"attributes":{"":"1"}}`, `{"attributes":{"a":"1","a":"2"}}`, `{"attributes":[]}`, `{"a":"1"}`,
		`{"attributes":{"a":"` + strings.Repeat("x", 257) + `"}}`,
	} {
		a.wantRejected(t, http.MethodPatch, path, body, http.StatusBadRequest, "invalid_request")
	}
	a.event(t, id, entities.EventRunCompleted)
	a.wantRejected(t, http.MethodPatch, path, `{"attributes":{"a":"1"}}`, http.StatusGone, "run_ended")
	a.wantRejected(t, http.MethodPatch, "/v1/runs/wrun_x/attributes", `{"attributes":{"a":"1"}}`, 404, "run_not_found")
}

// TestConcurrentAttributeChanges checks that no change is lost.
func TestConcurrentAttributeChanges(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	path := "/v1/runs/" + string(a.driven(t, "w")) + "/attributes"
	var all sync.WaitGroup
	var failed atomic.Int32
	for i := range racers {
		all.Go(func() {
			if status, _ := a.do(t, http.MethodPatch, path, fmt.Sprintf(`{"attributes":{"k%d":"v"}}`, i)); status != 200 {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	if got := a.get(t, path)["attributes"].(object); len(got) != racers || failed.Load() > 0 {
		t.Errorf("got %v, and %d failed", got, failed.Load())
	}
}
