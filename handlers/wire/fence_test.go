package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// ofFence is the version of clients whose runs have a fence.
var ofFence = field{"specVersion", uint16(9)}

// fenceAgent is their user agent.
const fenceAgent = "@workflow/world-vercel/5.3.0 node-v24.1.0 linux (x64) dpl_x"

// orchestrator is a client of a run with a fence. It counts as the SDK does: by the positions that its writes took.
type orchestrator struct {
	client

	run string
	// seq is the last position that it knows, and inBand how many in-band ones.
	seq, inBand int
}

func newFenceServer(t *testing.T) *server {
	t.Helper()
	return newServer(t, func(o *handlers.Options) { o.Fence = true })
}

// newOrchestrator creates a run and starts it, as the first delivery does.
func newOrchestrator(t *testing.T, s *server) *orchestrator {
	t.Helper()
	o := &orchestrator{client: client{s, fenceAgent}, run: newID("wrun_"), seq: 1, inBand: 1}
	wantStatus(t, o.outside(t, "run_created", "devl[1]", ofNewRun...), http.StatusOK)
	o.write(t, "run_started", "", field{"skipPreload", true})
	return o
}

// ofNewRun is the metadata of a run_created.
var ofNewRun = []field{
	{"deploymentId", "dpl_x"}, {"workflowName", "workflow//./a//b"}, {"executionContext", map[string]any{}},
}

// fenced returns the metadata of an in-band write.
func (o *orchestrator) fenced(fields ...field) []field {
	return append([]field{
		ofFence, {"inBand", true}, {"expectedSeqInBand", o.inBand}, {"maxSlot", o.seq},
	}, fields...)
}

// try posts an in-band event and returns the answer. It counts nothing.
func (o *orchestrator) try(t *testing.T, eventType, body string, fields ...field) answer {
	t.Helper()
	return o.to(t, "/v5", eventType, body, o.fenced(fields...))
}

// outside posts an event that is not in-band.
func (o *orchestrator) outside(t *testing.T, eventType, body string, fields ...field) answer {
	t.Helper()
	return o.to(t, "/v5", eventType, body, append([]field{ofFence, {"inBand", false}}, fields...))
}

func (o *orchestrator) to(t *testing.T, version, eventType, body string, fields []field) answer {
	t.Helper()
	fields = append([]field{{"eventType", eventType}}, fields...)
	return o.send(t, http.MethodPost, version+"/runs/"+o.run+"/events/"+eventType,
		bytes.NewReader(frame(t, meta(t, fields...), []byte(body))), "Content-Type", "application/octet-stream")
}

// write posts an in-band event, which must be accepted, and counts.
func (o *orchestrator) write(t *testing.T, eventType, body string, fields ...field) map[string]any {
	t.Helper()
	got := o.try(t, eventType, body, fields...)
	wantStatus(t, got, http.StatusOK)
	answer := got.cbor(t)
	o.count(t, answer)
	return answer
}

// count advances the counts by what an answer says, as the SDK does.
func (o *orchestrator) count(t *testing.T, answer map[string]any) {
	t.Helper()
	n, ok := answer["allocated"].(uint64)
	if !ok {
		t.Fatalf("the answer has no allocated: %v", answer)
	}
	skipped, _ := answer["events"].([]any)
	o.inBand += int(n)
	o.seq += int(n) + len(skipped)
	for _, e := range skipped {
		if e.(map[string]any)["inBand"] != nil {
			t.Errorf("the fence is in the event: %v", e)
		}
	}
}

// tryBatch posts in-band events in one batch.
func (o *orchestrator) tryBatch(t *testing.T, events ...[]field) answer {
	t.Helper()
	var frames []byte
	for _, e := range events {
		frames = append(frames, frame(t, meta(t, o.fenced(e...)...), nil)...)
	}
	return o.send(t, http.MethodPost, "/v5/runs/"+o.run+"/events/batch", bytes.NewReader(frames),
		"Content-Type", "application/octet-stream")
}

