package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/archive"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

// marker is in every payload of the test, and nowhere else.
const marker = "MARKER-"

// encrypted is a server whose default project is encrypted.
type encrypted struct {
	*Server
	t   *testing.T
	dsn string
}

func newEncrypted(t *testing.T, configure ...func(*Server)) *encrypted {
	t.Helper()
	dsn := testdb.New(t)
	s := newServer(t, dsn, RoleAll)
	s.EncryptionKeys = "test=" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32))
	for _, c := range configure {
		c(s)
	}
	mustStart(t, s)
	e := &encrypted{s, t, dsn}
	if got := e.call(http.MethodPut, "/v1/projects/default", `{"encryption":"on"}`); !strings.Contains(got, `"dataKeys":1`) {
		t.Fatalf("encrypt: %s", got)
	}
	return e
}

// call sends a request, and returns the answer, which must be a success.
func (e *encrypted) call(method, path, body string) string {
	e.t.Helper()
	resp := servertest.Request(e.t, method, "http://"+e.addr+path, body, "Content-Type", "application/json")
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= http.StatusBadRequest {
		e.t.Fatalf("%s %s: %s: %s, %v", method, path, resp.Status, text, err)
	}
	return string(text)
}

// start starts a run and returns its ID.
func (e *encrypted) start(body string) string {
	e.t.Helper()
	var run struct{ ID string }
	if err := json.Unmarshal([]byte(e.call(http.MethodPost, "/v1/runs", body)), &run); err != nil || run.ID == "" {
		e.t.Fatalf("start: %v", err)
	}
	return run.ID
}

// ended waits for the end of a run, and returns it.
func (e *encrypted) ended(id string) string {
	e.t.Helper()
	run := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		run = e.call(http.MethodGet, "/v1/runs/"+id+"/wait?timeout=5s", "")
		if strings.Contains(run, `"status":"completed"`) {
			return run
		}
	}
	e.t.Fatalf("run %s has not completed: %s\n%s", id, run, e.call(http.MethodGet, "/v1/runs/"+id+"/events", ""))
	return ""
}

// logged waits until the log of a run has an event.
func (e *encrypted) logged(id, event string) {
	e.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if strings.Contains(e.call(http.MethodGet, "/v1/runs/"+id+"/events", ""), event) {
			return
		}
	}
	e.t.Fatalf("run %s has no %s", id, event)
}

func has(t *testing.T, what, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, marker+w) {
			t.Errorf("%s has no %s: %s", what, w, text)
		}
	}
}

// function is a workflow by the contract that uses all that has payloads: steps, which fail at first, a hook for a
// signal, the store, and messages of failures.
func function(t *testing.T) *httptest.Server {
	t.Helper()
	failed := false
	answer := func(w http.ResponseWriter, status int, body string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			Type   string
			Events []struct{ Type, Step string }
			Run    struct{ Input json.RawMessage }
		}
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &call); err != nil || !bytes.Contains(body, []byte(marker)) {
			t.Errorf("the function got %s, %v", body, err)
		}
		has := func(event string) bool { return bytes.Contains(body, []byte(`"`+event+`"`)) }
		switch {
		case call.Type == "step" && !failed:
			failed = true
			answer(w, http.StatusInternalServerError, marker+"text of a failure")
		case call.Type == "step":
			answer(w, http.StatusOK, `{"output": "`+marker+`output of the step"}`)
		case has("hook_received"):
			answer(w, http.StatusOK, `{"commands": [{"type": "complete", "output": "`+marker+`output of the run"}]}`)
		case has("step_completed"):
			answer(w, http.StatusOK, `{"commands": [
				{"type": "setStore", "id": "set", "values": {"key": "`+marker+`value of the store"}},
				{"type": "openHook", "id": "hook", "signal": {"name": "paid"}}]}`)
		default:
			answer(w, http.StatusOK, `{"commands": [
				{"type": "runStep", "id": "charge", "name": "charge", "input": "`+marker+`input of the step"}]}`)
		}
	}))
	t.Cleanup(app.Close)
	return app
}

