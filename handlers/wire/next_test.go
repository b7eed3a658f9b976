package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// next is a client of the next line, which announces version 7.
const next = "@workflow/world-vercel/5.0.0-beta.50 node-v22.12.0 linux (x64) dpl_x"

const framesType = "application/vnd.workflow.v4-frames"

var ofNext = field{"specVersion", uint16(7)}

// creationNext returns the metadata of a run_created event of the next line.
func creationNext(name string) []field {
	return append(creation(name),
		ofNext, field{"attributes", map[string]string{"tier": "gold", "$r": "0"}}, field{"allowReservedAttributes", true},
		field{"encryptionPublicKey", "QUJD"})
}

// newRunNext creates and starts a run as the next line does.
func (c client) newRunNext(t *testing.T) string {
	t.Helper()
	id := newID("wrun_")
	c.must(t, id, "run_created", []byte("devl[1]"), creationNext("workflow//./a//b")...)
	c.must(t, id, "run_started", nil, ofNext, field{"skipPreload", true})
	return id
}

// postFrames posts an event and accepts frames.
func (c client) postFrames(t *testing.T, runID, eventType string, body []byte, fields ...field) answer {
	t.Helper()
	fields = append([]field{{"eventType", eventType}, ofNext}, fields...)
	return c.send(t, http.MethodPost, "/v4/runs/"+runID+"/events/"+eventType,
		bytes.NewReader(frame(t, meta(t, fields...), body)), "Accept", framesType)
}

// wantMaxEvents checks the header that the next line requires with every log in frames (§1.4).
func wantMaxEvents(t *testing.T, got answer) {
	t.Helper()
	wantStatus(t, got, http.StatusOK)
	check.Equal(t, "X-Wf-Max-Events", got.header.Get("X-Wf-Max-Events"), "25000")
}

func TestRunStartedReturnsTheLogAsFrames(t *testing.T) { // §3.5
	t.Parallel()
	c := client{newServer(t), next}
	id := newID("wrun_")
	at := shown(t0)
	createdData := mergeMaps(createdData(t, "workflow//./a//b"), map[string]any{
		"attributes": map[string]any{"tier": "gold", "$r": "0"}, "allowReservedAttributes": true,
		"encryptionPublicKey": "QUJD",
	})
	created := event{map[string]any{
		"eventId": eventID(1), "runId": id, "eventType": "run_created", "specVersion": uint64(7), "createdAt": at,
		"occurredAt": at, "eventData": createdData,
	}, "devl[1]"}
	started := event{map[string]any{
		"eventId": eventID(2), "runId": id, "eventType": "run_started", "specVersion": uint64(7), "createdAt": at,
	}, ""}
	end := map[string]any{"_end": uint64(1), "hasMore": false, "next": "eid:" + eventID(2)}

	c.must(t, id, "run_created", []byte("devl[1]"), creationNext("workflow//./a//b")...)
	for _, when := range []string{"first", "already running"} {
		got := c.postFrames(t, id, "run_started", nil)
		wantMaxEvents(t, got)
		wantEventHeaders(t, got, id, 2, at)
		events, sentinel := got.list(t)
		wantFrames(t, when, events, created, started)
		check.Equal(t, when+": sentinel", sentinel, end)
		c.advance(time.Second)
	}
	check.Equal(t, "length of the log", len(c.log(t, id)), 2)

	t.Run("of a run it creates", func(t *testing.T) {
		id := newID("wrun_")
		got := c.postFrames(t, id, "run_started", []byte("devl[1]"), creationNext("w")...)
		wantMaxEvents(t, got)
		events, _ := got.list(t)
		check.Equal(t, "events", seqs(t, events), []int{1, 2})
		check.Equal(t, "input", events[0].body, "devl[1]")
		check.Equal(t, "key", events[0].meta["eventData"].(map[string]any)["encryptionPublicKey"], any("QUJD"))
	})
	t.Run("errors are JSON too", func(t *testing.T) {
		wantProblem(t, c.postFrames(t, newID("wrun_"), "run_started", nil), http.StatusNotFound, "run_not_found")
		c.must(t, id, "run_completed", nil)
		wantProblem(t, c.postFrames(t, id, "run_started", nil), http.StatusGone, "run_ended")
	})
}

