package handlers

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/flow/registry"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/queue/hold"
	"github.com/stepwell-dev/stepwell/starts/collection"
	"github.com/stepwell-dev/stepwell/starts/collection/collector"
	"github.com/stepwell-dev/stepwell/starts/schedule"
	"github.com/stepwell-dev/stepwell/starts/schedule/scheduler"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

func (h *matrixServer) createSecrets(t *testing.T, project entities.Project, s fixture) {
	t.Helper()
	for _, name := range []string{s["secret"], s["spareSecret"]} {
		check.Value(h.secrets.Put(t.Context(), project, name, []admin.SecretValue{classified}))(t)
	}
}

func (h *matrixServer) createPause(t *testing.T, project entities.Project, s fixture) {
	t.Helper()
	subject := hold.Subject{Kind: hold.Deployment, Name: s["paused"]}
	check.Value(h.queue.Pause(t.Context(), project, subject, ""))(t)
}

func (h *matrixServer) createSchedules(t *testing.T, project entities.Project, s fixture) {
	t.Helper()
	for _, name := range []string{s["schedule"], s["spareSchedule"]} {
		_, _, err := scheduler.New(h.queue, h.log).Put(t.Context(), project, name, schedule.Spec{
			Every: time.Hour, Workflow: "order", Deployment: s["deployment"], Input: []byte(`"` + classified + `"`),
			Overlap: schedule.OverlapAllow, CatchUp: schedule.CatchUpLatest, CatchUpWindow: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (h *matrixServer) createFlows(t *testing.T, project entities.Project, s fixture) {
	t.Helper()
	flows := registry.New(h.pool, time.Now)
	for value := range 2 {
		document := fmt.Sprintf("flow: %s\nsteps: {a: {set: '%s-literal-%d'}}", s["flow"], classified, value)
		check.Value(flows.Put(t.Context(), project, []byte(document)))(t)
	}
	document := "catalog: goals-" + s["flow"] + "\nsteps: {a: {set: {b: " + classified + "-catalog}, gives: {b: {}}}}"
	if _, _, err := flows.PutCatalog(t.Context(), project, []byte(document), false); err != nil {
		t.Fatal(err)
	}
	for _, alias := range []string{"prod", "spare"} {
		check.Value(flows.PutAlias(t.Context(), project, s["flow"], alias, 2))(t)
	}
}

func (h *matrixServer) createCollections(t *testing.T, project entities.Project, s fixture) {
	t.Helper()
	for name, key := range map[string]string{
		"collection": s["unique"], "flushedCollection": "flushed", "spareCollection": "spare",
	} {
		s[name] = h.collect(t, project, s["deployment"], key)
	}
}

func (h *matrixServer) createTriggers(t *testing.T, project entities.Project, s fixture) {
	t.Helper()
	h.exec(t, `DELETE FROM triggers WHERE project = $1`, project) // a project has at most 50 that wait for the same
	for _, name := range []string{s["trigger"], s["spareTrigger"]} {
		trg, _, err := engine.New(h.queue, h.log).Triggers().Put(t.Context(), project, name, trigger.Spec{
			Kind: trigger.KindSignal, Source: "never", Condition: "data == '" + classified + "'",
			Workflow: "order", Deployment: s["deployment"], Input: []byte(`"` + classified + `"`),
		})
		if err != nil {
			t.Fatal(err)
		}
		h.exec(t, `
			INSERT INTO trigger_events (trigger_id, event, project, decision, run_id, reason, decided_at)
			VALUES ($1, 'sig_1', $2, 'skipped', '', $3, now()) ON CONFLICT DO NOTHING`, trg.ID, project, classified)
	}
}

func (h *matrixServer) createLimits(t *testing.T, project entities.Project, s fixture) {
	t.Helper()
	limits := limit.NewStore(h.pool, time.Now)
	for _, name := range []string{s["limit"], s["spareLimit"]} {
		check.Value(limits.Put(t.Context(), project, name, limit.Spec{PerKey: 1}))(t)
	}
	for _, workflow := range []string{s["policy"], s["sparePolicy"]} {
		p := limit.Policy{Project: project, Workflow: workflow, Limits: []limit.PolicyUse{{Name: s["limit"]}}}
		check.Value(limits.PutPolicy(t.Context(), p))(t)
	}
}

func (h *matrixServer) createSigningKey(t *testing.T, project entities.Project, s fixture) {
	t.Helper()
	h.exec(t, `DELETE FROM signing_keys WHERE project = $1`, project) // a project has at most two
	key, _, err := admin.NewSigningKeys(h.pool, time.Now).Create(t.Context(), project)
	if err != nil {
		t.Fatal(err)
	}
	s["signingKey"] = key.ID
}

func (h *matrixServer) createSignal(t *testing.T, project entities.Project, s fixture) {
	t.Helper()
	_, _, err := engine.New(h.queue, h.log).PostSignal(t.Context(), store.Signal{
		Project: project, Name: "paid", Key: s["signalKey"], Data: []byte(`"` + classified + `"`),
	}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
}

// createKey creates an API key, and a session with it.
func (h *matrixServer) createKey(t *testing.T, project entities.Project, s fixture) {
	t.Helper()
	id, text := h.mint(t, project, admin.RoleRead)
	s["key"] = string(id)
	s["session"] = h.access.ID(h.cookie(t, project, text)).String()
}

// collect opens a collection that does not start by itself, and returns its ID.
func (h *matrixServer) collect(t *testing.T, project entities.Project, deployment, key string) string {
	t.Helper()
	rule := check.Value(collection.NewBatch(key, 1000, time.Hour, 0))(t)
	done := check.Value(collector.New(h.queue, h.log).Add(t.Context(), project, rule, collection.Start{
		Workflow: "order", Deployment: deployment, Input: []byte(`"` + classified + `"`),
		Data: entities.EventData{Driver: entities.DriverServer, WorkflowName: "order"},
	}))(t)
	return string(done.Collection.RunID)
}

// createRuns creates a run of the SDK with one object of every kind, its messages, and runs that the server drives.
func (h *matrixServer) createRuns(t *testing.T, project entities.Project, s fixture) {
	t.Helper()
	step, broken, reason := s["step"], s["broken"], []byte(`{"message":"`+classified+`"}`)
	add := func(id string, typ entities.EventType, correlation, payload string, data entities.EventData) {
		t.Helper()
		if payload != "" && !strings.HasPrefix(payload, "{") {
			payload = "devl" + `["` + payload + `"]`
		}
		_, err := h.log.Append(t.Context(), project, eventlog.Request{
			RunID: entities.RunID(id), Type: typ, CorrelationID: correlation, SpecVersion: 3, Payload: []byte(payload), Data: data,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	app, later := s["deployment"], time.Now().Add(time.Hour)
	add(s["run"], entities.EventRunCreated, "", classified, entities.EventData{
		DeploymentID: app, WorkflowName: "order", Attributes: map[string]string{"project": string(project)},
	})
	add(s["run"], entities.EventStepCreated, step, classified, entities.EventData{StepName: "pay"})
	add(s["run"], entities.EventStepCreated, broken, classified, entities.EventData{StepName: "pay"})
	add(s["run"], entities.EventStepStarted, broken, "", entities.EventData{})
	add(s["run"], entities.EventStepFailed, broken, string(reason), entities.EventData{})
	add(s["run"], entities.EventHookCreated, s["hook"], classified, entities.EventData{Token: s["token"]})
	add(s["run"], entities.EventWaitCreated, s["wait"], "", entities.EventData{ResumeAt: &later})
	for id, data := range map[string]entities.EventData{
		s["done"]:   {IdempotencyKey: s["idem"], RequestDigest: "another"},
		s["driven"]: {UniqueKey: s["unique"]}, s["failed"]: {},
		s["flowRun"]: {DeploymentID: s["flow"] + "@2", WorkflowName: s["flow"]},
	} {
		data.Driver = entities.DriverServer
		data.DeploymentID, data.WorkflowName = cmp.Or(data.DeploymentID, app), cmp.Or(data.WorkflowName, "order")
		_, _, err := h.log.Start(t.Context(), project, eventlog.Request{
			RunID: entities.RunID(id), Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven,
			Payload: []byte(`"` + classified + `"`), Data: data,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for id, typ := range map[string]entities.EventType{
		s["done"]: entities.EventRunCompleted, s["failed"]: entities.EventRunFailed,
	} {
		add(id, entities.EventRunStarted, "", "", entities.EventData{})
		add(id, typ, "", string(reason), entities.EventData{})
	}
	h.keepArchived(t, project, s["done"])
	h.exec(t, `
		INSERT INTO data_keys (id, project, wrapped_by, wrapped, created_at, retired_at, per_run, revision)
		SELECT decode(md5($1), 'hex'), $1, 'a', '', now() - interval '1 d', now(), true, coalesce(max(revision), 0) + 1
		FROM data_keys ON CONFLICT DO NOTHING`, project)
	h.exec(t, `INSERT INTO run_keys (run_id, project, secret) VALUES ($1, $2, sha256(''))`, s["done"], project)
	add(s["flowRun"], entities.EventStepCreated, "a", `"`+classified+`"`, entities.EventData{StepName: "a"})
	add(s["flowRun"], entities.EventStepFailed, "a", string(reason), entities.EventData{})
	add(s["driven"], entities.EventHookCreated, "inbox:notes", "", entities.EventData{Token: "inbox of " + s["driven"]})
	add(s["driven"], entities.EventStepCreated, "async", "", entities.EventData{
		StepName: "async", Step: &entities.StepSpec{DeploymentID: s["deployment"], Async: true},
	})
	add(s["driven"], entities.EventStoreSet, "set", `{"secret":"`+classified+`"}`, entities.EventData{})
	h.exec(t, `UPDATE messages SET lease = $2, due_at = now() + '1 minute' WHERE run_id = $1 AND work = 'run'`,
		s["driven"], s["lease"])
	h.createMessages(t, project, s)
	err := h.streams.Write(t.Context(), project, entities.RunID(s["run"]), entities.StreamName(s["stream"]),
		[][]byte{[]byte(classified)})
	if err != nil {
		t.Fatal(err)
	}
}

// createMessages creates a parked, a leased and a waiting message.
func (h *matrixServer) createMessages(t *testing.T, project entities.Project, s fixture) {
	t.Helper()
	const insert = `
		INSERT INTO messages (id, project, topic, deployment_id, run_id, content_type, body, expires_at, due_at, lease,
			parked_at, last_error)
		VALUES ($1, $2, $3, $4, $5, 'text/plain', 'classified', now() + '1 hour', now() + '1 minute', $6, $7, $8)`
	now := time.Now()
	h.exec(t, insert, s["parked"], project, s["topic"], s["deployment"], s["run"], "", &now, classified)
	h.exec(t, insert, s["parked"]+"-leased", project, s["topic"], s["deployment"], s["run"], s["receipt"], nil, "")
	h.exec(t, insert, s["message"], project, s["topic"], s["deployment"], s["run"], "", nil, "")
	h.exec(t, `UPDATE messages SET due_at = now() - interval '1 s', ticket = 1 WHERE id = $1`, s["message"])
	h.exec(t, `
		INSERT INTO message_keys (project, deployment_id, topic, key, message_id, expires_at)
		VALUES ($1, $2, $3, $4, $5, now() + '1 hour')`,
		project, s["deployment"], s["topic"], s["messageKey"], s["message"])
}
