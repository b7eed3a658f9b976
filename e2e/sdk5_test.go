package e2e

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The cases in this file cover features of the SDK's 5.x line.

// inlineSteps checks that one message is enough for a run with sequential steps, and that starting a step also creates
// it.
func inlineSteps(t *testing.T, s *server, a *app) {
	id := a.run(t, "sequential", 1)
	a.want(t, id, 4)
	s.wantLog(t, id, sequence("run_created", "run_started", step("add"), step("add"), step("add"), "run_completed")...)
	for _, e := range s.log(t, id).of("step_started") {
		if owner, _ := e.Data["ownerMessageId"].(string); owner == "" {
			t.Errorf("a step has no owner message: %v", e.Data)
		}
	}
	if created := a.tap.of(id, "/step_created"); len(created) > 0 {
		t.Errorf("%d requests to create a step, want none", len(created))
	}
	a.tap.wantDeltas(t, id)
}

// wantDeltas checks that some write of the run requested a delta, and that the answers contain the right events.
func (tp *tap) wantDeltas(t *testing.T, runID string) {
	t.Helper()
	requested := 0
	for _, c := range tp.of(runID, "/step_completed") {
		since, ok := c.meta(t)["sinceCursor"].(string)
		if !ok {
			continue
		}
		requested++
		var answer struct {
			Events  []event `cbor:"events"`
			Cursor  string  `cbor:"cursor"`
			HasMore *bool   `cbor:"hasMore"`
		}
		if err := wireCBOR.Unmarshal(c.answer.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		last := ""
		if n := len(answer.Events); n > 0 {
			last = answer.Events[n-1].Type
		}
		if last != "step_completed" || answer.Cursor == since || answer.HasMore == nil || *answer.HasMore {
			t.Errorf("delta after %s: %d events up to %q, cursor %q", since, len(answer.Events), last, answer.Cursor)
		}
	}
	if requested == 0 {
		t.Error("no write requested a delta")
	}
}

// preload checks how the answer to run_started contains the log. The stable line requests the log in the answer. The
// 5.x line skips it for the first delivery, which brings the run's input, and from beta55 requests it as frames for later
// deliveries.
func preload(t *testing.T, s *server, a *app) {
	id := a.run(t, "sleepShort")
	a.want(t, id, 2)
	s.log(t, id)
	got := map[string]int{}
	for _, c := range a.tap.of(id, "/run_started") {
		got[c.preloaded(t)]++
	}
	want := []string{"answer"}
	switch {
	case a.atLeast(beta55):
		want = []string{"not wanted", "stream"}
	case a.atLeast(beta35):
		want = []string{"not wanted"}
	}
	for _, how := range want {
		if got[how] == 0 {
			t.Errorf("preload of %s: %v, want %v", id, got, want)
		}
	}
}

// preloaded returns in which form the answer to run_started contains the log.
func (c *call) preloaded(t *testing.T) string {
	t.Helper()
	if c.status != http.StatusOK {
		t.Errorf("run_started answered %d %.300s", c.status, c.answer.Bytes())
		return "error"
	}
	skip, _ := c.meta(t)["skipPreload"].(bool)
	if strings.Contains(c.Header.Get("Accept"), "v4-frames") {
		list, end, err := readFrames(c.answer.Bytes())
		if err != nil || len(list) < 2 || end.Next == "" || c.header.Get("X-Wf-Max-Events") == "" || skip {
			t.Errorf("run_started answered with %d events, %+v, %v (%v)", len(list), end, c.header, err)
		}
		return "stream"
	}
	var answer struct {
		Events []event `cbor:"events"`
	}
	if err := wireCBOR.Unmarshal(c.answer.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	switch events := len(answer.Events); {
	case skip && events > 0:
		t.Errorf("run_started answered with %d events despite skipPreload", events)
		return "unwanted"
	case skip:
		return "not wanted"
	case events >= 2:
		return "answer"
	default: // the run had already started
		return "none"
	}
}

// fans runs a narrow fan-out, which the app executes mostly inline, and a wide one, which goes through the queue.
func fans(t *testing.T, s *server, a *app) {
	for _, width := range []int{12, 60} {
		id := a.run(t, "fanout", width)
		a.want(t, id, width*(width-1)/2)
		l := s.log(t, id)
		if got := l.of("step_completed"); len(got) != width || len(l) != 3*width+3 {
			t.Errorf("%d steps of %d, %d events", len(got), width, len(l))
		}
		a.wantCounts(t, id, map[string]int{"add": width})
		if batches := a.tap.of(id, "/events/batch"); a.atLeast(beta55) && len(batches) == 0 {
			t.Error("no batch of events")
		}
		if !l.hasPair() {
			t.Errorf("no step was created and started in one request:\n%s", strings.Join(l.lines(), "\n"))
		}
	}
}

// hasPair reports whether some step_started directly follows the step's step_created.
func (l log) hasPair() bool {
	for i := 1; i < len(l); i++ {
		if l[i].Type == "step_started" && l[i-1].Type == "step_created" && l[i].CorrelationID == l[i-1].CorrelationID {
			return true
		}
	}
	return false
}

// attributed holds the attributes of a run.
type attributed struct {
	Attributes map[string]string `cbor:"attributes" json:"attributes"`
}

func attributesByEvent(t *testing.T, s *server, a *app) {
	given := map[string]any{"attributes": map[string]string{"customer": "c_1", "phase": "new"}}
	id := a.runWith(t, given, "attributes")
	a.want(t, id, nil)
	want := attributed{map[string]string{"customer": "c_1", "phase": "ended", "by-step": "set"}}
	if diff := cmp.Diff(want, get[attributed](t, s, "/v2/runs/"+id)); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	l := s.log(t, id)
	var writers []any
	for _, e := range l.of("attr_set") {
		writer, _ := e.Data["writer"].(map[string]any)
		writers = append(writers, writer["type"])
	}
	if diff := cmp.Diff([]any{"workflow", "step", "workflow"}, writers); diff != "" {
		t.Errorf("writers of attributes (-want +got):\n%s\n%s", diff, strings.Join(l.lines(), "\n"))
	}
}

// attributesByEndpoint sets attributes from outside while the run waits. The run continues unaffected.
func attributesByEndpoint(t *testing.T, s *server, a *app) {
	token := a.named("attributed")
	id := a.run(t, "hookMany", token, 2)
	a.hook(t, id)
	a.resume(t, token, 0)
	set := func(key string, value any) response {
		return a.world(t, "runs", "experimentalSetAttributes", id, []map[string]any{{"key": key, "value": value}})
	}
	set("phase", "waiting").Want(t, http.StatusOK)
	set("color", "red").Want(t, http.StatusOK)
	got := decode[attributed](t, set("phase", nil).Want(t, http.StatusOK))
	if diff := cmp.Diff(attributed{map[string]string{"color": "red"}}, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	set("$reserved", "x").Want(t, http.StatusInternalServerError) // the app answers every error with 500
	a.resume(t, token, 1)
	a.want(t, id, []int{0, 1})
	s.log(t, id)
	if diff := cmp.Diff(got, get[attributed](t, s, "/v2/runs/"+id)); diff != "" {
		t.Errorf("attributes at the end (-want +got):\n%s", diff)
	}
	set("color", "blue").Want(t, http.StatusInternalServerError)
}

// hookRetained checks that a retained token stays reserved after its run has ended, and that its hook can be read but
// not resumed.
func hookRetained(t *testing.T, s *server, a *app) {
	token := a.named("retained")
	id := a.retain(t, s, token, 600_000)

	loser := a.run(t, "hookHold", token)
	lost, _ := a.outcome(t, loser).Value.(map[string]any)
	if conflict, _ := lost["conflict"].(map[string]any); conflict["runId"] != id {
		t.Errorf("outcome of a claim while the token is retained: %v", lost)
	}
	a.tryResume(t, token, "two").Want(t, http.StatusNotFound)
	if kept := a.world(t, "hooks", "getByToken", token).Want(t, http.StatusOK); !bytes.Contains(kept.Body, []byte(id)) {
		t.Errorf("the hook by its token: %s", kept.Body)
	}
}

// hookReleased checks that the token is free after its retention period.
func hookReleased(t *testing.T, s *server, a *app) {
	token := a.named("released")
	a.retain(t, s, token, 1000)
	var next string
	eventually(t, "the token is free", func() bool {
		next = a.run(t, "hookHold", token)
		eventually(t, "the claim is decided", func() bool {
			l := log(s.events(t, next))
			return len(l.of("hook_created"))+len(l.of("hook_conflict")) > 0
		})
		return len(log(s.events(t, next)).of("hook_created")) > 0
	})
	a.resumeHolder(t, s, next, token)
}

// retain completes a run that retains its token for the given number of milliseconds.
func (a *app) retain(t *testing.T, s *server, token string, ms int) string {
	t.Helper()
	id := a.run(t, "hookRetained", token, ms)
	a.hook(t, id)
	a.resume(t, token, "one")
	a.want(t, id, map[string]any{"payload": "one"})
	s.log(t, id)
	return id
}

// resumedOnce drops the answer to a resumption, so that the SDK sends it again. The payload must be received once.
func resumedOnce(t *testing.T, s *server, a *app) {
	token := a.named("once")
	id := a.run(t, "hookMany", token, 2)
	a.hook(t, id)
	a.tap.loseAnswer(func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, id+"/events/hook_received")
	})
	a.resume(t, token, "first")
	a.resume(t, token, "second")
	a.want(t, id, []string{"first", "second"})
	s.wantThreads(t, id, "hook: created received received disposed", "run: created started completed",
		"tick: created started completed")
	if sent := len(a.tap.of(id, "/hook_received")); sent != 2 {
		t.Errorf("%d resumptions were answered, want 2 of the 3 sent", sent)
	}
}

// returnValue checks that the SDK's returnValue needs one long poll.
func returnValue(t *testing.T, s *server, a *app) {
	token := a.named("value")
	id := a.run(t, "hookHold", token)
	a.hook(t, id)
	answer := make(chan response, 1)
	go func() { answer <- request(t, http.MethodGet, a.url()+"/runs/"+id+"/value", nil) }()
	a.tap.awaitRequest(t, id, "/status")
	a.resume(t, token, "done")
	got := decode[struct{ Value struct{ Payload string } }](t, (<-answer).Want(t, http.StatusOK))
	if got.Value.Payload != "done" {
		t.Errorf("the value is %v", got)
	}
	a.tap.wantLongPoll(t, id, s.log(t, id).of("run_completed")[0].CreatedAt)
}

// cancelMany checks the outcome for each run of a list.
func cancelMany(t *testing.T, s *server, a *app) {
	const unknown = "wrun_01JZZZZZZZ0000000000000000"
	done, token := a.run(t, "sequential", 1), a.named("cancel many")
	a.want(t, done, 4)
	open := []string{a.run(t, "hookHold", token), a.run(t, "sleepLong", 600_000)}
	a.hook(t, open[0])
	s.waitFor(t, open[1], "wait_created")
	ask := map[string]any{"runIds": append([]string{done, unknown}, open...), "cancelReason": "enough"}

	type outcome struct{ RunID, Outcome string }
	type answer struct {
		Summary map[string]int
		Results []outcome
	}
	for _, want := range []answer{
		{
			Summary: map[string]int{
				"requested": 4, "cancelled": 2, "alreadyCancelled": 0, "notCancellable": 1, "notFound": 1, "failed": 0,
			},
			Results: []outcome{
				{done, "not_cancellable"}, {unknown, "not_found"}, {open[0], "cancelled"}, {open[1], "cancelled"},
			},
		},
		{
			Summary: map[string]int{
				"requested": 4, "cancelled": 0, "alreadyCancelled": 2, "notCancellable": 1, "notFound": 1, "failed": 0,
			},
			Results: []outcome{
				{done, "not_cancellable"}, {unknown, "not_found"},
				{open[0], "already_cancelled"}, {open[1], "already_cancelled"},
			},
		},
	} {
		got := decode[answer](t, a.world(t, "runs", "cancelMany", ask).Want(t, http.StatusOK))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
	}
	for _, id := range open {
		s.wantCancelled(t, id)
		if got := s.log(t, id).of("run_cancelled")[0].Data["cancelReason"]; got != "enough" {
			t.Errorf("cancel reason %v, want enough", got)
		}
	}
	next := a.run(t, "hookHold", token)
	a.hook(t, next)
	a.resumeHolder(t, s, next, token)
}

func getMany(t *testing.T, _ *server, a *app) {
	const unknown = "wrun_01JZZZZZZZ0000000000000000"
	one, two := a.run(t, "sequential", 1), a.run(t, "fatal")
	a.want(t, one, 4)
	a.outcome(t, two)
	r := a.world(t, "runs", "getMany", []string{one, unknown, two}, map[string]string{"resolveData": "none"})
	type run struct{ RunID, Status string }
	want := []*run{{one, "completed"}, nil, {two, "failed"}}
	if diff := cmp.Diff(want, decode[[]*run](t, r.Want(t, http.StatusOK))); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// aborts checks that a running step receives an abort signal, which the SDK sends through a stream.
func aborts(t *testing.T, s *server, a *app) {
	id := a.run(t, "aborts")
	a.want(t, id, "enough")
	s.log(t, id)
	eventually(t, "the step is aborted", func() bool { return a.counts(t, id)["untilAborted:aborted"] == 1 })
}

func childWorkflow(t *testing.T, s *server, a *app) {
	id := a.run(t, "parent", 5)
	got, _ := a.outcome(t, id).Value.(map[string]any)
	child, _ := got["child"].(string)
	if got["value"] != 8.0 || child == "" || child == id {
		t.Fatalf("outcome of the parent: %v", got)
	}
	s.log(t, id)
	s.wantLog(t, child, sequence("run_created", "run_started", step("add"), step("add"), step("add"),
		"run_completed")...)
}

// compressedPayload checks that payloads compressed by the SDK are returned unchanged.
func compressedPayload(t *testing.T, s *server, a *app) {
	text := strings.Repeat("stepwell ", 150_000)
	id := a.run(t, "compressible", text)
	a.want(t, id, map[string]any{"same": true, "length": len(text)})
	for _, e := range s.log(t, id) {
		if e.Type != "run_created" && (e.Type != "step_completed" || !strings.Contains(string(plain(t, e)), "stepwell")) {
			continue
		}
		if len(e.Payload) > len(text)/10 || !bytes.Contains(plain(t, e), []byte(text)) {
			t.Errorf("the payload of %s has %d bytes", e.Type, len(e.Payload))
		}
	}
}

// plain returns an event's payload, decompressed if the SDK compressed it.
func plain(t *testing.T, e event) []byte {
	t.Helper()
	packed, isPacked := bytes.CutPrefix(e.Payload, []byte("gzip"))
	if !isPacked {
		return e.Payload
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatalf("payload of %s: %v", e.Type, err)
	}
	unpacked, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("payload of %s: %v", e.Type, err)
	}
	return unpacked
}

// streamEndpoints lists streams, and reads one in pages.
func streamEndpoints(t *testing.T, s *server, a *app) {
	id := a.run(t, "stream", 5, 1, "letters")
	a.want(t, id, 5)
	s.log(t, id)
	_, _ = io.ReadAll(a.openStream(t, id, 0)) // streamWhileWritten checks the content
	name := streamName(id)
	if live := a.tap.of(id, "/stream/"+name); !strings.Contains(live[len(live)-1].URL.Path, "/v3/") {
		t.Errorf("the SDK read %s", live[len(live)-1].URL.Path)
	}
	names := decode[[]string](t, a.world(t, "streams", "list", id).Want(t, http.StatusOK))
	if diff := cmp.Diff([]string{name}, names); diff != "" {
		t.Errorf("streams (-want +got):\n%s", diff)
	}
	type chunks struct {
		Data []struct {
			Index int
			Data  any
		}
		Cursor        *string
		HasMore, Done bool
	}
	read := func(cursor string) chunks {
		t.Helper()
		options := map[string]any{"limit": 3}
		if cursor != "" {
			options["cursor"] = cursor
		}
		r := a.world(t, "streams", "getChunks", id, name, options)
		return decode[chunks](t, r.Want(t, http.StatusOK))
	}
	first := read("")
	if len(first.Data) != 3 || first.Cursor == nil || !first.HasMore || !first.Done {
		t.Fatalf("first page: %+v", first)
	}
	last := read(*first.Cursor)
	if len(last.Data) != 2 || last.Data[0].Index != 3 || last.Cursor != nil || last.HasMore || !last.Done {
		t.Errorf("last page: %+v", last)
	}
}

// streamName returns the name of a run's stream in namespace "letters".
func streamName(runID string) string {
	return "strm_" + strings.TrimPrefix(runID, "wrun_") + "_user_bGV0dGVycw"
}
