package wire_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// These tests drive every route as the current line does: with its version in every frame, of an event for a run of
// whatever version, and with the parameters that its source sends. What the routes answer in all other cases is tested
// with the lines before.

// posted is an event that the current line posts, and what it requires of the answer.
type posted struct {
	eventType, id, body string
	fields              []field
	// entity is the key of the answer's entity, and status the one that it has then.
	entity, status string
}

// TestCurrentLinePostsEveryEvent: the answers have the entities that its schemas require, and the log what was said.
func TestCurrentLinePostsEveryEvent(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), current}
	owner, instance := field{"ownerMessageId", "msg_1"}, field{"computeInstanceId", "cinst_1"}
	since, slot := field{"sinceCursor", "eid:" + eventID(2)}, field{"maxSlot", 2}
	resume := []field{{"resumeAt", t0}}
	change := []any{map[string]any{"key": "tier", "value": "gold"}}
	for name, ending := range map[string]posted{
		"completed": {"run_completed", "", "devl[9]", []field{slot}, "run", "completed"},
		"failed":    {"run_failed", "", "devl[9]", []field{{"errorCode", "USER_ERROR"}}, "run", "failed"},
		"cancelled": {"run_cancelled", "", "", []field{{"cancelReason", "enough"}}, "run", "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events := []posted{
				{"run_created", "", "devl[1]", creation("workflow//./a//b"), "run", "pending"},
				{"run_started", "", "", []field{{"skipPreload", true}, {"executorSpecVersion", 8}, slot}, "run", "running"},
				{"step_created", "step_1", "devl[3]", stepMeta("step_1", slot), "step", "pending"},
				{"step_started", "step_1", "", stepMeta("step_1", owner, instance), "step", "running"},
				{"step_retrying", "step_1", "devl[4]", stepMeta("step_1", field{"retryAfter", t0}), "step", "pending"},
				{"step_started", "step_1", "", stepMeta("step_1", owner, field{"viaStepDispatch", true}), "step", "running"},
				{"step_completed", "step_1", "devl[5]", stepMeta("step_1", since, skipping), "step", "completed"},
				{"step_created", "step_2", "devl[3]", stepMeta("step_2"), "step", "pending"},
				{"step_failed", "step_2", "devl[6]", stepMeta("step_2", since), "step", "failed"},
				{"wait_created", "wait_1", "", append(resume, slot), "wait", "waiting"},
				{"wait_completed", "wait_1", "", append(resume, since, skipping), "wait", "completed"},
				{"hook_created", "hook_1", "", []field{{"hookToken", name}, {"hookIsWebhook", false}, since}, "hook", ""},
				{"hook_received", "hook_1", "devl[7]", []field{{"resumeId", "r"}, {"resumePayloadDigest", "d"}}, "hook", ""},
				{"hook_disposed", "hook_1", "", nil, "", ""},
				{"attr_set", "attr_1", "", []field{{"changes", change}, {"writer", map[string]any{"type": "workflow"}}}, "", ""},
				ending,
			}
			id := newID("wrun_")
			for _, e := range events {
				fields := append([]field{{"correlationId", undefined}}, e.fields...)
				if e.id != "" {
					fields[0].value = e.id
				}
				got := c.must(t, id, e.eventType, []byte(e.body), append(fields, ofCurrent)...)
				check.Equal(t, "type", got["event"].(map[string]any)["eventType"], any(e.eventType))
				entity, there := got[e.entity].(map[string]any)
				if there != (e.entity != "") || e.status != "" && entity["status"] != e.status {
					t.Errorf("%s: got %s %v, want it %s", e.eventType, e.entity, got[e.entity], e.status)
				}
				if _, ok := entity["startedAt"]; e.eventType == "step_started" && !ok {
					t.Error("the step of step_started has no startedAt")
				}
				if _, ok := got["events"]; !ok && slices.ContainsFunc(e.fields, func(f field) bool { return f.key == since.key }) {
					t.Errorf("%s: the answer has no delta", e.eventType)
				}
			}
			log := c.log(t, id)
			for i, e := range log {
				check.Equal(t, "event", []any{e.meta["eventType"], e.meta["specVersion"], e.body},
					[]any{events[i].eventType, uint64(8), events[i].body})
			}
			check.Equal(t, "length of the log", len(log), len(events))
		})
	}
}