// batched posts in-band events, which must be answered, counts, and returns the statuses.
func (o *orchestrator) batched(t *testing.T, events ...[]field) (statuses []int, answer map[string]any) {
	t.Helper()
	got := o.tryBatch(t, events...)
	wantStatus(t, got, http.StatusOK)
	answer = got.cbor(t)
	o.count(t, answer)
	for _, r := range answer["results"].([]any) {
		statuses = append(statuses, int(r.(map[string]any)["status"].(uint64)))
	}
	return statuses, answer
}

// of returns the metadata of an event of a batch.
func of(eventType, id string, fields ...field) []field {
	return append([]field{{"eventType", eventType}, {"correlationId", id}, {"stepName", "step//./a//charge"}}, fields...)
}

// snapshot reads the counters at the end of a list.
func (o *orchestrator) snapshot(t *testing.T, query string) [2]int {
	t.Helper()
	_, end := o.get(t, "/v5/runs/"+o.run+"/events"+query).list(t)
	s, ok := end["snapshot"].(map[string]any)
	if !ok {
		t.Fatalf("the list has no snapshot: %v", end)
	}
	return [2]int{int(s["seq"].(uint64)), int(s["seqInBand"].(uint64))}
}

func (o *orchestrator) wantCounters(t *testing.T, seq, inBand int) {
	t.Helper()
	if got := o.snapshot(t, "?returnAll=true"); got != [2]int{seq, inBand} {
		t.Fatalf("the counters are %v, want %d and %d", got, seq, inBand)
	}
}

// wantSuperseded checks the refusal of a stale write.
func wantSuperseded(t *testing.T, got answer, seq, inBand int) {
	t.Helper()
	var p struct {
		Code, Message  string
		Seq, SeqInBand int
	}
	check.NoError(t, json.Unmarshal(got.body, &p))
	if got.status != http.StatusPreconditionFailed || p.Code != "in-band-superseded" || p.Seq != seq || p.SeqInBand != inBand {
		t.Errorf("got %d %s, want 412 with %d and %d", got.status, got.body, seq, inBand)
	}
}

// TestFenceConformance is the list by which the SDK checks a World with a fence (§12).
func TestFenceConformance(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t, newFenceServer(t))
	o.wantCounters(t, 2, 2)
	created := field{"correlationId", "step_1"}
	name := field{"stepName", "step//./a//charge"}
	o.write(t, "step_created", "devl[2]", created, name)
	o.wantCounters(t, 3, 3)

	stale := *o
	stale.inBand = 2
	for _, eventType := range []string{"step_created", "run_completed", "hook_received", "run_started"} {
		wantSuperseded(t, stale.try(t, eventType, "", created, name), 3, 3)
	}
	o.wantCounters(t, 3, 3)
	got := o.try(t, "step_created", "devl[2]", created, name) // refused, but not by the fence
	wantProblem(t, got, http.StatusConflict, "conflict")
	missing := append(o.fenced(created, name), field{"expectedSeqInBand", undefined})
	wantProblem(t, o.to(t, "/v5", "step_started", "", missing), http.StatusBadRequest, "invalid_request")
	o.wantCounters(t, 3, 3)

	wantStatus(t, o.outside(t, "step_started", "", created, name, field{"attempt", 1}), http.StatusOK)
	o.wantCounters(t, 4, 3)
	repeated := o.write(t, "run_started", "", field{"skipPreload", true})
	check.Equal(t, "allocated by a repeat", repeated["allocated"], any(uint64(0)))
	o.wantCounters(t, 4, 3)

	next := o.write(t, "wait_created", "", field{"correlationId", "wait_1"}, field{"resumeAt", t0},
		field{"creatorMessageId", "msg_1"})
	check.Equal(t, "position", next["event"].(map[string]any)["eventId"], any(eventID(5)))
	o.wantCounters(t, 5, 4)
}

