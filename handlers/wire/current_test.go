package wire_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// current is a client of the released 5 line, which announces version 8. No package of it can be recorded here, so
// these tests are its frames as its source has them.
const current = "@workflow/world-vercel/5.2.0 node-v22.17.0 linux (x64) dpl_x"

var ofCurrent = field{"specVersion", uint16(8)}

// newRunCurrent creates and starts a run as the current line does.
func (c client) newRunCurrent(t *testing.T) string {
	t.Helper()
	id := newID("wrun_")
	c.must(t, id, "run_created", []byte("devl[1]"), append(creation("workflow//./a//b"), ofCurrent)...)
	c.must(t, id, "run_started", nil, ofCurrent, field{"skipPreload", true}, field{"executorSpecVersion", uint16(8)})
	return id
}

// skipping asks for the log of an answer without the inputs of steps.
var skipping = field{"eventsRemoteRefBehavior", "skip-step-inputs"}

// TestReplaysSkipTheInputsOfSteps: a log without the inputs of its steps is what a replay needs (§2.4). No other answer
// lacks one.
func TestReplaysSkipTheInputsOfSteps(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), current}
	id := c.newRunCurrent(t)
	large := strings.Repeat("x", 3<<20) // beyond what is read without counting it
	got := c.must(t, id, "step_created", []byte("devl[3]"), append(stepMeta("step_1"), ofCurrent)...)
	check.Equal(t, "step_created", got["event"].(map[string]any)["eventType"], any("step_created"))
	got = c.must(t, id, "step_started", nil,
		append(stepMeta("step_1"), ofCurrent, skipping, field{"remoteRefBehavior", "resolve"})...)
	check.Equal(t, "input of the step that starts", got["step"].(map[string]any)["input"], any([]byte("devl[3]")))
	c.must(t, id, "step_completed", []byte("devl[5]"), append(stepMeta("step_1"), ofCurrent)...)
	c.must(t, id, "step_created", []byte(large), append(stepMeta("step_2"), ofCurrent)...)
	c.must(t, id, "step_failed", []byte(large), append(stepMeta("step_2"), ofCurrent)...)

	whole := []string{"devl[1]", "", "devl[3]", "", "devl[5]", large, large}
	skipped := []string{"devl[1]", "", "", "", "devl[5]", "", large}
	bodies := func(of []event) (list []string) {
		for _, e := range of {
			list = append(list, e.body)
		}
		return list
	}
	for query, want := range map[string][]string{
		"": whole, "?remoteRefBehavior=resolve": whole, "?remoteRefBehavior=skip-step-inputs": skipped,
		"?remoteRefBehavior=skip-step-inputs&returnAll=true": skipped,
	} {
		events, _ := c.get(t, "/v4/runs/"+id+"/events"+query).list(t)
		check.Equal(t, query, bodies(events), want)
	}
	events, _ := c.get(t, "/v4/events?correlationId=step_1&runId="+id+"&remoteRefBehavior=skip-step-inputs").list(t)
	check.Equal(t, "by correlation", bodies(events), []string{"", "", "devl[5]"})
	one := c.get(t, "/v4/runs/"+id+"/events/"+eventID(3)+"?remoteRefBehavior=skip-step-inputs").frames(t)
	check.Equal(t, "an event alone", one[0].body, "devl[3]")
	step := c.get(t, "/v2/runs/"+id+"/steps/step_1?remoteRefBehavior=skip-step-inputs").cbor(t)
	check.Equal(t, "a step alone", step["input"], any([]byte("devl[3]")))

	start := c.send(t, http.MethodPost, "/v4/runs/"+id+"/events/run_started",
		bytes.NewReader(frame(t, meta(t, field{"eventType", "run_started"}, ofCurrent, skipping), nil)), "Accept", framesType)
	wantMaxEvents(t, start)
	events, _ = start.list(t)
	check.Equal(t, "log of a start", bodies(events), skipped)
}

