package wire_test

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// The parts of commits.
func commitHead(t *testing.T, runID string, more ...field) []byte {
	t.Helper()
	return frame(t, meta(t, append([]field{{"world", uint16(1)}, {"runId", runID}}, more...)...), nil)
}

func commitEnd(t *testing.T, more ...field) []byte {
	t.Helper()
	return frame(t, meta(t, append([]field{{"_end", uint16(1)}}, more...)...), nil)
}

func sentMessage(t *testing.T, topic, key string, more ...field) []byte {
	t.Helper()
	return frame(t, meta(t, append([]field{
		{"topic", topic}, {"deploymentId", "dpl_x"}, {"contentType", "application/json"}, {"key", key},
	}, more...)...), []byte("wake"))
}

func joined(frames ...[]byte) []byte { return bytes.Join(frames, nil) }

// repeated is the field of a head that repeats a commit.
var repeated = field{"repeat", true}

const stepTopic = "__wkf_step_a"

// commit posts a commit.
func (c client) commit(t *testing.T, frames ...[]byte) answer {
	t.Helper()
	return c.send(t, http.MethodPost, "/world/v1/commit", bytes.NewReader(joined(frames...)), "Stepwell-World", "1",
		"Content-Type", "application/vnd.stepwell.world")
}

// results posts a commit of a run's items, and returns their outcomes.
func (c client) results(t *testing.T, head []byte, items ...[]byte) []map[string]any {
	t.Helper()
	got := c.commit(t, head, joined(items...), commitEnd(t))
	wantStatus(t, got, http.StatusOK)
	var list []map[string]any
	for _, r := range got.cbor(t)["results"].([]any) {
		list = append(list, r.(map[string]any))
	}
	return list
}

func statusesOf(results []map[string]any) (list []uint64) {
	for _, r := range results {
		list = append(list, r["status"].(uint64))
	}
	return list
}

func TestCommitAppliesItemsInTheirOrder(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := newID("wrun_")
	results := c.results(t, commitHead(t, id),
		framed(t, "run_created", "devl[1]", creationNext("workflow//./a//b")...),
		sentMessage(t, flowTopic, ""),
		framed(t, "run_started", "", field{"skipPreload", true}),
		framed(t, "step_created", "devl[3]", stepMeta("step_1")...),
		sentMessage(t, stepTopic, "step_1"),
		framed(t, "hook_created", "", field{"correlationId", "hook_1"}, field{"hookToken", "tok"}),
		framed(t, "wait_created", "", field{"correlationId", "wait_1"}, field{"resumeAt", t0.Add(time.Hour)}),
	)
	check.Equal(t, "statuses", statusesOf(results), []uint64{200, 201, 200, 200, 201, 200, 200})
	var types []string
	for _, e := range c.log(t, id) {
		types = append(types, e.meta["eventType"].(string))
	}
	check.Equal(t, "log", types, []string{"run_created", "run_started", "step_created", "hook_created", "wait_created"})
	for i, topic := range map[int]string{1: flowTopic, 4: stepTopic} {
		var got string
		err := c.pool.QueryRow(t.Context(), `SELECT topic FROM messages WHERE id = $1`, results[i]["messageId"]).Scan(&got)
		if err != nil || got != topic {
			t.Errorf("message of item %d: got topic %q, error %v, want %q", i, got, err, topic)
		}
	}
}

// TestCommitAnswersLikeSingleEvents: the outcome of an event is the answer that the endpoint for single events gives.
func TestCommitAnswersLikeSingleEvents(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	single, together := c.newRunNext(t), c.newRunNext(t)
	start := append(stepMeta("step_1"), field{"remoteRefBehavior", "resolve"}, field{"sinceCursor", "eid:" + eventID(2)})
	want := c.must(t, single, "step_started", []byte("devl[3]"), append(start, ofNext)...)
	got := c.results(t, commitHead(t, together), framed(t, "step_started", "devl[3]", start...))[0]
	delete(got, "status")
	for _, m := range []map[string]any{want, got} {
		replaceRun(m, single, together)
	}
	check.Equal(t, "outcome", got, want)
}

