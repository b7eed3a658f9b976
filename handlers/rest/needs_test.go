package rest_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestListRunsByNeed lists and counts runs by what they need, and refuses what no list by need can have.
func TestListRunsByNeed(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.send(t, http.MethodPut, "/v1/deployments/shop", `{"url":"http://shop.test"}`, http.StatusOK)
	var ids []string
	for range 4 {
		ids = append(ids, string(a.driven(t, "order")))
	}
	parked, waiting, retrying, idle := ids[0], ids[1], ids[2], ids[3]
	a.event(t, entities.RunID(waiting), entities.EventRunStarted)
	a.event(t, entities.RunID(waiting), entities.EventHookCreated, on("agree"), data(func(d *entities.EventData) { d.Token = "T" }))
	for id, sql := range map[string]string{
		parked:   `UPDATE messages SET parked_at = now() WHERE run_id = $1 AND work = 'run'`,
		waiting:  `DELETE FROM messages WHERE run_id = $1 AND work = 'run'`,
		retrying: `UPDATE messages SET last_error = 'oops', delivery_count = 1, due_at = now() + interval '1 h' WHERE run_id = $1 AND work = 'run'`,
	} {
		a.exec(t, sql, id)
	}
	for query, want := range map[string][]string{
		"need=stuck": {parked}, "need=retrying": {retrying}, "need=waiting": {waiting}, "need=stuck&workflow=refund": nil,
		"need=waiting&status=pending": nil, "orderBy=need": {parked, retrying, waiting, idle},
		"orderBy=need&need=stuck": {parked}, "orderBy=need&limit=1": {parked}, "orderBy=need&status=running": {waiting},
	} {
		var got []string
		for _, r := range a.get(t, "/v1/runs?include=reason&"+query)["data"].([]any) {
			if r.(object)["reason"] == nil {
				t.Errorf("%s: no reason: %v", query, r)
			}
			got = append(got, r.(object)["id"].(string))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
	same(t, "count", `{"count":1,"atLeast":false}`, any(a.get(t, "/v1/runs/count?need=retrying")))
	counts := a.get(t, "/v1/runs/needs")
	for _, need := range []string{"stuck", "retrying", "waiting"} {
		same(t, need, `{"count":1,"atLeast":false}`, counts[need])
	}
	for _, query := range []string{
		"need=sad", "need=stuck&orderBy=ended", "need=stuck&status=failed", "orderBy=need&status=completed", "orderBy=need&cursor=1:a",
		"need=stuck&cursor=x", "need=stuck&errorCode=x",
	} {
		a.wantRejected(t, http.MethodGet, "/v1/runs?"+query, "", http.StatusBadRequest, "invalid_request")
	}
	a.wantRejected(t, http.MethodGet, "/v1/runs/count?need=sad", "", http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodGet, "/v1/live?runs=true&orderBy=need", "", http.StatusBadRequest, "invalid_request")
}
