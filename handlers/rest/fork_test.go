package rest_test

import (
	"net/http"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/inbox"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// broken creates a run of a workflow with a finished step, and a failed one that has failed the run.
func (a api) broken(t *testing.T, workflow string) entities.RunID {
	t.Helper()
	id := a.driven(t, workflow)
	step := func(r *eventlog.Request) {
		r.Data.StepName, r.Data.Step = "step", &entities.StepSpec{DeploymentID: "shop", MaxAttempts: 1}
	}
	a.event(t, id, entities.EventRunStarted)
	a.event(t, id, entities.EventStepCreated, on("pack"), step, with(`1`))
	a.event(t, id, entities.EventStepCompleted, on("pack"), with(`"packed"`))
	a.event(t, id, entities.EventStepCreated, on("charge"), step, with(`2`))
	a.event(t, id, entities.EventStepFailed, on("charge"), with(`{"message":"declined"}`))
	a.event(t, id, entities.EventRunFailed, data(func(d *entities.EventData) { d.ErrorCode = "declined" }))
	return id
}

// TestForkARun goes on from a failure and from an event, names the original, and is listed with it.
func TestForkARun(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	id := string(a.broken(t, "w"))
	path := "/v1/runs/" + id + "/rerun"
	fork := a.post(t, path, `{"from":"failure","idempotencyKey":"f"}`, http.StatusCreated)
	same(t, "fork", `{"id":"`+fork["id"].(string)+`","workflow":"w","deployment":"shop","driver":"server","status":"pending",
		"attributes":{},"createdAt":"`+at0+`","lastSeq":4,"input":{"n":7},"inputEncoding":"json",
		"forkOf":{"runId":"`+id+`","events":4}}`, fork)
	if again := a.post(t, path, `{"from":"failure","idempotencyKey":"f"}`, http.StatusOK); again["id"] != fork["id"] {
		t.Errorf("repeated: got %v, want %v", again["id"], fork["id"])
	}
	a.wantRejected(t, http.MethodPost, path, `{"at":4,"idempotencyKey":"f"}`, http.StatusConflict, "idempotency_mismatch")
	at := a.post(t, path, `{"at":5,"idempotencyKey":"g"}`, http.StatusCreated)
	of := object{"runId": id, "events": float64(5), "steps": float64(1)}
	check.Equal(t, "what becomes of the open step", at["forkOf"].(object), of)
	again := a.post(t, path, `{"at":5,"idempotencyKey":"g"}`, http.StatusOK)
	check.Equal(t, "the answer to the repeated request", again["forkOf"].(object), of)
	forks := map[any]bool{}
	for _, f := range a.all(t, "/v1/runs?forkOf="+id, "10") {
		forks[f["id"]] = true
	}
	if len(forks) != 2 || !forks[fork["id"]] || !forks[at["id"]] {
		t.Errorf("got the forks %v, want %v and %v", forks, fork["id"], at["id"])
	}
	second := a.post(t, "/v1/runs/"+at["id"].(string)+"/rerun", `{"at":2}`, http.StatusCreated)["id"].(string)
	first := a.all(t, "/v1/runs/"+second+"/events?order=asc", "10")[0]["data"].(object)["fork"].(object)
	if first["runId"] != at["id"] || first["seed"] != id || first["events"] != float64(2) {
		t.Errorf("the fork of a fork says %v, want the seed %s", first, id)
	}
	if got := a.all(t, "/v1/audit?action=run.rerun&order=asc", "10"); len(got) != 3 {
		t.Errorf("got %d entries of the audit, want one for each fork", len(got))
	}
	for _, test := range []struct {
		body, code string
		status     int
	}{
		{`{"at":8}`, "invalid_request", 400},
		{`{"at":7}`, "invalid_request", 400}, // the end
		{`{"at":-1}`, "invalid_request", 400},
		{`{"at":2,"from":"failure"}`, "invalid_request", 400},
		{`{"from":"end"}`, "invalid_request", 400},
	} {
		a.wantRejected(t, http.MethodPost, path, test.body, test.status, test.code)
	}
	a.wantRejected(t, http.MethodPost, "/v1/runs/"+string(a.driven(t, "w"))+"/rerun", `{"from":"failure"}`,
		http.StatusBadRequest, "invalid_request")
	a.wantRejected(t, http.MethodPost, "/v1/runs/"+string(a.sdkRun(t, "w"))+"/rerun", `{"at":1}`,
		http.StatusConflict, "fork_refused")
}

// TestForksHaveTheirOwnInboxes, with the messages that were kept, while the original has its own.
func TestForksHaveTheirOwnInboxes(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	id := a.post(t, "/v1/runs", `{"workflow":"w","inbox":["orders"],"send":[{"inbox":"orders","payload":1}]}`,
		http.StatusCreated)["id"].(string)
	path := "/v1/runs/" + id + "/rerun"
	a.wantRejected(t, http.MethodPost, path, `{"at":1}`, http.StatusBadRequest, "invalid_request")
	fork := a.post(t, path, `{"at":3}`, http.StatusCreated)
	a.post(t, "/v1/runs/"+fork["id"].(string)+"/inbox/orders", `{"payload":2}`, http.StatusOK)
	hooks := a.all(t, "/v1/runs/"+fork["id"].(string)+"/hooks", "10")
	if len(hooks) != 1 || hooks[0]["id"] != string(inbox.HookID("orders")) {
		t.Errorf("got the hooks %v", hooks)
	}
}

// TestForkMatchingRuns in bulk, after a dry run, which starts nothing. What is about one run alone is reported.
func TestForkMatchingRuns(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	for range 3 {
		a.broken(t, "refund")
	}
	cancelling := a.driven(t, "refund")
	a.event(t, cancelling, entities.EventRunStarted)
	a.event(t, cancelling, entities.EventStepCreated, on("kid"), data(func(d *entities.EventData) {
		d.StepName, d.Step = "kid", &entities.StepSpec{ChildID: "wrun_1"}
	}))
	a.event(t, cancelling, entities.EventRunFailed, data(func(d *entities.EventData) { d.ErrorCode = "declined" }))
	kid := a.driven(t, "kid")
	parent := a.driven(t, "refund")
	a.event(t, parent, entities.EventStepCreated, on("kid"), data(func(d *entities.EventData) {
		d.StepName, d.Step = "kid", &entities.StepSpec{ChildID: kid}
	}))
	a.event(t, parent, entities.EventRunFailed, data(func(d *entities.EventData) { d.ErrorCode = "declined" }))
	const filter = `{"filter":{"errorCode":"declined"},"from":"failure"`
	dry := a.post(t, "/v1/runs/rerun", filter+`,"dryRun":true}`, http.StatusOK)
	if dry["matched"] != float64(5) || dry["started"] != float64(0) || a.count(t, "runs") != 6 {
		t.Errorf("the dry run answers %v, and there are %d runs", dry, a.count(t, "runs"))
	}
	got := a.post(t, "/v1/runs/rerun", filter+`,"idempotencyKey":"b"}`, http.StatusOK)
	if got["matched"] != float64(5) || got["started"] != float64(4) {
		t.Errorf("got %v, want four forks", got)
	}
	for of, answer := range map[string]object{"the dry run": dry, "the forks": got} {
		if len(answer["refused"].([]any)) != 1 || answer["openChildren"] != float64(1) || answer["openSteps"] != nil {
			t.Errorf("%s: got %v, want one refusal, of a child that is gone, and one child that is started again", of, answer)
		}
	}
	fork := a.all(t, "/v1/runs?forkOf="+string(parent), "10")[0]["id"].(string)
	if children := a.all(t, "/v1/runs?parentId="+fork, "10"); len(children) != 1 || children[0]["workflow"] != "kid" {
		t.Errorf("the fork has the children %v, want one", children)
	}
	again := a.post(t, "/v1/runs/rerun", filter+`,"idempotencyKey":"b"}`, http.StatusOK)
	if again["started"] != float64(0) {
		t.Errorf("repeated: got %v", again)
	}
	a.wantRejected(t, http.MethodPost, "/v1/runs/rerun", `{"filter":{"status":"completed"},"from":"failure","dryRun":true}`,
		http.StatusBadRequest, "invalid_request")
}

// TestConcurrentForksAreOne checks that requests with one key start one fork.
func TestConcurrentForksAreOne(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	id := string(a.broken(t, "w"))
	a.race(t, "/v1/runs/"+id+"/rerun", `{"from":"failure","idempotencyKey":"f"}`)
	forks := a.all(t, "/v1/runs?forkOf="+id, "10")
	if len(forks) != 1 {
		t.Fatalf("got %d forks, want one", len(forks))
	}
	var work int
	const count = `SELECT count(*) FROM messages WHERE run_id = $1 AND work <> ''`
	if err := a.pool.QueryRow(t.Context(), count, forks[0]["id"]).Scan(&work); err != nil || work != 1 {
		t.Errorf("there are %d messages, error %v, want the first call of the fork", work, err)
	}
}

// TestFailedForkLeavesNoTrace checks a failure of the last write, which is the first task.
func TestFailedForkLeavesNoTrace(t *testing.T) {
	t.Parallel()
	a := deployed(t)
	id := string(a.broken(t, "w"))
	const refuse = `ALTER TABLE messages ADD CONSTRAINT none CHECK (work <> 'run') NOT VALID`
	a.exec(t, refuse)
	before := [...]int{a.count(t, "runs"), a.count(t, "events"), a.count(t, "steps"), a.count(t, "messages")}
	a.wantRejected(t, http.MethodPost, "/v1/runs/"+id+"/rerun", `{"from":"failure"}`,
		http.StatusInternalServerError, "internal")
	after := [...]int{a.count(t, "runs"), a.count(t, "events"), a.count(t, "steps"), a.count(t, "messages")}
	check.Equal(t, "runs, events, steps and messages", before, after)
}
