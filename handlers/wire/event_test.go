package wire

import (
	"bytes"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestEventsAreEncodedLikeMaps compares the encoding of events, field by field, with that of the maps that they stand
// for. One encoder encodes all of them.
func TestEventsAreEncodedLikeMaps(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1795225268528)
	wireAt := codec.NewTime(at)
	extra := check.Value(codec.Marshal(map[string]any{"stepName": "replaced", "own": []codec.Int{1, 2}, "result": "replaced too"}))(t)
	created := entities.Event{
		RunID: "wrun_1", Seq: 3, Type: entities.EventStepCreated, CorrelationID: "step_1", SpecVersion: 5, CreatedAt: at,
	}
	with := func(change func(e *entities.Event)) entities.Event {
		e := created
		change(&e)
		return e
	}
	type fields map[string]any
	plain := func(data fields) fields {
		return fields{
			"runId": "wrun_1", "eventId": "evnt_00000000000000000000000003", "eventType": "step_created",
			"correlationId": "step_1", "specVersion": codec.Int(5), "createdAt": wireAt, "eventData": data,
		}
	}
	started := plain(nil)
	started["eventType"] = "step_started"
	delete(started, "eventData")
	resumed := plain(fields{})
	resumed["resumeId"], resumed["occurredAt"] = "resume_1", wireAt
	completed := plain(fields{
		"own": []codec.Int{1, 2}, "stepName": "charge", "result": codec.Bytes("payload"),
	})
	completed["eventType"] = "step_completed"

	var w eventEncoder
	for name, c := range map[string]struct {
		event entities.Event
		want  fields
	}{
		"no data":        {created, plain(fields{})},
		"no data needed": {with(func(e *entities.Event) { e.Type = entities.EventStepStarted }), started},
		"optional fields": {with(func(e *entities.Event) {
			e.OccurredAt, e.Data.ResumeID = &at, "resume_1"
		}), resumed},
		"extra data and payload": {with(func(e *entities.Event) {
			e.Type, e.Data.StepName, e.Extra, e.Payload = entities.EventStepCompleted, "charge", extra, []byte("payload")
		}), completed},
		"all data": {with(func(e *entities.Event) {
			value := "v"
			e.Data = entities.EventData{
				DeploymentID: "dpl_1", WorkflowName: "orders", StepName: "charge", Token: "token", ConflictingRunID: "wrun_2",
				ErrorCode: "E", Attempt: new(2), ResumeAt: &at, RetryAfter: &at, TokenRetentionUntil: &at,
				IsWebhook: new(false), IsSystem: new(true), Attributes: map[string]string{"b": "1", "a": "2"},
				Changes: []entities.AttributeChange{{Key: "k", Value: &value}, {Key: "gone"}}, AllowReserved: true,
			}
		}), plain(fields{
			"deploymentId": "dpl_1", "workflowName": "orders", "stepName": "charge", "token": "token",
			"conflictingRunId": "wrun_2", "errorCode": "E", "attempt": codec.Int(2), "resumeAt": wireAt,
			"retryAfter": wireAt, "tokenRetentionUntil": wireAt, "isWebhook": false, "isSystem": true,
			"attributes":              map[string]string{"a": "2", "b": "1"},
			"changes":                 []fields{{"key": "k", "value": "v"}, {"key": "gone", "value": nil}},
			"allowReservedAttributes": true,
		})},
	} {
		want := check.Value(codec.Marshal(c.want))(t)
		got, err := w.appendResolved(nil, new(read.RowOf(&c.event)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: got  %x, error %v\nwant %x", name, got, err, want)
		}
	}
}

// TestDamagedEventsAreNotSent: a client could not read a log at all with an item that it cannot decode.
func TestDamagedEventsAreNotSent(t *testing.T) {
	t.Parallel()
	e := entities.Event{RunID: "wrun_1", Seq: 1, Type: entities.EventRunCreated, Extra: []byte{0xa1, 0x61, 0x61, 0x7f, 0xff}}
	var w eventEncoder
	if got, err := w.append(nil, new(read.RowOf(&e))); err == nil {
		t.Errorf("got %x, want an error", got)
	}
	e.Extra = nil
	if _, err := w.append(nil, new(read.RowOf(&e))); err != nil {
		t.Errorf("the next event: %v", err)
	}
}

// TestSharedDataIsEncodedOnce: rows of a list share their data. What an encoder keeps of it is what it would encode
// again, for each type of event and beyond as many data as it keeps.
func TestSharedDataIsEncodedOnce(t *testing.T) {
	t.Parallel()
	data := make([]entities.EventData, maxKnown+2)
	for i := range data[1:] {
		data[1+i] = entities.EventData{StepName: "charge", ResumeID: "resume", Attempt: new(i)}
	}
	var w eventEncoder
	for range 2 {
		for _, typ := range entities.EventTypes {
			for i := range data {
				for _, extra := range [][]byte{nil, {0xa1, 0x61, 0x78, 0x01}} { // {x: 1}
					row := read.Row{RunID: "wrun_1", Seq: 1, Type: typ, SpecVersion: 5, Data: &data[i], Extra: extra}
					want := check.Value(new(eventEncoder).append(nil, &row))(t)
					if got, err := w.append(nil, &row); err != nil || !bytes.Equal(got, want) {
						t.Fatalf("%s: got  %x, error %v\nwant %x", typ, got, err, want)
					}
				}
			}
		}
	}
}