// TestOutcomesBringLimitedPayloads: beyond the size of a page, they have neither the run's input nor its log.
func TestOutcomesBringLimitedPayloads(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	large := "devl" + strings.Repeat("x", 9<<20)
	since := func(id string) []field { return append(stepMeta(id), field{"sinceCursor", "eid:" + eventID(2)}) }
	again := framed(t, "run_started", "", field{"remoteRefBehavior", "resolve"}, field{"skipPreload", true})
	id := newID("wrun_")
	list := c.results(t, commitHead(t, id),
		framed(t, "run_created", "devl[1]", creationNext("workflow//./a//b")...), again,
		framed(t, "step_created", large, since("step_1")...),
		framed(t, "step_created", large, since("step_2")...), again)
	check.Equal(t, "the first start has the input", hasInput(list[1]), true)
	check.Equal(t, "the first step has the log", list[2]["events"] != nil, true) // both steps, as the commit leaves it
	check.Equal(t, "the second step has the log", list[3]["events"] != nil, false)
	check.Equal(t, "the second start has the input", hasInput(list[4]), false)
}

// hasInput reports whether an outcome has the input of the run.
func hasInput(outcome map[string]any) bool {
	_, ok := outcome["run"].(map[string]any)["input"]
	return ok
}

// replaceRun replaces the ID of a run in a decoded answer.
func replaceRun(v any, from, to string) {
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			if item == from {
				v[key] = to
			}
			replaceRun(item, from, to)
		}
	case []any:
		for _, item := range v {
			replaceRun(item, from, to)
		}
	}
}

func TestCommitGoesOnAfterWhatComesTooLate(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	c.must(t, id, "step_created", []byte("devl[3]"), append(stepMeta("step_1"), ofNext)...)
	before := c.messages(t)
	results := c.results(t, commitHead(t, id),
		framed(t, "step_created", "devl[3]", stepMeta("step_1")...), sentMessage(t, stepTopic, "step_1"),
		framed(t, "step_created", "devl[3]", stepMeta("step_2")...), sentMessage(t, stepTopic, "step_2"))
	check.Equal(t, "statuses", statusesOf(results), []uint64{409, 201, 200, 201})
	check.Equal(t, "error", results[0]["error"], any("conflict"))
	check.Equal(t, "messages", c.messages(t)-before, 2)

	// Nothing but conflicts still sends the messages.
	results = c.results(t, commitHead(t, id),
		framed(t, "step_created", "devl[3]", stepMeta("step_1")...), sentMessage(t, stepTopic, "step_9"))
	check.Equal(t, "statuses", statusesOf(results), []uint64{409, 201})
	check.Equal(t, "messages", c.messages(t)-before, 3)
}

// TestCommitEndsAtARefusal: what is before the refused item is applied, and nothing after it.
func TestCommitEndsAtARefusal(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	topicless := frame(t, meta(t, field{"topic", "other"}, field{"deploymentId", "dpl_x"}), nil)
	for name, refused := range map[string]struct {
		item   []byte
		status uint64
	}{
		"a step that does not exist": {framed(t, "step_completed", "", stepMeta("step_none")...), 404},
		"no step name":               {framed(t, "step_created", "", field{"correlationId", "step_x"}), 400},
		"version":                    {framed(t, "step_created", "", append(stepMeta("step_x"), field{"specVersion", uint16(99)})...), 400},
		"only of the server":         {framed(t, "cancel_requested", ""), 400},
		"cursor":                     {framed(t, "step_created", "", append(stepMeta("step_x"), field{"sinceCursor", "x"})...), 400},
		"topic":                      {topicless, 400},
	} {
		id := c.newRunNext(t)
		before := c.messages(t)
		results := c.results(t, commitHead(t, id),
			framed(t, "step_created", "devl[3]", stepMeta("step_1")...), sentMessage(t, stepTopic, newID("key_")),
			refused.item,
			framed(t, "step_created", "devl[3]", stepMeta("step_2")...), sentMessage(t, stepTopic, newID("key_")))
		check.Equal(t, name, statusesOf(results), []uint64{200, 201, refused.status})
		check.Equal(t, name+": events", len(c.log(t, id)), 3)
		check.Equal(t, name+": messages", c.messages(t)-before, 1)
	}
}

