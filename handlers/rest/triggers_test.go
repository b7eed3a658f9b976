package rest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func TestTriggers(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	const path = "/v1/triggers/receipts"
	const body = `{"on":{"signal":{"name":"order.paid","condition":"data.amount > 100"}},"start":{"workflow":"report","timeout":"90m","key":"k","onConflict":"join"}}`
	a.wantRejected(t, http.MethodPut, path, body, http.StatusNotFound, "deployment_not_found")
	a.send(t, http.MethodPut, "/v1/deployments/app", `{"url":"http://app.test","workflows":["report"]}`, http.StatusOK)
	status, created := a.do(t, http.MethodPut, path, body)
	if want := "map[key:k onConflict:join timeout:1h30m workflow:report]"; status != http.StatusCreated || fmt.Sprint(created["start"]) != want {
		t.Fatalf("got %d %v, want to start %s", status, created, want)
	}
	a.send(t, http.MethodPut, path, body, http.StatusOK)
	if got := a.get(t, path); fmt.Sprint(got["on"]) != "map[signal:map[condition:data.amount > 100 name:order.paid]]" || got["last"] != nil {
		t.Errorf("got %v", got)
	}

	if status, got := a.do(t, http.MethodPost, path+"/pause", `{"note":"we move"}`); status != http.StatusOK || got["pauseNote"] != "we move" {
		t.Errorf("pause: got %d %v", status, got)
	}
	if status, got := a.do(t, http.MethodPost, path+"/resume", ""); status != http.StatusOK || got["pausedAt"] != nil {
		t.Errorf("resume: got %d %v", status, got)
	}

	status, hook := a.do(t, http.MethodPut, "/v1/triggers/hook", `{"on":{"webhook":{"condition":"data.body.ok"}},"start":{"workflow":"report"}}`)
	url, _ := hook["path"].(string)
	if status != http.StatusCreated || !strings.HasPrefix(url, "/hooks/trg_") {
		t.Fatalf("got %d %v", status, hook)
	}
	for _, body := range []string{`{"ok":true}`, `{"ok":false}`} {
		if w := a.serve(http.MethodPost, url, body); w.Code != http.StatusAccepted {
			t.Errorf("%s: got %d %s", body, w.Code, w.Body)
		}
	}
	if last, ok := a.get(t, "/v1/triggers/hook")["last"].([]any); !ok || len(last) != 2 {
		t.Errorf("got the last events %v, want both", last)
	}
	var decisions []string
	for _, e := range a.all(t, "/v1/triggers/hook/history", "1") {
		decisions = append(decisions, fmt.Sprint(e["decision"], " ", e["reason"]))
		if e["decision"] == "started" {
			run := a.get(t, fmt.Sprint("/v1/runs/", e["runId"]))
			check.Equal(t, "the run", fmt.Sprint(run["attributes"]), fmt.Sprintf("map[$trigger:hook $triggerEvent:%s]", e["event"]))
		}
	}
	if got, want := fmt.Sprint(decisions), "[skipped the condition is false: data.body.ok started <nil>]"; got != want {
		t.Errorf("got the history %s, want %s", got, want)
	}

	check.Equal(t, "the triggers", a.names(t, "/v1/triggers"), "hook receipts")
	a.send(t, http.MethodDelete, path, "", http.StatusNoContent)
	for _, rest := range []string{"", "/history"} {
		a.wantRejected(t, http.MethodGet, path+rest, "", http.StatusNotFound, "trigger_not_found")
	}
	check.Equal(t, "audit", a.audited(t, "receipts"), "trigger.remove trigger.resume trigger.pause trigger.put")
}

