package flow

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
)

// votes returns payloads of an approval.
func votes(texts ...string) (list []json.RawMessage) {
	for _, text := range texts {
		list = append(list, json.RawMessage(text))
	}
	return list
}

const (
	annaApproves = `{"decision":"approve","by":"anna","key":"k"}`
	annaAgain    = `{"decision":"approve","by":"ANNA","key":"k2"}`
	bobApproves  = `{"decision":"approve","by":"bob","key":"k"}`
	carlRejects  = `{"decision":"reject","by":"carl","key":"k"}`
)

// TestApprovals: the quorum counts names, one rejection rejects, and time decides as the document says.
func TestApprovals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, settings string
		votes          []json.RawMessage
		status         entities.RunStatus
		code, output   string
	}{
		{"one is enough", "{title: t}", votes(annaApproves), entities.RunCompleted, "", `{"a":{"votes":[` + annaApproves + `]}}`},
		{"two of three", "{title: t, quorum: 2}", votes(annaApproves, bobApproves, carlRejects), entities.RunCompleted, "",
			`{"a":{"votes":[` + annaApproves + "," + bobApproves + `]}}`},
		{"one voter twice", "{title: t, quorum: 2, deadline: 1h}", votes(annaApproves, annaAgain), entities.RunFailed, "wait_timeout", ""},
		{"one key twice", "{title: t, quorum: 2, distinctKeys: true, deadline: 1h}", votes(annaApproves, bobApproves),
			entities.RunFailed, "wait_timeout", ""},
		{"one name by two keys", "{title: t, quorum: 2, distinctKeys: true, deadline: 1h}", votes(annaApproves, annaAgain),
			entities.RunFailed, "wait_timeout", ""},
		{"two keys", "{title: t, quorum: 2, distinctKeys: true}", votes(annaAgain, bobApproves), entities.RunCompleted, "",
			`{"a":{"votes":[` + annaAgain + "," + bobApproves + `]}}`},
		{"a rejection", "{title: t, quorum: 2}", votes(annaApproves, carlRejects, bobApproves), entities.RunFailed, "rejected", ""},
		{"no votes at all", "{title: t, deadline: 1h}", votes(`7`, `{"decision":"maybe"}`), entities.RunFailed, "wait_timeout", ""},
		{"time approves", "{title: t, deadline: 1h, onTimeout: approve}", nil, entities.RunCompleted, "", `{"a":{"votes":[]}}`},
		{"time rejects", "{title: t, deadline: 1h, onTimeout: reject}", votes(), entities.RunFailed, "rejected", ""},
		{"nobody is named", "{title: t, by: '${input.nobody}'}", votes(annaApproves), entities.RunFailed, "flow.expression", ""},
		{"a title that cannot be made", "{title: '${input.missing}'}", nil, entities.RunFailed, "flow.expression", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := parse(t, "flow: f\nsteps:\n  a: {approval: "+test.settings+"}")
			got, err := Trial{Input: json.RawMessage(`{"nobody":[]}`), Payloads: map[string][]json.RawMessage{"a": test.votes}}.Run(p)
			if err != nil {
				t.Fatal(err)
			}
			code := ""
			if got.Error != nil {
				code = got.Error.Code
			}
			if got.Status != test.status || code != test.code || string(got.Output) != test.output {
				t.Errorf("got %s %s %q, want %s %s %q", got.Status, got.Output, code, test.status, test.output, test.code)
			}
		})
	}
}

// TestApproversAreThoseOfExpressions: a name in a list may be an expression, for one name or several. An approval
// for which nobody could vote fails instead of waiting for ever.
func TestApproversAreThoseOfExpressions(t *testing.T) {
	t.Parallel()
	for by, want := range map[string][]string{
		`["${input.boss}"]`:                      {"anna"},
		`["${input.bosses}", "role:${input.r}"]`: {"bob", "carl", "role:lead"},
		`[carl, "${input.nobody}"]`:              {"carl"},
		`["${input.nobody}"]`:                    nil,
		`["${input.empty}"]`:                     nil,
		`["${input.missing}"]`:                   nil,
	} {
		state := parse(t, "flow: f\nsteps:\n  a: {approval: {title: t, by: "+by+"}}").Begin()
		input := json.RawMessage(`{"boss":"anna","bosses":["bob","carl"],"r":"lead","nobody":[],"empty":""}`)
		if err := state.Apply(contract.Run{Input: input}, nil); err != nil {
			t.Fatal(err)
		}
		commands, err := state.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		switch last := commands[len(commands)-1].(type) {
		case openHook:
			if diff := cmp.Diff(want, last.Approval.By); want == nil || diff != "" {
				t.Errorf("%s (-want +got):\n%s", by, diff)
			}
		case fail:
			if want != nil || last.Error.Code != codeExpression {
				t.Errorf("%s: got %+v", by, last.Error)
			}
		default:
			t.Errorf("%s: got %+v", by, commands)
		}
	}
}

