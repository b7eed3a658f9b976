package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func TestSchedules(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	const path = "/v1/schedules/nightly"
	const body = `{"cron":"30 2 * * *","timeZone":"Europe/Berlin","workflow":"report","input":{"kind":"daily"},"timeout":"90m"}`
	a.wantRejected(t, http.MethodPut, path, body, http.StatusNotFound, "deployment_not_found")
	a.send(t, http.MethodPut, "/v1/deployments/app", `{"url":"http://app.test","workflows":["report"]}`, http.StatusOK)
	created := a.send(t, http.MethodPut, path, body, http.StatusCreated)
	for field, want := range map[string]string{
		"timeout": "1h30m", "overlap": "skip", "catchUp": "latest", "catchUpWindow": "24h", "input": "map[kind:daily]",
	} {
		check.Equal(t, field, fmt.Sprint(created[field]), want)
	}
	a.send(t, http.MethodPut, path, body, http.StatusOK)
	if next, ok := a.get(t, path)["next"].([]any); !ok || len(next) != 5 || next[0] != created["nextAt"] {
		t.Errorf("got the next ticks %v, the first at %v", next, created["nextAt"])
	}

	status, tick := a.do(t, http.MethodPost, path+"/trigger", "")
	if status != http.StatusCreated || tick["decision"] != "started" {
		t.Fatalf("trigger: got %d %v", status, tick)
	}
	run := a.get(t, fmt.Sprint("/v1/runs/", tick["runId"]))
	check.Equal(t, "the run", fmt.Sprintf("%v %v", run["attributes"].(map[string]any)["$schedule"], run["input"]), "nightly map[kind:daily]")
	a.wantRejected(t, http.MethodPost, path+"/trigger", "", http.StatusConflict, "conflict")
	if why := fmt.Sprint(a.get(t, path)["why"]); !strings.Contains(why, "kind:overlap") || !strings.Contains(why, fmt.Sprint(tick["runId"])) {
		t.Errorf("got the reasons %s", why)
	}
	if one, all := a.get(t, path), a.all(t, "/v1/schedules", "1"); one["runStatus"] != run["status"] || all[0]["runStatus"] != run["status"] {
		t.Errorf("the last run is %v, and %v in the list; want %v", one["runStatus"], all[0]["runStatus"], run["status"])
	}
	ticks := a.all(t, path+"/ticks", "1")
	if len(ticks) != 1 || ticks[0]["runId"] != tick["runId"] {
		t.Errorf("got the ticks %v", ticks)
	}

	if status, got := a.do(t, http.MethodPost, path+"/pause", `{"note":"we move"}`); status != http.StatusOK || got["pauseNote"] != "we move" {
		t.Errorf("pause: got %d %v", status, got)
	}
	if why := fmt.Sprint(a.get(t, path)["why"]); !strings.Contains(why, "kind:paused") {
		t.Errorf("got the reasons %s", why)
	}
	fill := `{"from":"` + at0 + `","to":"` + at0 + `"}`
	a.wantRejected(t, http.MethodPost, path+"/backfill", fill, http.StatusConflict, "conflict")
	if status, got := a.do(t, http.MethodPost, path+"/resume", ""); status != http.StatusOK || got["pausedAt"] != nil {
		t.Errorf("resume: got %d %v", status, got)
	}
	a.wantRejected(t, http.MethodPost, path+"/backfill", fill, http.StatusBadRequest, "invalid_request") // no tick
	status, got := a.do(t, http.MethodPost, path+"/backfill", `{"from":"2026-01-01T00:00:00Z","to":"2026-01-05T00:00:00Z","repeat":true}`)
	if status != http.StatusAccepted || got["backfill"] == nil {
		t.Errorf("backfill: got %d %v", status, got)
	}
	if status, got := a.do(t, http.MethodDelete, path+"/backfill", ""); status != http.StatusOK || got["backfill"] != nil {
		t.Errorf("end the backfill: got %d %v", status, got)
	}

	a.send(t, http.MethodPut, "/v1/schedules/often", `{"every":"15m","jitter":"30s","workflow":"report","deployment":"app"}`, http.StatusCreated)
	check.Equal(t, "the schedules", a.names(t, "/v1/schedules"), "nightly often")
	a.send(t, http.MethodDelete, path, "", http.StatusNoContent)
	a.wantRejected(t, http.MethodGet, path, "", http.StatusNotFound, "schedule_not_found")
	a.wantRejected(t, http.MethodGet, path+"/ticks", "", http.StatusNotFound, "schedule_not_found")
	check.Equal(t, "audit", a.audited(t, "nightly"), "schedule.remove schedule.backfill schedule.backfill schedule.resume schedule.pause schedule.trigger schedule.put")
}

func TestBadSchedulesAreRejected(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.send(t, http.MethodPut, "/v1/deployments/app", `{"url":"http://app.test","workflows":["report"]}`, http.StatusOK)
	for field, bodies := range map[string][]string{
		"cron": {
			`{"cron":"0 0 30 2 *","workflow":"report"}`, `{"cron":"x","workflow":"report"}`, `{"workflow":"report"}`,
			`{"cron":"0 0 * * *","every":"1h","workflow":"report"}`,
		},
		"timeZone":   {`{"cron":"0 0 * * *","timeZone":"Mars/Olympus","workflow":"report"}`},
		"every":      {`{"every":"1s","workflow":"report"}`, `{"every":"often","workflow":"report"}`},
		"overlap":    {`{"every":"1h","overlap":"buffer","workflow":"report"}`},
		"attributes": {`{"every":"1h","attributes":{"$a":"b"},"workflow":"report"}`},
		"workflow":   {`{"every":"1h"}`},
		"deployment": {`{"every":"1h","workflow":"report","deployment":"a b"}`},
	} {
		for _, body := range bodies {
			status, got := a.do(t, http.MethodPut, "/v1/schedules/s", body)
			text := fmt.Sprint(got)
			if status != http.StatusBadRequest || !strings.Contains(text, "field:"+field) {
				t.Errorf("%s: got %d %s, want field %s", body, status, text, field)
			}
		}
	}
	a.wantRejected(t, http.MethodPut, "/v1/schedules/s", `{"every":"1h","workflow":"other"}`, http.StatusNotFound, "deployment_not_found")
	a.wantRejected(t, http.MethodPut, "/v1/schedules/s", `{"every":"1h","workflow":"report","deployment":"gone"}`, http.StatusNotFound, "deployment_not_found")
	for _, path := range []string{"", "/ticks"} {
		a.wantRejected(t, http.MethodGet, "/v1/schedules/s"+path, "", http.StatusNotFound, "schedule_not_found")
	}
}
