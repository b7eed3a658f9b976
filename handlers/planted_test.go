package handlers

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/engine"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/stats"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// plantation has runs with a text of its own in every place that may have one that clients without access to payloads
// must not see. All texts contain [classified], except tokens, which contain [tokenMark].
type plantation struct {
	*matrixServer

	fixture fixture
	texts   []string
	runs    []string
}

// text returns the text of a place.
func (p *plantation) text(place string) string {
	p.texts = append(p.texts, classified+"-"+place)
	return classified + "-" + place
}

// json returns an object with the text of a place as its message.
func (p *plantation) json(place string) string { return `{"message":"` + p.text(place) + `"}` }

// run appends events to a new run of the client, or of the server.
func (p *plantation) run(t *testing.T, driver entities.Driver, events ...eventlog.Request) string {
	t.Helper()
	id := entities.NewRunID(time.Now())
	events[0].Data.DeploymentID, events[0].Data.WorkflowName = p.fixture["deployment"], "order"
	for i, r := range events {
		r.RunID, r.SpecVersion = id, 3
		if r.Type == entities.EventStepCreated {
			r.Data.StepName = "pay"
		}
		var err error
		if r.Data.Driver = driver; i == 0 && driver == entities.DriverServer {
			r.SpecVersion = entities.SpecDriven
			_, _, err = p.log.Start(t.Context(), entities.DefaultProject, r)
		} else {
			r.Data.Driver = ""
			_, err = p.log.Append(t.Context(), entities.DefaultProject, r)
		}
		if err != nil {
			t.Fatalf("%s: %v", r.Type, err)
		}
	}
	p.runs = append(p.runs, string(id))
	return string(id)
}

func request(kind entities.EventType, about, payload string) eventlog.Request {
	return eventlog.Request{Type: kind, CorrelationID: about, Payload: []byte(payload)}
}

func plant(t *testing.T) *plantation {
	t.Helper()
	h := newMatrixServer(t)
	p := &plantation{matrixServer: h, fixture: h.newFixture(t, entities.DefaultProject)}
	hook := request(entities.EventHookCreated, "hook", p.json("hook"))
	hook.Data.Token = tokenMark + "-planted"
	received := request(entities.EventHookReceived, "hook", p.json("received"))
	received.Data.ResumeDigest = p.text("resume-digest")
	p.run(t, entities.DriverClient,
		request(entities.EventRunCreated, "", p.json("input")), request(entities.EventRunStarted, "", ""),
		request(entities.EventStepCreated, "step", p.json("step-input")), request(entities.EventStepStarted, "step", ""),
		request(entities.EventStepRetrying, "step", p.json("step-retry")), request(entities.EventStepStarted, "step", ""),
		request(entities.EventStepCompleted, "step", p.json("step-output")), hook, received,
		request(entities.EventRunCompleted, "", p.json("output")))
	failed := request(entities.EventRunFailed, "",
		`{"message":"`+p.text("error")+`","details":{"card":"`+p.text("details")+`"}}`)
	p.run(t, entities.DriverClient,
		request(entities.EventRunCreated, "", `{}`), request(entities.EventRunStarted, "", ""),
		request(entities.EventStepCreated, "step", `{}`), request(entities.EventStepStarted, "step", ""),
		request(entities.EventStepFailed, "step", p.json("step-error")), failed)
	extra, err := cbor.Marshal(map[string]any{"error": map[string]any{"message": p.text("stable-error")}})
	if err != nil {
		t.Fatal(err)
	}
	failed = request(entities.EventRunFailed, "", "")
	failed.Extra = extra
	p.run(t, entities.DriverClient, request(entities.EventRunCreated, "", `{}`), failed)
	p.plantBlocked(t)
	_, _, err = engine.New(h.queue, h.log).PostSignal(t.Context(), store.Signal{
		Project: entities.DefaultProject, Name: "paid", Data: []byte(p.json("signal")),
	}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	run, chunks := entities.RunID(p.runs[0]), [][]byte{[]byte(p.text("stream"))}
	err = h.streams.Write(t.Context(), entities.DefaultProject, run, "stream", chunks)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range append(p.runs, p.fixture["flowRun"]) {
		h.keepArchived(t, entities.DefaultProject, run)
	}
	check.NoError(t, stats.NewFollower(h.pool).Follow(t.Context()))
	return p
}

// plantBlocked creates a run that the server drives and whose function fails.
func (p *plantation) plantBlocked(t *testing.T) {
	t.Helper()
	created := request(entities.EventRunCreated, "", p.json("driven-input"))
	created.Data.RequestDigest, created.Data.IdempotencyKey = p.text("request-digest"), "planted"
	hook := request(entities.EventHookCreated, "hook", "")
	hook.Data.Token, hook.Data.Signal, hook.Data.Condition = tokenMark+"-signal", "paid", p.text("condition")
	inbox := request(entities.EventHookCreated, "inbox:notes", "")
	inbox.Data.Token = tokenMark + "-inbox"
	id := p.run(t, entities.DriverServer, created, request(entities.EventRunStarted, "", ""), hook, inbox,
		request(entities.EventHookReceived, "inbox:notes", p.json("inbox")),
		request(entities.EventStepCreated, "step", p.json("driven-step")),
		request(entities.EventStoreSet, "set", `{"step":"`+p.text("store")+`"}`))
	p.fixture["blocked"] = id
	p.exec(t, `
		UPDATE messages SET blocked = jsonb_build_object('code', 'busy', 'message', $2::text), last_error = $3,
			delivery_count = 3, first_failed_at = now(), due_at = now() + interval '1 hour'
		WHERE run_id = $1 AND work = 'run'`, id, p.text("blocked"), p.text("last-error"))
}

// plantedQueries are the parameters with which a route is tried; none for those that are not here.
var plantedQueries = map[string][]string{
	"GET /v1/runs/:id/wait":           {"?timeout=0s"},
	"GET /v1/runs/:id/events":         {"?payloads=true"},
	"GET /v1/archive/runs/:id/events": {"?payloads=true"},
	"GET /v1/events":                  {"?payloads=true"},
	"GET /v1/events/stream":           {"?after=0&payloads=true"},
	"GET /v1/messages":                {"", "?state=retrying"},
	"GET /v1/search":                  {"?text=order"},
	"GET /v1/live":                    {"?runs=true&topics=true", "?run={blocked}"},
	"GET /v1/runs/:id/events/stream":  {"?payloads=true"},
}

// requests returns requests to every route of the native API that reads and that a role may use, about everything that
// was planted.
func (p *plantation) requests(role admin.Role) (list []testRequest) {
	for route, permission := range p.auth.Permissions() {
		path, ok := strings.CutPrefix(route, "GET ")
		if !ok || !strings.HasPrefix(path, "/v1/") || !slices.Contains(rolesOf(permission), role) {
			continue
		}
		paths := []string{path}
		expand := func(param string, values ...string) {
			var all []string
			for _, text := range paths {
				if !strings.Contains(text+"/", param+"/") {
					all = append(all, text)
					continue
				}
				for _, value := range values {
					all = append(all, strings.Replace(text, param, value, 1))
				}
			}
			paths = all
		}
		switch {
		case strings.Contains(path, "/streams/:name"):
			expand(":id", p.runs[0])
			expand(":name", "stream")
		case strings.HasPrefix(path, "/v1/runs/:id"), strings.HasPrefix(path, "/v1/archive/runs/:id"):
			expand(":id", append(p.runs, p.fixture["flowRun"])...)
		}
		expand(":seq", "1", "3", "9")
		expand(":stepId", "step")
		expand(":hookId", "hook", "inbox:notes")
		expand(":key", "step", p.fixture["key"])
		expand(":name", p.fixture["schedule"], p.fixture["flow"], "goals-"+p.fixture["flow"],
			p.fixture["trigger"], p.fixture["limit"])
		expand(":workflow", p.fixture["policy"])
		expand(":id", p.fixture["deployment"], p.fixture["parked"], p.fixture["message"], p.fixture["key"], p.fixture["collection"])
		for _, path := range paths {
			queries, ok := plantedQueries[route]
			if !ok {
				queries = []string{""}
			}
			for _, query := range queries {
				endless := strings.HasSuffix(path, "/stream") || strings.HasSuffix(path, "/tail") || path == "/v1/live"
				list = append(list, testRequest{route: route, path: path + query, endless: endless})
			}
		}
	}
	return list
}

// reveals reports whether an answer has a text, as it is or in base64.
func reveals(answer, text string) bool {
	for before := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + text + "xx"))
		if strings.Contains(answer, encoded[(before*4+2)/3:(before+len(text))*4/3]) {
			return true
		}
	}
	return strings.Contains(answer, text)
}

