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

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/archive"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/ui"
)

// classified is in every payload of a fixture, and tokenMark in every hook token.
const (
	classified = "classified"
	tokenMark  = "open-sesame"
)

// matrixServer is a server with two projects and keys of every role in both.
type matrixServer struct {
	pool    *pgxpool.Pool
	log     *eventlog.Log
	streams *read.Streams
	queue   *queue.Queue
	secrets *admin.Secrets
	archive *archive.Folder
	keys    *access.Keys
	echo    *echo.Echo
	auth    *auth.Authenticator
	web     *httptest.Server
	// keyTexts are valid keys by project and role.
	keyTexts map[entities.Project]map[admin.Role]string
	// sessions are those of browsers, by the key with which they opened a project. Requests to /v1 with one of these keys
	// go through the dashboard.
	sessions map[string]browserSession
	access   *access.Sessions
	made     atomic.Int64
	// conditions are those of tables, once a snapshot has asked for them.
	conditions map[string]string
}

type browserSession struct {
	project entities.Project
	cookie  string
}

// enterAll opens sessions with all keys.
func (h *matrixServer) enterAll(t *testing.T) {
	t.Helper()
	h.sessions = map[string]browserSession{}
	for project, byRole := range h.keyTexts {
		for _, text := range byRole {
			h.enter(t, project, text)
		}
	}
}

// enter opens a session with a key for later requests with it, even if its role can do nothing in the dashboard.
func (h *matrixServer) enter(t *testing.T, project entities.Project, text string) {
	t.Helper()
	h.sessions[text] = browserSession{project, h.cookie(t, project, text)}
}

// cookie opens a session with a key and returns its cookie.
func (h *matrixServer) cookie(t *testing.T, project entities.Project, text string) string {
	t.Helper()
	key := check.Value(h.keys.Lookup(t.Context(), text))(t)
	cookie := check.Value(h.access.Enter(t.Context(), "", access.Opened{Project: project, Key: &key}))(t)
	return cookie
}

func newMatrixServer(t *testing.T) *matrixServer {
	t.Helper()
	pool := testdb.Pool(t)
	logger := slog.New(slog.DiscardHandler)
	hub := pg.NewHub(pool, migrations.DefaultSchema+".hints", logger)
	q := check.Value(queue.New(pool, migrations.DefaultSchema, hub))(t)
	h := &matrixServer{
		pool: pool, log: eventlog.New(pool, hub, q, time.Now), streams: read.NewStreams(pool, hub, time.Now), queue: q,
		secrets: admin.NewSecrets(pool, time.Now), keys: access.NewKeys(pool, time.Now),
		keyTexts: map[entities.Project]map[admin.Role]string{},
	}
	h.archive = check.Value(archive.NewFolder(t.TempDir(), upkeep.NewMaintainer(pool, time.Now)))(t)
	draining, drain := context.WithCancel(context.Background())
	o := Options{
		Fence: true,
		Pool:  pool, Log: h.log, Streams: h.streams, Queue: q, Keys: h.keys, Logger: logger,
		Archived:   runfile.NewLogs(h.archive.Open, atrest.Identity{}),
		Encryption: encryption.New(nil, time.Now),
		Stopping:   context.Background(), Draining: draining, UI: ui.Files(),
	}
	o.setDefaults()
	h.access = o.sessions
	h.auth = o.authenticator(o.Keys)
	h.echo = o.server(h.auth)
	h.web = httptest.NewServer(h.echo)
	t.Cleanup(h.web.Close)
	t.Cleanup(drain)
	check.Value(access.NewProjects(pool, time.Now).Put(t.Context(), "shop", nil))(t)
	for _, project := range []entities.Project{entities.DefaultProject, "shop"} {
		h.keyTexts[project] = map[admin.Role]string{}
		for _, role := range admin.Roles() {
			_, h.keyTexts[project][role] = h.mint(t, project, role)
		}
	}
	return h
}