// TestCurrentLineWritesToRunsOfOlderLines: it stamps its own version on the events of every run.
func TestCurrentLineWritesToRunsOfOlderLines(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), current}
	for _, version := range []uint16{3, 5, 6, 7} {
		id := newID("wrun_")
		c.must(t, id, "run_created", []byte("devl[1]"), append(creation("w"), field{"specVersion", version})...)
		c.must(t, id, "run_started", nil, ofCurrent, field{"skipPreload", true}, field{"executorSpecVersion", 8})
		c.must(t, id, "step_started", []byte("devl[3]"), append(stepMeta("step_1"), ofCurrent)...)
		c.must(t, id, "step_completed", []byte("devl[5]"), append(stepMeta("step_1"), ofCurrent)...)
		run := c.must(t, id, "run_completed", nil, ofCurrent)["run"].(map[string]any)
		check.Equal(t, "the version of the run", run["specVersion"], any(uint64(version)))
	}
}

// TestCurrentLineReads drives the routes that read, and those that write without an event.
func TestCurrentLineReads(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), current}
	id := c.newRunCurrent(t)
	stamped := func(eventType, body string, fields ...field) []byte {
		return framed(t, eventType, body, append(fields, ofCurrent)...)
	}
	wait := []field{{"correlationId", "wait_1"}, {"resumeAt", t0}}
	claim := append(stepMeta("step_1"), field{"ownerMessageId", "msg_1"})
	got := c.batch(t, id, joined(
		stamped("step_created", "devl[3]", stepMeta("step_1")...), stamped("step_started", "", claim...),
		stamped("wait_created", "", wait...),
	))
	wantStatus(t, got, http.StatusOK)
	var outcomes []any
	for _, r := range got.cbor(t)["results"].([]any) {
		outcomes = append(outcomes, r.(map[string]any)["status"])
	}
	check.Equal(t, "batch", outcomes, []any{uint64(200), uint64(200), uint64(200)})
	hook := []field{ofCurrent, {"correlationId", "hook_1"}, {"hookToken", "tok"}, {"hookIsWebhook", true}}
	c.must(t, id, "hook_created", nil, hook...)
	set := c.sendCBOR(t, "/v2/runs/"+id+"/attributes", field{"changes", []any{map[string]any{"key": "a", "value": "b"}}})
	check.Equal(t, "attributes", set.cbor(t), map[string]any{"attributes": map[string]any{"a": "b"}})

	whole := "/v4/runs/" + id + "/events?sortOrder=asc&returnAll=true&remoteRefBehavior=skip-step-inputs"
	for path, want := range map[string][]int{
		whole: {1, 2, 3, 4, 5, 6, 7}, whole + "&cursor=eid:" + eventID(5): {6, 7},
		"/v4/runs/" + id + "/events?limit=2&sortOrder=desc&remoteRefBehavior=lazy": {7, 6},
		"/v4/events?correlationId=step_1&runId=" + id:                              {3, 4},
	} {
		events, end := c.get(t, path).list(t)
		check.Equal(t, path, seqs(t, events), want)
		if _, ok := end["hasMore"]; !ok {
			t.Errorf("%s: the sentinel does not say whether there is more", path)
		}
	}
	check.Equal(t, "an event", c.get(t, "/v4/runs/"+id+"/events/"+eventID(3)).frames(t)[0].body, "devl[3]")

	of := "/v2/runs/" + id
	analytics := "/v2/analytics/runs/" + id
	for path, want := range map[string]string{ // the key and the value that tell the entity
		of + "?remoteRefBehavior=lazy": "runId " + id, of + "/status?waitMs=0&remoteRefBehavior=lazy": "runId " + id,
		"/v2/runs?status=pending,running&remoteRefBehavior=lazy": "runId " + id,
		of + "/steps": "stepId step_1", of + "/steps/step_1?remoteRefBehavior=resolve": "stepId step_1",
		"/v2/steps/step_1": "stepId step_1", "/v2/hooks?runId=" + id: "hookId hook_1",
		"/v2/hooks/hook_1": "hookId hook_1", "/v2/hooks/by-token?token=tok": "hookId hook_1",
		"/v2/analytics/runs?limit=50&sortOrder=desc": "runId " + id, analytics: "runId " + id,
		analytics + "/steps": "stepId step_1", analytics + "/steps/step_1": "stepId step_1",
		analytics + "/events?sortOrder=asc": "eventId " + eventID(1), analytics + "/events/" + eventID(6): "eventId " + eventID(6),
		analytics + "/waits": "waitId wait_1", analytics + "/waits/wait_1": "waitId wait_1",
		"/v2/analytics/events?correlationId=wait_1&runId=" + id: "eventId " + eventID(5),
		"/v2/analytics/hooks?runId=" + id:                       "hookId hook_1",
		"/v2/analytics/hooks/hook_1":                            "hookId hook_1",
		"/v2/analytics/attributes":                              "key a",
	} {
		answer := c.get(t, path)
		wantStatus(t, answer, http.StatusOK)
		entity := answer.cbor(t)
		if page, ok := entity["data"].([]any); ok {
			check.Equal(t, path+": length", len(page), map[bool]int{false: 1, true: 7}[strings.Contains(path, "events?sortOrder")])
			entity = page[0].(map[string]any)
		}
		key, _, _ := strings.Cut(want, " ")
		check.Equal(t, path, fmt.Sprint(key, " ", entity[key]), want)
	}
	context := c.get(t, "/v2/hooks/by-token?token=tok").cbor(t)["resumeContext"].(map[string]any)
	check.Equal(t, "the version by which a resumption is sent", context["runSpecVersion"], any(uint64(8)))
	many := c.send(t, http.MethodPost, analytics+"/events/get-many", bytes.NewReader(
		encode(t, map[string]any{"eventIds": []string{eventID(1), eventID(99)}})), "Content-Type", "application/cbor")
	check.Equal(t, "events by ID", len(decode(t, many.body).([]any)), 1)

	other, missing := c.newRunCurrent(t), newID("wrun_")
	cancelled := c.cancel(t, []string{id, other, missing}, "enough").cbor(t)
	outcome := func(id, outcome string) any { return map[string]any{"runId": id, "outcome": outcome} }
	check.Equal(t, "cancelled", cancelled["results"],
		any([]any{outcome(id, "cancelled"), outcome(other, "cancelled"), outcome(missing, "not_found")}))
}