// TestOutward runs a document with the steps that speak to others, and checks the commands that it sends.
func TestOutward(t *testing.T) {
	t.Parallel()
	p := parse(t, `
flow: f
deployment: d
defaults: {retry: {maxAttempts: 2}}
steps:
  ask:
    http:
      url: "https://example.com/${input.id}"
      headers: {X-Id: "${input.id}", Authorization: {secret: s, prefix: "Bearer "}}
      body: {amount: "${input.amount}"}
      success: [2xx, 404]
    timeout: 1m
    undo: {http: {method: DELETE, url: "https://example.com/${undo.outcome}"}}
  said: {needs: [ask], hook: {token: "answer-${input.id}", webhook: {respond: 10s}, within: 1h}}
  thank: {needs: [said], respond: {to: said, status: 201, body: {got: "${steps.said.output.body}"}}}
  tell: {needs: [thank], emit: {signal: news, data: "${input.id}", keepFor: 1h}}
  more: {needs: [tell], start: other, delay: 1h, key: "order-${input.id}", input: {n: 1}}
  slow: {needs: [more], call: slow, async: true, timeout: 48h}
  lost: {needs: [slow], fail: {message: lost}}
`)
	trial := Trial{
		Input:    json.RawMessage(`{"id":"7","amount":1.50}`),
		Payloads: map[string][]json.RawMessage{"said": {json.RawMessage(`{"request":"hreq_1","body":{"x":1}}`)}},
	}
	got, commands, err := trial.trace(p)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"type":"runStep","id":"ask","http":{"method":"POST","url":"https://example.com/7","headers":{` +
			`"Authorization":{"secret":"s","prefix":"Bearer "},"X-Id":"7"},"body":{"amount":1.50},"success":["2xx","404"]},` +
			`"timeout":"1m0s","retry":{"maxAttempts":2}}`,
		`{"type":"openHook","id":"said","token":"answer-7","webhook":{"respond":"10s"}}`,
		`{"type":"wait","id":"said~within","for":"1h0m0s"}`,
		`{"type":"respond","hook":"said","request":"hreq_1","status":201,"body":{"got":{"x":1}}}`,
		`{"type":"recordStep","id":"thank","name":"thank","output":null}`,
		`{"type":"emit","id":"tell","signal":"news","data":"7","keepFor":"1h0m0s"}`,
		`{"type":"startRun","id":"more","workflow":"other","input":{"n":1},"deployment":"latest","key":"order-7","delay":"1h0m0s"}`,
		`{"type":"closeHook","id":"said"}`,
		`{"type":"cancelWait","id":"said~within"}`,
		`{"type":"runStep","id":"slow","name":"slow","input":{"id":"7","amount":1.50},"deployment":"d","timeout":"48h0m0s",` +
			`"retry":{"maxAttempts":2},"async":true}`,
		`{"type":"recordStep","id":"lost","name":"lost","error":{"message":"lost"}}`,
		`{"type":"runStep","id":"ask~undo","http":{"method":"DELETE","url":"https://example.com/completed"},"retry":{"maxAttempts":2}}`,
		`{"type":"fail","error":{"message":"lost","details":{"step":"lost","undo":{"done":["ask"],"failed":[]}}}}`,
	}
	if diff := cmp.Diff(want, commands); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	if got.Status != entities.RunFailed {
		t.Errorf("the run is %s", got.Status)
	}
}

// trace runs a trial, and returns the commands that follow from each prefix of its log, each once.
func (t Trial) trace(p *Program) (Outcome, []string, error) {
	o, err := t.Run(p)
	if err != nil {
		return o, nil, err
	}
	var commands []string
	seen := map[string]bool{}
	for i := 2; i <= len(o.Events); i++ {
		text, err := p.Answer(context.Background(), Call{Run: contract.Run{ID: "wrun_trial"}, Events: o.Events[:i]})
		if err != nil {
			return o, nil, err
		}
		var answer struct {
			Commands []json.RawMessage `json:"commands"`
		}
		if err := json.Unmarshal(text, &answer); err != nil {
			return o, nil, err
		}
		for _, c := range answer.Commands {
			if !seen[string(c)] {
				seen[string(c)] = true
				commands = append(commands, string(c))
			}
		}
	}
	return o, commands, nil
}

// TestRequestsThatCannotBeMade fail their step, which can be caught.
func TestRequestsThatCannotBeMade(t *testing.T) {
	t.Parallel()
	for _, step := range []string{
		"http: '${input.url}'", "http: {url: 'https://example.com', headers: {X: '${input.header}'}}", "hook: {token: '${input.token}'}",
		"http: {url: 'https://example.com', body: '${input.missing}'}",
	} {
		p := parse(t, "flow: f\nsteps:\n  a: {"+step+", catch: [{codes: [flow.expression]}]}")
		got, err := Trial{Input: json.RawMessage(`{"url":"file:///etc/passwd","header":"a\nb","token":""}`)}.Run(p)
		if err != nil || got.Status != entities.RunCompleted || string(got.Output) != `{"a":null}` {
			t.Errorf("%s: got %s %s (%v)", step, got.Status, got.Output, err)
		}
	}
}
