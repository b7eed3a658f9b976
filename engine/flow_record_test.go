package engine

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/flow"
)

// constructs are documents that have all that flows can do, for [TestRecordSemantics].
var constructs = map[string]string{
	"saga": `
flow: saga
deployment: dpl_test
defaults: {retry: {maxAttempts: 2, backoff: 10ms}}
steps:
  reserve: {call: e, undo: {call: u}}
  big: {needs: reserve, when: input.id > 100, call: f}
  charge: {needs: [reserve, big], call: e, input: {order: "${input.id}"}, undo: {call: u, input: "${undo}"}, catch: [{codes: [x], to: invoice}]}
  invoice: {call: f, input: {because: "${error.message}"}}
  ship: {needs: charge, call: f, input: {text: "Order ${input.id}", paid: "${steps.charge.output}"}}
output: {shipped: "${steps.ship.output}"}
`,
	"catches": `
flow: catches
deployment: dpl_test
steps:
  a: {call: f, catch: [{codes: [x], to: b, then: complete}, {codes: [y], then: continue}, {to: c, then: fail}]}
  b: {set: "${error.code}"}
  c: {call: f, input: "${error}"}
  d: {needs: a, when: steps.a.output == null, set: {failed: "${steps.a.failed}", status: "${steps.a.status}"}}
  e: {needs: a, call: f}
`,
	"joins": `
flow: joins
deployment: dpl_test
onFailure: drain
steps:
  a: {call: f, catch: [{codes: [x]}]}
  b: {call: f, undo: {call: u}}
  c: {when: input.id == 8, call: f}
  only: {needs: c, call: f}
  any: {needs: [a, b], join: any, call: f}
  all: {needs: [a, c], call: f}
  last: {needs: [b, any], join: always, call: f, input: {a: "${steps.any.status}"}}
  early: {needs: all, when: steps.all.output.n > 10, complete: "${steps.all.output}"}
  odd: {needs: any, when: steps.any.output.n == 7, fail: {message: "odd ${steps.any.output.n}", code: odd}}
`,
	"times": `
flow: times
deployment: dpl_test
steps:
  pause: {wait: 1h}
  until: {wait: {until: "${now + duration('90m')}"}}
  now: {needs: pause, set: "${string(now)}"}
  heard: {signal: {name: s, condition: "data.by == 'us'", lookBack: 5m, within: 2h}, catch: [{codes: [wait_timeout]}]}
  told: {needs: until, signal: told, catch: [{}]}
  tell: {needs: [now, until], emit: {signal: told, data: {at: "${steps.now.output}"}, keepFor: 1h}}
  missing: {needs: heard, when: steps.heard.output.no > 1, call: f, catch: [{codes: [flow.expression]}]}
`,
	"people": `
flow: people
deployment: dpl_test
steps:
  one: {approval: {title: "Order ${input.id}"}, catch: [{codes: [rejected]}]}
  two: {approval: {title: two, by: [anna, bob], quorum: 2, deadline: 1h, onTimeout: approve}, catch: [{codes: [rejected, wait_timeout]}]}
  late: {approval: {title: late, quorum: 2, deadline: 1h, onTimeout: reject}, catch: [{codes: [rejected]}]}
  fails: {approval: {title: fails, quorum: 3, deadline: 1h}, catch: [{codes: [wait_timeout]}]}
  paid: {hook: {token: "paid-${input.id}", within: 2h}, catch: [{}]}
  web: {hook: {webhook: {respond: 10s}, within: 2h}, catch: [{}]}
  answer: {needs: web, respond: {to: web, body: {ok: true}}, catch: [{codes: [no_request]}]}
`,
	"others": `
flow: others
deployment: dpl_test
steps:
  ask: {http: {method: POST, url: "https://example.com/e/${run.id}", headers: {X-Order: "${input.id}"}, body: {id: "${input.id}"}, success: [2xx, 409], retryOn: [503]}, undo: {http: "https://example.com/u"}, catch: [{codes: [http_404]}]}
  child: {flow: other, input: {for: "${input.id}"}, catch: [{codes: [child_failed]}]}
  more: {start: other}
  later: {needs: ask, call: f, async: true, timeout: 3h, attemptTimeout: 10s, retry: {maxAttempts: 4, backoff: 1s, factor: 3, maxBackoff: 1m}}
  plain: {call: f, input: "${run.workflow}", undo: {flow: other}}
`,
	"map": `
flow: map
deployment: dpl_test
steps:
  list: {set: "${[1,2,3,4,5].map(n, {'sku': 's' + string(n)})}"}
  keyed: {needs: list, map: steps.list.output, key: item.sku, concurrency: 2, tolerate: {count: 1, percent: 40}, do: {call: e, undo: {call: u}}}
  none: {needs: list, map: steps.list.output, collect: none, tolerate: 5, do: {steps: {a: {call: f}, b: {needs: a, set: "${index}"}}, output: "${steps.b.output}"}}
  empty: {map: "[]", do: {call: f}}
  wrong: {map: input, do: {call: f}, catch: [{codes: [flow.not_a_list]}]}
  told: {needs: keyed, set: "${steps.keyed.failures}"}
  last: {needs: [keyed, none], call: f}
`,
	"window": `
flow: window
deployment: dpl_test
steps:
  m: {map: "[0` + strings.Repeat(",1", 109) + `]", do: {call: f, input: "${index}"}, tolerate: 110}
output: "${size(steps.m.output)}"
`,
	"loop": `
flow: loop
deployment: dpl_test
steps:
  once: {loop: {do: {call: e, undo: {call: u}}, until: iteration.last.n > 8, max: 3, delay: 1m}, catch: [{codes: [flow.loop_exhausted]}]}
  while: {loop: {while: iteration.index < 2, do: {steps: {a: {call: e, undo: {call: u}}, b: {needs: a, set: "${iteration.index}"}}, output: "${steps.b.output}"}}}
  always: {loop: {until: "false", do: {steps: {a: {set: "${iteration.index}"}}, output: "${steps.a.output}"}}, catch: [{codes: [flow.loop_exhausted]}]}
  last: {needs: [once, while], call: f, input: "${steps.while.output}"}
`,
	"plan": `
flow: plan
deployment: dpl_test
steps:
  work: {plan: p, allow: {calls: [e, u]}, input: {goal: "${input.id}"}}
  few: {plan: p, repairs: 0, allow: {calls: [e, u], maxSteps: 2}, catch: [{codes: [flow.plan]}]}
  last: {needs: [work, few], call: f}
`,
	"web": `
flow: web
format: 1
describe: somebody asks, and is answered
deployment: dpl_test
input: {type: object, required: [id]}
steps:
  ask: {describe: from outside, hook: {webhook: {respond: 10s}, within: 2h}}
  signed: {hook: {webhook: {verify: stripe, secret: stripe}, within: 1h}, catch: [{codes: [wait_timeout]}]}
  accept: {needs: ask, respond: {to: ask, status: 202, body: {id: "${input.id}"}}, catch: [{codes: [no_request]}]}
  again: {needs: accept, respond: {to: ask, status: 204}, catch: [{}]}
  wrong: {needs: ask, respond: {to: ask, body: "${steps.ask.output.no}"}, catch: [{codes: [flow.expression]}]}
  mail: {http: {url: "https://example.com/mail", headers: {Authorization: {secret: mail, prefix: "Bearer "}}}, catch: [{}]}
  form: {approval: {title: form, form: {type: object, required: [limit]}, deadline: 1h}, catch: [{}]}
  work: {plan: p, allow: {calls: [e, u], flows: [other]}, catch: [{}]}
`,
	"refused": `
flow: refused
deployment: dpl_test
input: {type: object, required: [id, amount], properties: {id: {type: string}}}
steps: {a: {call: f}}
`,
	"goals": `
flow: goals
deployment: dpl_test
goals: [made, none]
steps:
  a: {call: e, undo: {call: u}}
  b: {call: f}
  both: {needs: [a, b], join: every, let: {one: "${steps.a.output}", two: "${[one, one]}"}, set: "${two}", schema: {type: array}}
  none: {needs: both, join: any, set: {status: "${steps.both.status}"}}
  spare: {needs: both, join: none, call: f}
  pairs: {needs: [a, b], join: any, map: {x: "[1,2]", y: "['a','b']"}, do: {call: f, input: "${item}"}, tolerate: 4}
  made: {needs: [spare, both, pairs], join: any, set: 1}
  tell: {needs: b, join: always, call: f}
`,
	"nested": `
flow: nested
deployment: dpl_test
steps:
  m:
    map: "[1,2]"
    do:
      steps:
        each: {map: "['a','b']", key: item, do: {call: e, input: "${item}", undo: {call: u}}}
        tell: {join: always, needs: each, call: f}
        wait: {needs: each, signal: {name: never, within: 1h}, catch: [{}]}
  after: {needs: m, loop: {max: 2, until: iteration.index == 2, do: {steps: {x: {map: "[1,2]", do: {call: e, undo: {call: u}}}}}}}
  last: {needs: after, call: f}
`,
}