// TestCurrentLineStreams: groups of chunks under a run, a read of them as they come, and their lists (§4).
func TestCurrentLineStreams(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), current}
	id := c.newRunCurrent(t)
	path := "/v2/runs/" + id + "/stream/strm_1"
	put := func(body string, header ...string) {
		t.Helper()
		wantStatus(t, c.send(t, http.MethodPut, path, strings.NewReader(body), header...), http.StatusNoContent)
	}
	put(multi("one", "two"), "X-Stream-Multi", "true")
	live, _ := c.tail(t, "/v3/runs/"+id+"/stream/strm_1?startIndex=1")
	wantNext(t, live, "two")
	put("three")
	wantNext(t, live, "three")
	put("", "X-Stream-Done", "true")
	wantEnd(t, live)
	streams := "/v2/runs/" + id + "/streams"
	check.Equal(t, "names", strings.TrimSpace(string(c.get(t, streams).body)), `["strm_1"]`)
	check.Equal(t, "info", c.get(t, streams+"/strm_1/info").cbor(t), map[string]any{"tailIndex": uint64(2), "done": true})
	check.Equal(t, "chunks", len(c.get(t, streams+"/strm_1/chunks?limit=500").cbor(t)["data"].([]any)), 3)
}

// leased sends a request about the lease of a delivery, which must be accepted.
func (a *ownApp) leased(t *testing.T, method, topic string, d delivered, body string) {
	t.Helper()
	path := queuePath + topic + "/consumer/default/lease/" + d.header.Get("Ce-Vqsreceipthandle")
	wantStatus(t, a.send(t, method, path, strings.NewReader(body), "Content-Type", "application/json"), http.StatusNoContent)
}

