package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func newID() entities.RunID {
	return entities.RunID("wrun_" + ulid.MustNew(ulid.Timestamp(t0), ulid.DefaultEntropy()).String())
}

// add appends an event to a run of a Workflow SDK app.
func (a api) add(t *testing.T, id entities.RunID, r eventlog.Request) {
	t.Helper()
	check.NoError(t, a.append(t.Context(), id, r))
}

func (a api) append(ctx context.Context, id entities.RunID, r eventlog.Request) error {
	r.RunID, r.SpecVersion = id, 3
	_, err := a.log.Append(ctx, entities.DefaultProject, r)
	return err
}

func created(payload string) eventlog.Request {
	return eventlog.Request{
		Type: entities.EventRunCreated, Payload: []byte(payload),
		Data: entities.EventData{DeploymentID: "dpl_x", WorkflowName: "w"},
	}
}

func hookEvent(typ entities.EventType, payload []byte) eventlog.Request {
	r := eventlog.Request{Type: typ, CorrelationID: "hook_1", Payload: payload}
	if typ == entities.EventHookCreated {
		r.Data.Token = "the token"
	}
	return r
}

const at = "2026-11-21T01:41:43.197Z"

// eventJSON returns the JSON form of an event. Further fields come in pairs.
func eventJSON(id entities.RunID, seq int, typ, data string, more ...any) map[string]any {
	e := map[string]any{
		"runId": string(id), "seq": float64(seq), "id": fmt.Sprintf("evnt_%026d", seq), "type": typ, "createdAt": at,
	}
	var facts any
	if err := json.Unmarshal([]byte(data), &facts); err != nil {
		panic(err)
	}
	e["data"] = facts
	for i := 0; i < len(more); i += 2 {
		e[more[i].(string)] = more[i+1]
	}
	return e
}

// payloadRun creates a run with every kind of payload, and returns its events as a list shows them.
func (a api) payloadRun(t *testing.T) (id entities.RunID, events []any) {
	t.Helper()
	id = newID()
	a.add(t, id, created(`devl[{"when":1},["Date",2],"2026-03-01T12:00:00.000Z"]`))
	a.add(t, id, eventlog.Request{Type: entities.EventRunStarted})
	a.add(t, id, hookEvent(entities.EventHookCreated, nil))
	a.add(t, id, hookEvent(entities.EventHookReceived, []byte(`{"n":1}`)))
	a.add(t, id, hookEvent(entities.EventHookReceived, []byte("encr\x01\x02")))
	a.add(t, id, hookEvent(entities.EventHookReceived, []byte("\x00\x01")))
	a.add(t, id, hookEvent(entities.EventHookReceived, []byte(`"`+strings.Repeat("x", read.MaxListedPayload)+`"`)))
	// The stable line of the SDK sends the error beside the payload.
	a.add(t, id, eventlog.Request{
		Type: entities.EventRunFailed, Data: entities.EventData{ErrorCode: "USER_ERROR"},
		Extra: []byte("\xa1eerror\xa1gmessageeno go"),
	})
	return id, []any{
		eventJSON(id, 1, "run_created", `{"deploymentId":"dpl_x","workflowName":"w"}`,
			"payload", map[string]any{"when": "2026-03-01T12:00:00.000Z"}, "encoding", "devalue"),
		eventJSON(id, 2, "run_started", `{}`, "encoding", "none"),
		eventJSON(id, 3, "hook_created", `{"token":"the token"}`, "correlationId", "hook_1", "encoding", "none"),
		eventJSON(id, 4, "hook_received", `{}`, "correlationId", "hook_1",
			"payload", map[string]any{"n": 1.0}, "encoding", "json"),
		eventJSON(id, 5, "hook_received", `{}`, "correlationId", "hook_1", "encoding", "encrypted"),
		eventJSON(id, 6, "hook_received", `{}`, "correlationId", "hook_1", "encoding", "opaque"),
		eventJSON(id, 7, "hook_received", `{}`, "correlationId", "hook_1", "truncated", true),
		eventJSON(id, 8, "run_failed", `{"errorCode":"USER_ERROR"}`,
			"payload", map[string]any{"message": "no go"}, "encoding", "cbor"),
	}
}