// keepArchived archives a run, which stays.
func (h *matrixServer) keepArchived(t *testing.T, project entities.Project, id string) {
	t.Helper()
	check.Value(h.archive.Store(t.Context(), project, entities.RunID(id)))(t)
	var b pgx.Batch
	store.KeepArchived(&b, []entities.RunID{entities.RunID(id)})
	check.NoError(t, h.pool.SendBatch(t.Context(), &b).Close())
}

func (h *matrixServer) mint(t *testing.T, project entities.Project, role admin.Role) (admin.KeyID, string) {
	t.Helper()
	k := admin.Key{Project: project, Name: "k", Role: role}
	if role == admin.RoleWorker {
		k.Deployments = "app-*" // those of fixtures
	}
	k, text, err := h.keys.Mint(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	return k.ID, text
}

func (h *matrixServer) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	testdb.Exec(t, h.pool, sql, args...)
}

// fixture has the IDs of one object of every kind in a project, by the placeholders of requests.
type fixture map[string]string

// missingIDs returns a fixture whose IDs do not exist.
func (h *matrixServer) missingIDs() fixture {
	n := h.made.Add(1)
	id := func(what string) string { return fmt.Sprintf("%s-%d", what, n) }
	return fixture{
		"run": string(entities.NewRunID(time.Now())), "done": string(entities.NewRunID(time.Now())),
		"failed": string(entities.NewRunID(time.Now())), "driven": string(entities.NewRunID(time.Now())),
		"step": id("step"), "broken": id("broken"), "hook": id("hook"), "wait": id("wait"), "token": id(tokenMark),
		"stream": id("strm"), "deployment": id("app"), "spare": id("spare"), "secret": id("secret"),
		"spareSecret": id("spare-secret"), "parked": id("msg_parked"), "message": id("msg_waiting"),
		"receipt": id("rh_sdk"), "lease": id("rh_run"), "topic": id("__wkf_step_order"), "idem": id("idem"),
		"unique": id("unique"), "signalKey": id("signal"), "messageKey": id("message-key"),
		"event": string(entities.Event{Seq: 1}.ID()), "hookSeq": "6", "key": id("key"), "signingKey": id("skey"),
		"schedule": id("schedule"), "spareSchedule": id("spare-schedule"),
		"collection": id("wrun_collection"), "flushedCollection": id("wrun_flushed"), "spareCollection": id("wrun_spare"),
		"flow": id("flow"), "flowRun": string(entities.NewRunID(time.Now())),
		"trigger": id("trigger"), "spareTrigger": id("spare-trigger"),
		"limit": id("limit"), "spareLimit": id("spare-limit"), "policy": id("policy"), "sparePolicy": id("spare-policy"),
		"paused": id("paused"), "session": fmt.Sprintf("%064x", n),
	}
}

// newFixture creates a fixture in a project.
func (h *matrixServer) newFixture(t *testing.T, project entities.Project) fixture {
	t.Helper()
	return h.newFixtureFor(t, project, func(...string) bool { return true })
}