// No payload of an encrypted project is in a dump of the database; all of them come back where they are asked for.
func TestNothingOfAnEncryptedProjectIsInADump(t *testing.T) {
	t.Parallel()
	e := newEncrypted(t)
	e.call(http.MethodPut, "/v1/deployments/shop", `{"url":"`+function(t).URL+`","workflows":["order"]}`)
	run := e.start(`{"workflow":"order","deployment":"shop","input":"` + marker + `input of the run"}`)
	e.logged(run, "hook_created")
	has(t, "the store", e.call(http.MethodGet, "/v1/runs/"+run+"/store", ""), "value of the store")
	e.call(http.MethodPost, "/v1/signals/paid", `{"data":"`+marker+`data of the signal","keepFor":"1h"}`)
	has(t, "the run", e.ended(run), "input of the run", "output of the run")
	has(t, "the log", e.call(http.MethodGet, "/v1/runs/"+run+"/events?payloads=true", ""),
		"input of the step", "output of the step", "value of the store", "data of the signal")
	e.call(http.MethodPut, "/v1/schedules/nightly",
		`{"cron":"0 3 * * *","workflow":"order","deployment":"shop","input":"`+marker+`input of the schedule"}`)
	has(t, "the schedule", e.call(http.MethodGet, "/v1/schedules/nightly", ""), "input of the schedule")
	copied := e.call(http.MethodPost, "/v1/runs/"+run+"/rerun", `{}`)
	has(t, "the rerun", copied, "input of the run")
	e.call(http.MethodPost, "/v1/flows", `{"document":"flow: note\nsteps: {kept: {set: \"${input}\"}}\noutput: \"${steps.kept.output}\"\n"}`)
	flow := e.start(`{"workflow":"note","input":"` + marker + `input of the flow"}`)
	if got := e.ended(flow); strings.Count(got, marker+"input of the flow") < 2 {
		t.Errorf("the flow has not its input as its output: %s", got)
	}
	e.checkLog(run)
	e.checkDump()
	e.call(http.MethodPut, "/v1/projects/default", `{"encryption":"shred"}`)
	other := newServer(t, e.dsn, RoleAPI) // which has none of it in memory
	other.EncryptionKeys = e.EncryptionKeys
	mustStart(t, other)
	e.Server = other
	for _, path := range []string{
		"", "/events?payloads=true", "/steps", "/hooks", "/store", "/why", "/timeline",
	} {
		if text := e.call(http.MethodGet, "/v1/runs/"+run+path, ""); strings.Contains(text, marker) || !json.Valid([]byte(text)) {
			t.Errorf("%s of a shredded run is %s", path, text)
		}
	}
	if text := e.call(http.MethodGet, "/sdk/v2/runs/"+run, ""); strings.Contains(text, marker) {
		t.Errorf("the SDK gets %q", text)
	}
}

// checkLog verifies the run, and exports and imports it.
func (e *encrypted) checkLog(run string) {
	e.t.Helper()
	ctx, id := e.t.Context(), entities.RunID(run)
	m := upkeep.NewMaintainer(e.pool, time.Now)
	if err := m.Verify(ctx, id, func(d upkeep.Difference) { e.t.Errorf("verify: %v", d) }); err != nil {
		e.t.Error(err)
	}
	var records []upkeep.Record
	if _, err := m.Export(ctx, id, func(r upkeep.Record) error { records = append(records, r); return nil }); err != nil {
		e.t.Fatal(err)
	}
	if text, err := json.Marshal(records); err != nil || bytes.Contains(text, []byte(marker)) {
		e.t.Errorf("the export has payloads, %v", err)
	}
	for _, r := range records {
		if r.Event != nil && bytes.Contains(r.Event.Payload, []byte(marker)) {
			e.t.Errorf("the export has the payload of event %d", r.Event.Seq)
		}
	}
	e.checkArchived(id, records)
	if _, err := e.pool.Exec(ctx, `DELETE FROM runs WHERE id = $1`, id); err != nil {
		e.t.Fatal(err)
	}
	next := func() (upkeep.Record, error) {
		if len(records) == 0 {
			return upkeep.Record{}, io.EOF
		}
		r := records[0]
		records = records[1:]
		return r, nil
	}
	if _, err := m.Import(ctx, next); err != nil {
		e.t.Fatal(err)
	}
	has(e.t, "the import", e.call(http.MethodGet, "/v1/runs/"+run+"/store", ""), "value of the store")
}

// checkArchived reads the log of the run from the file that the records make: with its payloads, if they are wanted.
func (e *encrypted) checkArchived(id entities.RunID, records []upkeep.Record) {
	e.t.Helper()
	var file bytes.Buffer
	err := runfile.Write(&file, func(emit func(upkeep.Record) error) (err error) {
		for _, r := range records {
			err = errors.Join(err, emit(r))
		}
		return err
	})
	if err != nil {
		e.t.Fatal(err)
	}
	logs := runfile.NewLogs(func(context.Context, entities.Project, entities.RunID) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(file.Bytes())), nil
	}, e.payloads)
	for with, want := range map[read.Payloads]bool{read.WithPayloads: true, read.WithoutPayloads: false} {
		page, err := logs.Events(e.t.Context(), records[0].Run.Project, id, 0, 1000, with)
		has := slices.ContainsFunc(page.Entries, func(e read.Entry) bool { return bytes.Contains(e.Payload, []byte(marker)) })
		if err != nil || has != want {
			e.t.Errorf("the archived log has payloads: %v, want %v; error %v", has, want, err)
		}
	}
}

