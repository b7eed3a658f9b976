package flow

import (
	"encoding/json"
	"errors"
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
