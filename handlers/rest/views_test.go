package rest_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

func TestViews(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	const path = "/v1/views/failed%20today"
	view := func(columns, orderBy string) string {
		return `{"name":"failed today","filter":"status:failed","columns":` + columns + `,"orderBy":"` + orderBy + `",
			"createdAt":"` + at0 + `","updatedAt":"` + at0 + `"}`
	}
	a.wantRejected(t, http.MethodGet, path, "", http.StatusNotFound, "view_not_found")
	status, got := a.do(t, http.MethodPut, path, `{"filter":"status:failed"}`)
	if status != http.StatusOK {
		t.Fatalf("got %d %v", status, got)
	}
	same(t, "created", view(`[]`, "created"), any(got))
	_, got = a.do(t, http.MethodPut, path, `{"filter":"status:failed","columns":["status","attribute.customer"],"orderBy":"ended"}`)
	want := view(`["status","attribute.customer"]`, "ended")
	same(t, "replaced", want, any(got))
	same(t, "one", want, any(a.get(t, path)))
	same(t, "list", `[`+want+`]`, a.get(t, "/v1/views")["data"])
	for _, body := range []string{`{"orderBy":"name"}`, `{"columns":[""]}`, `{"filter":"a\u0000b"}`, `{"name":"x"}`} {
		a.wantRejected(t, http.MethodPut, path, body, http.StatusBadRequest, "invalid_request")
	}
	if status, got := a.do(t, http.MethodDelete, path, ""); status != http.StatusNoContent {
		t.Errorf("got %d %v", status, got)
	}
	a.wantRejected(t, http.MethodDelete, path, "", http.StatusNotFound, "view_not_found")
	var actions []string
	for _, e := range a.all(t, "/v1/audit", "10") {
		actions = append(actions, fmt.Sprint(e["action"], " ", e["subject"]))
	}
	if got := fmt.Sprint(actions); got != "[view.remove failed today view.put failed today view.put failed today]" {
		t.Errorf("audit: got %s", got)
	}
}

func TestProjectsHaveAHundredViews(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for i := range 100 {
		if status, got := a.do(t, http.MethodPut, fmt.Sprintf("/v1/views/v%d", i), `{}`); status != http.StatusOK {
			t.Fatalf("view %d: got %d %v", i, status, got)
		}
	}
	a.wantRejected(t, http.MethodPut, "/v1/views/more", `{}`, http.StatusConflict, "too_many_views")
	if status, _ := a.do(t, http.MethodPut, "/v1/views/v7", `{"filter":"a=b"}`); status != http.StatusOK {
		t.Errorf("replace one: got %d", status)
	}
}

// TestSearch finds each kind of thing by the text that people have of it.
func TestSearch(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := string(a.driven(t, "order", data(func(d *entities.EventData) {
		d.UniqueKey, d.Attributes = "customer-7", map[string]string{"customer": "7", "tier": "7"}
	})))
	a.driven(t, "organize")
	a.event(t, entities.RunID(id), entities.EventRunStarted)
	a.event(t, entities.RunID(id), entities.EventHookCreated, on("approval"), data(func(d *entities.EventData) { d.Token = "tok-1" }))
	run := func(kind, text string) string {
		return `{"kind":"` + kind + `","text":"` + text + `","runId":"` + id + `","workflow":"order","status":"running"}`
	}
	message := a.get(t, "/v1/messages?runId="+id)["data"].([]any)[0].(object)["id"].(string)
	hook := `[{"kind":"hook","text":"approval","runId":"` + id + `","hookId":"approval"}]`
	for q, want := range map[string]string{
		id: `[` + run("run", id) + `]`, id[len(id)-8:]: `[` + run("run", id) + `]`, "ZZZZZZZZ": `[]`,
		"customer-7": `[` + run("key", "customer-7") + `]`,
		"7":          `[{"kind":"attribute","attribute":"customer","text":"7"},{"kind":"attribute","attribute":"tier","text":"7"}]`,
		"tier%3D7":   `[{"kind":"attribute","attribute":"tier","text":"7"}]`, "tier%3D8": `[]`,
		"tok-1":   hook,
		"or":      `[{"kind":"workflow","text":"order","workflow":"order"},{"kind":"workflow","text":"organize","workflow":"organize"}]`,
		"orga":    `[{"kind":"workflow","text":"organize","workflow":"organize"}]`,
		message:   `[{"kind":"message","text":"` + message + `","runId":"` + id + `","messageId":"` + message + `"}]`,
		"nothing": `[]`,
	} {
		same(t, q, want, a.get(t, "/v1/search?q="+q)["data"])
	}
	reader := a.key(t, "", `{"name":"k","role":"metadata"}`)["key"].(string)
	_, got := a.as(t, reader, http.MethodGet, "/v1/search?q=tok-1", "")
	same(t, "without payloads", `[]`, got["data"])
	a.wantRejected(t, http.MethodGet, "/v1/search?q=%20", "", http.StatusBadRequest, "invalid_request")
}

// TestListRunsByEnd lists runs by several statuses, deployment and end, and counts them.
func TestListRunsByEnd(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	var ids []string
	for i, end := range []entities.EventType{entities.EventRunCompleted, entities.EventRunFailed, "", entities.EventRunCompleted} {
		id := a.driven(t, "order", data(func(d *entities.EventData) { d.DeploymentID = []string{"shop", "bank"}[i%2] }))
		a.event(t, id, entities.EventRunStarted)
		if end != "" {
			a.event(t, id, end, with(`null`))
		}
		ids = append(ids, string(id))
	}
	for query, want := range map[string][]int{
		"orderBy=ended&order=asc":                {0, 1, 3},
		"orderBy=ended":                          {3, 1, 0},
		"orderBy=ended&deployment=bank":          {3, 1},
		"orderBy=ended&status=completed":         {3, 0},
		"orderBy=ended&endedBefore=" + at0:       nil,
		"orderBy=ended&endedAfter=" + at0:        {3, 1, 0},
		"deployment=shop":                        {2, 0},
		"status=failed&status=running":           {2, 1},
		"endedAfter=" + at0:                      {3, 1, 0},
		"status=running&endedAfter=" + at0:       nil,
		"deployment=shop&status=completed":       {0},
		"orderBy=created&createdAfter=" + at0:    {3, 2, 1, 0},
		"orderBy=ended&workflow=none":            nil,
		"orderBy=ended&workflow=order&limit=100": {3, 1, 0},
	} {
		var got, wanted []string
		for _, r := range a.all(t, "/v1/runs?"+query, "2") {
			got = append(got, r["id"].(string))
		}
		for _, i := range want {
			wanted = append(wanted, ids[i])
		}
		if fmt.Sprint(got) != fmt.Sprint(wanted) {
			t.Errorf("%s: got %v, want %v", query, got, wanted)
		}
	}
	for query, want := range map[string]string{
		"": `{"count":4,"atLeast":false}`, "?status=failed&status=running": `{"count":2,"atLeast":false}`,
		"?deployment=shop": `{"count":2,"atLeast":false}`, "?attribute.a=b": `{"count":0,"atLeast":false}`,
		"?endedAfter=" + at0: `{"count":3,"atLeast":false}`,
	} {
		same(t, query, want, any(a.get(t, "/v1/runs/count"+query)))
	}
	for _, query := range []string{"status=asleep", "orderBy=name", "endedAfter=x", "deployment=a%20b"} {
		a.wantRejected(t, http.MethodGet, "/v1/runs?"+query, "", http.StatusBadRequest, "invalid_request")
	}
}
