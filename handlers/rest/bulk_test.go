package rest_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// failed creates a run of a workflow that has failed with a code.
func (a api) failed(t *testing.T, workflow, code string) string {
	t.Helper()
	id := a.driven(t, workflow)
	a.event(t, id, entities.EventRunFailed, data(func(d *entities.EventData) { d.ErrorCode = code }),
		with(`{"message":"card 4242 was declined"}`))
	return string(id)
}

func TestRerunMatchingRuns(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	var declined []any
	for range 5 {
		declined = append(declined, a.failed(t, "refund", "card_declined"))
	}
	busy := a.failed(t, "refund", "busy")
	done := a.driven(t, "refund")
	a.event(t, done, entities.EventRunCompleted)
	pending := a.driven(t, "refund")
	want := func(body string, matched, started int, more bool, ids ...any) {
		t.Helper()
		if ids == nil {
			ids = []any{}
		}
		got := a.post(t, "/v1/runs/rerun", body, http.StatusOK)
		if _, ok := got["cursor"]; ok != more {
			t.Errorf("%s: got the cursor %v", body, got["cursor"])
		}
		delete(got, "cursor")
		expected := object{
			"matched": float64(matched), "started": float64(started), "more": more, "runIds": ids, "refused": []any{},
		}
		check.Equal(t, body, got, expected)
	}
	want(`{"filter":{"errorCode":"card_declined"},"dryRun":true}`, 5, 0, false, declined...)
	want(`{"filter":{"workflow":"refund"},"dryRun":true,"limit":2}`, 2, 0, true, declined[:2]...)
	want(`{"filter":{"workflow":"refund","status":"completed"},"dryRun":true}`, 1, 0, false, string(done))
	want(`{"filter":{"workflow":"refund"},"dryRun":true}`, 6, 0, false, append(declined[:5:5], busy)...)
	check.Equal(t, "runs after dry runs", a.count(t, "runs"), 8)
	const batch = `{"filter":{"errorCode":"card_declined"},"deployment":"shop","idempotencyKey":"b","limit":3}`
	want(batch, 3, 3, true, declined[:3]...)
	// The copies fail in turn. They are not copied again.
	for _, run := range a.all(t, "/v1/runs?status=pending", "10") {
		if id := entities.RunID(run["id"].(string)); id != pending {
			a.event(t, id, entities.EventRunFailed, data(func(d *entities.EventData) { d.ErrorCode = "card_declined" }))
		}
	}
	want(batch, 2, 2, false, declined[3:]...)
	want(batch, 0, 0, false)
	check.Equal(t, "runs", a.count(t, "runs"), 13)
	for _, body := range []string{
		``, `{}`, `{"filter":{},"idempotencyKey":"b"}`, `{"filter":{"workflow":"w"}}`, `{"filter":{"workflow":""},"dryRun":true}`,
		`{"filter":{"status":"running"},"dryRun":true}`, `{"filter":{"status":"lost"},"dryRun":true}`,
		`{"filter":{"status":"completed","errorCode":"busy"},"dryRun":true}`, `{"filter":{"workflow":"w"},"dryRun":true,"limit":1001}`,
		`{"filter":{"workflow":"w"},"dryRun":true,"limit":0}`, `{"filter":{"workflow":"w"},"dryRun":true,"cursor":"x"}`,
		`{"filter":{"workflow":"w"},"idempotencyKey":"a\u0000"}`, `{"filter":{"workflow":"w"},"dryRun":true,"deployment":"a b"}`,
		`{"filter":{"workflow":"a\u0000"},"dryRun":true}`,
		`{"filter":{"workflow":"w","colour":"red"},"dryRun":true}`,
	} {
		a.wantRejected(t, http.MethodPost, "/v1/runs/rerun", body, http.StatusBadRequest, "invalid_request")
	}
}

