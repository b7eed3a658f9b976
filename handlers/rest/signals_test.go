package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func TestSignals(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	post := func(path, body string) string {
		t.Helper()
		status, answer := a.do(t, http.MethodPost, "/v1/signals/"+path, body)
		id, _ := answer["id"].(string)
		if status != http.StatusAccepted || !strings.HasPrefix(id, "sig_") {
			t.Fatalf("post %s %.100s: got %d %v", path, body, status, answer)
		}
		return id
	}
	long := `"` + strings.Repeat("x", store.ListedData) + `"`
	paid := post("order.paid", `{"data":{"order":"7", "n":9007199254740993},"id":"payment-7","keepFor":"1h"}`)
	check.Equal(t, "repeated", post("order.paid", `{"id":"payment-7","data":{"order":"7", "n":9007199254740993}}`), paid)
	a.wantRejected(t, http.MethodPost, "/v1/signals/order.paid", `{"id":"payment-7","data":{}}`, http.StatusConflict, "idempotency_mismatch")
	odd := post("a%2Fb%20c", `{}`)
	much := post("order.paid", `{"data":`+long+`}`)
	list := func(query string) (ids []string, items []map[string]any, cursor any) {
		t.Helper()
		status, answer := a.do(t, http.MethodGet, "/v1/signals"+query, "")
		data, ok := answer["data"].([]any)
		if status != http.StatusOK || !ok {
			t.Fatalf("list %s: got %d %v", query, status, answer)
		}
		for _, d := range data {
			item := d.(map[string]any)
			ids, items = append(ids, item["id"].(string)), append(items, item)
		}
		return ids, items, answer["cursor"]
	}
	for query, want := range map[string][]string{
		"": {paid, odd, much}, "?order=desc": {much, odd, paid}, "?name=order.paid": {paid, much}, "?name=nobody": nil,
		"?limit=2&cursor=" + paid: {odd, much},
	} {
		if ids, _, _ := list(query); fmt.Sprint(ids) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", query, ids, want)
		}
	}
	_, items, cursor := list("?limit=1")
	first := items[0]
	if cursor != paid || first["name"] != "order.paid" || first["key"] != "payment-7" || first["data"].(map[string]any)["order"] != "7" {
		t.Errorf("got %v and cursor %v", first, cursor)
	}
	created, _ := time.Parse(time.RFC3339, first["createdAt"].(string))
	kept, _ := time.Parse(time.RFC3339, first["keepUntil"].(string))
	if kept.Sub(created) != time.Hour {
		t.Errorf("kept from %s to %s, want an hour", created, kept)
	}
	_, items, _ = list("?cursor=" + paid)
	if items[0]["name"] != "a/b c" || items[0]["data"] != nil || items[0]["truncated"] != nil {
		t.Errorf("without data: got %v", items[0])
	}
	if items[1]["truncated"] != true || items[1]["data"] != nil {
		t.Errorf("with much data: got %.200v", items[1])
	}
	status, answer := a.do(t, http.MethodGet, "/v1/messages", "")
	if messages, _ := answer["data"].([]any); status != http.StatusOK || len(messages) != 3 {
		t.Errorf("messages: got %d %v, want one for each signal", status, answer)
	}
}

func TestInvalidSignalsAreRejected(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, body := range []string{
		``, `[]`, `{"data":1`, `{"date":1}`, `{"id":7}`, `{"id":"a b"}`, `{"keepFor":"1 hour"}`, `{"keepFor":"-1s"}`,
		`{"keepFor":"721h"}`, `{"data":1,"data":2}`, `{"data":"` + strings.Repeat("x", 1<<20) + `"}`,
	} {
		a.wantRejected(t, http.MethodPost, "/v1/signals/paid", body, http.StatusBadRequest, "invalid_request")
	}
	for _, name := range []string{"a%00b", "a%C3", strings.Repeat("x", 1025)} {
		a.wantRejected(t, http.MethodPost, "/v1/signals/"+name, `{}`, http.StatusBadRequest, "invalid_request")
	}
	for _, query := range []string{"?limit=0", "?order=up", "?cursor=a%20b", "?state=kept"} {
		a.wantRejected(t, http.MethodGet, "/v1/signals"+query, "", http.StatusBadRequest, "invalid_request")
	}
}