// wantFrames compares frames.
func wantFrames(t *testing.T, what string, got []event, want ...event) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: got %d frames, want %d", what, len(got), len(want))
	}
	for i := range want {
		check.Equal(t, fmt.Sprint(what, ": meta ", i), got[i].meta, want[i].meta)
		check.Equal(t, fmt.Sprint(what, ": body ", i), got[i].body, want[i].body)
	}
}

// log returns the whole log of a run.
func (c client) log(t *testing.T, id string) []event {
	t.Helper()
	events, end := c.get(t, "/v4/runs/"+id+"/events?returnAll=true").list(t)
	if end["hasMore"] != false {
		t.Fatalf("the whole log has another page: %v", end)
	}
	return events
}

// TestSkipPreloadOmitsTheLog: the answer is CBOR without events, whether or not the client accepts frames (§3.5).
func TestSkipPreloadOmitsTheLog(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := newID("wrun_")
	c.must(t, id, "run_created", []byte("devl[1]"), creationNext("w")...)
	for _, when := range []string{"first", "again"} {
		got := c.postFrames(t, id, "run_started", nil, field{"skipPreload", true}, field{"maxSlot", 1})
		wantEventHeaders(t, got, id, 2, shown(t0))
		body := got.cbor(t)
		for _, key := range []string{"events", "cursor", "hasMore"} {
			if v, ok := body[key]; ok {
				t.Errorf("%s: got %s %v, want none", when, key, v)
			}
		}
		check.Equal(t, when+": event", body["event"].(map[string]any)["eventType"], any("run_started"))
		run := body["run"].(map[string]any)
		check.Equal(t, when+": startedAt", run["startedAt"], body["event"].(map[string]any)["createdAt"])
		check.Equal(t, when+": key", run["encryptionPublicKey"], any("QUJD"))
		check.Equal(t, when+": attributes", run["attributes"], any(map[string]any{"tier": "gold", "$r": "0"}))
		c.advance(time.Second)
	}
}

func TestRunCreatedSetsAttributes(t *testing.T) { // §3.4, §3.9
	t.Parallel()
	c := client{newServer(t), next}
	long := strings.Repeat("x", 257)
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprint(i)] = "v"
	}
	for name, attributes := range map[string]any{
		"reserved": map[string]string{"$a": "b"}, "no key": map[string]string{"": "b"}, "long key": map[string]string{long: "b"},
		"long value": map[string]string{"a": long}, "too many": many, "NUL": map[string]string{"a": "\x00"},
		"a number": map[string]int{"a": 1}, "a list": []string{"a"}, "a text": "a", "a map in it": map[string]any{"a": map[string]string{}},
	} {
		for _, eventType := range []string{"run_created", "run_started"} {
			id := newID("wrun_")
			fields := append(creation("w"), ofNext, field{"attributes", attributes})
			got := c.post(t, id, eventType, []byte("devl[1]"), fields...)
			if got.status != http.StatusBadRequest {
				t.Errorf("%s with %s: got %d %s, want 400", eventType, name, got.status, got.body)
			}
			wantProblem(t, c.get(t, "/v2/runs/"+id), http.StatusNotFound, "run_not_found")
		}
	}
	id := c.newRunNext(t)
	check.Equal(t, "run", c.get(t, "/v2/runs/"+id).cbor(t)["attributes"], any(map[string]any{"tier": "gold", "$r": "0"}))
	check.Equal(t, "key", c.get(t, "/v2/runs/"+id+"?remoteRefBehavior=lazy").cbor(t)["encryptionPublicKey"], any("QUJD"))
	if _, ok := c.get(t, "/v2/runs/"+c.newRun(t)).cbor(t)["encryptionPublicKey"]; ok {
		t.Error("a run without a public key returns one")
	}
}

