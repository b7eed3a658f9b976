package flow

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// head begins documents that have only steps.
const head = "flow: f\ndeployment: d\nsteps:\n"

// faulty are documents with mistakes.
var faulty = []struct {
	document string
	want     []string // line:column code, and a part of the message
}{
	{"", []string{"1:1 missing the document is empty"}},
	{"a: [", []string{"1:1 syntax did not find expected node content"}},
	{"flow: f", []string{`1:1 missing want "steps"`}},
	{"steps: {a: {set: 1}}", []string{`1:1 missing want "flow"`}},
	{"flow: a b\nsteps: {a: {set: 1}}", []string{"1:7 type letters, digits"}},
	{"flow: schema\nsteps: {a: {set: 1}}", []string{"1:7 type is reserved"}},
	{"flow: f\nformat: 2\nsteps: {a: {set: 1}}", []string{"2:9 type format 1"}},
	{"flow: f\nstep: {}\nsteps: {a: {set: 1}}", []string{`2:7 unknown do you mean "steps"?`}},
	{"flow: f\nsteps: {a: {set: 1}, a: {set: 2}}", []string{"2:22 conflict there twice"}},
	{"---\n", []string{"1:1 missing the document is empty"}},
	{"flow: f\n---\nflow: g", []string{`3:1 syntax a second document begins`}},
	{"flow: f\nsteps: {a: {set: *b}}", []string{"2:18 syntax unknown anchor 'b'"}},
	{"flow: f\nsteps: {a: !!map {set: !!str 1, !!str when: 'true'}}", []string{
		"2:12 syntax tags such as !!map", "2:24 syntax tags such as !!str", "2:33 syntax tags such as !!str",
	}},
	{head + "  a: &a {call: x}\n  b: {call: y, <<: *a}", []string{`5:16 syntax "<<" merges nothing`}},
	// What steps say about each other is checked beside other faults, unless it would follow from them.
	{"flow: f\nflow: g\nstep: 1\nsteps: {a: {set: '${steps.c.output}'}}", []string{
		"2:1 conflict there twice", `3:7 unknown do you mean "steps"?`, `4:18 unknown reads the step "c"`,
	}},
	{head + "  a: {call: x, timeout: 1d}\n  b: {call: x, when: steps.a.failed}\n  c: {call: x, input: '${item}'}", []string{
		`4:25 type want a duration`, "5:22 expression add a to needs", "6:23 expression only in the body of a map",
	}},
	{head + "  a: {call: x, needs: c}\n  b: {call: x, needs: a, when: steps.c.failed}", []string{
		`4:23 unknown there is no step "c"`, `5:32 unknown reads the step "c"`,
	}},
	{head + "  a: {call: x}\n  b: {call: x, needs: aa}\n  c: {call: x, needs: b, when: steps.a.failed}", []string{
		`5:23 unknown there is no step "aa"; do you mean "a"?`,
	}},
	{head + "  a: {needs: b, set: '${steps.c.output}'}\n  b: {needs: a, set: '${steps.z.output}'}\n  c: {needs: c, set: 1}", []string{
		"4:6 cycle a needs b needs a", `5:22 unknown reads the step "z"`, "6:6 cycle c needs c",
	}},
	{head + "  a: {workflow: x, timeout: 1h, input: 1}\n  b: {set: 1, depends_on: a}", []string{
		`4:17 unknown do you mean "flow"?`, `5:27 unknown do you mean "needs"?`,
	}},
	{head + "  in: {set: 1}\n  a-b: {set: 1}\n  c: {needs: [in, a-b], set: '${steps.in.output}', when: steps.a-b.failed}", []string{
		`6:30 expression cannot be read from ".in" on; write steps["in"] for the step in`, `6:58 expression write steps["a-b"]`,
	}},
	{head + "  a: {set: '${input.}'}\n  b: {set: '${(1}'}\n  c: {set: '${foo(}'}\n  d: {set: '${1 2}'}", []string{
		`4:12 expression cannot be read from "." on`, `5:12 expression ")" is missing`, `6:12 expression something is missing at its end`,
		`7:12 expression cannot be read from "2" on`,
	}},
	{head + "  a: {set: 1, when: ''}\n  b: {set: 1, when: '7'}\n  c: {set: 1, when: true}\n  d: {set: 1, when: '${input.x}'}", []string{
		"4:21 missing this one is empty", "5:21 expression neither true nor false", "6:21 type want an expression in CEL",
		`7:21 expression leave out "${" and "}"`,
	}},
	{head + "  a: {set: 1, when: \"input.x == '${input.y}'\"}\n  b: {call: '${input.x}'}\n  c: {flow: '${input.x}'}", []string{
		`4:21 expression leave out "${" and "}"`, "5:13 expression write the value itself", "6:13 expression write the value itself",
	}},
	{head + "  a: {call: x, deployment: '${input.x}'}\n  b: {start: '${input.x}'}\n  c: {emit: 'a${input.x}'}", []string{
		"4:28 expression is no expression here", "5:14 expression is no expression here", "6:13 expression is no expression here",
	}},
	{head + "  a: {call: x, catch: [{codes: ['${input.x}', b]}]}\n  b: {http: {url: 'http://a', headers: {b: {secret: '${input.x}'}}}}",
		[]string{"4:33 expression is no expression here", "5:53 expression is no expression here"}},
	{head + "  a: {hook: {webhook: {verify: stripe, secret: 'a${input.x}'}}}\n  b: {fail: {code: '${input.x}', message: m}}", []string{
		"4:48 expression is no expression here", "5:20 expression is no expression here",
	}},
	{head + "  a: {signal: {name: s, condition: \"data.id == '${input.id}'\"}}", []string{"4:36 expression data.id == input.id"}},
	{head + "  a: {set: {'${input.x}': 1, '$${x}': 2, b: [{'a${': 3}]}}\n  b: {start: x, attributes: {'a${x}': 1}}", []string{
		"4:27 expression is no expression in the name of a field", "4:54 expression is no expression in the name of a field",
		"5:39 expression is no expression in the name of a field",
	}},
	{head + "  a: {signal: {name: s, condition: 'data.id == steps.b.output.id'}}\n  b: {call: x}", []string{"4:36 expression add b to needs"}},
	{head + "  a: {signal: {name: s, condition: 'data.id == inputs.id'}}", []string{"4:36 expression undeclared reference"}},
	{head + "  a: {signal: {name: s, condition: 'data.all(input, true)'}}", []string{"4:36 expression must be a simple name"}},
	{"flow: f\nsteps: {a: {set: .inf}}", []string{"2:18 type no form in JSON"}},
	{"flow: f\ninput: {properties: {a: {type: 7}}}\nsteps: {a: {set: 1}}", []string{
		"2:8 type it is not a JSON Schema: /properties/a/type: want one of null, boolean, object, array, number, string, integer, or a list of them",
	}},
	{"flow: f\ninput: {$ref: 'http://127.0.0.1:1/x'}\nsteps: {a: {set: 1}}", []string{"2:8 type not a JSON Schema"}},
	{"flow: f\nsteps: {a: {call: b}}", []string{`2:12 missing want a "deployment"`}},
	{head + "  a: {}", []string{"4:6 missing want one of call, flow, http, wait, signal, hook, approval"}},
	{head + "  a: {call: x, set: 1}", []string{"4:21 conflict this one is a call already"}},
	{head + "  a: 7", []string{"4:6 type want an object"}},
	{head + "  a: {call: x, needs: [b, c]}\n  b: {call: x, join: some}", []string{
		`4:27 unknown there is no step "c"`, `5:22 type "some" is none of all, any, every, none, always`,
	}},
	{head + "  a: {call: x, needs: [b]}\n  b: {call: x, needs: [a]}", []string{"4:6 cycle a needs b needs a"}},
	{head + "  a: {call: x, needs: [a]}", []string{"4:6 cycle a needs a"}},
	{head + "  a: {call: x, when: 'input.'}", []string{"4:22 expression cannot be compiled"}},
	{head + "  a: {call: x, when: 'steps.b.failed'}\n  b: {call: x}", []string{"4:22 expression add b to needs"}},
	{head + "  a: {call: x, when: 'steps.z.failed'}", []string{`4:22 unknown reads the step "z"`}},
	{head + "  a: {call: x, when: 'size(steps) > 1'}", []string{"4:22 expression must name the steps"}},
	{head + "  a: {call: x, input: '${error.code}'}", []string{"4:23 expression error is known only"}},
	{head + "  a: {call: x, input: '${undo.output}'}", []string{"4:23 expression undo is known only"}},
	{head + "  a: {call: x, input: '${unknown}'}", []string{"4:23 expression undeclared reference"}},
	{head + "  a: {call: x, input: 'a ${b'}", []string{`4:23 expression has no "}" after it`}},
	{head + "  a: {call: x, catch: [{to: a}]}", []string{"4:6 cycle leads to a itself"}},
	{head + "  a: {call: x, catch: [{to: b}]}\n  b: {call: x, needs: [a]}", []string{"5:6 conflict cannot have needs"}},
	{head + "  a: {call: x, catch: [{to: c}]}\n  b: {call: x, catch: [{to: c}]}\n  c: {call: x}", []string{
		"6:6 conflict each needs a step of its own",
	}},
	{head + "  a: {call: x, catch: [{then: fail}]}", []string{"4:24 conflict leave it out"}},
	{head + "  a: {wait: 0s}", []string{"4:13 type want a duration"}},
	{head + "  a: {wait: {}}", []string{"4:13 missing want a duration"}},
	{head + "  a: {call: x, retry: {maxAttempts: 0}}", []string{"4:37 type from 1 to 1000"}},
	{head + "  a: {call: x, attemptTimeout: 1ms}", []string{"4:32 type between 1s and 12h"}},
	{head + "  a: {call: x, attemptTimeout: 999ms}", []string{"4:32 type between 1s and 12h"}},
	{head + "  a: {call: x, attemptTimeout: .9s}", []string{"4:32 type between 1s and 12h"}},
	{head + "  a: {call: x, attemptTimeout: 13h}", []string{"4:32 type between 1s and 12h"}},
	{head + "  a: {call: x, attemptTimeout: 12h1s}", []string{"4:32 type between 1s and 12h"}},
	{head + "  a: {http: 'http://a.test', attemptTimeout: 721m}", []string{"4:46 type between 1s and 12h"}},
	{head + "  a: {call: x, attemptTimeout: 43201s}", []string{"4:32 type between 1s and 12h"}},
	{head + "  a: {http: {method: LIST, url: 'ftp://x', headers: {Authorization: secret, 'a b': x}, body: 1}}", []string{
		`4:22 type method "LIST" is none of GET`, "4:33 type not a URL like", "4:69 type must be a secret", "4:84 type not a valid header name",
	}},
	{head + "  a: {http: {body: {a: 1}, method: GET, success: [ok, 200]}}", []string{
		`4:13 missing want a "url"`, "4:36 type a GET has no body", "4:51 type a status such as 404",
	}},
	{head + "  a: {http: {url: 'https://u:p@x.test', headers: {Host: x, X: {secret: 'a b'}}}}", []string{
		"4:19 type no user name and password", "4:57 type set by the server", "4:63 type secret",
	}},
	{head + "  a: {http: {url: x, headers: {X: {prefix: b}}}}", []string{"4:19 type not a URL", "4:35 missing {secret: NAME}"}},
	{head + "  a: {call: x, async: yes}", []string{"4:23 type want true or false"}},
	{head + "  a: {call: x, async: true}", []string{`4:23 missing needs a "timeout"`}},
	{head + "  a: {loop: {do: {call: x, async: true}, until: 'true'}}", []string{`4:35 missing needs a "timeout"`}},
	{head + "  a: {map: '[1]', do: {steps: {b: {call: x, async: true}}}}", []string{`4:52 missing needs a "timeout"`}},
	{head + "  a: {call: x, undo: {call: y, async: true}}", []string{`4:39 missing needs a "timeout"`}},
	{head + "  a: {hook: {webhook: {verify: rot13}, token: '${x}'}}", []string{"4:23 type verify", "4:47 expression undeclared reference"}},
	{head + "  a: {approval: {quorum: 0, by: [1], form: {type: 7}, onTimeout: maybe}}", []string{
		`4:17 missing want a "title"`, "4:26 type from 1 to 100", "4:34 type want a name", "4:44 type not a JSON Schema",
		`4:66 type "maybe" is none of fail, approve, reject`, `4:66 missing needs a "deadline"`,
	}},
	{head + "  a: {start: x, key: 7}", []string{"4:22 type want a text instead of a number"}},
	{head + "  a: {flow: x, key: ''}", []string{"4:21 type key is missing"}},
	{head + "  a: {flow: x, key: '${nothing}'}", []string{"4:21 expression undeclared reference"}},
	{head + "  a: {call: x, key: k}", []string{`4:21 unknown there is no field "key" here`}},
	{head + "  a: {start: ''}", []string{"4:14 type want a name"}},
	{head + "  a: {emit: {keepFor: 721h}}", []string{`4:13 missing want the name of the "signal"`, "4:23 type kept for 720h0m0s at most"}},
	{head + "  a: {respond: {status: 99}}", []string{"4:25 type from 200 to 599"}},
	{head + "  a: {hook: {webhook: {}}}\n  b: {needs: [a], respond: {to: a, status: 204, body: 1}}", []string{
		"5:55 conflict has no body",
	}},
	{head + "  a: {hook: {}}\n  b: {needs: [a], respond: {to: a}}", []string{`5:33 conflict a is not a hook with "webhook"`}},
	{head + "  a: {hook: {webhook: {}}}\n  b: {respond: {to: a}}", []string{"5:21 expression add a to needs"}},
	{head + "  a: {call: x, undo: {wait: 1s}}", []string{"4:22 type only call, flow and http"}},
	{head + "  a: {wait: 1s, undo: {call: x}}", []string{"4:23 conflict only call, flow and http can be undone"}},
	{head + "  a: {set: 1, " + strings.Repeat("x", 200) + ": 1}", []string{"4:217 unknown here"}},
	{"flow: f\ndeployment: a/b\nsteps: {a: {set: 1}}", []string{"2:13 type characters an ID may not have"}},
	{head + "  a: {flow: x, deployment: a b}", []string{"4:28 type characters an ID may not have"}},
	{head + "  a: {signal: ''}", []string{"4:15 type want a name"}},
	{head + "  a: {signal: \"a\\u0001\"}", []string{"4:15 type control characters"}},
	{head + "  a: {signal: {name: a, condition: 'data.'}}", []string{"4:36 expression condition: line 1"}},
	{head + "  a: {signal: {name: a, condition: '7'}}", []string{"4:36 expression want a bool"}},
	{head + "  a: {fail: {message: no, code: \"a\\u0001\"}}", []string{"4:33 type control characters"}},
	{head + "  attr_a: {set: 1}", []string{"4:11 type reserved"}},
	{
		"flow: f\nsteps: {a: {set: '" + strings.Repeat("${1}", maxExpressions+1) + "'}}",
		[]string{"2:18 expression too many expressions"},
	},
	{
		head + "  z: {set: 1}\n  a: {set: 1, needs: z}\n  b: {set: 1, needs: z}\n" +
			"  c: {needs: [a, b], join: any, set: '${[steps.z.output, steps.a.output]}'}\n" +
			"  d: {needs: c, set: '${[steps.z.output, steps.c.output, steps.b.output]}'}",
		[]string{"7:38 expression since join is any", "8:22 expression add b to needs"},
	},
	{head + "  a: {complete: 1, join: always}", []string{"4:6 conflict join must not be always"}},
	{head + "  a: {signal: {condition: 'true'}}", []string{`4:15 missing "name" of the signal`}},
	{head + "  a: {fail: {code: x}}", []string{`4:13 missing want a "message"`}},
	{head + "  a: {map: input}", []string{`4:6 missing want "do"`}},
	{head + "  a: {map: '', do: {call: x}}", []string{"4:12 missing want an expression"}},
	{head + "  a: {map: input, do: {wait: 1s}}", []string{"4:23 conflict this is a wait"}},
	{head + "  a: {map: input, do: {call: x, needs: a}}", []string{
		`4:40 unknown there is no step "a"`, `4:40 conflict needs no other`,
	}},
	{head + "  a: {map: input, concurrency: 0, do: {call: x}}", []string{"4:32 type from 1 to 1000"}},
	{head + "  a: {map: input, tolerate: {percent: 101}, do: {call: x}}", []string{"4:39 type from 0 to 100"}},
	{head + "  a: {map: input, do: {call: x}, undo: {call: y}}", []string{"4:40 conflict this is a map"}},
	{head + "  a: {map: input, do: {call: x, input: '${iteration}'}}", []string{"4:40 expression only in the body of a loop"}},
	{head + "  a: {call: x, input: '${item}'}", []string{"4:23 expression only in the body of a map"}},
	{head + "  a: {map: input, do: {call: x, input: '${steps.b.output}'}}\n  b: {call: x}", []string{"4:40 expression add b to needs"}},
	{head + "  a: {map: input, do: {steps: {c: {map: item, do: {call: x, input: '${steps.z.output}'}}}}}", []string{
		`4:68 unknown reads the step "z"`,
	}},
	{head + "  a: {map: input, do: {steps: {c: {complete: 1}}}}", []string{"4:35 conflict cannot complete the run"}},
	{head + "  a: {map: input, do: {steps: {c: {call: x, needs: d}, d: {call: x, needs: c}}}}", []string{"4:35 cycle c needs d needs c"}},
	{head + "  a: {loop: {do: {call: x}}}", []string{`4:13 missing want "while" or "until"`}},
	{head + "  a: {loop: {do: {call: x}, until: 'true', max: 10001}}", []string{"4:49 type from 1 to 10000"}},
	{head + "  a: {flow: x, attributes: [1]}", []string{"4:28 type want an object instead of a list"}},
	{head + "  a: {start: x, attributes: {'': x}}", []string{"4:29 type attribute key has 0 characters"}},
	{head + "  a: {call: x, attributes: {a: x}}", []string{`4:28 unknown there is no field "attributes"`}},
	{head + "  a: {call: x, limits: [l, l]}", []string{"4:24 type limit l is named twice"}},
	{head + "  a: {call: x, limits: [{key: l}]}", []string{`4:25 missing want the "name" of the limit`}},
	{head + "  a: {call: x, limits: {name: l, cost: 0}}", []string{"4:40 type want a whole number from 1 to 10000"}},
	{head + "  a: {call: x, priority: 10m}", []string{`4:26 missing a priority needs "limits"`}},
	{head + "  a: {call: x, undo: {call: y, priority: 10m}}", []string{`4:42 missing a priority needs "limits"`}},
	{head + "  a: {call: x, limits: l, priority: 2h}", []string{`4:37 type from "-1h" to "1h"`}},
	{head + "  a: {call: x, limits: l, priority: 1}", []string{`4:37 type from "-1h" to "1h"`}},
	{head + "  a: {flow: x, delay: 1h}", []string{`4:23 unknown there is no field "delay"`}},
	{"flow: f\ntimeout: 0s\nsteps: {a: {set: 1}}", []string{"2:10 type a duration"}},
	{head + "  a: {flow: x, limits: l}", []string{`4:24 unknown there is no field "limits"`}},
	{head + "  a: {plan: x}", []string{`4:6 missing want "allow"`}},
}

