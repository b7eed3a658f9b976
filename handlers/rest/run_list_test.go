package rest_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

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