// TestTriggerOptions: what a start says besides is stored, and the same again changes nothing.
func TestTriggerOptions(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.send(t, http.MethodPut, "/v1/deployments/app", `{"url":"http://app.test","workflows":["report"]}`, http.StatusOK)
	for _, start := range []string{
		`{"workflow":"report","idempotencyKey":"${data.order}","delay":"1m","limits":[{"name":"stripe","key":"${data.customer}","cost":2}],"priority":"-10m"}`,
		`{"workflow":"report","debounce":{"key":"${data.customer}","quiet":"10s","max":"1m","keep":"all"}}`,
		`{"workflow":"report","batch":{"size":3,"wait":"1h","bytes":1000}}`,
	} {
		body := `{"on":{"signal":{"name":"order.paid"}},"start":` + start + `}`
		if status, got := a.do(t, http.MethodPut, "/v1/triggers/t", body); status > http.StatusCreated {
			t.Fatalf("%s: got %d %v", start, status, got)
		}
		first := a.get(t, "/v1/triggers/t")
		got := check.Value(json.Marshal(first["start"]))(t)
		var want, is any
		if err := errors.Join(json.Unmarshal([]byte(start), &want), json.Unmarshal(got, &is)); err != nil || !reflect.DeepEqual(want, is) {
			t.Errorf("got  %s\nwant %s, %v", got, start, err)
		}
		if _, again := a.do(t, http.MethodPut, "/v1/triggers/t", body); again["updatedAt"] != first["updatedAt"] {
			t.Errorf("the same again: got %v", again)
		}
	}
}

func TestBadTriggersAreRejected(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.send(t, http.MethodPut, "/v1/deployments/app", `{"url":"http://app.test","workflows":["report"]}`, http.StatusOK)
	const start = `"start":{"workflow":"report"}`
	for field, bodies := range map[string][]string{
		"on":                   {`{` + start + `}`, `{"on":{"signal":{"name":"a"},"webhook":{}},` + start + `}`},
		"on.signal.name":       {`{"on":{"signal":{}},` + start + `}`},
		"on.signal.condition":  {`{"on":{"signal":{"name":"a","condition":"nothing"}},` + start + `}`},
		"on.webhook":           {`{"on":{"webhook":{"verify":"github"}},` + start + `}`},
		"on.runEnded.statuses": {`{"on":{"runEnded":{"workflow":"a","statuses":["running"]}},` + start + `}`},
		"on.runEnded.workflow": {`{"on":{"runEnded":{}},` + start + `}`},
		"start.workflow":       {`{"on":{"webhook":{}},"start":{}}`},
		"start.deployment":     {`{"on":{"webhook":{}},"start":{"workflow":"report","deployment":"a b"}}`},
		"start.onConflict":     {`{"on":{"webhook":{}},"start":{"workflow":"report","onConflict":"wait"}}`, `{"on":{"webhook":{}},"start":{"workflow":"report","onConflict":"join"}}`},
		"start.timeout":        {`{"on":{"webhook":{}},"start":{"workflow":"report","timeout":"soon"}}`},
		"start.attributes":     {`{"on":{"webhook":{}},"start":{"workflow":"report","attributes":{"$a":"b"}}}`},
		"start.input":          {`{"on":{"webhook":{}},"start":{"workflow":"report","input":["${data.}"]}}`},
		"start.key":            {`{"on":{"webhook":{}},"start":{"workflow":"report","key":"${input.a}"}}`},
		"start.limits":         {`{"on":{"webhook":{}},"start":{"workflow":"report","limits":[{"name":"a"},{"name":"a"}]}}`},
		"start.priority":       {`{"on":{"webhook":{}},"start":{"workflow":"report","priority":"high"}}`},
		"start.delay":          {`{"on":{"webhook":{}},"start":{"workflow":"report","delay":"1h","batch":{"size":2,"wait":"1m"}}}`},
		"start.debounce.quiet": {`{"on":{"webhook":{}},"start":{"workflow":"report","debounce":{"quiet":"soon"}}}`},
		"start.batch":          {`{"on":{"webhook":{}},"start":{"workflow":"report","debounce":{"quiet":"1m"},"batch":{"size":2,"wait":"1m"}}}`},
	} {
		for _, body := range bodies {
			status, got := a.do(t, http.MethodPut, "/v1/triggers/t", body)
			if status != http.StatusBadRequest || !strings.Contains(fmt.Sprint(got), "field:"+field+"]") {
				t.Errorf("%s: got %d %v, want field %s", body, status, got, field)
			}
		}
	}
	if got := a.all(t, "/v1/triggers", "10"); len(got) != 0 {
		t.Errorf("got the triggers %v", got)
	}
}