// TestFaults checks that all mistakes of a document are reported, where they are.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, test := range faulty {
		t.Run(test.document, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(test.document))
			var faults Faults
			if !errors.As(err, &faults) || !errors.Is(err, ErrFaults) {
				t.Fatalf("got %v, want faults", err)
			}
			var got []string
			for i, f := range faults {
				text := fmt.Sprintf("%d:%d %s", f.Line, f.Column, f.Code)
				if i < len(test.want) {
					place, part, _ := cutPlace(test.want[i])
					if strings.Contains(f.Message, part) && place == text {
						text = test.want[i]
					} else {
						text += " " + f.Message
					}
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// cutPlace cuts "4:6 cycle a needs a" after the code.
func cutPlace(want string) (place, part string, ok bool) {
	fields := strings.SplitN(want, " ", 3)
	if len(fields) < 3 {
		return want, "", false
	}
	return fields[0] + " " + fields[1], fields[2], true
}

// TestValuesKeepTheirTypes checks the types of YAML's core schema, as JSON.
func TestValuesKeepTheirTypes(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		"no": `"no"`, "on": `"on"`, "2026-01-01": `"2026-01-01"`, "1_000": `"1_000"`, "12:30:45": `"12:30:45"`,
		"~": "null", "": "null", "TRUE": "true", "0x1F": "31", "0o17": "15", "017": "17", "+7": "7", "-0": "0",
		"9007199254740993": "9007199254740993", "1.50": "1.5", "1e3": "1000", "'7'": `"7"`, `"a\u00e9"`: `"aé"`,
		"[1, {b: 2, a: }]": `[1,{"b":2,"a":null}]`, "[&x 1, *x]": "[1,1]",
	} {
		root, faults := ReadNodes([]byte("v: " + document))
		if len(faults) > 0 {
			t.Errorf("%s: %v", document, faults)
			continue
		}
		if got := string(root.get("v").appendJSON(nil)); got != want {
			t.Errorf("%s is %s, want %s", document, got, want)
		}
	}
}

// TestAliasesAreLimited: a document that grows when its aliases are expanded is refused.
func TestAliasesAreLimited(t *testing.T) {
	t.Parallel()
	document := "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
	for i := 1; i < 9; i++ {
		of := fmt.Sprintf("*a%d", i-1)
		document += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(of+", ", 10), ", "))
	}
	if _, err := Parse([]byte(document)); err == nil || !strings.Contains(err.Error(), "too many values") {
		t.Errorf("got %v", err)
	}
}

