// Package view has the one form in which events are shown as JSON: in lists, in live streams, and to functions.
//
// It imports packages entities, eventlog and eventlog/payload.
package view

import (
	"encoding/json"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/payload"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// Event is the JSON form of an event.
type Event struct {
	RunID         entities.RunID     `json:"runId"`
	Seq           int64              `json:"seq"`
	ID            entities.EventID   `json:"id"`
	Type          entities.EventType `json:"type"`
	CorrelationID string             `json:"correlationId,omitempty"`
	CreatedAt     Time               `json:"createdAt"`
	Data          entities.EventData `json:"data"`
	// Payload is the payload as far as it can be shown, and Encoding what it is: a constant of package payload.
	// Both are empty when payloads were not asked for.
	Payload  json.RawMessage `json:"payload,omitempty"`
	Encoding string          `json:"encoding,omitempty"`
	// Truncated says that the payload was left out for its size.
	Truncated bool `json:"truncated,omitempty"`
}

// Time is a time as JSON has it: RFC 3339, UTC, to the millisecond, which are always there.
type Time time.Time

// MarshalJSON implements [json.Marshaler].
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(time.Time(t).UTC().Format(`"2006-01-02T15:04:05.000Z"`)), nil
}

// Plain shows an event without its payload.
func Plain(e entities.Event) Event {
	return Event{
		RunID: e.RunID, Seq: e.Seq, ID: e.ID(), Type: e.Type, CorrelationID: e.CorrelationID,
		CreatedAt: Time(e.CreatedAt), Data: e.Data,
	}
}

// Of shows an event with its payload.
func Of(e entities.Event) Event {
	return show(e, payload.MaxDecoded)
}

// failures are the events whose payload is an error. Clients of the Workflow SDK's stable line send it beside the
// payload, as an object or as its message.
var failures = map[entities.EventType]bool{
	entities.EventRunFailed: true, entities.EventStepFailed: true, entities.EventStepRetrying: true,
}

func show(e entities.Event, limit int) Event {
	v := Plain(e)
	if len(e.Payload) == 0 && failures[e.Type] {
		if reason, ok := payload.Field(e.Extra, "error"); ok && len(reason) <= limit {
			v.Payload, v.Encoding = asError(reason), payload.EncodingCBOR
			return v
		}
	}
	var fits bool
	v.Payload, v.Encoding, fits = payload.DecodeWithin(e.Payload, limit)
	v.Truncated = !fits
	return v
}

// asError makes an error of one that is just its message.
func asError(reason json.RawMessage) json.RawMessage {
	if reason[0] == '"' {
		return json.RawMessage(`{"message":` + string(reason) + `}`)
	}
	return reason
}

// List shows the events of a list one by one, with payloads up to [read.MaxListedPayload] bytes each and, as some
// grow a lot when they are shown, up to so many together as one page of the log may have.
type List struct {
	shown int
}

// maxShown is how many bytes of payloads a list shows.
const maxShown = 16 << 20

// Add shows the next event of the list.
func (l *List) Add(e read.Entry) Event {
	if e.Size > read.MaxListedPayload {
		v := Plain(e.Event)
		v.Truncated = true
		return v
	}
	v := show(e.Event, min(read.MaxListedPayload, maxShown-l.shown))
	l.shown += len(v.Payload)
	return v
}