// TestNoPayloadReachesRoleMetadata plants a text in every place that has payloads, tokens, conditions or digests. An
// admin sees each of them somewhere; with the role metadata, by a key or in a browser, no answer has one, nor its
// headers.
func TestNoPayloadReachesRoleMetadata(t *testing.T) {
	t.Parallel()
	p := plant(t)
	var seen strings.Builder
	for _, tr := range p.requests(admin.RoleAdmin) {
		got := p.send(t, tr, p.fixture, p.keyTexts["default"][admin.RoleAdmin])
		seen.WriteString(got.body)
	}
	for _, text := range append(p.texts, tokenMark+"-planted", classified+"-literal-1", classified+"-catalog") {
		if !reveals(seen.String(), text) {
			t.Errorf("no answer has %s: it is not planted", text)
		}
	}
	key := p.keyTexts["default"][admin.RoleMetadata]
	for _, door := range []string{"key", "browser"} {
		answered := map[string]bool{}
		for _, tr := range p.requests(admin.RoleMetadata) {
			got := p.send(t, tr, p.fixture, key)
			if got.status == http.StatusOK {
				answered[tr.route] = true
			}
			text := strings.ReplaceAll(fmt.Sprint(got.header, got.body), `"text":"`+classified+`"`, "")
			if reveals(text, classified) || reveals(text, tokenMark) {
				t.Errorf("%s by %s: %d %.2000s", tr.path, door, got.status, got.body)
			}
		}
		for route, permission := range p.auth.Permissions() {
			reads := strings.HasPrefix(route, "GET /v1/") && slices.Contains(rolesOf(permission), admin.RoleMetadata)
			if reads && !answered[route] {
				t.Errorf("%s: no request was answered", route)
			}
		}
		p.sessions = map[string]browserSession{}
		p.enter(t, entities.DefaultProject, key)
	}
}
