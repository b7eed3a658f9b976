package flow

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
)

// TestSignalsCorrelate: the name and the condition of a signal have the values that the run had when it began to wait.
func TestSignalsCorrelate(t *testing.T) {
	t.Parallel()
	const input = `{"id":"7'\"é","n":5,"big":9007199254740993,"huge":18446744073709551615,"ok":true,"none":null,` +
		`"list":[1,{"a":"x"}],"far":1e300}`
	for settings, want := range map[string]hookSignal{
		`paid`:                      {Name: "paid"},
		`{name: 'paid.${input.n}'}`: {Name: "paid.5"},
		`{name: s, condition: "data.id  ==  'x' && run.id != ''"}`: {Name: "s", Condition: `data.id  ==  'x' && run.id != ''`},
		`{name: s, condition: "data.id == input.id"}`:              {Name: "s", Condition: `data.id == dyn("7'\"é")`},
		`{name: s, condition: "data.n > input.n && data.b == input.big"}`: {
			Name: "s", Condition: `data.n > dyn(5) && data.b == dyn(9007199254740993)`,
		},
		`{name: s, condition: "data.n == input.huge || input.ok || data == input.none"}`: {
			Name: "s", Condition: `data.n == dyn(18446744073709551615u) || dyn(true) || data == dyn(null)`,
		},
		`{name: s, condition: "data.items.exists(i, i in input.list) && has(input.x)"}`: {
			Name: "s", Condition: `data.items.exists(i, i in dyn([1,{"a":"x"}])) && dyn(false)`,
		},
		`{name: s, condition: "data.x == input.?absent.v.orValue(7) || input.?id.hasValue() && data.?x[input.?i.orValue(0)].hasValue()"}`: {
			Name: "s", Condition: `data.x == dyn(7) || dyn(true) && data.?x[dyn(0)].hasValue()`,
		},
		`{name: s, condition: "data.x == steps.before.output.v && data.f < input['far']"}`: {
			Name: "s", Condition: `data.x == dyn("out") && data.f < dyn(1e+300)`,
		},
	} {
		p := parse(t, "flow: f\nsteps:\n  before: {set: {v: out}}\n  a: {needs: before, signal: "+settings+"}")
		state := p.Begin()
		if err := state.Apply(contract.Run{Input: json.RawMessage(input)}, nil); err != nil {
			t.Fatal(err)
		}
		commands, err := state.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if opened, ok := commands[len(commands)-1].(openHook); !ok || *opened.Signal != want {
			t.Errorf("%s: got %+v; want %+v", settings, commands, want)
		}
	}
}

// TestSignalsThatCannotBeAwaited fail the step instead of waiting for what never comes.
func TestSignalsThatCannotBeAwaited(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]string{
		`{name: '${input.none}x${input.long}'}`:         "is no name of 1 to 128 bytes",
		`{name: '${input.missing}'}`:                    `input has no "missing"`,
		`{name: s, condition: 'data == input.missing'}`: `input has no "missing"`,
		`{name: s, condition: 'data == input.long'}`:    "the limit is 4096",
	} {
		p := parse(t, "flow: f\nsteps:\n  a: {signal: "+settings+"}")
		got, err := Trial{Input: json.RawMessage(`{"none":null,"long":"` + strings.Repeat("x", 5000) + `"}`)}.Run(p)
		if err != nil {
			t.Fatal(err)
		}
		if got.Status != entities.RunFailed || got.Error.Code != codeExpression || !strings.Contains(got.Error.Message, want) {
			t.Errorf("%s: got %+v", settings, got.Error)
		}
	}
}