func TestCommitSaysWhenAStepIsDue(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	c.must(t, id, "step_started", []byte("devl[3]"), append(stepMeta("step_1"), ofNext)...)
	c.must(t, id, "step_retrying", []byte("why"),
		append(stepMeta("step_1"), ofNext, field{"retryAfter", t0.Add(90 * time.Second)})...)
	results := c.results(t, commitHead(t, id), framed(t, "step_started", "", stepMeta("step_1")...))
	check.Equal(t, "statuses", statusesOf(results), []uint64{425})
	check.Equal(t, "retryAfter", results[0]["retryAfter"], any(uint64(90)))
}

// TestCutCommitChangesNothing: a commit counts only as a whole, wherever it is cut.
func TestCutCommitChangesNothing(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	body := joined(commitHead(t, id), framed(t, "step_created", "devl[3]", stepMeta("step_1")...),
		sentMessage(t, stepTopic, "step_1"), commitEnd(t))
	for n := range len(body) {
		wantProblem(t, c.commit(t, body[:n]), http.StatusBadRequest, "malformed")
	}
	wantProblem(t, c.commit(t, body, []byte{0}), http.StatusBadRequest, "malformed")
	wantProblem(t, c.commit(t, body, commitEnd(t)), http.StatusBadRequest, "malformed")
	check.Equal(t, "events", len(c.log(t, id)), 2)
	check.Equal(t, "messages", c.messages(t), 0)
}

func TestCommitRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	step := framed(t, "step_created", "devl[3]", stepMeta("step_1")...)
	odd := frame(t, meta(t, field{"stream", "s"}), nil)
	newer := frame(t, meta(t, field{"world", uint16(2)}, field{"runId", id}), nil)
	for name, tt := range map[string]struct {
		body []byte
		code string
	}{
		"another kind of frame": {joined(commitHead(t, id), step, odd, commitEnd(t)), "unknown_frame"},
		"two heads":             {joined(commitHead(t, id), commitHead(t, id), commitEnd(t)), "unknown_frame"},
		"no head":               {joined(step, commitEnd(t)), "malformed"},
		"an event without run":  {joined(commitHead(t, ""), step, commitEnd(t)), "malformed"},
		"a newer version":       {joined(newer, step, commitEnd(t)), "world_version"},
		"too many":              {joined(commitHead(t, id), bytes.Repeat(step, 1001), commitEnd(t)), "invalid_request"},
	} {
		got := c.commit(t, tt.body)
		if p := wantProblem(t, got, http.StatusBadRequest, tt.code); t.Failed() {
			t.Fatalf("%s: %v", name, p)
		}
		check.Equal(t, name, got.header.Get("Stepwell-World"), "1")
	}
	for _, version := range []string{"", "2"} {
		got := c.send(t, http.MethodPost, "/world/v1/commit", bytes.NewReader(joined(commitHead(t, id), step, commitEnd(t))),
			"Stepwell-World", version)
		wantProblem(t, got, http.StatusBadRequest, "world_version")
	}
	check.Equal(t, "events", len(c.log(t, id)), 2)
}

// marked are the fields of an event with a write key.
func marked(key string, fields ...field) []field {
	return append(fields, field{"writeKey", key + strings.Repeat("0", 26-len(key))})
}