func TestStepStartedCreatesTheStep(t *testing.T) { // §3.7
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	start := append(stepMeta("step_1"), ofNext, field{"remoteRefBehavior", "resolve"}, field{"ownerMessageId", "msg_1"},
		field{"computeInstanceId", "cinst_1"})
	got := c.post(t, id, "step_started", []byte("devl[3]"), start...)
	wantEventHeaders(t, got, id, 4, shown(t0))
	data := map[string]any{
		"stepName": "step//./a//charge", "workflowName": "workflow//./a//b", "vercelId": "req_1", "ownerMessageId": "msg_1",
		"computeInstanceId": "cinst_1",
	}
	started := map[string]any{
		"eventId": eventID(4), "runId": id, "eventType": "step_started", "correlationId": "step_1", "specVersion": uint64(7),
		"createdAt": shown(t0), "occurredAt": shown(t0), "eventData": data,
	}
	check.Equal(t, "answer", got.cbor(t), map[string]any{
		"stepCreated": true, "event": started, "step": map[string]any{
			"runId": id, "stepId": "step_1", "stepName": "step//./a//charge", "status": "running", "attempt": uint64(1),
			"specVersion": uint64(7), "input": []byte("devl[3]"), "createdAt": shown(t0), "updatedAt": shown(t0),
			"startedAt": shown(t0),
		},
	})
	log := c.log(t, id)
	wantFrames(t, "log", log[2:], event{map[string]any{
		"eventId": eventID(3), "runId": id, "eventType": "step_created", "correlationId": "step_1", "specVersion": uint64(7),
		"createdAt": shown(t0), "occurredAt": shown(t0),
		"eventData": map[string]any{"stepName": "step//./a//charge", "workflowName": "workflow//./a//b"},
	}, "devl[3]"}, event{started, ""})

	wantProblem(t, c.post(t, id, "step_started", []byte("devl[3]"), start...), http.StatusConflict, "conflict")
	again := c.must(t, id, "step_started", nil, start...)
	if _, ok := again["stepCreated"]; ok {
		t.Error("a plain start reports that it created the step")
	}
	check.Equal(t, "input of a plain start", again["step"].(map[string]any)["input"], any([]byte("devl[3]")))
	c.must(t, id, "run_completed", nil)
	late := append(start, field{"correlationId", "step_2"})
	wantProblem(t, c.post(t, id, "step_started", []byte("devl[3]"), late...), http.StatusConflict, "conflict")
	wantProblem(t, c.post(t, id, "step_started", nil, start...), http.StatusGone, "run_ended")
}