// TestRerunMatchingRunsInPages reruns more runs than one request may, by cursors.
func TestRerunMatchingRunsInPages(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	a.exec(t, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, driver,
			created_at, updated_at, completed_at)
		SELECT 'wrun_' || i, 'default', 'shop', 'refund', 'failed', 6, 2, 2, 'server', $1, $1, $1
		FROM generate_series(100000, 101500) i`, t0)
	total, cursor := 0.0, ""
	for _, want := range []float64{1000, 501} {
		got := a.post(t, "/v1/runs/rerun", `{"filter":{"workflow":"refund"},"dryRun":true`+cursor+`}`, http.StatusOK)
		if got["matched"] != want || got["more"] != (want == 1000) {
			t.Errorf("got %v matched, more %v", got["matched"], got["more"])
		}
		total += got["matched"].(float64)
		cursor = fmt.Sprintf(`,"cursor":%q`, got["cursor"])
	}
	check.Equal(t, "runs", total, 1501)
}

// TestConcurrentBulkReruns checks that requests of one batch start one copy of each run.
func TestConcurrentBulkReruns(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	const runs = 5
	for range runs {
		a.failed(t, "refund", "busy")
	}
	statuses, answers := a.race(t, "/v1/runs/rerun", `{"filter":{"errorCode":"busy"},"idempotencyKey":"b"}`)
	started := 0.0
	for _, answer := range answers {
		n, _ := answer["started"].(float64)
		started += n
	}
	if n := a.count(t, "runs"); statuses[http.StatusOK] != racers || started != runs || n != 2*runs {
		t.Errorf("got %v, %v started and %d runs; want %d copies", statuses, started, n, runs)
	}
}

// TestFailedBulkRerunLeavesNoTrace checks a failure of the last write of the second copy, which is the first task.
func TestFailedBulkRerunLeavesNoTrace(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	ids := []string{a.failed(t, "refund", "busy"), a.failed(t, "order", "busy"), a.failed(t, "refund", "busy")}
	before := a.count(t, "messages")
	a.exec(t, `
		ALTER TABLE messages ADD CONSTRAINT none CHECK (topic NOT LIKE '%order') NOT VALID`)
	const body = `{"filter":{"errorCode":"busy"},"idempotencyKey":"b"}`
	a.wantRejected(t, http.MethodPost, "/v1/runs/rerun", body, http.StatusInternalServerError, "internal")
	for table, want := range map[string]int{"runs": 4, "messages": before + 1} {
		check.Equal(t, table, a.count(t, table), want)
	}
	a.exec(t, `ALTER TABLE messages DROP CONSTRAINT none`)
	got := a.post(t, "/v1/runs/rerun", body, http.StatusOK)
	same(t, "the repeat", fmt.Sprintf(`{"matched":2,"started":2,"runIds":[%q,%q],"refused":[],"more":false}`, ids[1], ids[2]), got)
}

// TestRerunsAreAudited checks that each copy has an entry, and that none is started without.
func TestRerunsAreAudited(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	first, second := a.failed(t, "refund", "busy"), a.failed(t, "refund", "busy")
	audited := func(want ...string) {
		t.Helper()
		var got []string
		for _, e := range a.all(t, "/v1/audit?action=run.rerun&order=asc", "10") {
			got = append(got, e["subject"].(string))
			a.get(t, "/v1/runs/"+e["detail"].(object)["runId"].(string))
		}
		check.Equal(t, "audit", got, want)
	}
	const batch = `{"filter":{"errorCode":"busy"},"idempotencyKey":"b"}`
	a.exec(t, `ALTER TABLE audit ADD CONSTRAINT none CHECK (action <> 'run.rerun') NOT VALID`)
	a.wantRejected(t, http.MethodPost, "/v1/runs/rerun", batch, http.StatusInternalServerError, "internal")
	check.Equal(t, "runs", a.count(t, "runs"), 2)
	a.exec(t, `ALTER TABLE audit DROP CONSTRAINT none`)
	for range 2 {
		a.post(t, "/v1/runs/rerun", batch, http.StatusOK)
	}
	audited(first, second)
	a.post(t, "/v1/runs/"+second+"/rerun", ``, http.StatusCreated)
	audited(first, second, second)
}

// TestBulkRerunGoesOnAfterRefusals checks that a run whose key is taken does not keep the others from being copied.
func TestBulkRerunGoesOnAfterRefusals(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	first := string(a.driven(t, "w", data(func(d *entities.EventData) { d.UniqueKey = "k" })))
	a.event(t, entities.RunID(first), entities.EventRunFailed)
	a.driven(t, "w", data(func(d *entities.EventData) { d.UniqueKey = "k" }))
	a.failed(t, "w", "busy")
	got := a.post(t, "/v1/runs/rerun", `{"filter":{"workflow":"w"},"idempotencyKey":"b"}`, http.StatusOK)
	refused, _ := got["refused"].([]any)
	if got["matched"] != 2.0 || got["started"] != 1.0 || len(refused) != 1 || refused[0].(object)["runId"] != first {
		t.Errorf("got %v, want the run with the key refused", got)
	}
}

// TestBulkRerunGetsPastEveryRun checks that neither a run that can never be copied nor many that are copied already keep
// a batch from the runs behind them.
func TestBulkRerunGetsPastEveryRun(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	const body = `{"filter":{"workflow":"refund","endedBefore":"2030-01-01T00:00:00Z"},"idempotencyKey":"b","limit":1000`
	batch := fmt.Sprintf("rerun:%x:", sha256.Sum256([]byte("b")))
	a.exec(t, `
		INSERT INTO runs (id, project, deployment_id, workflow_name, status, spec_version, last_seq, end_seq, driver,
			created_at, updated_at, completed_at, idempotency_key)
		SELECT prefix || i, 'default', 'shop', workflow, 'failed', 6, 2, 2, 'server', $1, $1, $1, key || i
		FROM generate_series(100000, 110100) i, (VALUES ('wrun_', 'refund', 'k'), ('wcopy_', 'copy', $2 || 'wrun_'))
			AS kinds (prefix, workflow, key)`, t0.Add(-time.Hour), batch)
	odd := a.failed(t, "refund", "busy")
	a.exec(t, `
		UPDATE events SET data = jsonb_set(data, '{attributes}', '{"$no": "x"}') WHERE run_id = $1 AND seq = 1`, odd)
	a.failed(t, "refund", "busy")
	first := a.post(t, "/v1/runs/rerun", body+`}`, http.StatusOK)
	if first["matched"] != 0.0 || first["more"] != true || first["cursor"] == nil {
		t.Fatalf("got %v, want the cursor to what follows", first)
	}
	second := a.post(t, "/v1/runs/rerun", fmt.Sprintf(body+`,"cursor":%q}`, first["cursor"]), http.StatusOK)
	refused, _ := second["refused"].([]any)
	if second["matched"] != 2.0 || second["started"] != 1.0 || second["more"] != false || len(refused) != 1 ||
		refused[0].(object)["runId"] != odd {
		t.Errorf("got %v, want one run refused and one copied", second)
	}
}

// TestBulkRerunLeavesLaterFailuresAlone checks that runs which fail after the preview are not copied.
func TestBulkRerunLeavesLaterFailuresAlone(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	a.failed(t, "refund", "busy")
	for until, want := range map[string]float64{"2026-11-21T01:41:43.196Z": 0, at0: 1} {
		got := a.post(t, "/v1/runs/rerun", fmt.Sprintf(`{"filter":{"endedBefore":%q},"dryRun":true}`, until), http.StatusOK)
		if got["matched"] != want {
			t.Errorf("until %s: got %v, want %v", until, got, want)
		}
	}
}

func TestRunsAreListedByErrorCode(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	declined := a.failed(t, "refund", "card_declined")
	a.failed(t, "refund", "busy")
	if got := ids(a.all(t, "/v1/runs?errorCode=card_declined", "10")); len(got) != 1 || string(got[0]) != declined {
		t.Errorf("got %v, want %s", got, declined)
	}
	a.wantRejected(t, http.MethodGet, "/v1/runs?errorCode=busy&status=completed", "", http.StatusBadRequest, "invalid_request")
}

func TestListFailures(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.driven(t, "refund")
	a.event(t, id, entities.EventStepCreated, on("s1"), data(func(d *entities.EventData) { d.StepName = "charge" }))
	a.event(t, id, entities.EventStepFailed, on("s1"))
	a.event(t, id, entities.EventRunFailed, with(`{"message":"card 4242 was declined"}`))
	a.failed(t, "refund", "busy")
	last := a.failed(t, "refund", "busy")
	got := a.get(t, "/v1/failures?window=1h")
	trend := make([]any, 24)
	for i := range trend {
		trend[i] = 0.0
	}
	group := func(count float64, run string, more object) object {
		trend := append([]any{}, trend...)
		trend[23] = count
		g := object{
			"workflow": "refund", "shape": "card … was declined", "message": "card 4242 was declined", "count": count,
			"firstAt": at0, "lastAt": at0, "createdFrom": at0, "firstDeployment": "shop", "runId": run, "trend": trend,
		}
		for k, v := range more {
			g[k] = v
		}
		return g
	}
	want := object{"since": "2026-11-21T00:41:43.197Z", "more": false, "data": []any{
		group(2, last, object{"code": "busy"}), group(1, string(id), object{"code": "", "step": "charge"}),
	}}
	check.Equal(t, "the failures", got, want)
	for _, window := range []string{"0s", "2161h", "x"} {
		a.wantRejected(t, http.MethodGet, "/v1/failures?window="+window, "", http.StatusBadRequest, "invalid_request")
	}
}

func TestListWorkflows(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, name := range []string{"refund", "order", "order", "audit"} {
		a.driven(t, name)
	}
	a.failed(t, "order", "busy")
	workflow := func(name string, open float64) any {
		return object{"name": name, "deployment": "shop", "lastRunAt": at0, "open": open}
	}
	want := []any{workflow("audit", 1), workflow("order", 2), workflow("refund", 1)}
	var got []any
	for _, w := range a.all(t, "/v1/workflows", "2") {
		got = append(got, w)
	}
	check.Equal(t, "the workflows", got, want)
}