// TestRepeatedCommitFindsItsEvents: a commit that is sent again has the outcomes that got lost, and writes nothing.
func TestRepeatedCommitFindsItsEvents(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	other := c.newRunNext(t)
	c.must(t, other, "hook_created", nil, ofNext, field{"correlationId", "hook_x"}, field{"hookToken", "taken"})
	change := field{"changes", []any{map[string]any{"key": "a", "value": "1"}}}
	writer := field{"writer", map[string]any{"type": "workflow"}}
	for _, tt := range []struct {
		name, eventType, body string
		fields                []field
	}{
		{"a start that creates its step", "step_started", "devl[3]", marked("A", stepMeta("step_1")...)},
		{"a second start", "step_started", "", marked("B", stepMeta("step_1")...)},
		{"a retry", "step_retrying", "why", marked("C", append(stepMeta("step_1"), field{"retryAfter", t0})...)},
		{"a hook", "hook_created", "", marked("D", field{"correlationId", "hook_1"}, field{"hookToken", "tok"})},
		{"a conflict", "hook_created", "", marked("E", field{"correlationId", "hook_2"}, field{"hookToken", "taken"})},
		{"a payload", "hook_received", "devl[4]", marked("F", field{"correlationId", "hook_1"})},
		{"a disposal", "hook_disposed", "", marked("G", field{"correlationId", "hook_1"})},
		{"attributes", "attr_set", "", marked("H", change, writer)},
		{"attributes with an ID", "attr_set", "", marked("I", change, writer, field{"correlationId", "attr_1"})},
	} {
		event := framed(t, tt.eventType, tt.body, tt.fields...)
		first := c.results(t, commitHead(t, id), event, sentMessage(t, flowTopic, tt.name))
		events, messages := len(c.log(t, id)), c.messages(t)
		again := c.results(t, commitHead(t, id, repeated), event, sentMessage(t, flowTopic, tt.name))
		check.Equal(t, tt.name, again, first)
		check.Equal(t, tt.name+": events", len(c.log(t, id)), events)
		check.Equal(t, tt.name+": messages", c.messages(t), messages)
	}
	step := c.get(t, "/v2/runs/"+id+"/steps/step_1").cbor(t)
	check.Equal(t, "attempts", step["attempt"], any(uint64(2)))

	// Another write key is another event.
	results := c.results(t, commitHead(t, id, repeated),
		framed(t, "step_started", "", marked("Z", stepMeta("step_1")...)...))
	check.Equal(t, "attempt", results[0]["step"].(map[string]any)["attempt"], any(uint64(3)))
}

func TestRepeatedStartOfARun(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := newID("wrun_")
	items := joined(framed(t, "run_created", "devl[1]", creationNext("workflow//./a//b")...), sentMessage(t, flowTopic, id))
	first := c.results(t, commitHead(t, id), items)
	again := c.results(t, commitHead(t, id, repeated), items)
	check.Equal(t, "statuses", statusesOf(again), []uint64{409, 201})
	check.Equal(t, "message", again[1]["messageId"], first[1]["messageId"])
	check.Equal(t, "messages", c.messages(t), 1)
}

// TestTwoStartsInOneCommit: the second one repeats the first.
func TestTwoStartsInOneCommit(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := newID("wrun_")
	results := c.results(t, commitHead(t, id),
		framed(t, "run_created", "devl[1]", creationNext("workflow//./a//b")...),
		framed(t, "run_started", ""), framed(t, "run_started", ""))
	check.Equal(t, "statuses", statusesOf(results), []uint64{200, 200, 200})
	check.Equal(t, "event", results[2]["event"], results[1]["event"])
	check.Equal(t, "events", len(c.log(t, id)), 2)
}

