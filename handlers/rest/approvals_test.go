package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// approval opens an approval.
func (a api) approval(t *testing.T, run entities.RunID, id, settings string) {
	t.Helper()
	a.event(t, run, entities.EventHookCreated, on(id), token("approval_"+string(run)+id, false), with(`{"approval":`+settings+`}`))
}

// TestApprovals: the list has what is asked, who may vote, who has voted, and until when. It is for those who vote, too;
// a key of the role metadata sees that there is one, but no text and no name of it.
func TestApprovals(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	run, other := a.driven(t, "w"), a.driven(t, "v")
	a.approval(t, run, "agree",
		`{"title":"Order 7","by":["anna","role:finance"],"quorum":2,"distinctKeys":true,"form":{"type":"object"}}`)
	until := t0.Add(time.Hour)
	a.event(t, run, entities.EventWaitCreated, on("agree~within"), data(func(d *entities.EventData) { d.ResumeAt = &until }))
	a.event(t, run, entities.EventHookCreated, on("plain"), token("order-7", false), with(`{"approval":{"title":"t"}}`))
	a.event(t, run, entities.EventHookCreated, on("odd"), token("approval_odd", false), with(`[1]`))
	a.approval(t, other, "all", `{"title":"Open to all"}`)
	voter := a.key(t, "", `{"name":"voter","role":"invoke"}`)
	vote := `{"payload":{"decision":"approve","as":"anna","comment":"fine","form":{}}}`
	a.sendAs(t, voter["key"].(string), http.MethodPost, "/v1/runs/"+string(run)+"/hooks/agree/resume", vote, 200)
	facts := `"runId":"` + string(run) + `","hookId":"agree","workflow":"w","needed":2,"distinctKeys":true,"createdAt":"` + at0 +
		`","due":"2026-11-21T02:41:43.197Z"`
	all := `{"runId":"` + string(other) + `","hookId":"all","workflow":"v","needed":1,"distinctKeys":false,"votes":[],"createdAt":"` + at0 + `"`
	seen := `{` + facts + `,"title":"Order 7","by":["anna","role:finance"],"form":{"type":"object"},"votes":[
		{"decision":"approve","by":"anna","key":"` + voter["id"].(string) + `","comment":"fine","at":"` + at0 + `"}]}`
	both := `{"data":[` + seen + `,` + all + `,"title":"Open to all"}]}`
	same(t, "the list", both, a.get(t, "/v1/approvals"))
	key := func(role string) string { return a.key(t, "", `{"name":"k","role":"`+role+`"}`)["key"].(string) }
	for role, want := range map[string]string{
		"read": both, "invoke": both,
		"metadata": `{"data":[{` + facts + `,"votes":[{"decision":"approve","at":"` + at0 + `"}]},` + all + `}]}`,
	} {
		got := a.sendAs(t, key(role), http.MethodGet, "/v1/approvals", "", http.StatusOK)
		same(t, role, want, got)
	}
	a.sendAs(t, key("metadata"), http.MethodGet, "/v1/approvals?for=anna", "", http.StatusForbidden)
	for query, want := range map[string]string{
		"runId=" + string(run): seen, "workflow=w": seen, "for=role:finance&for=zoe": seen + `,` + all + `,"title":"Open to all"}`,
		"hookId=agree": seen, "runId=" + string(run) + "&hookId=agree&limit=1": seen, "runId=" + string(other) + "&hookId=agree": "",
		"for=ANNA&for=role:finance": all + `,"title":"Open to all"}`, "for=bob": all + `,"title":"Open to all"}`, "runId=wrun_x": "",
	} {
		same(t, query, `{"data":[`+want+`]}`, a.get(t, "/v1/approvals?"+query))
	}
	a.wantRejected(t, http.MethodGet, "/v1/approvals?for="+strings.Repeat("a&for=", 100), "", 400, "invalid_request")
	a.event(t, run, entities.EventHookDisposed, on("agree"))
	same(t, "after the decision", `{"data":[]}`, a.get(t, "/v1/approvals?workflow=w"))
}

// TestPagesOfApprovals: pages end where their limit or their bytes do, and have all approvals together, also if those of a
// page are for somebody else.
func TestPagesOfApprovals(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	run := a.driven(t, "w")
	long := strings.Repeat("x", read.MaxPageBytes/2)
	for i, settings := range []string{`{"by":["anna"],"title":"a"}`, `{"by":["anna"],"title":"b"}`, `{"by":["bob"],"title":"c"}`, `{"title":"` + long + `"}`, `{"title":"` + long + `"}`} {
		a.approval(t, run, fmt.Sprint("h", i), settings)
	}
	for query, want := range map[string]string{
		"limit=2": "h0 h1 | h2 h3 | h4", "limit=5": "h0 h1 h2 h3 | h4", "limit=1&for=bob": " |  | h2 | h3 | h4",
	} {
		var pages []string
		cursor := ""
		for {
			page := a.get(t, "/v1/approvals?"+query+cursor)
			var ids []string
			for _, item := range page["data"].([]any) {
				ids = append(ids, item.(object)["hookId"].(string))
			}
			pages = append(pages, strings.Join(ids, " "))
			if page["cursor"] == nil {
				break
			}
			cursor = "&cursor=" + page["cursor"].(string)
		}
		check.Equal(t, fmt.Sprintf("%s: got pages", query), strings.Join(pages, " | "), want)
	}
}

// TestHooksSayWhatTheyAsk: the question and the schema in the metadata of a hook are its own fields, if they are such.
func TestHooksSayWhatTheyAsk(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	run := a.driven(t, "w")
	for i, tt := range []struct{ metadata, question, schema string }{
		{`{"question":"How large?","schema":{"type":"number"}}`, `"How large?"`, `{"type":"number"}`},
		{`{"question":["a"],"schema":true}`, "null", "null"},
		{`"question"`, "null", "null"},
	} {
		id := fmt.Sprint("h", i)
		a.event(t, run, entities.EventHookCreated, on(id), token("t"+id, false), with(tt.metadata))
		got := a.get(t, "/v1/runs/"+string(run)+"/hooks/"+id)
		same(t, tt.metadata, `[`+tt.question+`,`+tt.schema+`]`, []any{got["question"], got["schema"]})
	}
}