// recorded is a run as a function sees it: the events, and its answers to calls with the first of them.
type recorded struct {
	Document string            `json:"document"`
	Run      contract.Run      `json:"run"`
	Events   []json.RawMessage `json:"events"`
	Answers  []recordedAnswer  `json:"answers"`
}

type recordedAnswer struct {
	Events   int             `json:"events"`
	Commands json.RawMessage `json:"commands"`
}

// recordings is the folder of the recorded runs, for the tests of package replay.
var recordings = filepath.Join("..", "flow", "replay", "testdata", "semantics", fmt.Sprint(flow.Semantics))

var recordRuns = flag.Bool("record", false, "have TestRecordSemantics record the runs that are missing")

// seedsOf returns the seeds with which a construct is recorded. With 39 and 49, the run is asked to cancel, and
// with 49 all is undone.
func seedsOf(name string) []int {
	switch name {
	case "refused":
		return []int{1}
	case "saga":
		return []int{1, 2, 3, 39, 49}
	case "nested":
		return []int{1, 2, 3, 39}
	default:
		return []int{1, 2, 3}
	}
}

// TestRecordSemantics checks that runs of all constructs are recorded. With the flag -record, it records those that are
// missing. What was recorded stays, unless the number of the semantics has not been released yet.
func TestRecordSemantics(t *testing.T) {
	t.Parallel()
	var s *stage
	for name, document := range constructs {
		for _, seed := range seedsOf(name) {
			file := filepath.Join(recordings, fmt.Sprintf("%s-%d.json", name, seed))
			if _, err := os.Stat(file); err == nil {
				continue // it stays
			} else if !*recordRuns {
				t.Errorf("%v: record it with go test ./engine -run '^TestRecordSemantics$' -record", err)
				continue
			}
			if s == nil {
				s = startStage(t)
			}
			text, err := json.Marshal(s.record(t, name, document, seed))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// record plays a document, and returns what its function was asked.
func (s *stage) record(t *testing.T, name, document string, seed int) recorded {
	t.Helper()
	document = strings.ReplaceAll(document, "https://example.com", s.url)
	r := recorded{Document: document}
	s.asked = func(call contract.Call, events []json.RawMessage, answer []byte) {
		if call.Run.Workflow != name {
			return
		}
		var a struct{ Commands json.RawMessage }
		if err := json.Unmarshal(answer, &a); err != nil {
			t.Error(err)
		}
		r.Run = call.Run
		r.Answers = append(r.Answers, recordedAnswer{len(events), a.Commands})
	}
	p := s.play(t, document, seed, "remote")
	if p == nil {
		t.Fatalf("%s does not end", name)
	}
	r.Events = p.shown(t)
	return r
}