// TestAnswersIncludeEventsTheClientHasNotSeen: those after a cursor, or those that were appended before the client's
// event (§3.2).
func TestAnswersIncludeEventsTheClientHasNotSeen(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	since := func(seq int) field { return field{"sinceCursor", "eid:" + eventID(seq)} }
	slot := func(n any) field { return field{"maxSlot", n} }
	for _, tt := range []struct {
		name, eventType, correlationID string
		fields                         []field
		seqs                           []int // nil: none at all
		cursor                         any
	}{
		{name: "nothing said", eventType: "step_completed", correlationID: "step_1"},
		{"delta", "step_completed", "step_1", []field{since(3)}, []int{4, 5, 6, 7}, "eid:" + eventID(7)},
		{"delta of step_failed", "step_failed", "step_1", []field{since(5)}, []int{6, 7}, "eid:" + eventID(7)},
		{"delta of wait_completed", "wait_completed", "wait_1", []field{since(6)}, []int{7}, "eid:" + eventID(7)},
		{"delta of hook_created", "hook_created", "hook_2", []field{{"hookToken", "new"}, since(6)}, []int{7}, "eid:" + eventID(7)},
		{"delta of a hook_conflict", "hook_created", "hook_2", []field{{"hookToken", "tok"}, since(6)}, []int{7}, "eid:" + eventID(7)},
		{"delta from the beginning", "run_failed", "", []field{since(1)}, []int{2, 3, 4, 5, 6, 7}, "eid:" + eventID(7)},
		{"delta of a bare event ID", "run_failed", "", []field{{"sinceCursor", eventID(6)}}, []int{7}, "eid:" + eventID(7)},
		{"delta from the future", "run_failed", "", []field{since(99)}, []int{}, nil},
		{"delta and report", "run_completed", "", []field{since(5), slot(2)}, []int{6, 7}, "eid:" + eventID(7)},
		{"delta of a plain repeat", "run_started", "", []field{since(3)}, []int{4, 5, 6}, "eid:" + eventID(6)},
		{"report", "run_completed", "", []field{slot(3)}, []int{4, 5, 6}, nil},
		{"report of one", "wait_completed", "wait_1", []field{slot(5)}, []int{6}, nil},
		{"report of a hook_conflict", "hook_created", "hook_2", []field{{"hookToken", "tok"}, slot(5)}, []int{6}, nil},
		{name: "nothing to report", eventType: "run_completed", fields: []field{slot(6)}},
		{name: "a writer ahead of the log", eventType: "run_completed", fields: []field{slot(99)}},
		{name: "a writer that has seen nothing", eventType: "run_completed", fields: []field{slot(0)}},
		{name: "a writer below nothing", eventType: "run_completed", fields: []field{slot(-5)}},
		{name: "a repeat reports nothing", eventType: "run_started", fields: []field{slot(2)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := client{newServer(t), next} // for the token
			id := c.newRunNext(t)
			c.must(t, id, "step_started", []byte("devl[3]"), stepMeta("step_1")...)
			c.must(t, id, "hook_created", []byte("meta"), field{"correlationId", "hook_1"}, field{"hookToken", "tok"})
			c.must(t, id, "wait_created", nil, field{"correlationId", "wait_1"}, field{"resumeAt", t0})
			fields := append([]field{{"correlationId", undefined}, ofNext}, tt.fields...)
			if tt.correlationID != "" {
				fields[0].value = tt.correlationID
			}
			got := c.must(t, id, tt.eventType, reportOf(tt.eventType), fields...)
			events, ok := got["events"].([]any)
			_, hasCursor := got["cursor"]
			_, hasMore := got["hasMore"]
			if ok != (tt.seqs != nil) || hasCursor != ok || hasMore != ok {
				t.Fatalf("got events %t, cursor %t, hasMore %t; want all or none: %t", ok, hasCursor, hasMore, tt.seqs != nil)
			}
			if tt.seqs == nil {
				return
			}
			log := c.log(t, id)
			have := []int{}
			for _, e := range events {
				m := e.(map[string]any)
				var seq int
				check.Value(fmt.Sscanf(m["eventId"].(string), "evnt_%d", &seq))(t)
				have = append(have, seq)
				check.Equal(t, "event type", m["eventType"], log[seq-1].meta["eventType"])
				if field := map[string]string{"step_created": "input", "hook_created": "metadata"}[m["eventType"].(string)]; field != "" && log[seq-1].body != "" {
					check.Equal(t, "payload", m["eventData"].(map[string]any)[field], any([]byte(log[seq-1].body)))
				}
			}
			check.Equal(t, "events", have, tt.seqs)
			check.Equal(t, "cursor", got["cursor"], tt.cursor)
			check.Equal(t, "hasMore", got["hasMore"], any(false))
		})
	}
	id := c.newRunNext(t)
	for _, cursor := range []any{"17", "eid:evnt_1", "\x00", 7, true, []string{"eid:" + eventID(1)}} {
		got := c.post(t, id, "run_completed", nil, field{"sinceCursor", cursor})
		if got.status != http.StatusBadRequest {
			t.Errorf("cursor %v: got %d %s, want 400", cursor, got.status, got.body)
		}
	}
	check.Equal(t, "length of the log", len(c.log(t, id)), 2)
}

// TestLargeDeltasAreCutToAPage: deltas with a cursor are cut; those without, which cannot be continued, are omitted.
func TestLargeDeltasAreCutToAPage(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	big := make([]byte, 9<<20)
	for i := range 3 {
		c.must(t, id, "step_created", big, stepMeta(fmt.Sprint("step_", i))...)
	}
	got := c.must(t, id, "step_started", nil, append(stepMeta("step_0"), field{"sinceCursor", "eid:" + eventID(2)})...)
	if n := len(got["events"].([]any)); n != 2 || got["hasMore"] != true || got["cursor"] != "eid:"+eventID(4) {
		t.Errorf("got %d events, hasMore %v, cursor %v; want what fits into a page", n, got["hasMore"], got["cursor"])
	}
	got = c.must(t, id, "step_started", nil, append(stepMeta("step_0"), field{"maxSlot", 2})...)
	if _, ok := got["events"]; ok {
		t.Errorf("got a report of %d events, want none", len(got["events"].([]any)))
	}
	got = c.must(t, id, "step_started", nil, append(stepMeta("step_0"), field{"maxSlot", 5})...)
	check.Equal(t, "a report of events", len(got["events"].([]any)), 2)
}