// TestFenceFieldsReturn: what the SDK writes for its own decisions comes back in the data of the event.
func TestFenceFieldsReturn(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t, newFenceServer(t))
	id := field{"correlationId", "step_1"}
	name := field{"stepName", "step//./a//charge"}
	for _, c := range []struct {
		eventType string
		fields    []field
	}{
		{"step_created", []field{name, {"inline", false}, {"creatorMessageId", "msg_1"}}},
		{"step_started", []field{name, {"attempt", 1}, {"startReason", "first"}}},
		{"step_retrying", []field{name, {"attempt", 1}, {"retryAfter", shown(t0.Add(1e9))}}},
		{"step_started", []field{name, {"attempt", 2}, {"startReason", "retry"}}},
		{"step_completed", []field{name}},
	} {
		answer := o.write(t, c.eventType, "", append(c.fields, id)...)
		want := map[string]any{}
		for _, f := range c.fields {
			want[f.key] = f.value
			if n, ok := f.value.(int); ok {
				want[f.key] = uint64(n)
			}
		}
		check.Equal(t, c.eventType, answer["event"].(map[string]any)["eventData"], any(want))
	}
	events, _ := o.get(t, "/v5/runs/"+o.run+"/events").list(t)
	data := events[2].meta["eventData"].(map[string]any)
	if data["inline"] != false || data["creatorMessageId"] != "msg_1" {
		t.Errorf("the log has %v", data)
	}
	one := o.get(t, "/v5/runs/"+o.run+"/events/"+eventID(3)).frames(t)
	check.Equal(t, "one event", one[0].meta, events[2].meta)
	step := o.get(t, "/v2/runs/"+o.run+"/steps/step_1").cbor(t)
	check.Equal(t, "attempt of the step", step["attempt"], any(uint64(2)))
}

// TestFenceReportsSkippedEvents: an in-band answer brings every event between what its writer knew and its own.
func TestFenceReportsSkippedEvents(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t, newFenceServer(t))
	attribute := func(n int) {
		t.Helper()
		wantStatus(t, o.outside(t, "attr_set", "", field{"correlationId", fmt.Sprint("attr_", n)},
			field{"changes", []any{map[string]any{"key": "k", "value": "v"}}}), http.StatusOK)
	}
	ids := func(answer map[string]any) (list []string) {
		events, _ := answer["events"].([]any)
		for _, e := range events {
			list = append(list, e.(map[string]any)["eventId"].(string))
		}
		return list
	}
	attribute(1)
	attribute(2)
	answer := o.write(t, "step_created", "devl[1]", of("step_created", "step_1")...)
	check.Equal(t, "skipped by an event", ids(answer), []string{eventID(3), eventID(4)})
	if _, ok := answer["cursor"]; !ok || answer["hasMore"] != false {
		t.Errorf("the report is incomplete: %v", answer)
	}
	check.Equal(t, "position", o.seq, 5)

	attribute(3)
	statuses, answer := o.batched(t, of("step_created", "step_1"), of("step_created", "step_2"),
		of("step_started", "step_2", field{"attempt", 1}, field{"startReason", "first"}), of("step_started", "step_1"))
	check.Equal(t, "statuses", statuses, []int{409, 200, 200, 409})
	check.Equal(t, "skipped by a batch", ids(answer), []string{eventID(6)})
	check.Equal(t, "allocated", answer["allocated"], any(uint64(2)))
	o.wantCounters(t, 8, 5)
	check.Equal(t, "known", [2]int{o.seq, o.inBand}, [2]int{8, 5})

	_, answer = o.batched(t, of("step_created", "step_1"))
	check.Equal(t, "allocated by nothing", answer["allocated"], any(uint64(0)))

	attribute(4)
	o.seq = 1 // it knows less than an answer can report, if that is limited
	for i := range 1001 {
		attribute(10 + i)
	}
	answer = o.write(t, "step_completed", "devl[1]", of("step_completed", "step_2")...)
	if answer["reportIncomplete"] != true || answer["events"] != nil {
		t.Errorf("got %v, want an incomplete report", answer)
	}
}