// TestAliasesAreLimitedByBytes: so is one with few values that are long.
func TestAliasesAreLimitedByBytes(t *testing.T) {
	t.Parallel()
	const copies = 20
	long := strings.Repeat("x", MaxDocument/2)
	for name, value := range map[string]string{"texts": long, "names": "{? " + long + " : 1}"} {
		document := "a: &a " + value + "\nb: [" + strings.TrimSuffix(strings.Repeat("*a, ", copies), ", ") + "]\n"
		if _, err := Parse([]byte(document)); err == nil || !strings.Contains(err.Error(), "too many bytes") {
			t.Errorf("%s: got %.200v", name, err)
		}
	}
}

// FuzzParse: no document makes the parser panic, and one that has no faults runs to an end.
func FuzzParse(f *testing.F) {
	f.Add([]byte(saga))
	for _, test := range faulty {
		f.Add([]byte(test.document))
	}
	f.Add([]byte("flow: f\nsteps: {a: {wait: {until: '${now}'}}, b: {signal: x, needs: a, join: any}}"))
	f.Fuzz(func(t *testing.T, document []byte) {
		p, err := Parse(document)
		if err != nil {
			return
		}
		if got, err := (Trial{}).Run(p); err != nil && !errors.Is(err, ErrStuck) {
			t.Errorf("%v after %v", err, got.Steps())
		}
	})
}
