package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/payload"
)

// TestPayloadsThatCannotBeReadAreFailures: an input, an output or a payload that a flow cannot read is not null to it.
func TestPayloadsThatCannotBeReadAreFailures(t *testing.T) {
	t.Parallel()
	at := func(seq int64, typ entities.EventType, id string) Event {
		return Event{Seq: seq, Type: typ, CorrelationID: id}
	}
	for what, unread := range map[string]struct {
		event Event
		want  string
	}{
		"large":     {Event{Truncated: true, Encoding: payload.EncodingJSON}, "more than 16777216 bytes"},
		"encrypted": {Event{Encoding: payload.EncodingEncrypted}, "is encrypted"},
		"opaque":    {Event{Encoding: payload.EncodingOpaque}, "is no JSON"},
	} {
		unreadable := func(e Event) Event {
			e.Truncated, e.Encoding = unread.event.Truncated, unread.event.Encoding
			return e
		}
		for _, test := range []struct {
			document string
			log      []Event
			code     string
		}{
			{`{flow: f, steps: {a: {call: c, deployment: d}}}`,
				[]Event{unreadable(at(1, entities.EventRunCreated, ""))}, codeInput},
			{`{flow: f, steps: {a: {call: c, deployment: d}, b: {needs: a, set: "${steps.a.output == null}"}}}`,
				[]Event{
					at(1, entities.EventRunCreated, ""), at(2, entities.EventStepCreated, "a"),
					unreadable(at(3, entities.EventStepCompleted, "a")),
				}, codePayload},
			{`{flow: f, steps: {a: {hook: {}}, b: {needs: a, set: "${steps.a.output == null}"}}}`,
				[]Event{
					at(1, entities.EventRunCreated, ""), at(2, entities.EventHookCreated, "a"),
					unreadable(at(3, entities.EventHookReceived, "a")),
				}, codePayload},
		} {
			state := parse(t, test.document).Begin()
			if err := state.Apply(contract.Run{}, test.log); err != nil {
				t.Fatal(err)
			}
			commands, err := state.Next(t.Context())
			if err != nil || len(commands) == 0 {
				t.Fatalf("%s: %v, %v", what, commands, err)
			}
			failed, ok := commands[len(commands)-1].(fail)
			if !ok || failed.Error.Code != test.code || !strings.Contains(failed.Error.Message, unread.want) {
				t.Errorf("%s, %s: got %+v", what, test.document, commands)
			}
		}
	}
}

func TestCheckSize(t *testing.T) {
	t.Parallel()
	if err := CheckSize(make(json.RawMessage, MaxPayload)); err != nil {
		t.Error(err)
	}
	if err := CheckSize(make(json.RawMessage, MaxPayload+1)); !errors.Is(err, ErrPayloadTooLarge) {
		t.Errorf("got %v", err)
	}
}

// TestLargestTextsHaveASize: the characters of the largest payload can be counted.
func TestLargestTextsHaveASize(t *testing.T) {
	t.Parallel()
	p := parse(t, head+"  a: {set: '${size(input) + input.size()}'}\noutput: '${steps.a.output}'")
	got, err := Trial{Input: json.RawMessage(`"` + strings.Repeat("é", MaxPayload/2-1) + `"`)}.Run(p)
	if want := fmt.Sprint(MaxPayload - 2); err != nil || string(got.Output) != want {
		t.Errorf("got %s and %+v, %v, want %s", got.Output, got.Error, err, want)
	}
}

// TestDefaultOutputIsBounded: outputs that fit fail the run if they are too large together, and what the run has done is
// undone. An "output" makes them fit.
func TestDefaultOutputIsBounded(t *testing.T) {
	t.Parallel()
	half, large := `"`+strings.Repeat("x", MaxPayload/2-10)+`"`, `"`+strings.Repeat("x", MaxPayload/2)+`"`
	for name, test := range map[string]struct {
		b, output string
		fits      bool
	}{
		"small":             {b: half, fits: true},
		"large":             {b: large},
		"large with output": {b: large, output: "\noutput: '${steps.b.output}'", fits: true},
	} {
		p := parse(t, head+"  a: {call: x, undo: {call: y}}\n  b: {call: x}"+test.output)
		got, err := Trial{Results: map[string]Result{
			"a": {Output: json.RawMessage(half)}, "b": {Output: json.RawMessage(test.b)}, "a~undo": {Output: orNull(nil)},
		}}.Run(p)
		if err != nil {
			t.Fatal(err)
		}
		failed := got.Status == entities.RunFailed && got.Error.Code == codeExpression &&
			strings.Contains(got.Error.Message, `16 MiB together: say with "output"`) &&
			strings.Contains(string(got.Error.Details), `"done":["a"]`)
		if test.fits && got.Status != entities.RunCompleted || !test.fits && !failed {
			t.Errorf("%s: the run %s: %.200v", name, got.Status, got.Error)
		}
	}
}

// TestValuesThatAreTooLargeOnlyWhenWrappedFail: an output that just fits does not fit any more with what a document puts
// around it. The step fails at once, instead of recording what could not be read again.
func TestValuesThatAreTooLargeOnlyWhenWrappedFail(t *testing.T) {
	t.Parallel()
	large := Result{Output: json.RawMessage(`"` + strings.Repeat("x", MaxPayload-2) + `"`)}
	for rest, fits := range map[string]bool{
		"\noutput: '${steps.a.output}'":                                             true,
		"\noutput: {in: '${steps.a.output}'}":                                       false,
		"\n  b: {needs: a, set: {in: '${steps.a.output}'}}\noutput: null":           false,
		"\n  b: {needs: a, set: 'a${steps.a.output}'}\noutput: null":                false,
		"\n  b: {needs: a, call: y, input: ['${steps.a.output}']}\noutput: null":    false,
		"\n  b: {needs: a, call: y, input: '${steps.a.output}'}\noutput: null":      true,
		"\n  b: {map: '[1]', do: {call: y, input: {in: '${input}'}}}\noutput: null": false,
	} {
		p := parse(t, head+"  a: {call: x}"+rest)
		got, err := Trial{Input: large.Output, Results: map[string]Result{"a": large}}.Run(p)
		switch {
		case err != nil:
			t.Errorf("%s: %v", rest, err)
		case fits && got.Status != entities.RunCompleted,
			!fits && (got.Status != entities.RunFailed || got.Error.Code != codeExpression):
			t.Errorf("%s: the run %s: %+v", rest, got.Status, got.Error)
		}
		for _, e := range got.Events {
			if len(e.Payload) > MaxPayload {
				t.Errorf("%s: %s of %q has %d bytes", rest, e.Type, e.CorrelationID, len(e.Payload))
			}
		}
	}
}
