package flow

import (
	"errors"
	"strings"
	"testing"
)

// TestSurrogatePairs: JSON may write a character as two escapes. Half of one is refused where it is, and so are pairs in
// YAML, which has none.
func TestSurrogatePairs(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		`{"v":"\ud83d\ude00"}`:                                      `{"v":"😀"}`,
		`{"v":"a\uD83D\uDE00b\u00e9\ud83d\ude00"}`:                  `{"v":"a😀bé😀"}`,
		`{"\ud83d\ude00": "\"\ud83d\ude00", "v": "\\ud83d"}`:        `{"😀":"\"😀","v":"\\ud83d"}`,
		`{"v": "\\\ud83d\ude00"}`:                                   `{"v":"\\😀"}`,
		`{v: '\ud83d\ude00', w: \ud83d}`:                            `{"v":"\\ud83d\\ude00","w":"\\ud83d"}`,
		`{"v":"\u12345678\ud7ff\ue000\ud83d\ude00"}`:                "{\"v\":\"\u12345678\ud7ff\ue000😀\"}",
		`{"v":"` + strings.Repeat(`\ud83d\ude00`, 200) + `","w":1}`: `{"v":"` + strings.Repeat("😀", 200) + `","w":1}`,
	} {
		got, err := JSON([]byte(document))
		if err != nil || string(got) != want {
			t.Errorf("%s is %s (%v), want %s", document, got, err, want)
		}
	}
	for _, document := range []string{
		"{\"a\": 1,\n \"é\": \"\\ud83d\"}", "{\"a\": 1,\n \"é\": \"\\ude00\\ud83d\"}", "a: 1\n\"é\":  \"\\ud83d\\ude00\"",
	} {
		_, err := JSON([]byte(document))
		if err == nil || err.Error() != "2:8: this escape is half of a character: write the character itself" {
			t.Errorf("%s: got %v", document, err)
		}
	}
}

// TestSurrogatePairsKeepColumns: faults are where they are in the document that was written.
func TestSurrogatePairsKeepColumns(t *testing.T) {
	t.Parallel()
	document := `{"flow": "f", "describe": "\ud83d\ude00\ud83d\ude00", "steps": {"a": {"set": "\ud83d\ude00", "x": 1}}}`
	_, err := Parse([]byte(document))
	faults, _ := errors.AsType[Faults](err)
	if len(faults) != 1 || faults[0].Column != 1+strings.Index(document, `1}`) {
		t.Errorf("got %v", err)
	}
}

// TestOrderOfFields: another order of the fields of flows, steps and settings makes no other flow. Another order of
// steps, and of the fields of values, does.
func TestOrderOfFields(t *testing.T) {
	t.Parallel()
	const first = `{flow: f, describe: d, deployment: x, input: {type: object, minProperties: 1}, steps: {
		a: {call: c, retry: {maxAttempts: 2, backoff: 1s}, let: {p: '${input.p}', q: '${input.q}'}, input: {v: 1, w: 2}},
		b: {needs: a, map: input.l, do: {steps: {s: {call: c, timeout: 1m}}, output: 1}}}}`
	for name, test := range map[string]struct {
		changes []string
		equal   bool
	}{
		"comments":          {[]string{"flow: f,", "flow: f, # c\n"}, true},
		"of the flow":       {[]string{"flow: f, describe: d,", "describe: d, flow: f,"}, true},
		"of a step":         {[]string{"call: c, retry: {maxAttempts: 2, backoff: 1s}", "retry: {maxAttempts: 2, backoff: 1s}, call: c"}, true},
		"of retry":          {[]string{"maxAttempts: 2, backoff: 1s", "backoff: 1s, maxAttempts: 2"}, true},
		"of let":            {[]string{"p: '${input.p}', q: '${input.q}'", "q: '${input.q}', p: '${input.p}'"}, true},
		"of a body":         {[]string{"steps: {s: {call: c, timeout: 1m}}, output: 1", "output: 1, steps: {s: {timeout: 1m, call: c}}"}, true},
		"of a value":        {[]string{"v: 1, w: 2", "w: 2, v: 1"}, false},
		"of a schema":       {[]string{"type: object, minProperties: 1", "minProperties: 1, type: object"}, false},
		"of steps":          {[]string{"steps: {\n", "steps: {z: {set: 1},\n"}, false},
		"another name":      {[]string{"flow: f", "flow: g"}, false},
		"values change too": {[]string{"v: 1, w: 2", "v: 2, w: 1"}, false},
	} {
		one, err := Parse([]byte(first))
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.NewReplacer(test.changes...).Replace(first)
		other, err := Parse([]byte(changed))
		if err != nil || changed == first || one.Equal(other) != test.equal {
			t.Errorf("%s: equal is %v, want %v (%v)", name, !test.equal, test.equal, err)
		}
	}
	a, b := parse(t, "flow: f\nsteps: {a: {set: 1}, b: {set: 2}}"), parse(t, "flow: f\nsteps: {b: {set: 2}, a: {set: 1}}")
	if a.Equal(b) {
		t.Error("the order in which steps begin does not count")
	}
}
