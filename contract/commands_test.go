package contract

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/eventlog"
)

var orders = Planner{
	Run: entities.Run{ID: "wrun_1", DeploymentID: "orders"},
	Now: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC),
	Deployment: func(workflow, id string) (string, error) {
		if id == "ship@old" {
			return "", StartRefused{Message: "retired", Code: "flow_retired"}
		}
		if name, _, isFlow := strings.Cut(id, "@"); isFlow {
			return name + "@7", nil
		}
		if id != "" {
			return id, nil
		}
		return "newest of " + workflow, nil
	},
	Condition: func(condition string) error {
		if condition == "(" {
			return entities.Invalid("no condition")
		}
		return nil
	},
}

// read plans an answer with the commands and returns the requests.
func read(commands ...string) ([]eventlog.Request, error) {
	p, err := orders.Plan([]byte(`{"commands":[` + strings.Join(commands, ",") + `]}`))
	return p.Requests, err
}

// line formats a request on one line.
func line(t *testing.T, r eventlog.Request) string {
	t.Helper()
	if r.RunID != "wrun_1" || r.SpecVersion != entities.SpecDriven || !r.Once {
		t.Errorf("%s is for run %q with version %d, once %v", r.Type, r.RunID, r.SpecVersion, r.Once)
	}
	data, err := json.Marshal(r.Data)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join([]string{string(r.Type), r.CorrelationID, string(data), string(r.Payload)}, " ")
}