// TestFenceOfCommits: the own client's events carry the fence, and one that is superseded ends the commit before itself.
func TestFenceOfCommits(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t, newFenceServer(t))
	event := func(fields []field, more ...field) []byte {
		return frame(t, meta(t, o.fenced(append(fields, more...)...)...), nil)
	}
	created := event(of("step_created", "a", field{"inline", true}))
	results := o.results(t, commitHead(t, o.run), created, sentMessage(t, stepTopic, ""))
	check.Equal(t, "statuses", statusesOf(results), []uint64{200, 201})
	check.Equal(t, "allocated", results[0]["allocated"], any(uint64(1)))
	o.wantCounters(t, 3, 3)

	before := o.messages(t)
	stale := event(of("step_created", "b"))
	for _, head := range [][]byte{commitHead(t, o.run), commitHead(t, o.run, repeated)} {
		results = o.results(t, head, sentMessage(t, stepTopic, ""), stale, sentMessage(t, stepTopic, ""))
		check.Equal(t, "statuses", statusesOf(results), []uint64{201, 412})
		check.Equal(t, "refusal", [3]any{results[1]["error"], results[1]["seq"], results[1]["seqInBand"]},
			[3]any{"in-band-superseded", uint64(3), uint64(3)})
	}
	check.Equal(t, "messages before the refusal", o.messages(t)-before, 2)
	o.wantCounters(t, 3, 3)
	o.seq, o.inBand = 3, 3
	o.write(t, "step_created", "", of("step_created", "b")...)
	o.wantCounters(t, 4, 4)
}

// TestServerNamesItsSpecVersion: the package asks with a commit of nothing before it writes.
func TestServerNamesItsSpecVersion(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]*server{"8": newServer(t), "9": newFenceServer(t)} {
		got := client{s, next}.commit(t, frame(t, meta(t, field{"world", uint16(1)}), nil), commitEnd(t))
		wantStatus(t, got, http.StatusOK)
		check.Equal(t, "the newest spec version", got.header.Get("Stepwell-Spec"), want)
	}
}

// TestFenceOfBatch: a batch is refused as a whole by the fence, and otherwise takes several events of one entity.
func TestFenceOfBatch(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t, newFenceServer(t))
	whole := [][]field{
		of("step_created", "a"), of("step_started", "a", field{"attempt", 1}), of("step_completed", "a"),
		of("step_created", "b"), of("wait_created", "w", field{"resumeAt", t0}),
	}
	stale := *o
	stale.inBand = 1
	wantSuperseded(t, stale.tryBatch(t, whole...), 2, 2)
	statuses, _ := o.batched(t, whole...)
	check.Equal(t, "statuses", statuses, []int{200, 200, 200, 200, 200})
	o.wantCounters(t, 7, 7)
	wantSuperseded(t, stale.tryBatch(t, whole...), 7, 7)
	o.wantCounters(t, 7, 7)
}

// TestRacingOrchestrators: of several that write with the same count, one wins.
func TestRacingOrchestrators(t *testing.T) {
	t.Parallel()
	const racers = 8
	o := newOrchestrator(t, newFenceServer(t))
	answers := make(chan answer, racers)
	for i := range racers {
		go func() {
			answers <- o.try(t, "step_created", "devl[1]", of("step_created", fmt.Sprint("step_", i))...)
		}()
	}
	won := 0
	for range racers {
		if got := <-answers; got.status == http.StatusOK {
			won++
		} else {
			wantSuperseded(t, got, 3, 3)
		}
	}
	check.Equal(t, "winners", won, 1)
	o.wantCounters(t, 3, 3)
}

// TestLateEventsOfFence: results come after the end of a run, and beginnings are refused so that their delivery ends.
func TestLateEventsOfFence(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t, newFenceServer(t))
	o.batched(t, of("step_created", "a"), of("step_created", "b"), of("wait_created", "w", field{"resumeAt", t0}))
	o.write(t, "run_completed", "devl[1]")
	for _, late := range [][]field{of("step_completed", "a"), of("step_failed", "b"), of("wait_completed", "w")} {
		got := o.outside(t, late[0].value.(string), "", late...)
		wantStatus(t, got, http.StatusOK)
		check.Equal(t, "allocated", got.cbor(t)["allocated"], any(uint64(1)))
	}
	for _, early := range [][]field{
		of("step_created", "c"), of("step_started", "a"), of("step_retrying", "a"), of("wait_created", "x", field{"resumeAt", t0}),
	} {
		wantProblem(t, o.outside(t, early[0].value.(string), "", early...), http.StatusGone, "run_ended")
	}
	o.wantCounters(t, 9, 6)
}