// TestRacingCommits: of N equal commits, each event is accepted once, and each message is stored once.
func TestRacingCommits(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	const racers, steps = 8, 5
	var items []byte
	for i := range steps {
		step := "step_" + string(rune('a'+i))
		items = joined(items, framed(t, "step_created", "devl[3]", stepMeta(step)...), sentMessage(t, stepTopic, step))
	}
	var mu sync.Mutex
	var running sync.WaitGroup
	accepted, stored := 0, map[any]bool{}
	for range racers {
		running.Go(func() {
			for _, r := range c.results(t, commitHead(t, id), items) {
				mu.Lock()
				switch r["status"] {
				case uint64(200):
					accepted++
				case uint64(201):
					stored[r["messageId"]] = true
				case uint64(409):
				default:
					t.Errorf("got %v", r)
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	check.Equal(t, "accepted", accepted, steps)
	check.Equal(t, "stored", len(stored), steps)
	check.Equal(t, "messages", c.messages(t), steps)
	check.Equal(t, "events", len(c.log(t, id)), 2+steps)
}

func TestCommitEndsADelivery(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	receive := func() (message, receipt string) {
		message = c.mustEnqueue(t, flowTopic, "x", "X-Vercel-Workflow-Run-Id", id)
		return message, c.pull(t, message).get("Vqs-Receipt-Handle")
	}
	_, receipt := receive()
	got := c.commit(t, commitHead(t, id), framed(t, "step_created", "devl[3]", stepMeta("step_1")...),
		commitEnd(t, field{"ack", true}, field{"topic", flowTopic}, field{"receipt", receipt}))
	wantStatus(t, got, http.StatusOK)
	check.Equal(t, "messages", c.messages(t), 0)

	// A refusal leaves the message under its lease; an unknown receipt changes nothing.
	message, receipt := receive()
	for _, end := range []string{receipt, "rh_none"} {
		item := framed(t, "step_completed", "", stepMeta("step_none")...)
		if end != receipt {
			item = framed(t, "step_created", "devl[3]", stepMeta("step_2")...)
		}
		wantStatus(t, c.commit(t, commitHead(t, id), item,
			commitEnd(t, field{"ack", true}, field{"topic", flowTopic}, field{"receipt", end})), http.StatusOK)
	}
	check.Equal(t, "events", len(c.log(t, id)), 4)
	check.Equal(t, "messages", c.messages(t), 1)

	// A failure releases it, and counts if it reached the app.
	for _, unreached := range []bool{false, true} {
		testdb.Exec(t, c.pool, `
			UPDATE messages SET lease = $2, delivery_count = 5, unreached_count = 0, due_at = now() + interval '1 min' WHERE id = $1`,
			message, receipt)
		wantStatus(t, c.commit(t, commitHead(t, id), commitEnd(t, field{"retryAfter", uint16(60)}, field{"reason", "no"},
			field{"unreached", unreached}, field{"topic", flowTopic}, field{"receipt", receipt})), http.StatusOK)
		var lease, why string
		var wait float64
		var counted bool
		check.NoError(t, c.pool.QueryRow(t.Context(), `
			SELECT lease, last_error, extract(epoch FROM due_at - now()), (delivery_count, unreached_count) = (5, 0)
			FROM messages WHERE id = $1`, message,
		).Scan(&lease, &why, &wait, &counted))
		if lease != "" || why != "the app failed: no" || wait < 30 || wait > 60 || counted == unreached {
			t.Errorf("unreached %t: got lease %q, error %q, due in %v s, counted %t", unreached, lease, why, wait, counted)
		}
	}
}

// TestWriteKeyOfAnotherEvent: a write key is that of one type and entity, and only of events that need one.
func TestWriteKeyOfAnotherEvent(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	wait := framed(t, "wait_created", "", marked("A", field{"correlationId", "wait_1"}, field{"resumeAt", t0})...)
	c.results(t, commitHead(t, id), framed(t, "step_started", "devl[3]", marked("A", stepMeta("step_1")...)...), wait)
	hook := framed(t, "hook_created", "", marked("A", field{"correlationId", "hook_1"}, field{"hookToken", "tok"})...)
	step := framed(t, "step_started", "", marked("A", stepMeta("step_1")...)...)
	results := c.results(t, commitHead(t, id, repeated), hook, step, framed(t, "run_completed", ""), wait)
	check.Equal(t, "statuses", statusesOf(results), []uint64{200, 200, 200, 409})
	check.Equal(t, "attempt", results[1]["step"].(map[string]any)["attempt"], any(uint64(1)))
	check.Equal(t, "events", len(c.log(t, id)), 7)
}

// TestFirstMessagesOfRunsAreMarked, by sends and by commits: they have what their run is made of.
func TestFirstMessagesOfRunsAreMarked(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), next}
	id := c.newRunNext(t)
	begins := func(where string, args ...any) (marked bool) {
		t.Helper()
		check.NoError(t, c.pool.QueryRow(t.Context(), `SELECT begins_run FROM messages WHERE id = `+where, args...).Scan(&marked))
		return marked
	}
	for body, first := range map[string]bool{`{"runInput":{}}`: true, "wake": false} {
		sent := c.mustEnqueue(t, flowTopic, body, "X-Vercel-Workflow-Run-Id", id)
		check.Equal(t, "sent "+body, begins("$1", sent), first)
		item := frame(t, meta(t, field{"topic", flowTopic}, field{"deploymentId", "dpl_x"}, field{"key", body}), []byte(body))
		check.Equal(t, "statuses", statusesOf(c.results(t, commitHead(t, id), item)), []uint64{201})
		check.Equal(t, "committed "+body, begins(`(
			SELECT message_id FROM message_keys
			WHERE project = $1 AND deployment_id = 'dpl_x' AND topic = $2 AND key = $3)`,
			entities.DefaultProject, flowTopic, body), first)
	}
}
