package flow

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stepwell-dev/stepwell/contract/approval"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/strictjson"
	"github.com/stepwell-dev/stepwell/schema"
)

// oddValues are JSON that has made servers crash, or work for hours.
var oddValues = []string{
	`{"amount":1e99999999}`, `{"amount":1e-99999999}`, `{"amount":1e999999}`, `[1e999999,1e999999]`, `1e400`, `-0`, `0e999999999`,
	`{"amount":"\ud800"}`, `{"\ud800":1,"\ud801":2}`, `{"\u0000":"\u0000"}`, `[[[[[[[[1]]]]]]]]`, `{"a":1,"a":2}`, `1e308`, `1E+2`,
	`{"minimum":1e99999999}`, `{"multipleOf":1e-300}`, `{"$ref":"#"}`, `{"pattern":"(a?){500}b"}`, `{"type":["x"]}`, `null`,
}

// FuzzOddValues drives odd JSON through what a run makes of what comes from others, whether it is let in or is in an old
// log: the input by a schema, the output of a step in expressions and by a schema, an approval's form and the votes
// with it, and a schema itself.
func FuzzOddValues(f *testing.F) {
	for _, value := range oddValues {
		f.Add([]byte(value))
	}
	program, err := Parse([]byte(`
flow: odd
deployment: d
input: {properties: {amount: {minimum: 0, multipleOf: 0.01}}, items: {type: integer}, uniqueItems: true}
steps:
  a: {call: a}
  b: {needs: a, set: "${steps.a.output}", schema: {properties: {amount: {minimum: 0}}, enum: [1, {amount: 1}]}, catch: [{}]}
  c: {needs: a, set: {n: "${steps.a.output}", is: "${steps.a.output == input}", t: "x ${steps.a.output}"}, catch: [{}]}
  d: {needs: a, when: "steps.a.output != 1", call: a, input: "${input}", catch: [{}]}
`))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if !json.Valid(value) {
			return
		}
		trial := Trial{Input: value, Results: map[string]Result{"a": {Output: value}, "d": {Output: value}}}
		if _, err := trial.Run(program); err != nil && !errors.Is(err, ErrStuck) {
			t.Logf("%.200s: %v", value, err)
		}
		settings := approval.Settings{Title: "t", Form: value}
		if settings.Validate() == nil {
			_, err := settings.Vote(approval.Ballot{Decision: approval.Approve, As: "anna", Form: value}, "key_1", t.Context().Err)
			if err != nil && !errors.Is(err, schema.ErrViolations) && !errors.Is(err, schema.ErrCost) {
				t.Errorf("%.200s: %v", value, err)
			}
		}
		if strictjson.Check(value) == nil {
			_, _ = JSON(value) // as a document
		}
	})
}

// TestOddValuesEndInCodes: a value that was let in once, or never, fails what checks it, and nothing else.
func TestOddValuesEndInCodes(t *testing.T) {
	t.Parallel()
	p, err := Parse([]byte(`{flow: f, input: {properties: {n: {minimum: 0}}}, steps: {a: {set: "${input.n}"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Trial{Input: json.RawMessage(`{"n":1e99999999}`)}.Run(p)
	if err != nil || got.Status != entities.RunFailed {
		t.Errorf("a bad input: %s, %v", got.Status, err)
	}
	p, err = Parse([]byte(`{flow: f, deployment: d, steps: {a: {call: a}, b: {needs: a, set: "${steps.a.output}",
		schema: {minimum: 0}, catch: [{then: continue}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err = Trial{Results: map[string]Result{"a": {Output: json.RawMessage(`1e99999999`)}}}.Run(p)
	if err != nil || got.Status != entities.RunCompleted {
		t.Errorf("a bad output: %s, %v", got.Status, err)
	}
}
