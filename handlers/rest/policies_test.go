package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// permit inserts what holds or awaits a slot of the limit stripe: granted seconds ago, or waiting if that is 0.
func (a api) permit(t *testing.T, run entities.RunID, key string, granted, came int) {
	t.Helper()
	a.exec(t, `
		INSERT INTO permits (holder, project, name, key, tenant, cost, run_id, created_at, rank_at, granted_at)
		VALUES ($1, 'default', 'stripe', $2, '', 1, $1, now() - $4 * interval '1 second', now() - $4 * interval '1 second',
			CASE WHEN $3 > 0 THEN now() - $3 * interval '1 second' END)`, run, key, granted, came)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	const path = "/v1/limits/stripe"
	a.wantRejected(t, http.MethodGet, path, "", http.StatusNotFound, "limit_not_found")
	status, got := a.do(t, http.MethodPut, path, `{"perKey":2,"rate":{"limit":100,"per":"1m","burst":10},"fair":true}`)
	// 91 = 100 - 10 + 1: a burst costs a part of the sustained rate.
	want := "map[burst:10 limit:100 per:1m sustained:91]"
	if rate := fmt.Sprint(got["rate"]); status != http.StatusOK || rate != want || got["onFull"] != "wait" {
		t.Errorf("got %d %v, want a rate of %s", status, got, want)
	}
	if got = a.get(t, path); got["held"] != 0.0 || got["waiting"] != 0.0 {
		t.Errorf("got %v, want nothing that holds or waits", got)
	}

	holder, first, second, other := a.driven(t, "order"), a.driven(t, "order"), a.driven(t, "order"), a.driven(t, "order")
	a.permit(t, holder, "c7", 60, 90)
	a.permit(t, second, "c7", 0, 10)
	a.permit(t, first, "c7", 0, 20)
	a.permit(t, other, "", 5, 5)
	if list := a.all(t, "/v1/limits", "1"); len(list) != 1 || list[0]["held"] != 2.0 || list[0]["waiting"] != 2.0 {
		t.Errorf("got %v, want 2 that hold and 2 that wait", list)
	}
	var keys []string
	for _, k := range a.all(t, path+"/keys", "1") {
		keys = append(keys, fmt.Sprint(k["key"], " ", k["held"], " ", k["waiting"], " ", k["waitingSince"] != nil))
	}
	check.Equal(t, "keys", keys, []string{" 1 0 false", "c7 1 2 true"})
	slots := a.get(t, path+"/slots?key=c7")
	runs := func(state string) (ids []string) {
		for _, p := range slots[state].([]any) {
			ids = append(ids, fmt.Sprint(p.(object)["runId"]))
		}
		return ids
	}
	check.Equal(t, "who holds", runs("held"), []string{string(holder)})
	check.Equal(t, "who waits", runs("waiting"), []string{string(first), string(second)})

	a.wantRejected(t, http.MethodDelete, path, "", http.StatusConflict, "limit_in_use")
	a.send(t, http.MethodDelete, path+"?force=true", "", http.StatusNoContent)
	for _, more := range []string{"/keys", "/slots"} {
		a.wantRejected(t, http.MethodGet, path+more, "", http.StatusNotFound, "limit_not_found")
	}
	check.Equal(t, "audit", a.audited(t, "stripe"), "limit.remove limit.put")
}

// names returns the names in a list, which is read in pages of one.
func (a api) names(t *testing.T, path string) string {
	t.Helper()
	var names []string
	for _, item := range a.all(t, path, "1") {
		names = append(names, fmt.Sprint(item["name"]))
	}
	return strings.Join(names, " ")
}

// audited returns the actions about a subject, the last one first.
func (a api) audited(t *testing.T, subject string) string {
	t.Helper()
	var actions []string
	for _, e := range a.all(t, "/v1/audit", "100") {
		if e["subject"] == subject {
			actions = append(actions, fmt.Sprint(e["action"]))
		}
	}
	return strings.Join(actions, " ")
}

func TestBadLimitsAreRejected(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for name, body := range map[string]string{
		"bounds nothing":   `{}`,
		"negative":         `{"perKey":-1}`,
		"rate without per": `{"rate":{"limit":5}}`,
		"rate of nothing":  `{"rate":{"limit":0,"per":"1m"}}`,
		"no duration":      `{"rate":{"limit":5,"per":"a minute"}}`,
		"unknown onFull":   `{"perKey":1,"onFull":"skip"}`,
		"unknown field":    `{"perkey":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a.wantRejected(t, http.MethodPut, "/v1/limits/l", body, http.StatusBadRequest, "invalid_request")
		})
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	const path = "/v1/policies/order"
	const body = `{"limits":[{"name":"stripe","key":"attributes.customer"}],"priority":"-5m"}`
	a.wantRejected(t, http.MethodGet, path, "", http.StatusNotFound, "policy_not_found")
	a.wantRejected(t, http.MethodPut, path, body, http.StatusNotFound, "limit_not_found")
	a.send(t, http.MethodPut, "/v1/limits/stripe", `{"total":3}`, http.StatusOK)
	for range 2 {
		status, got := a.do(t, http.MethodPut, path, body)
		if text := fmt.Sprint(got["limits"], got["priority"]); status != http.StatusOK || text != "[map[key:attributes.customer name:stripe]]-5m" {
			t.Errorf("got %d %s", status, text)
		}
	}
	if list := a.all(t, "/v1/policies", "1"); len(list) != 1 || list[0]["workflow"] != "order" {
		t.Errorf("got %v", list)
	}
	for _, body := range []string{
		`{"limits":[]}`, `{"limits":[{"name":"stripe","key":"input.customer"}]}`, `{"limits":[{"name":"stripe"},{"name":"stripe"}]}`,
		`{"limits":[{"name":"stripe"}],"priority":"2h"}`, `{"limits":[{"name":"stripe"}],"priority":"--5m"}`,
	} {
		a.wantRejected(t, http.MethodPut, path, body, http.StatusBadRequest, "invalid_request")
	}
	a.wantRejected(t, http.MethodDelete, "/v1/limits/stripe?force=true", "", http.StatusConflict, "limit_in_use")
	a.send(t, http.MethodDelete, path, "", http.StatusNoContent)
	a.wantRejected(t, http.MethodDelete, path, "", http.StatusNotFound, "policy_not_found")
	check.Equal(t, "audit", a.audited(t, "order"), "policy.remove policy.put policy.put")
}

func TestRerunNeedsTheSameLimits(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	a.send(t, http.MethodPut, "/v1/limits/stripe", `{"perKey":1}`, http.StatusOK)
	first := a.post(t, "/v1/runs", `{"workflow":"w","limits":[{"name":"stripe","key":"c7"}],"priority":"5m"}`,
		http.StatusCreated)
	again := a.post(t, "/v1/runs/"+first["id"].(string)+"/rerun", "", http.StatusCreated)
	var earlier string
	err := a.pool.QueryRow(t.Context(), `
		SELECT name || ' ' || key || ' ' || (created_at - rank_at) FROM permits WHERE holder = $1 AND granted_at IS NULL`,
		again["id"]).Scan(&earlier)
	if err != nil || earlier != "stripe c7 00:05:00" {
		t.Errorf("the rerun waits for %q, error %v; want the place of its original, with its priority", earlier, err)
	}
}