// TestFenceRoutes: the routes of version 5 serve all runs, and those of version 4 write to no run with a fence.
func TestFenceRoutes(t *testing.T) {
	t.Parallel()
	s := newFenceServer(t)
	o := newOrchestrator(t, s)
	got := o.to(t, "/v4", "step_created", "devl[1]", append([]field{ofNext}, of("step_created", "a")...))
	if p := wantProblem(t, got, http.StatusBadRequest, "invalid_request"); !strings.Contains(p.Message, "/v5/runs") {
		t.Errorf("the refusal says %q, want the route", p.Message)
	}
	fresh := *o
	fresh.run = newID("wrun_")
	got = fresh.to(t, "/v4", "run_created", "devl[1]", append([]field{ofFence}, ofNewRun...))
	wantProblem(t, got, http.StatusBadRequest, "invalid_request")
	o.wantCounters(t, 2, 2)
	events, end := o.get(t, "/v4/runs/"+o.run+"/events").list(t) // read by an old client
	check.Equal(t, "events", len(events), 2)
	check.Equal(t, "snapshot", end["snapshot"], nil)

	old := &orchestrator{client: client{s, next}, run: client{s, next}.newRunNext(t), seq: 2, inBand: 7}
	answer := old.try(t, "step_created", "devl[1]", of("step_created", "a")...).cbor(t)
	check.Equal(t, "allocated in a run without a fence", answer["allocated"], nil)
	wantStatus(t, old.to(t, "/v5", "run_started", "", []field{ofFence}), http.StatusOK)
	_, end = old.get(t, "/v5/runs/"+old.run+"/events").list(t)
	check.Equal(t, "snapshot of a run without a fence", end["snapshot"], nil)
	check.Equal(t, "one event", len(old.get(t, "/v5/runs/"+old.run+"/events/"+eventID(1)).frames(t)), 1)
	got = old.tryBatch(t, of("step_created", "b"), of("step_started", "b"), of("step_completed", "b"))
	wantProblem(t, got, http.StatusBadRequest, "invalid_request") // as on the routes of version 4

	wantProblem(t, o.get(t, "/v5/runs/"+newID("wrun_")+"/events"), http.StatusNotFound, "run_not_found")
}

// TestFenceStartsRun: a first delivery starts a run whose creation got lost, without reading it.
func TestFenceStartsRun(t *testing.T) {
	t.Parallel()
	o := &orchestrator{client: client{newFenceServer(t), fenceAgent}, run: newID("wrun_"), seq: 1, inBand: 1}
	o.write(t, "run_started", "devl[1]", append([]field{{"skipPreload", true}}, ofNewRun...)...)
	o.wantCounters(t, 2, 2)
	check.Equal(t, "known", o.inBand, 2)

	frames := o.send(t, http.MethodPost, "/v5/runs/"+o.run+"/events/run_started",
		bytes.NewReader(frame(t, meta(t, field{"eventType", "run_started"}, ofFence), nil)),
		"Accept", "application/vnd.workflow.v4-frames;q=1.0, application/cbor;q=0.9")
	events, end := frames.list(t)
	if len(events) != 2 || end["snapshot"] == nil {
		t.Errorf("the stream has %d events and ends with %v", len(events), end)
	}
}

// TestFenceIsServedOnlyIfSet: without the setting, what needs it says so.
func TestFenceIsServedOnlyIfSet(t *testing.T) {
	t.Parallel()
	o := &orchestrator{client: client{newServer(t), fenceAgent}, run: newID("wrun_")}
	for _, version := range []string{"/v4", "/v5"} {
		got := o.to(t, version, "run_created", "devl[1]", append([]field{ofFence}, ofNewRun...))
		p := wantProblem(t, got, http.StatusBadRequest, "spec_version")
		if version == "/v5" && !strings.Contains(p.Message, "STEPWELL_SDK_SPEC_9") {
			t.Errorf("%s: the refusal says %q, want the setting", version, p.Message)
		}
	}
	wantProblem(t, o.get(t, "/v5/runs/"+o.run+"/events"), http.StatusBadRequest, "spec_version")
	check.Equal(t, "the run was created", o.get(t, "/v2/runs/"+o.run).status, http.StatusNotFound)
}