// checkDump searches a dump of the database for payloads, as text and as Postgres prints bytes.
func (e *encrypted) checkDump() {
	e.t.Helper()
	dump, err := exec.CommandContext(e.t.Context(), "pg_dump", "--data-only", e.dsn).Output()
	if err != nil {
		e.t.Fatal(err)
	}
	if !bytes.Contains(dump, []byte("order")) {
		e.t.Fatal("the dump has no run")
	}
	for line := range strings.Lines(string(dump)) {
		if strings.Contains(line, marker) || strings.Contains(line, fmt.Sprintf("%x", marker)) {
			e.t.Errorf("the dump has a payload: %s", line)
		}
	}
}

// What an app of the Workflow SDK writes is encrypted: payloads and other fields of events, streams and messages.
func TestWhatTheSDKWritesIsEncrypted(t *testing.T) {
	t.Parallel()
	e := newEncrypted(t)
	ctx, id := t.Context(), entities.NewRunID(time.Now())
	if _, err := e.log.Append(ctx, entities.DefaultProject, eventlog.Request{
		RunID: id, Type: entities.EventRunCreated, SpecVersion: 3, Payload: []byte("devl" + marker + "input"),
		Data: entities.EventData{WorkflowName: "order", DeploymentID: "shop"}, Extra: []byte("\xa1\x61x\x67" + marker),
	}); err != nil {
		t.Fatal(err)
	}
	e.call(http.MethodPut, "/sdk/v2/runs/"+string(id)+"/stream/strm_1", marker+"chunk")
	sent := servertest.Request(t, http.MethodPost, "http://"+e.addr+"/sdk/queues-proxy/api/v3/topic/__wkf_workflow_order",
		marker+"body", "Vqs-Deployment-Id", "shop", "X-Vercel-Workflow-Run-Id", string(id))
	if sent.StatusCode != http.StatusCreated {
		t.Fatalf("the message: %s", sent.Status)
	}
	for _, table := range []string{"stream_chunks", "messages"} {
		if n := testdb.In(e.pool).Count(t, `SELECT count(*) FROM `+table); n != 1 {
			t.Errorf("%s has %d rows, want the payload", table, n)
		}
	}
	event, err := e.log.Event(context.WithoutCancel(ctx), entities.DefaultProject, id, 1)
	if err != nil || string(event.Payload) != "devl"+marker+"input" || !bytes.Contains(event.Extra, []byte(marker)) {
		t.Errorf("the event is %q, %q, %v", event.Payload, event.Extra, err)
	}
	e.checkDump()
}

// Large payloads of an encrypted project are encrypted objects, which nobody reads once their run is shredded.
func TestObjectsOfAnEncryptedProjectAreEncrypted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := newEncrypted(t, func(s *Server) {
		s.PayloadsOver = 4 << 10
		objects, err := archive.OpenObjects(dir, archive.S3{})
		if err != nil {
			t.Fatal(err)
		}
		s.Objects = objects
	})
	e.call(http.MethodPut, "/v1/projects/default", `{"encryption":"run-keys"}`)
	e.exec(`UPDATE data_keys SET created_at = created_at - interval '1 minute'`) // so that the run has a key
	input := marker + strings.Repeat("input ", 2000)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || !bytes.Contains(body, []byte(input)) {
			t.Errorf("the function got %d bytes, %v", len(body), err)
		}
		_, _ = io.WriteString(w, `{"commands": [{"type": "complete", "output": "`+marker+strings.Repeat("output ", 2000)+`"}]}`)
	}))
	t.Cleanup(app.Close)
	e.call(http.MethodPut, "/v1/deployments/shop", `{"url":"`+app.URL+`","workflows":["order"]}`)
	run := e.start(`{"workflow":"order","deployment":"shop","input":"` + input + `"}`)
	has(t, "the run", e.ended(run), "input input", "output output")
	e.checkDump()
	objects := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		objects++
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(marker)) || !atrest.IsMade(data) {
			t.Errorf("object %s is not encrypted", entry.Name())
		}
		return err
	})
	if err != nil || objects != 2 {
		t.Errorf("there are %d objects, want 2; %v", objects, err)
	}
	e.call(http.MethodPost, "/v1/runs/"+run+"/shred", "")
	for _, path := range []string{"", "/events?payloads=true"} {
		if text := e.call(http.MethodGet, "/v1/runs/"+run+path, ""); strings.Contains(text, marker) {
			t.Errorf("%s of a shredded run is %.200s", path, text)
		}
	}
}
