package replay

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow"
)

const document = `
flow: f
deployment: d
steps:
  a: {call: a}
  b: {call: b}
  c: {needs: [a], when: steps.a.output > 1, call: c}
  e: {needs: [b], set: "${steps.b.output}"}
output: {e: "${steps.e.output}"}
`

// log returns the events of a log, whose parts after the type are a correlation ID, data and a payload.
func log(lines ...string) (events []json.RawMessage) {
	for i, line := range lines {
		data, payload := "{}", "null"
		fields := strings.SplitN(line, " ", 4)
		id := ""
		if len(fields) > 1 {
			id = fields[1]
		}
		if len(fields) > 2 {
			data = fields[2]
		}
		if len(fields) > 3 {
			payload = fields[3]
		}
		events = append(events, json.RawMessage(fmt.Sprintf(
			`{"seq":%d,"type":%q,"correlationId":%q,"createdAt":"2026-01-01T00:00:00.000Z","data":%s,"payload":%s}`,
			i+1, fields[0], id, data, payload)))
	}
	return events
}

// ran is a log of the document. The answer with e did not know the end of a, which came meanwhile.
var ran = log(
	`run_created  {} {}`,
	`run_started`,
	`step_created a {"stepName":"a","step":{}} {}`,
	`step_started a`,
	`step_created b {"stepName":"b","step":{}} {}`,
	`step_completed b {} 5`,
	`step_completed a {} 1`,
	`step_created e {"stepName":"e"} null`,
	`step_completed e {} 5`,
	`step_created c {"stepName":"c"} null`,
	`step_completed c {"skipped":"when"} null`,
	`run_completed  {} {"e":5}`,
)

func TestCompare(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		document string
		events   []json.RawMessage
		want     string // the difference; empty for none
	}{
		"the same document": {document: document, events: ran},
		"an open run":       {document: document, events: ran[:7]},
		"cancelled by somebody": {
			document: document, events: append(ran[:7:7], log("run_cancelled")[0]),
		},
		"a child that is cancelled": {
			document: "{flow: f, deployment: d, steps: {a: {flow: g}, b: {call: b}}}", events: log(
				`run_created  {} {}`,
				`run_started`,
				`step_created a {"stepName":"g","step":{"childId":"wrun_2"}} {}`,
				`step_created b {"stepName":"b","step":{}} {}`,
				`step_failed b {} {"message":"no"}`,
				`step_created a~cancel {"stepName":"a~cancel"} null`,
				`step_completed a~cancel {} null`,
				`step_failed a {} {"message":"it was cancelled","code":"child_cancelled"}`,
				`run_failed  {} {"message":"no","details":{"step":"b"}}`,
			),
		},
		"a start that is cancelled with the step beside it": {
			document: "{flow: f, deployment: d, steps: {s: {start: g}, a: {call: a}, b: {fail: {message: no}}}}", events: log(
				`run_created  {} {}`,
				`run_started`,
				`step_created s {"stepName":"g"} {}`,
				`step_completed s {} {"runId":"wrun_2"}`,
				`step_created a {"stepName":"a","step":{}} {}`,
				`step_created b {"stepName":"b"} null`,
				`step_failed b {} {"message":"no"}`,
				`step_failed a {} {"message":"cancelled by the workflow","code":"cancelled"}`,
				`run_failed  {} {"message":"no","details":{"step":"b"}}`,
			),
		},
		"a start without input": {
			document: "{flow: f, steps: {s: {start: g}, t: {needs: s, set: '${steps.s.output}'}}, output: 1}", events: log(
				`run_created  {} null`, `run_started`, `step_created s {"stepName":"g"} null`,
				`step_completed s {} {"runId":"wrun_2"}`, `step_created t {"stepName":"t"} null`,
				`step_completed t {} {"runId":"wrun_2"}`, `run_completed  {} 1`,
			),
		},
		"a start without input that is refused": {
			document: "{flow: f, steps: {s: {start: g, catch: [{}]}}, output: 1}", events: log(
				`run_created  {} null`, `run_started`, `step_created s {"stepName":"g"} null`,
				`step_failed s {} {"message":"no","code":"flow_retired"}`, `run_completed  {} 1`,
			),
		},
		"a start of another flow": {
			document: "{flow: f, steps: {s: {start: h}}, output: 1}", events: log(
				`run_created  {} null`, `run_started`, `step_created s {"stepName":"g"} null`,
				`step_completed s {} {"runId":"wrun_2"}`, `run_completed  {} 1`,
			),
			want: `event 3: the log has record s with {"runId":"wrun_2"}, and now it would be begin s as h with null`,
		},
		"another condition": {
			document: strings.Replace(document, "> 1", "< 2", 1), events: ran,
			want: "event 10: the log has skip c, and now it would be begin c with {}",
		},
		"another input": {
			document: strings.Replace(document, "{call: b}", "{call: b, input: 1}", 1), events: ran,
			want: "event 5: the log has begin b with {}, and now it would be begin b with 1",
		},
		"a step less": {
			document: strings.Replace(document, "  e: {needs: [b], set: \"${steps.b.output}\"}\noutput: {e: \"${steps.e.output}\"}\n",
				"output: 1\n", 1), events: ran,
			want: "event 8: the log has record e with 5, and now it would be skip c",
		},
		"a step that has to wait": {
			document: strings.Replace(document, "b: {call: b}", "b: {needs: [a], call: b}", 1), events: ran,
			want: "event 5: the log has begin b with {}, and now it would be nothing yet",
		},
		"another output": {
			document: strings.Replace(document, "output: {e:", "output: {f:", 1), events: ran,
			want: `event 12: the log has complete with {"e":5}, and now it would be complete with {"f":5}`,
		},
	} {
		p, err := flow.Parse([]byte(test.document))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		d, err := Compare(t.Context(), p, contract.Run{ID: "wrun_1", Workflow: "f"}, test.events)
		got := ""
		if d != nil {
			got = d.String()
		}
		if err != nil || got != test.want {
			t.Errorf("%s: got %q (%v), want %q", name, got, err, test.want)
		}
	}
}

