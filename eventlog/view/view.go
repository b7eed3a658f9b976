// Package view defines the JSON form of events, which lists, live streams and functions all use.
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
	ID            ID                 `json:"id"`
	Type          entities.EventType `json:"type"`
	CorrelationID string             `json:"correlationId,omitempty"`
	CreatedAt     Time               `json:"createdAt"`
	// Data is that of the event, which is large: it must not be changed.
	Data *entities.EventData `json:"data"`
	// Payload is the decoded payload, if it can be decoded, and Encoding its encoding: a constant of package payload.
	// Both are empty when the caller did not request payloads.
	Payload  json.RawMessage `json:"payload,omitempty"`
	Encoding string          `json:"encoding,omitempty"`
	// Truncated reports that the payload was omitted because of its size.
	Truncated bool `json:"truncated,omitempty"`
}

// Time is a time whose JSON is RFC 3339, UTC, always with milliseconds.
type Time struct{ time.Time }

// MarshalJSON implements [json.Marshaler].
func (t Time) MarshalJSON() ([]byte, error) {
	return t.appendTo(make([]byte, 0, timeLength)), nil
}

// timeLength is enough for the JSON of a time. Growing to it takes three allocations, which were half of those for a
// timeline.
const timeLength = len(`"2006-01-02T15:04:05.000Z"`)

// ID is the position of an event, whose JSON is its public ID.
type ID int64

// MarshalJSON implements [json.Marshaler].
func (id ID) MarshalJSON() ([]byte, error) {
	return id.appendTo(nil), nil
}

// Plain returns the JSON form of an event without its payload.
func Plain(r *read.Row) Event {
	return Event{
		RunID: r.RunID, Seq: r.Seq, ID: ID(r.Seq), Type: r.Type, CorrelationID: r.CorrelationID,
		CreatedAt: Time{r.CreatedAt}, Data: r.Data,
	}
}

// Of returns the JSON form of an event with its payload.
func Of(e *entities.Event) Event {
	r := read.RowOf(e)
	v, _ := show(&r, payload.MaxDecoded)
	return v
}

// failures are the events whose payload is an error. Clients of the Workflow SDK's stable line send the error in the
// metadata instead of the payload, as an object or as its message alone.
var failures = map[entities.EventType]bool{
	entities.EventRunFailed: true, entities.EventStepFailed: true, entities.EventStepRetrying: true,
}

// show also returns the work of decoding: see [payload.Decoded].
func show(e *read.Row, limit int) (v Event, work int) {
	v = Plain(e)
	if len(e.Payload) == 0 && failures[e.Type] {
		work = len(e.Extra)
		if reason, ok := payload.Field(e.Extra, "error"); ok && len(reason) <= limit {
			v.Payload, v.Encoding = asError(reason), payload.EncodingCBOR
			return v, work + len(reason)
		}
	}
	d := payload.Decode(e.Payload, limit)
	v.Payload, v.Encoding, v.Truncated = d.Value, d.Encoding, d.TooLarge
	return v, work + d.Work
}

// asError wraps an error that is only a message into an object.
func asError(reason json.RawMessage) json.RawMessage {
	if reason[0] == '"' {
		return json.RawMessage(`{"message":` + string(reason) + `}`)
	}
	return reason
}

// List encodes the events of a list one by one, as [Encoder] does. It omits payloads that have more than
// [read.MaxListedPayload] bytes, stored or decoded. The zero List is empty.
type List struct {
	encoder Encoder
	events  int
	work    int
}

// maxWork limits the work of decoding the payloads of one page, in bytes of JSON: see [payload.Decoded]. It takes about
// a second at worst.
const maxWork = read.MaxPageBytes

// partWork is about how much of that work is done at a time: some milliseconds at worst.
const partWork = 128 << 10

// AppendPart appends the next events of the list, with commas between them, and returns how many: all of the entries,
// unless decoding their payloads is much work. It appends none if the page must end here, because decoding has been
// enough work.
func (l *List) AppendPart(dst []byte, entries []read.Entry) (_ []byte, n int, err error) {
	until := min(l.work+partWork, maxWork)
	for ; n < len(entries) && l.work < until; n++ {
		v, work := Listed(&entries[n])
		l.work += work
		if dst, err = l.Append(dst, &v); err != nil {
			return dst, n, err
		}
	}
	return dst, n, nil
}

// Append appends the next event of the list, after a comma if it is not the first.
func (l *List) Append(dst []byte, e *Event) ([]byte, error) {
	if l.events++; l.events > 1 {
		dst = append(dst, ',')
	}
	return l.encoder.Append(dst, e)
}

// Listed returns the JSON form of an event of a list, and the work of decoding its payload.
func Listed(e *read.Entry) (v Event, work int) {
	if e.Size > read.MaxListedPayload {
		v = Plain(&e.Row)
		v.Truncated = true
		return v, 0
	}
	return show(&e.Row, read.MaxListedPayload)
}
