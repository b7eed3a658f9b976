package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/hold"
)

// TestPauses of runs, workflows and deployments: lists, explanations and the audit have them, with who and why.
func TestPauses(t *testing.T) {
	t.Parallel()
	for kind, other := range map[string]string{"run": "run_not_found", "workflow": "workflow_not_found", "deployment": "deployment_not_found"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t)
			a.send(t, http.MethodPut, "/v1/deployments/shop", `{"url":"http://shop.test"}`, http.StatusOK)
			id := string(a.driven(t, "order"))
			name := map[string]string{"run": id, "workflow": "order", "deployment": "shop"}[kind]
			path := "/v1/pauses/" + kind + "/"
			a.wantRejected(t, http.MethodPut, path+"other", "", http.StatusNotFound, other)
			a.wantRejected(t, http.MethodDelete, path+name, "", http.StatusNotFound, "pause_not_found")
			for _, body := range []string{"", `{"note":"moving"}`} {
				if status, got := a.do(t, http.MethodPut, path+name, body); status != http.StatusOK || got["name"] != name {
					t.Fatalf("got %d %v", status, got)
				}
			}
			if list := a.get(t, "/v1/pauses")["data"].([]any); len(list) != 1 || list[0].(object)["note"] != "moving" {
				t.Errorf("pauses: got %v, want one with its note", list)
			}
			reason := a.get(t, "/v1/runs/"+id+"/why")["reasons"].([]any)[0].(object)
			if s := fmt.Sprint(reason["sentence"]); reason["kind"] != "paused" || !strings.Contains(s, name+" is paused by ") ||
				!strings.Contains(s, "(moving)") {
				t.Errorf("got %v", reason)
			}
			if got, want := fmt.Sprint(reason["commands"].([]any)[0]), "stepwell "+kind+"s resume "+name; got != want {
				t.Errorf("got command %s, want %s", got, want)
			}
			list := a.get(t, "/v1/runs?need=stuck&include=reason")["data"].([]any)
			if len(list) != 1 || list[0].(object)["reason"].(object)["kind"] != "paused" {
				t.Errorf("stuck runs: got %v, want the paused one", list)
			}
			if item := a.get(t, "/v1/attention")["data"].([]any)[0].(object); item["kind"] != "paused" || item["count"] != 1.0 {
				t.Errorf("got %v", item)
			}
			a.send(t, http.MethodDelete, path+name, "", http.StatusNoContent)
			if list := a.get(t, "/v1/runs?need=stuck")["data"].([]any); len(list) != 0 {
				t.Errorf("stuck runs after the pause: %v", list)
			}
			got := a.audited(t, name)
			if want := fmt.Sprintf("%[1]s.resume %[1]s.pause %[1]s.pause", kind); !strings.HasPrefix(got, want) {
				t.Errorf("the audit has %s, want %s", got, want)
			}
		})
	}
}

// TestPausesAreBounded: a project has so many at most, each with a short note, and what has ended has none.
func TestPausesAreBounded(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.driven(t, "order")
	for path, body := range map[string]string{
		"/v1/pauses/app/order":      "",
		"/v1/pauses/workflow/order": `{"note":"` + strings.Repeat("a", 1025) + `"}`,
	} {
		a.wantRejected(t, http.MethodPut, path, body, http.StatusBadRequest, "invalid_request")
	}
	if status, got := a.do(t, http.MethodPost, "/v1/runs/"+string(id)+"/cancel", `{}`); status/100 != 2 {
		t.Fatalf("got %d %v", status, got)
	}
	a.wantRejected(t, http.MethodPut, "/v1/pauses/run/"+string(id), "", http.StatusGone, "run_ended")
	_, err := a.pool.Exec(t.Context(), `INSERT INTO pauses (project, kind, name, paused_by)
		SELECT $1, 'run', i::text, '' FROM generate_series(1, $2) i`, entities.DefaultProject, hold.Max)
	if err != nil {
		t.Fatal(err)
	}
	a.wantRejected(t, http.MethodPut, "/v1/pauses/workflow/order", "", http.StatusConflict, "too_many_pauses")
}
