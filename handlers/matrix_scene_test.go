package handlers

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/access"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/engine"
)

// classified is in every payload of a scene, and token in every token of a hook.
const (
	classified = "classified"
	tokenMark  = "open-sesame"
)

// house is a server with two projects and keys of every role to both.
type house struct {
	pool    *pgxpool.Pool
	log     *eventlog.Log
	streams *eventlog.Streams
	queue   *queue.Queue
	secrets *eventlog.Secrets
	keys    *access.Keys
	echo    *echo.Echo
	gate    *auth.Gate
	web     *httptest.Server
	// texts are the keys that are good, by project and role.
	texts map[entities.Project]map[entities.Role]string
	made  atomic.Int64
}

func newHouse(t *testing.T) *house {
	t.Helper()
	pool, err := migrations.Pool(t.Context(), testdb.New(t), migrations.DefaultSchema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	logger := slog.New(slog.DiscardHandler)
	hub := eventlog.NewHub(pool, migrations.DefaultSchema+".hints", logger)
	q, err := queue.New(pool, migrations.DefaultSchema, hub)
	if err != nil {
		t.Fatal(err)
	}
	h := &house{
		pool: pool, log: eventlog.New(pool, hub, q, time.Now), streams: eventlog.NewStreams(pool, hub, time.Now), queue: q,
		secrets: eventlog.NewSecrets(pool, time.Now), keys: access.NewKeys(pool, time.Now),
		texts: map[entities.Project]map[entities.Role]string{},
	}
	draining, drain := context.WithCancel(context.Background())
	o := Options{
		Pool: pool, Log: h.log, Streams: h.streams, Queue: q, Keys: h.keys, Logger: logger,
		Stopping: context.Background(), Draining: draining,
	}
	h.gate = o.gate()
	h.echo = o.server(h.gate)
	h.web = httptest.NewServer(h.echo)
	t.Cleanup(h.web.Close)
	t.Cleanup(drain)
	if _, err := access.NewProjects(pool, time.Now).Put(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	for _, project := range []entities.Project{entities.DefaultProject, "shop"} {
		h.texts[project] = map[entities.Role]string{}
		for _, role := range entities.Roles() {
			_, h.texts[project][role] = h.mint(t, project, role)
		}
	}
	return h
}

func (h *house) mint(t *testing.T, project entities.Project, role entities.Role) (entities.KeyID, string) {
	t.Helper()
	k, text, err := h.keys.Mint(t.Context(), entities.Key{Project: project, Name: "k", Role: role})
	if err != nil {
		t.Fatal(err)
	}
	return k.ID, text
}

func (h *house) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := h.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// scene is one of everything that a project can have, by the words of trials.
type scene map[string]string

// ghost has the words of a scene that was never there.
func (h *house) ghost() scene {
	n := h.made.Add(1)
	id := func(what string) string { return fmt.Sprintf("%s-%d", what, n) }
	return scene{
		"run": string(entities.NewRunID(time.Now())), "done": string(entities.NewRunID(time.Now())),
		"failed": string(entities.NewRunID(time.Now())), "driven": string(entities.NewRunID(time.Now())),
		"step": id("step"), "broken": id("broken"), "hook": id("hook"), "wait": id("wait"), "token": id(tokenMark),
		"stream": id("strm"), "deployment": id("app"), "spare": id("spare"), "secret": id("secret"),
		"spareSecret": id("spare-secret"), "parked": id("msg_parked"), "message": id("msg_waiting"),
		"receipt": id("rh_sdk"), "lease": id("rh_run"), "topic": id("__wkf_step_order"), "idem": id("idem"),
		"unique": id("unique"), "signalKey": id("signal"), "messageKey": id("message-key"),
		"event": string(entities.EventIDAt(1)), "hookSeq": "6", "key": id("key"), "signingKey": id("skey"),
	}
}

// scene sets one in a project.
func (h *house) scene(t *testing.T, project entities.Project) scene {
	t.Helper()
	s := h.ghost()
	for _, id := range []string{s["deployment"], s["spare"]} {
		if _, err := h.queue.PutDeployment(t.Context(), project, id, "http://ours.test"); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{s["secret"], s["spareSecret"]} {
		if _, err := h.secrets.Put(t.Context(), project, name, []entities.SecretValue{classified}); err != nil {
			t.Fatal(err)
		}
	}
	h.exec(t, `DELETE FROM signing_keys WHERE project = $1`, project) // there may be two at most
	key, _, err := eventlog.NewSigningKeys(h.pool, time.Now).Create(t.Context(), project)
	if err != nil {
		t.Fatal(err)
	}
	s["signingKey"] = key.ID
	h.runs(t, project, s)
	h.messages(t, project, s)
	err = h.streams.Write(t.Context(), project, entities.RunID(s["run"]), entities.StreamName(s["stream"]),
		[][]byte{[]byte(classified)})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = engine.New(h.queue, h.log).PostSignal(t.Context(), entities.Signal{
		Project: project, Name: "paid", Key: s["signalKey"], Data: []byte(`"` + classified + `"`),
	}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	id, _ := h.mint(t, project, entities.RoleRead)
	s["key"] = string(id)
	return s
}

// runs are one of the SDK with one of everything, and three that the server continues.
func (h *house) runs(t *testing.T, project entities.Project, s scene) {
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
	} {
		data.Driver, data.DeploymentID, data.WorkflowName = entities.DriverServer, app, "order"
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
	h.exec(t, `UPDATE messages SET lease = $2, due_at = now() + '1 minute' WHERE run_id = $1 AND work = 'run'`,
		s["driven"], s["lease"])
}

// messages are one that is parked, one that is leased, and one that waits.
func (h *house) messages(t *testing.T, project entities.Project, s scene) {
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

// told fills in a scene's words.
func (s scene) told(text string) string {
	for word, value := range s {
		text = strings.ReplaceAll(text, "{"+word+"}", value)
	}
	return text
}

// forget makes a text about the scene one about another.
func (s scene) forget(text string, other scene) string {
	for word, value := range s {
		if word != "event" && word != "hookSeq" {
			text = strings.ReplaceAll(text, value, other[word])
		}
	}
	return text
}

// encode makes the body that a trial means.
func encode(t *testing.T, body string) []byte {
	t.Helper()
	kind, text, ok := strings.Cut(body, " ")
	if !ok || kind != "cbor" && kind != "frame" {
		return []byte(body)
	}
	var value map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if n, ok := value["specVersion"].(float64); ok {
		value["specVersion"] = int(n)
	}
	data, err := cbor.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if kind == "cbor" {
		return data
	}
	framed := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
	return binary.BigEndian.AppendUint32(append(framed, data...), 0)
}

// notOfProjects are the tables that have nothing of a project's, or stand for all of them.
var notOfProjects = map[string]bool{"processes": true, "sweeper": true, "projects": true, "run_wakes": true}

// holdings is a digest of all that a project has, in every table there is.
func (h *house) holdings(t *testing.T, project entities.Project) map[string]string {
	t.Helper()
	found := map[string]string{}
	for table, condition := range h.tables(t) {
		rows, err := h.pool.Query(t.Context(),
			`SELECT coalesce(md5(string_agg(t::text, E'\n' ORDER BY t::text)), '') FROM `+table+` t WHERE `+condition, project)
		if err != nil {
			t.Fatal(err)
		}
		if found[table], err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string]); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// tables are those that have something of projects, with what says whose it is.
func (h *house) tables(t *testing.T) map[string]string {
	t.Helper()
	rows, err := h.pool.Query(t.Context(), `
		SELECT c.relname, coalesce((SELECT string_agg(attname, ' ') FROM pg_attribute a
			WHERE a.attrelid = c.oid AND attname IN ('project', 'run_id', 'stream_id')), '')
		FROM pg_class c WHERE c.relkind IN ('r', 'p') AND c.relnamespace = $1::text::regnamespace
			AND c.relname NOT LIKE 'river%' AND c.relname NOT LIKE '%goose%' AND NOT c.relispartition`,
		migrations.DefaultSchema)
	if err != nil {
		t.Fatal(err)
	}
	conditions := map[string]string{}
	var table, columns string
	_, err = pgx.ForEachRow(rows, []any{&table, &columns}, func() error {
		switch {
		case notOfProjects[table]:
		case strings.Contains(columns, "project"):
			conditions[table] = `t.project = $1`
		case strings.Contains(columns, "run_id"):
			conditions[table] = `t.run_id IN (SELECT id FROM runs WHERE project = $1)`
		case strings.Contains(columns, "stream_id"):
			conditions[table] = `t.stream_id IN (SELECT id FROM streams WHERE project = $1)`
		default:
			t.Errorf("table %s: whose its rows are is unknown to this test", table)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return conditions
}