// TestWholeLogIsSentInOneAnswer, however long it is (§2.4, §3.5).
func TestWholeLogIsSentInOneAnswer(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	many, large := c.newRunNext(t), c.newRunNext(t)
	for part := range 2 { // together more than a page
		var frames []byte
		for i := range 600 {
			fields := append(stepMeta(fmt.Sprintf("step_%d_%d", part, i)), field{"eventType", "step_created"}, ofNext)
			frames = append(frames, frame(t, meta(t, fields...), []byte("devl[3]"))...)
		}
		wantStatus(t, c.batch(t, many, frames), http.StatusOK)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 9<<16)
	for i := range 4 {
		c.must(t, large, "step_created", big, stepMeta(fmt.Sprint("step_", i))...)
	}
	for _, tt := range []struct {
		name, id        string
		n, bytes, first int // events, their payloads together, and those of the first three
	}{{"many events", many, 1202, 1201 * 7, 2 * 7}, {"large events", large, 6, 7 + 4*len(big), 7 + len(big)}} {
		compare := func(what string, got answer, n, bytes int, next any) {
			t.Helper()
			events, end := got.list(t)
			size := 0
			for i, e := range events {
				size += len(e.body)
				if want := eventID(i + 1 + tt.n - n); e.meta["eventId"] != want {
					t.Fatalf("%s, %s: frame %d is %v, want %s", tt.name, what, i, e.meta["eventId"], want)
				}
			}
			if len(events) != n || size != bytes || end["hasMore"] != false || end["next"] != next {
				t.Errorf("%s, %s: got %d events with %d bytes, sentinel %v; want %d with %d, next %v",
					tt.name, what, len(events), size, end, n, bytes, next)
			}
		}
		last := any("eid:" + eventID(tt.n))
		got := c.postFrames(t, tt.id, "run_started", nil)
		wantMaxEvents(t, got)
		compare("run_started", got, tt.n, tt.bytes, last)
		path := "/v4/runs/" + tt.id + "/events?returnAll=true"
		compare("returnAll", c.get(t, path), tt.n, tt.bytes, last)
		compare("returnAll in small pages", c.get(t, path+"&limit=3"), tt.n, tt.bytes, last)
		compare("returnAll of nobody's payloads", c.get(t, path+"&remoteRefBehavior=lazy"), tt.n, 0, last)
		compare("the rest", c.get(t, path+"&cursor=eid:"+eventID(3)), tt.n-3, tt.bytes-tt.first, last)
		compare("nothing more", c.get(t, path+"&cursor=eid:"+eventID(tt.n)), 0, 0, nil)
		compare("the stable line", client{c.server, stable}.get(t, path), tt.n, tt.bytes, nil)
	}
	newest, _ := c.get(t, "/v4/runs/"+many+"/events?returnAll=true&sortOrder=desc&limit=500").list(t)
	check.Equal(t, "number of events, newest first", len(newest), 1202)
	check.Equal(t, "the last of them", newest[1201].meta["eventId"], any(eventID(1)))
	wantProblem(t, c.get(t, "/v4/runs/"+newID("wrun_")+"/events?returnAll=true"), http.StatusNotFound, "run_not_found")
}

// TestFailedListBreaksTheConnection: a client must not take half of a log for the whole.
func TestFailedListBreaksTheConnection(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"run_started", "list"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := client{newServer(t), next}
			id := c.newRunNext(t)
			for i := range 4 {
				c.must(t, id, "step_created", make([]byte, 9<<20), stepMeta(fmt.Sprint("step_", i))...)
			}
			method, path, body := http.MethodGet, "/v4/runs/"+id+"/events?returnAll=true", []byte(nil)
			if kind == "run_started" {
				method, path = http.MethodPost, "/v4/runs/"+id+"/events/run_started"
				body = frame(t, meta(t, field{"eventType", "run_started"}, ofNext), nil)
			}
			req := check.Value(http.NewRequestWithContext(t.Context(), method, c.url+"/sdk"+path, bytes.NewReader(body)))(t)
			req.Header.Set("Accept", framesType)
			resp := check.Value(http.DefaultClient.Do(req))(t)
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("got %s", resp.Status)
			}
			// The server cannot have sent the whole first page: it exceeds the socket buffers.
			testdb.Exec(t, c.pool, `ALTER TABLE events RENAME TO gone`)
			got, err := io.ReadAll(resp.Body)
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %d bytes and error %v, want a broken connection", len(got), err)
			}
			if len(got) < 9<<20 {
				t.Errorf("got %d bytes, want the first page", len(got))
			}
		})
	}
}