// TestLargeMap compares a map of 1,000 items with its own log in a time that grows with the log, not with its square:
// the answers know the events before them, or come late. A change of the last decision is found in both.
func TestLargeMap(t *testing.T) {
	t.Parallel()
	const source = "flow: f\ndeployment: d\nsteps:\n  m: {map: input, do: {call: f}}\noutput: %s\n"
	p, err := flow.Parse(fmt.Appendf(nil, source, "1"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := flow.Parse(fmt.Appendf(nil, source, "2"))
	if err != nil {
		t.Fatal(err)
	}
	items := "[0" + strings.Repeat(",0", 999) + "]"
	outcome, err := flow.Trial{Input: json.RawMessage(items)}.Run(p)
	if err != nil {
		t.Fatal(err)
	}
	prompt := logged(t, outcome.Events)
	began := time.Now()
	for name, events := range map[string][]json.RawMessage{"prompt": prompt, "late": late(t, prompt)} {
		run := contract.Run{ID: "wrun_1", Workflow: "f"}
		if d, err := Compare(t.Context(), p, run, events); err != nil || d != nil {
			t.Errorf("%s: got %v (%v), want no difference", name, d, err)
		}
		d, err := Compare(t.Context(), other, run, events)
		if err != nil || d == nil || d.Seq != int64(len(events)) {
			t.Errorf("%s: got %v (%v), want a difference at event %d", name, d, err, len(events))
		}
	}
	if took := time.Since(began); took > time.Minute { // a log that is read again for each event takes longer
		t.Errorf("it took %s", took)
	}
}

// logged returns the events of a trial as a log has them.
func logged(t *testing.T, events []flow.Event) (list []json.RawMessage) {
	t.Helper()
	for i := range events {
		data := map[string]any{}
		if e := events[i]; e.Type == entities.EventStepCreated && strings.HasSuffix(e.CorrelationID, "]") {
			data["stepName"], data["step"] = "f", map[string]any{}
		}
		text, err := json.Marshal(map[string]any{
			"seq": i + 1, "type": events[i].Type, "correlationId": events[i].CorrelationID, "createdAt": events[i].CreatedAt,
			"data": data, "payload": events[i].Payload,
		})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, text)
	}
	return list
}

// late moves each end of a step before the creation that it did not lead to, as if the answer had been under way.
func late(t *testing.T, events []json.RawMessage) []json.RawMessage {
	t.Helper()
	isEnd := func(text json.RawMessage) bool { return strings.Contains(string(text), `"type":"step_completed"`) }
	isStep := func(text json.RawMessage) bool { return strings.Contains(string(text), `"stepName":"f"`) }
	list := append([]json.RawMessage{}, events...)
	moved := 0
	for i := 1; i+2 < len(list); i++ {
		if isEnd(list[i-1]) && isStep(list[i]) && isEnd(list[i+1]) && isStep(list[i+2]) {
			list[i], list[i+1] = list[i+1], list[i]
			i, moved = i+2, moved+1
		}
	}
	if moved < 100 {
		t.Fatalf("%d answers are late", moved)
	}
	for i := range list {
		var e map[string]any
		if err := json.Unmarshal(list[i], &e); err != nil {
			t.Fatal(err)
		}
		e["seq"] = i + 1
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		list[i] = text
	}
	return list
}