func TestCommandsBecomeRequests(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		command string
		want    []string
	}{
		"runStep": {`{"type":"runStep","id":"a"}`, []string{`step_created a {"step":{"deploymentId":"orders",` +
			`"attemptTimeoutMs":300000,"maxAttempts":5,"backoffMs":1000,"factor":2,"maxBackoffMs":300000},"stepName":"a"} `}},
		"runStep in full": {
			`{"type":"runStep","id":"a","name":"b","input":[1, 2],"deployment":"bank","timeout":"1h","attemptTimeout":"1s",` +
				`"retry":{"maxAttempts":1,"backoff":"0s","factor":1,"maxBackoff":"0s"}}`,
			[]string{`step_created a {"step":{"deploymentId":"bank","deadline":"2026-11-21T11:00:00Z",` +
				`"attemptTimeoutMs":1000,"maxAttempts":1,"factor":1},"stepName":"b"} [1, 2]`},
		},
		"recordStep": {`{"type":"recordStep","id":"a","input":1,"output":{"b": 2}}`, []string{
			`step_created a {"stepName":"a"} 1`, `step_completed a {"stepName":"a"} {"b": 2}`,
		}},
		"recordStep without output": {`{"type":"recordStep","id":"a"}`, []string{
			`step_created a {"stepName":"a"} `, `step_completed a {"stepName":"a"} null`,
		}},
		"recordStep of a failure": {
			`{"type":"recordStep","id":"a","error":{"message":"m","code":"c","details":[1]}}`, []string{
				`step_created a {"stepName":"a"} `,
				`step_failed a {"stepName":"a","errorCode":"c"} {"message":"m","code":"c","details":[1]}`,
			},
		},
		"recordStep with its execution": {
			`{"type":"recordStep","id":"a","output":1,"seen":7,"at":"order.go:41","startedAt":"2026-11-21T10:00:00Z",` +
				`"endedAt":"2026-11-21T10:00:00.25Z"}`, []string{
				`step_created a {"stepName":"a","at":"order.go:41"} `,
				`step_completed a {"stepName":"a","seen":7,"startedAt":"2026-11-21T10:00:00Z",` +
					`"endedAt":"2026-11-21T10:00:00.25Z"} 1`,
			},
		},
		"recordStep to be repeated": {
			`{"type":"recordStep","id":"a","error":{"message":"m"},"retryAfter":"30s"}`, []string{
				`step_created a {"stepName":"a"} `,
				`step_retrying a {"stepName":"a","retryAfter":"2026-11-21T10:00:30Z"} {"message":"m"}`,
			},
		},
		"wait for": {`{"type":"wait","id":"w","for":"1.5s"}`, []string{
			`wait_created w {"resumeAt":"2026-11-21T10:00:01.5Z"} `,
		}},
		"wait until": {`{"type":"wait","id":"w","until":"2026-11-21T12:00:00+01:00"}`, []string{
			`wait_created w {"resumeAt":"2026-11-21T12:00:00+01:00"} `,
		}},
		"openHook": {`{"type":"openHook","id":"h","token":"t","metadata":"m"}`, []string{
			`hook_created h {"token":"t","isWebhook":false} "m"`,
		}},
		"openHook for a signal": {
			`{"type":"openHook","id":"h","token":"t","signal":{"name":"paid","condition":"true","lookBack":"1m"}}`, []string{
				`hook_created h {"token":"t","isWebhook":false,"signal":"paid","condition":"true","lookBackMs":60000} `,
			},
		},
		"reply": {`{"type":"reply","inbox":"notes","message":"m 1","output":{"a": 1},"at":"f:1"}`, []string{
			`step_created reply:cc342168398e3fafd105578cdf2d3533 {"stepName":"reply","at":"f:1"} {"inbox":"notes","message":"m 1","output":{"a":1}}`,
			`step_completed reply:cc342168398e3fafd105578cdf2d3533 {"stepName":"reply"} null`,
		}},
		"reply without output": {`{"type":"reply","inbox":"notes","message":"m 1"}`, []string{
			`step_created reply:cc342168398e3fafd105578cdf2d3533 {"stepName":"reply"} {"inbox":"notes","message":"m 1","output":null}`,
			`step_completed reply:cc342168398e3fafd105578cdf2d3533 {"stepName":"reply"} null`,
		}},
		"reply with a refusal": {`{"type":"reply","inbox":"notes","message":"m 1","error":{"message":"m","code":"c"}}`, []string{
			`step_created reply:cc342168398e3fafd105578cdf2d3533 {"stepName":"reply"} {"inbox":"notes","message":"m 1","error":{"message":"m","code":"c"}}`,
			`step_completed reply:cc342168398e3fafd105578cdf2d3533 {"stepName":"reply"} null`,
		}},
		"closeHook": {`{"type":"closeHook","id":"h"}`, []string{`hook_disposed h {} `}},
		"setAttributes": {`{"type":"setAttributes","attributes":{"b":null,"a":"1"}}`, []string{
			`attr_set  {"changes":[{"key":"a","value":"1"},{"key":"b","value":null}]} `,
		}},
		"setAttributes once": {`{"type":"setAttributes","id":"x","attributes":{"a":"1"}}`, []string{
			`attr_set attr_x {"changes":[{"key":"a","value":"1"}]} `,
		}},
		"undo, of a step": {`{"type":"runStep","id":"a","undo":"refund"}`, []string{
			`step_created a {"step":{"deploymentId":"orders","attemptTimeoutMs":300000,"maxAttempts":5,"backoffMs":1000,` +
				`"factor":2,"maxBackoffMs":300000},"stepName":"a","undo":"refund"} `,
		}},
		"undo, of a recorded step": {`{"type":"recordStep","id":"a","output":1,"undo":"order.go:41"}`, []string{
			`step_created a {"stepName":"a","undo":"order.go:41"} `, `step_completed a {"stepName":"a"} 1`,
		}},
		"at, of a wait": {`{"type":"wait","id":"w","for":"1s","at":"f:1"}`, []string{
			`wait_created w {"resumeAt":"2026-11-21T10:00:01Z","at":"f:1"} `,
		}},
		"at, of a hook": {`{"type":"openHook","id":"h","token":"t","at":"f:1"}`, []string{
			`hook_created h {"token":"t","isWebhook":false,"at":"f:1"} `,
		}},
		"at, of attributes": {`{"type":"setAttributes","attributes":{"a":"1"},"at":"f:1"}`, []string{
			`attr_set  {"changes":[{"key":"a","value":"1"}],"at":"f:1"} `,
		}},
		"cancelStep": {`{"type":"cancelStep","id":"a","reason":"late"}`, []string{
			`step_failed a {"reason":"late","cancelled":true,"errorCode":"cancelled"} {"message":"late","code":"cancelled"}`,
		}},
		"cancelStep without reason": {`{"type":"cancelStep","id":"a"}`, []string{
			`step_failed a {"reason":"cancelled by the workflow","cancelled":true,"errorCode":"cancelled"} ` +
				`{"message":"cancelled by the workflow","code":"cancelled"}`,
		}},
		"cancelWait": {`{"type":"cancelWait","id":"a"}`, []string{`wait_cancelled a {} `}},
		"cancelled": {`{"type":"cancelled"}`, []string{
			`run_cancelled  {} {"message":"the run did not end in time","code":"timeout"}`,
		}},
		"setStore": {`{"type":"setStore","id":"s","values":{"b":null,"a":{"x": "<"}}}`, []string{
			`store_set s {} {"a":{"x": "<"},"b":null}`,
		}},
		"startChild that is refused": {`{"type":"startChild","id":"a","workflow":"ship","deployment":"ship@old","input":1,"at":"f:1"}`, []string{
			`step_created a {"stepName":"ship","at":"f:1"} 1`,
			`step_failed a {"stepName":"ship","errorCode":"flow_retired"} {"message":"retired","code":"flow_retired"}`,
		}},
		"startRun that is refused": {`{"type":"startRun","id":"a","workflow":"ship","deployment":"ship@old"}`, []string{
			`step_created a {"stepName":"ship"} `,
			`step_failed a {"stepName":"ship","errorCode":"flow_retired"} {"message":"retired","code":"flow_retired"}`,
		}},
		"complete":                {`{"type":"complete","output":{"a": 1}}`, []string{`run_completed  {} {"a": 1}`}},
		"complete without output": {`{"type":"complete"}`, []string{`run_completed  {} null`}},
		"continueAs": {`{"type":"continueAs","input":{"n": 1},"read":{"notes":7}}`, []string{
			`run_completed  {} {"message":"the run did not end in time","code":"timeout"}`,
		}},
		"fail": {`{"type":"fail","error":{"message":"m","code":"c"}}`, []string{
			`run_failed  {"errorCode":"c"} {"message":"m","code":"c"}`,
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests, err := read(tt.command)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range requests {
				got = append(got, line(t, r))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStartChildCreatesStepAndRun: a child is a step of its parent, and a run on the requested deployment.
func TestStartChildCreatesStepAndRun(t *testing.T) {
	t.Parallel()
	for deployment, want := range map[string]string{
		"": "orders", "other": "other", Latest: "newest of ship", "ship@prod": "ship@7",
	} {
		requests, err := read(`{"type":"startChild","id":"kid","workflow":"ship","input":7,"deployment":"` + deployment +
			`","attributes":{"a":"b"},"timeout":"1m","onParentEnd":"leave"}`)
		if err != nil {
			t.Fatal(err)
		}
		child := requests[0].Child
		if len(requests) != 1 || child == nil || requests[0].Data.Step.ChildID != child.RunID {
			t.Fatalf("got %+v, want one step with a child run", requests)
		}
		deadline := orders.Now.Add(time.Minute)
		if diff := cmp.Diff(entities.EventData{
			DeploymentID: want, WorkflowName: "ship", Attributes: map[string]string{"a": "b"},
			Driver: entities.DriverServer, ParentID: "wrun_1", ParentStep: "kid", Detached: true, Deadline: &deadline,
		}, child.Data); diff != "" || string(child.Payload) != "7" {
			t.Errorf("child with input %s (-want +got):\n%s", child.Payload, diff)
		}
	}
}

// TestContinueAsCreatesTheNextRun: it is one of the same workflow, on the same deployment unless another one is named.
func TestContinueAsCreatesTheNextRun(t *testing.T) {
	t.Parallel()
	for deployment, want := range map[string]string{"": "orders", "latest": "newest of ", "ship@prod": "ship@7"} {
		requests, err := read(`{"type":"continueAs","input":{"n": 1},"deployment":"` + deployment + `","read":{"notes":7}}`)
		if err != nil {
			t.Fatal(err)
		}
		c := requests[0].Continue
		if c == nil || c.Next.Data.DeploymentID != want || c.Next.Data.WorkflowName != orders.Run.WorkflowName ||
			string(c.Next.Payload) != `{"n": 1}` || c.Read["inbox:notes"] != 7 {
			t.Errorf("%s: got %+v", deployment, c)
		}
	}
	if _, err := read(`{"type":"continueAs","deployment":"ship@old"}`); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("a deployment that is retired: got %v", err)
	}
	if _, err := read(`{"type":"continueAs"}`, `{"type":"complete"}`); !errors.Is(err, entities.ErrInvalid) {
		t.Errorf("a command after it: got %v", err)
	}
}

// TestDefaultTokensAreRandom: a hook without a token gets an unguessable one.
func TestDefaultTokensAreRandom(t *testing.T) {
	t.Parallel()
	requests, err := read(`{"type":"openHook","id":"a"}`, `{"type":"openHook","id":"b"}`)
	if err != nil {
		t.Fatal(err)
	}
	one, other := requests[0].Data.Token, requests[1].Data.Token
	if len(one) < len("hook_")+26 || one == other {
		t.Errorf("tokens are %q and %q", one, other)
	}
}

// longKey is one character too long for a key of a store, and largeText too large for a value.
var longKey, largeText = strings.Repeat("k", kv.MaxKey+1), strings.Repeat("v", kv.MaxValue+1)

func TestPlanRejectsInvalidCommands(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		`{"id":"a"}`:                           `unknown command type ""`,
		`7`:                                    "want an object with a type",
		`{"type":"runStep","id":"a","x":1}`:    "runStep: x: unknown field",
		`{"type":"runStep","ID":"a"}`:          "ID: unknown field",
		`{"type":"runStep","id":"a","id":"b"}`: "id: duplicate field",
		`{"type":"runStep","id":7}`:            "id: want a string, got a number",
		`{"type":"respond","hook":"h","request":"r","bodyBase64":"-"}`:                           "bodyBase64: illegal base64",
		`{"type":"runStep","id":"a","deployment":"a b"}`:                                         "deployment",
		`{"type":"runStep","id":"a","attemptTimeout":"13h"}`:                                     "not between 1s and 12h",
		`{"type":"runStep","id":"a","attemptTimeout":"999ms"}`:                                   "not between 1s and 12h",
		`{"type":"runStep","id":"a","heartbeatTimeout":"13h"}`:                                   "not between 2s and 12h",
		`{"type":"runStep","id":"a","heartbeatTimeout":"1999ms"}`:                                "not between 2s and 12h",
		`{"type":"runStep","id":"a","heartbeatTimeout":"9s","async":true,"timeout":"1h"}`:        "not for http or async",
		`{"type":"runStep","id":"a","heartbeatTimeout":"9s","http":{"url":"https://a.example"}}`: "not for http or async",
		`{"type":"runStep","id":"a","attemptTimeout":60}`:                                        "60 is not a duration",
		`{"type":"runStep","id":"a","timeout":"-1s"}`:                                            `"-1s" is not a duration`,
		`{"type":"runStep","id":"a","timeout":"99999h"}`:                                         `"99999h" is not a duration`,
		`{"type":"runStep","id":"a","retry":{"maxAttempts":0}}`:                                  "maxAttempts must be at least 1",
		`{"type":"runStep","id":"a","retry":{"factor":0.5}}`:                                     "factor between 1 and 100",
		`{"type":"runStep","id":"a","retry":{"tries":1}}`:                                        "retry.tries: unknown field",
		`{"type":"recordStep","id":"a","output":1,"error":{}}`:                                   "not both",
		`{"type":"recordStep","id":"a","seen":-1}`:                                               "seen -1 is not",
		`{"type":"recordStep","id":"a","output":1,"retryAfter":"1s"}`:                            "retryAfter is for a step with an error",
		`{"type":"runStep","id":"a","firstAttempt":{}}`:                                          "firstAttempt: want",
		`{"type":"runStep","id":"a","firstAttempt":{"error":{"code":"c"}}}`:                      "firstAttempt: want",
		`{"type":"recordStep","id":"a","startedAt":"today"}`:                                     "startedAt",
		`{"type":"wait","id":"a","for":"1s","at":"` + long + `"}`:                                "the limit is 256",
		`{"type":"complete"},{"type":"setStore","id":"a","values":{"k":1}}`:                      "command 1: setStore: nothing may follow",
		`{"type":"setStore","id":"a"}`:                                                           `want {"values"`,
		`{"type":"setStore","id":"a","values":{}}`:                                               `want {"values"`,
		`{"type":"setStore","values":{"k":1}}`:                                                   "id is missing",
		`{"type":"setStore","id":"a","values":{"":1}}`:                                           "key of the store is missing",
		`{"type":"setStore","id":"a","values":{"k":1,"k":2}}`:                                    "duplicate field",
		`{"type":"setStore","id":"a","values":{"` + longKey + `":1}}`:                            "has 257 characters; the limit is 256",
		`{"type":"setStore","id":"a","values":{"k":"` + largeText + `"}}`:                        `the value of "k" has 1048579 bytes; the limit is 1048576`,
		`{"type":"reply","message":"m"}`:                                                         "name of the inbox is missing",
		`{"type":"reply","inbox":"notes"}`:                                                       "reply: message ID",
		`{"type":"reply","inbox":"notes","message":"m","output":1,"error":{"message":"m"}}`:      `either "output" or`,
		`{"type":"reply","inbox":"notes","message":"m","error":{"code":"c"}}`:                    `either "output" or`,
		`{"type":"reply","inbox":"notes","message":"m","output":"` + largeText + `"}`:            "the limit is 1048576",
		`{"type":"wait","id":"a"}`:                                                               `either "for" or "until"`,
		`{"type":"wait","id":"a","for":"1s","until":"` + soon + `"}`:                             `either "for" or "until"`,
		`{"type":"wait","id":"a","until":"2037-01-01T00:00:00Z"}`:                                "more than ten years ahead",
		`{"type":"openHook","id":"attr_a"}`:                                                      "begins with attr_",
		`{"type":"openHook","id":"a","signal":{}}`:                                               "signal.name is missing",
		`{"type":"openHook","id":"a","signal":{"name":"n","condition":"("}}`:                     "no condition",
		`{"type":"openHook","id":"a","webhook":{"verify":"github"}}`:                             "secret",
		`{"type":"startChild","id":"a","workflow":"w","onParentEnd":"die"}`:                      `"die" is neither`,
		`{"type":"fail"}`:                                                             `want {"error"`,
		`{"type":"fail","error":{"code":"c"}}`:                                        `want {"error"`,
		`{"type":"complete"},{"type":"complete",}`:                                    "invalid character",
		`{"type":"complete"},{"type":"complete"}`:                                     "command 1: complete: nothing may follow",
		`{"type":"fail","error":{"message":"m"}},{"type":"wait","id":"a","for":"1s"}`: "command 1: wait: nothing may follow",
	}
	for command, want := range tests {
		requests, err := read(command)
		if !errors.Is(err, entities.ErrInvalid) || !strings.Contains(err.Error(), want) || requests != nil {
			t.Errorf("%s: got %d requests and error %v, want %q", command, len(requests), err, want)
		}
	}
}

var long = strings.Repeat("é", maxPlace+1)

const soon = "2026-11-22T00:00:00Z"

func TestPlanReadsAnswers(t *testing.T) {
	t.Parallel()
	const command = `{"type":"closeHook","id":"a"},`
	tests := map[string]struct {
		requests int
		wrong    string
	}{
		"":                   {},
		" \n":                {},
		`{}`:                 {},
		`{"commands":null}`:  {},
		`{"commands":[]}`:    {},
		`{"command":[]}`:     {wrong: "command: unknown field"},
		`{"commands":[]} {}`: {wrong: "not JSON"},
		`{"open":["a","b"]}`: {},
		`{"seen":7}`:         {},
		`{"seen":-7}`:        {wrong: "seen -7 is not the position"},
		`{"open":["a b"]}`:   {wrong: `open: id "a b" has`},
		`{"open":"a"}`:       {wrong: "open: want a list"},
		`{"open":[` + strings.Repeat(`"a",`, MaxCommands) + `"a"]}`: {wrong: "open: 1001 steps; the limit is 1000"},
		`[]`:                   {wrong: `want {"commands": […]}`},
		`<p>`:                  {wrong: `want {"commands": […]}`},
		`{"commands":[7, {}]}`: {wrong: "command 0: "},
		`{"commands":[{"type":"closeHook","id":"a"},{"type":"runStep"}]}`:                  {wrong: "command 1: runStep: id is missing"},
		`{"commands":[{"type":"closeHook","id":"a b"}]}`:                                   {wrong: `command 0: closeHook: id "a b" has`},
		`{"commands":[{"type":"setAttributes","id":"/","attributes":{"a":""}}]}`:           {wrong: `command 0: setAttributes: id "/" has`},
		`{"commands":[` + strings.Repeat(command, MaxCommands-1) + `{"type":"complete"}]}`: {requests: MaxCommands},
		`{"commands":[` + strings.Repeat(command, MaxCommands) + `{"type":"complete"}]}`:   {wrong: "the limit is 1000"},
	}
	for answer, tt := range tests {
		p, err := orders.Plan([]byte(answer))
		if len(p.Requests) != tt.requests {
			t.Errorf("%.80s: %d requests, want %d", answer, len(p.Requests), tt.requests)
		}
		if (err != nil) != (tt.wrong != "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%.80s: got error %v, want %q", answer, err, tt.wrong)
		}
	}
}