// TestCurrentLineQueues: it sends alone and in batches, to the topic of the workflow or of one run, and answers a
// delivery by its receipt (§5).
func TestCurrentLineQueues(t *testing.T) {
	t.Parallel()
	a := newOwnApp(t)
	a.agent = current
	id := a.newRunCurrent(t)
	perRun := flowTopic + "_" + id
	key := []string{"Vqs-Idempotency-Key", "step_1:43b660d1", "Vqs-Retention-Seconds", "604800", "X-Vercel-Workflow-Run-Id", id}
	for _, topic := range []string{flowTopic, perRun, perRun + "_step_1"} {
		sent := a.mustEnqueue(t, topic, "a wake", key...)
		check.Equal(t, "a repetition", a.mustEnqueue(t, topic, "a wake", key...), sent)
		first := a.next(t)
		a.leased(t, http.MethodPatch, topic, first, `{"visibilityTimeoutSeconds":300}`)
		first.respond <- reply{http.StatusInternalServerError, nil, nil}
		again := a.next(t)
		for i, d := range []delivered{first, again} {
			got := []string{d.path, d.header.Get("Ce-Vqsmessageid"), d.header.Get("Ce-Vqsdeliverycount"), string(d.body)}
			check.Equal(t, "delivery", got, []string{"/.well-known/workflow/v1/flow", sent, fmt.Sprint(i + 1), "a wake"})
		}
		a.leased(t, http.MethodDelete, topic, again, "")
		again.respond <- reply{http.StatusOK, nil, nil}
		a.gone(t, sent)
	}
	batch := wantSent(t, a.sendBatch(t, flowTopic, multipartOf(part{"1", nil}, part{"2", nil})), 2)
	for range batch {
		d := a.next(t)
		a.leased(t, http.MethodDelete, flowTopic, d, "")
		d.respond <- reply{http.StatusOK, nil, nil}
	}
	late := queuePath + flowTopic + "/consumer/default/id/" + a.mustEnqueue(t, flowTopic, "later", "Vqs-Delay-Seconds", "60")
	wantProblem(t, a.send(t, http.MethodPost, late, nil), http.StatusConflict, "conflict")
}

// TestHealthAnswerPassesUnchanged: a start on another deployment takes the version of the run from the answer of its
// app, so the server changes no byte of the question or the answer, whatever version they name (§5.6).
func TestHealthAnswerPassesUnchanged(t *testing.T) {
	t.Parallel()
	a := newOwnApp(t)
	a.agent = current
	for i, topic := range []string{"__wkf_workflow_health_check", "__wkf_workflow_health_check_c1", "__shop_wkf_workflow_health_check"} {
		run, stream := fmt.Sprint("wrun_hc_c", i), fmt.Sprint("__health_check__c", i)
		question := fmt.Sprintf(`{"queueName": "%s",  "payload":{"__healthCheck":true,"correlationId":"c%d","runId":"wrun_x"}}`, topic, i)
		sent := a.mustEnqueue(t, topic, question, "Content-Type", "application/json", "X-Vercel-Workflow-Run-Id", "")
		d := a.next(t)
		check.Equal(t, "delivery", []string{d.path, d.header.Get("Content-Type"), string(d.body)},
			[]string{"/.well-known/workflow/v1/flow", "application/json", question})
		answer := fmt.Sprintf(`{ "healthy":true,"endpoint":"workflow","correlationId":"c%d","specVersion":%d,`+
			`"workflowCoreVersion":"5.2.0","hookResumeInputVersion":2,"timestamp":1795225268528,"later":null}`, i, []int{8, 9, 99}[i])
		put := func(body string, header ...string) {
			wantStatus(t, a.send(t, http.MethodPut, "/v2/runs/"+run+"/stream/"+stream, strings.NewReader(body), header...), http.StatusNoContent)
		}
		put(multi(answer), "X-Stream-Multi", "true")
		put("", "X-Stream-Done", "true")
		a.leased(t, http.MethodDelete, topic, d, "")
		d.respond <- reply{http.StatusOK, nil, nil}
		a.gone(t, sent)
		check.Equal(t, "answer", string(a.get(t, "/v3/runs/"+run+"/stream/"+stream).body), answer)
	}
}