// newFixtureFor creates the deployments of a fixture, and of the rest what is needed, which is asked for by placeholders.
func (h *matrixServer) newFixtureFor(
	t *testing.T, project entities.Project, needs func(placeholders ...string) bool,
) fixture {
	t.Helper()
	s := h.missingIDs()
	for _, id := range []string{s["deployment"], s["spare"], s["paused"]} {
		check.Value(h.queue.PutDeployment(t.Context(), project, id, "http://ours.test"))(t)
	}
	for _, part := range []struct {
		create       func(*testing.T, entities.Project, fixture)
		placeholders []string
	}{
		{h.createSecrets, []string{"secret", "spareSecret"}},
		{h.createSchedules, []string{"schedule", "spareSchedule"}},
		{h.createFlows, []string{"flow", "flowRun"}},
		{h.createCollections, []string{"collection", "flushedCollection", "spareCollection", "unique"}},
		{h.createTriggers, []string{"trigger", "spareTrigger"}},
		{h.createLimits, []string{"limit", "spareLimit", "policy", "sparePolicy"}},
		{h.createPause, []string{"paused"}},
		{h.createSigningKey, []string{"signingKey"}},
		{h.createRuns, []string{
			"run", "done", "failed", "driven", "flowRun", "step", "broken", "hook", "wait", "token", "event", "hookSeq",
			"stream", "idem", "unique", "lease", "parked", "message", "receipt", "topic", "messageKey",
		}},
		{h.createSignal, []string{"signalKey"}},
		{h.createKey, []string{"key", "session"}},
	} {
		if needs(part.placeholders...) {
			part.create(t, project, s)
		}
	}
	return s
}

// fill replaces the placeholders in a text with IDs.
func (s fixture) fill(text string) string {
	for word, value := range s {
		text = strings.ReplaceAll(text, "{"+word+"}", value)
	}
	return text
}

// replaceIDs replaces the IDs in a text with those of another fixture.
func (s fixture) replaceIDs(text string, other fixture) string {
	for word, value := range s {
		if word != "event" && word != "hookSeq" {
			text = strings.ReplaceAll(text, value, other[word])
		}
	}
	return text
}

// encode encodes the body of a request.
func encode(t *testing.T, body string) []byte {
	t.Helper()
	kind, text, ok := strings.Cut(body, " ")
	if !ok || kind != "cbor" && kind != "frame" {
		return []byte(body)
	}
	var framed []byte
	for decoder := json.NewDecoder(strings.NewReader(text)); decoder.More(); {
		var value map[string]any
		if err := decoder.Decode(&value); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if n, ok := value["specVersion"].(float64); ok {
			value["specVersion"] = int(n)
		}
		data := check.Value(cbor.Marshal(value))(t)
		if kind == "cbor" {
			return data
		}
		framed = binary.BigEndian.AppendUint32(framed, uint32(len(data)))
		framed = binary.BigEndian.AppendUint32(append(framed, data...), 0)
	}
	return framed
}

// globalTables have no rows that belong to a project.
var globalTables = map[string]bool{
	"processes": true, "sweeper": true, "projects": true, "run_wakes": true, "server_keys": true,
	"sessions": true, "feed_epochs": true, "departures": true, "leaving": true, "leaving_changes": true, "arriving": true,
}

// snapshot returns a digest of a project's rows in every table.
func (h *matrixServer) snapshot(t *testing.T, project entities.Project) map[string]string {
	t.Helper()
	if h.conditions == nil {
		h.conditions = h.tables(t)
	}
	digests := map[string]string{}
	var b pgx.Batch
	for table, condition := range h.conditions {
		b.Queue(`SELECT coalesce(md5(string_agg(t::text, E'\n' ORDER BY t::text)), '') FROM `+table+` t WHERE `+condition, project).
			QueryRow(func(row pgx.Row) error {
				var digest string
				err := row.Scan(&digest)
				digests[table] = digest
				return err
			})
	}
	check.NoError(t, h.pool.SendBatch(t.Context(), &b).Close())
	return digests
}

// tables returns the tables with rows of projects, and the condition that selects a project's rows.
func (h *matrixServer) tables(t *testing.T) map[string]string {
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
		case globalTables[table]:
		case strings.Contains(columns, "project"):
			conditions[table] = `t.project = $1`
		case strings.Contains(columns, "run_id"):
			conditions[table] = `t.run_id IN (SELECT id FROM runs WHERE project = $1)`
		case strings.Contains(columns, "stream_id"):
			conditions[table] = `t.stream_id IN (SELECT id FROM streams WHERE project = $1)`
		default:
			t.Errorf("table %s: this test does not know which project its rows belong to", table)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return conditions
}