// TestExcerptsSkipTheInputsOfSteps: the meta of a posted event says which payloads the events in its answer have, and
// an unknown value counts as none (§3.2).
func TestExcerptsSkipTheInputsOfSteps(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), current}
	for behavior, want := range map[string][]any{
		"":                 {[]byte("devl[3]"), []byte("devl[4]")},
		"resolve":          {[]byte("devl[3]"), []byte("devl[4]")},
		"eager":            {[]byte("devl[3]"), []byte("devl[4]")},
		"lazy":             {nil, nil},
		"skip-step-inputs": {nil, []byte("devl[4]")},
	} {
		t.Run(behavior, func(t *testing.T) {
			t.Parallel()
			for _, how := range []field{{"sinceCursor", "eid:" + eventID(2)}, {"maxSlot", 2}} {
				id := c.newRunCurrent(t)
				c.must(t, id, "step_created", []byte("devl[3]"), append(stepMeta("step_1"), ofCurrent)...)
				c.must(t, id, "step_completed", []byte("devl[4]"), append(stepMeta("step_1"), ofCurrent)...)
				got := c.must(t, id, "wait_created", nil, ofCurrent, field{"correlationId", "wait_1"}, field{"resumeAt", t0},
					how, field{"eventsRemoteRefBehavior", behavior})
				events := got["events"].([]any)
				data := func(i int) map[string]any { return events[i].(map[string]any)["eventData"].(map[string]any) }
				check.Equal(t, how.key, []any{data(0)["input"], data(1)["result"]}, want)
			}
		})
	}
}

// TestExecutorDoesNotRaiseTheRun: a run keeps the version of its start, and the rules of that, whoever executes it.
func TestExecutorDoesNotRaiseTheRun(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), current}
	id, claimer := newID("wrun_"), c.newRunCurrent(t)
	c.must(t, id, "run_created", []byte("devl[1]"), append(creation("w"), field{"specVersion", 6})...)
	got := c.must(t, id, "run_started", nil, ofCurrent, field{"skipPreload", true}, field{"executorSpecVersion", 8})
	check.Equal(t, "version after the start", got["run"].(map[string]any)["specVersion"], any(uint64(6)))
	check.Equal(t, "version", c.get(t, "/v2/runs/"+id).cbor(t)["specVersion"], any(uint64(6)))
	c.must(t, id, "hook_created", nil, ofCurrent, field{"correlationId", "hook_1"}, field{"hookToken", "tok"})
	got = c.must(t, claimer, "hook_created", nil, takeoverMeta("hook_2", "tok")...)
	check.Equal(t, "a takeover of its token", got["event"].(map[string]any)["eventType"], any("hook_conflict"))
}

// TestNewMetadataIsNoEventData: what only the transport or the client's telemetry needs is not kept. What a client of a
// later version says of a hook is.
func TestNewMetadataIsNoEventData(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), current}
	id := newID("wrun_")
	c.must(t, id, "run_created", []byte("devl[1]"), append(creation("w"), ofCurrent)...)
	extra := []field{ofCurrent, skipping, {"executorSpecVersion", 8}}
	for i, name := range []string{
		"optimizations", "rsfs", "finalSchedulingReplay", "ttfs", "stso", "stepCount", "eventCount",
	} {
		extra = append(extra, field{name, i})
	}
	c.must(t, id, "run_started", nil, extra...)
	c.must(t, id, "step_created", nil, append(stepMeta("step_1"), ofCurrent)...)
	c.must(t, id, "step_failed", []byte("devl[1]"), append(stepMeta("step_1"), extra...)...)
	c.must(t, id, "hook_created", nil, ofCurrent, field{"correlationId", "hook_1"}, field{"hookToken", "tok"},
		field{"nodeVersion", "24"})
	c.must(t, id, "run_cancelled", nil, append(extra, field{"cancelReason", "enough"})...)

	log := c.log(t, id)
	data := func(seq int) any { return log[seq-1].meta["eventData"] }
	check.Equal(t, "run_started", data(2), nil)
	check.Equal(t, "step_failed", data(4), data(3))
	check.Equal(t, "hook_created", data(5), any(map[string]any{"token": "tok", "nodeVersion": "24"}))
	check.Equal(t, "run_cancelled", data(6), any(map[string]any{"cancelReason": "enough"}))
	run := c.get(t, "/v2/runs/"+id).cbor(t)
	check.Equal(t, "version of the run", fmt.Sprint(run["specVersion"]), "8")
}