// waitForEvents waits until no transaction of another test delays the events.
func (a api) waitForEvents(t *testing.T, events int) {
	t.Helper()
	for deadline := time.After(30 * time.Second); ; {
		_, answer := a.do(t, http.MethodGet, "/v1/events?limit=1000&payloads=false", "")
		if data, _ := answer["data"].([]any); len(data) >= events {
			return
		}
		select {
		case <-deadline:
			t.Fatal("timeout: events are still delayed")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestListEvents(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id, events := a.payloadRun(t)
	other := newID()
	a.add(t, other, created(`[1]`))
	last := eventJSON(other, 1, "run_created", `{"deploymentId":"dpl_x","workflowName":"w"}`,
		"payload", []any{1.0}, "encoding", "json")
	a.waitForEvents(t, len(events)+1)
	run := "/v1/runs/" + string(id) + "/events"
	for path, want := range map[string][]any{
		run: events, run + "?after=0": events, run + "?after=6": events[6:], run + "?after=99": {},
		run + "?after=6&order=desc": {events[7], events[6]}, run + "?type=hook_created&type=run_started": events[1:3],
		run + "?correlationId=hook_1&after=6": events[6:7], run + "?from=2026-11-22T00:00:00Z": {},
		run + "?to=2026-11-21T02:00:00%2B00:00": events,
		"/v1/events":                            append(slices.Clone(events), last), "/v1/events?runId=" + string(other): {last},
		"/v1/events?type=run_created":                                    {events[0], last},
		"/v1/events?correlationId=hook_1&type=hook_created&from=" + at:   {events[2]},
		"/v1/events?to=2026-11-20T00:00:00Z":                             {},
		"/v1/events?order=desc&type=run_created&type=run_failed&limit=3": {last, events[7], events[0]},
	} {
		status, answer := a.do(t, http.MethodGet, path, "")
		if diff := cmp.Diff(map[string]any{"data": want}, answer); status != http.StatusOK || diff != "" {
			t.Errorf("%s: got %d (-want +got):\n%s", path, status, diff)
		}
	}
	for _, path := range []string{run, "/v1/events"} {
		_, answer := a.do(t, http.MethodGet, path+"?payloads=false&limit=1", "")
		plain := eventJSON(id, 1, "run_created", `{"deploymentId":"dpl_x","workflowName":"w"}`)
		check.Equal(t, fmt.Sprintf("%s without payloads", path), any(answer["data"]), any([]any{plain}))
		cursor, _ := answer["cursor"].(string)
		_, answer = a.do(t, http.MethodGet, path+"?limit=2&cursor="+cursor, "")
		if diff := cmp.Diff(events[1:3], answer["data"]); diff != "" || answer["cursor"] == nil {
			t.Errorf("%s, the second page (-want +got):\n%s", path, diff)
		}
	}
	for i, want := range events[:6] {
		_, got := a.do(t, http.MethodGet, fmt.Sprintf("%s/%d", run, i+1), "")
		check.Equal(t, fmt.Sprintf("event %d", i+1), any(got), want)
	}
	if _, got := a.do(t, http.MethodGet, run+"/7", ""); got["payload"] == nil || got["truncated"] != nil {
		t.Errorf("a single large event has payload %.20v, truncated %v", got["payload"], got["truncated"])
	}
	for seq, want := range map[string]string{"5": "encr\x01\x02", "2": ""} {
		w := a.serve(http.MethodGet, run+"/"+seq+"/payload", "")
		if got := w.Body.String(); w.Code != http.StatusOK || got != want {
			t.Errorf("payload of event %s: got %d %q, want %q", seq, w.Code, got, want)
		}
	}
}

func TestInvalidEventQueriesAreRejected(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := newID()
	a.add(t, id, created("1"))
	run := "/v1/runs/" + string(id) + "/events"
	for _, path := range []string{run, run + "/stream", "/v1/events", "/v1/events/stream"} {
		for _, query := range []string{
			"?type=x", "?type=run_created&type=", "?from=yesterday", "?to=1", "?payloads=1", "?other=1",
			"?from=2026-11-22T00:00:00Z&to=2026-11-21T00:00:00Z", "?correlationId=" + strings.Repeat("x", 1025), "?correlationId=%00",
		} {
			a.wantRejected(t, http.MethodGet, path+query, "", http.StatusBadRequest, "invalid_request")
		}
	}
	for _, path := range []string{
		run + "?after=x", run + "?after=-1", run + "?cursor=x", run + "?order=up", run + "?limit=0", run + "/stream?after=x",
		run + "?runId=" + string(id), "/v1/events?after=1", "/v1/events?cursor=1", "/v1/events?runId=a%2Fb",
		"/v1/events/stream?after=1", run + "/0", run + "/x", run + "/1.0", run + "/-1", run + "/99999999999999999999",
	} {
		a.wantRejected(t, http.MethodGet, path, "", http.StatusBadRequest, "invalid_request")
	}
	for _, path := range []string{"", "/stream"} {
		a.wantRejected(t, http.MethodGet, "/v1/runs/wrun_x/events"+path, "", http.StatusNotFound, "run_not_found")
	}
	for _, path := range []string{run + "/2", run + "/2/payload", "/v1/runs/wrun_x/events/1"} {
		a.wantRejected(t, http.MethodGet, path, "", http.StatusNotFound, "event_not_found")
	}
}

// block is one server-sent event.
type block struct{ id, event, data string }

// nextBlock reads up to the next empty line and skips comments.
func nextBlock(r *bufio.Reader) (b block, err error) {
	for {
		line, err := r.ReadString('\n')
		if err != nil || line == "\n" {
			return b, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			b.id = value
		case "event":
			b.event = value
		case "data":
			b.data = value
		}
	}
}

func TestFollowRun(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	id := newID()
	a.add(t, id, created("1"))
	url := server.URL + "/v1/runs/" + string(id) + "/events/stream"
	answer := tail(t, t.Context(), url)
	if kind := answer.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("got %s", kind)
	}
	r := bufio.NewReader(answer.Body)
	want := func(r *bufio.Reader, want block, has string) {
		t.Helper()
		got, err := nextBlock(r)
		if !strings.Contains(got.data, has) {
			t.Errorf("got data %s, want %s in it", got.data, has)
		}
		got.data = ""
		if err != nil || got != want {
			t.Errorf("got %+v, error %v; want %+v", got, err, want)
		}
	}
	want(r, block{id: "0"}, "")
	want(r, block{id: "1"}, `"type":"run_created"`)
	a.add(t, id, eventlog.Request{Type: entities.EventRunStarted})
	want(r, block{id: "2"}, `"type":"run_started"`)
	a.add(t, id, eventlog.Request{Type: entities.EventRunCompleted, Payload: []byte(`{"done":true}`)})
	want(r, block{id: "3"}, `"payload":{"done":true}`)
	want(r, block{event: "end"}, "{}")
	if _, err := nextBlock(r); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: got error %v", err)
	}
	again := bufio.NewReader(tail(t, t.Context(), url+"?after=0&type=run_completed&payloads=false", "Last-Event-ID", "1").Body)
	want(again, block{id: "1"}, "")
	want(again, block{id: "3"}, `"type":"run_completed"`)
	want(again, block{event: "end"}, "{}")
}

// TestFollowersAreDisconnectedOnShutdown checks that clients can tell it from the end of the stream.
func TestFollowersAreDisconnectedOnShutdown(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	id := newID()
	a.add(t, id, created("1"))
	var readers []*bufio.Reader
	for _, path := range []string{"/v1/events/stream", "/v1/runs/" + string(id) + "/events/stream?after=1"} {
		r := bufio.NewReader(tail(t, t.Context(), server.URL+path).Body)
		if b, err := nextBlock(r); err != nil || b.id == "" || b.data != "" {
			t.Fatalf("%s: got %+v, error %v", path, b, err)
		}
		readers = append(readers, r)
	}
	a.drain()
	for _, r := range readers {
		_, err := nextBlock(r)
		for err == nil { // what was held up by a transaction of another test
			_, err = nextBlock(r)
		}
		if errors.Is(err, io.EOF) {
			t.Errorf("got error %v, want a broken connection", err)
		}
	}
}

// TestReconnectingFollowersMissNoEvent checks that followers of the project that reconnect often get every event once,
// and the events of each run in order, while several writers append.
func TestReconnectingFollowersMissNoEvent(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	const writers, runs, each = 6, 4, 5
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range runs {
				id := newID()
				if err := a.append(t.Context(), id, created("1")); err != nil {
					t.Error(err)
					return
				}
				for n := range each {
					set := eventlog.Request{
						Type: entities.EventAttrSet, CorrelationID: fmt.Sprintf("attr_%d", n),
						Data: entities.EventData{Changes: []entities.AttributeChange{{Key: "k", Value: new(string)}}},
					}
					if err := a.append(t.Context(), id, set); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	const all = writers * runs * (each + 1)
	for reader := range 3 {
		wg.Go(func() {
			positions, last, got := map[string]int64{}, "0", 0
			for got < all && !t.Failed() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				last = a.readSome(ctx, t, server.URL, last, min(reader+2+got%5, all-got), func(runID string, seq int64) {
					if positions[runID]++; positions[runID] != seq {
						t.Errorf("reader %d got event %d of %s, want %d", reader, seq, runID, positions[runID])
					}
					got++
				})
				if ctx.Err() != nil {
					t.Errorf("reader %d has %d events of %d", reader, got, all)
				}
				cancel()
			}
		})
	}
	wg.Wait()
}

// readSome reads up to most events after the last one, and returns the ID of the last event read.
func (a api) readSome(
	ctx context.Context, t *testing.T, url, last string, most int, take func(runID string, seq int64),
) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/events/stream?payloads=false", nil)
	if err != nil {
		t.Error(err)
		return last
	}
	r.Header.Set("Last-Event-ID", last)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return last
	}
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewReader(answer.Body)
	for most > 0 {
		b, err := nextBlock(lines)
		if err != nil {
			return last
		}
		if last = b.id; b.data == "" {
			continue
		}
		var e struct {
			RunID string
			Seq   int64
		}
		if err := json.Unmarshal([]byte(b.data), &e); err != nil {
			t.Error(err)
		}
		take(e.RunID, e.Seq)
		most--
	}
	return last
}
