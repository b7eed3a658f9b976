package wire

import (
	"cmp"
	"fmt"
	"reflect"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// payloadField is the name of the payload within an event's data (§2.2). Events of other types have no payload.
var payloadField = map[entities.EventType]string{
	entities.EventRunCreated:    "input",
	entities.EventRunCompleted:  "output",
	entities.EventRunFailed:     "error",
	entities.EventStepCreated:   "input",
	entities.EventStepCompleted: "result",
	entities.EventStepFailed:    "error",
	entities.EventStepRetrying:  "error",
	entities.EventHookCreated:   "metadata",
	entities.EventHookReceived:  "payload",
}

// dataOptional are the events whose data may be missing. The others have at least an empty map.
var dataOptional = map[entities.EventType]bool{
	entities.EventRunStarted:    true,
	entities.EventRunCancelled:  true,
	entities.EventStepStarted:   true,
	entities.EventHookDisposed:  true,
	entities.EventWaitCompleted: true,
}

// serverOnly are the events that only runs driven by the server have, and that the protocol does not know.
var serverOnly = map[entities.EventType]bool{entities.EventCancelRequested: true, entities.EventWaitCancelled: true}

// eventEncoder encodes events, and reuses its memory for the next one. Data that rows share is encoded once, so it must
// not change meanwhile. The zero eventEncoder is ready to use.
type eventEncoder struct {
	event, data codec.Object
	known       map[*entities.EventData]codec.Encoded
}

// maxKnown is how many different data an encoder remembers.
const maxKnown = 64

// append appends the wire form of an event without its payload, which follows it in a frame.
func (w *eventEncoder) append(dst []byte, e *read.Row) ([]byte, error) {
	if known, ok := w.known[e.Data]; ok && e.Extra == nil {
		return w.finish(dst, e, known)
	}
	w.setData(e)
	data, err := w.data.AppendTo(nil)
	if err != nil {
		return dst, unencoded(e, err)
	}
	if e.Extra == nil && len(w.known) < maxKnown {
		if w.known == nil {
			w.known = map[*entities.EventData]codec.Encoded{}
		}
		w.known[e.Data] = data
	}
	return w.finish(dst, e, data)
}

// appendResolved appends the wire form of an event with its payload inside its data.
func (w *eventEncoder) appendResolved(dst []byte, e *read.Row) ([]byte, error) {
	w.setData(e)
	if field := payloadField[e.Type]; field != "" && len(e.Payload) > 0 {
		w.data.Bytes(field, e.Payload)
	}
	data, err := w.data.AppendTo(nil)
	if err != nil {
		return dst, unencoded(e, err)
	}
	return w.finish(dst, e, data)
}

// emptyMap is the length of a map without fields.
const emptyMap = 1

// finish appends the event with its data. Its fields are added in their order, so that they need not be sorted.
func (w *eventEncoder) finish(dst []byte, e *read.Row, data codec.Encoded) ([]byte, error) {
	w.event.Reset()
	w.event.Text("runId", string(e.RunID))
	w.event.Text("eventId", string(e.ID()))
	w.event.Text("resumeId", e.Data.ResumeID)
	w.event.Time("createdAt", codec.NewTime(e.CreatedAt))
	if len(data) > emptyMap || !dataOptional[e.Type] {
		w.event.Map("eventData", data)
	}
	w.event.Text("eventType", string(e.Type))
	w.event.Time("occurredAt", codec.NewTime(e.OccurredAt))
	w.event.Int("specVersion", codec.Int(e.SpecVersion))
	w.event.Text("correlationId", e.CorrelationID)
	dst, err := w.event.AppendTo(dst)
	if err != nil {
		return dst, unencoded(e, err)
	}
	return dst, nil
}

func unencoded(e *read.Row, err error) error {
	return fmt.Errorf("encode event %s of %s: %w", e.ID(), e.RunID, err)
}

// setData merges the data that the server understands with the extra data, under the names that clients read.
func (w *eventEncoder) setData(e *read.Row) {
	data, d := &w.data, e.Data
	data.Reset()
	if e.Extra != nil {
		data.Merge(e.Extra)
	}
	data.Text("deploymentId", d.DeploymentID)
	data.Text("workflowName", d.WorkflowName)
	data.Text("stepName", d.StepName)
	data.Text("token", d.Token)
	data.Text("conflictingRunId", string(d.ConflictingRunID))
	data.Text("errorCode", d.ErrorCode)
	if d.Attempt != nil {
		data.Int("attempt", codec.Int(*d.Attempt))
	}
	data.Time("resumeAt", optionalTime(d.ResumeAt))
	data.Time("retryAfter", optionalTime(d.RetryAfter))
	data.Time("tokenRetentionUntil", optionalTime(d.TokenRetentionUntil))
	if d.IsWebhook != nil {
		data.Value("isWebhook", *d.IsWebhook)
	}
	if d.IsSystem != nil {
		data.Value("isSystem", *d.IsSystem)
	}
	if d.Force {
		data.Value("force", true)
	}
	if d.ForceClaimedFrom != nil {
		data.Value("forceClaimedFrom", newHookClaim(*d.ForceClaimedFrom))
	}
	if d.ForceClaimedBy != nil {
		data.Value("forceClaimedBy", newHookRef(*d.ForceClaimedBy))
	}
	data.Text("forceRefusedReason", d.ForceRefused)
	if d.Attributes != nil {
		data.Value("attributes", d.Attributes)
	}
	if d.Changes != nil {
		data.Value("changes", wireChanges(d.Changes))
	}
	if d.AllowReserved {
		data.Value("allowReservedAttributes", true)
	}
}

// change is the wire form of an attribute change; a null value removes the attribute.
type change struct {
	Key   string  `cbor:"key"`
	Value *string `cbor:"value"`
}

func wireChanges(changes []entities.AttributeChange) []change {
	list := make([]change, len(changes))
	for i, c := range changes {
		list[i] = change(c)
	}
	return list
}

func attributeChanges(changes []change) []entities.AttributeChange {
	var list []entities.AttributeChange
	for _, c := range changes {
		list = append(list, entities.AttributeChange(c))
	}
	return list
}

// extraOf decodes the map of the data that the server stores as the client encoded it.
func extraOf(e entities.Event) (codec.Map, error) {
	if e.Extra == nil {
		return nil, nil
	}
	var extra codec.Map
	if err := codec.Unmarshal(e.Extra, &extra); err != nil {
		return nil, fmt.Errorf("decode event %s of %s: %w", e.ID(), e.RunID, err)
	}
	return extra, nil
}

// optional decodes data that the server only passes on. A value of another type than expected counts as missing: the
// client may send anything there.
func optional[T any](raw codec.Raw) (v T) {
	_ = codec.Unmarshal(raw, &v)
	return v
}

// meta is the part of a posted event's metadata that the server understands (§3.1).
type meta struct {
	EventType          string            `cbor:"eventType"`
	SpecVersion        codec.Int         `cbor:"specVersion"`
	OccurredAt         codec.Time        `cbor:"occurredAt"`
	RemoteRefBehavior  string            `cbor:"remoteRefBehavior"`
	CorrelationID      string            `cbor:"correlationId"`
	DeploymentID       string            `cbor:"deploymentId"`
	WorkflowName       string            `cbor:"workflowName"`
	Attributes         map[string]string `cbor:"attributes"`
	StepName           string            `cbor:"stepName"`
	Attempt            *codec.Int        `cbor:"attempt"`
	ResumeAt           codec.Time        `cbor:"resumeAt"`
	RetryAfter         codec.Time        `cbor:"retryAfter"`
	HookToken          string            `cbor:"hookToken"`
	HookIsWebhook      *bool             `cbor:"hookIsWebhook"`
	HookIsSystem       *bool             `cbor:"hookIsSystem"`
	HookRetentionUntil codec.Time        `cbor:"hookTokenRetentionUntil"`
	HookForce          bool              `cbor:"hookForce"`
	ResumeID           string            `cbor:"resumeId"`
	ResumeDigest       string            `cbor:"resumePayloadDigest"`
	ErrorCode          string            `cbor:"errorCode"`
	Changes            []change          `cbor:"changes"`
	AllowReserved      bool              `cbor:"allowReservedAttributes"`

	// Stored in the extra data too, but validated as text, because runs and hooks return it.
	PublicKey string `cbor:"encryptionPublicKey"`

	// Options for the excerpt of the log in the answer: see excerptFor.
	SkipPreload bool      `cbor:"skipPreload"`
	SinceCursor string    `cbor:"sinceCursor"`
	MaxSlot     codec.Int `cbor:"maxSlot"`
	// EventPayloads is which payloads the excerpt has. An unknown value counts as none.
	EventPayloads string `cbor:"eventsRemoteRefBehavior"`

	// InBand and SeqInBand are the fence: see [eventlog.Request].
	InBand    bool       `cbor:"inBand"`
	SeqInBand *codec.Int `cbor:"expectedSeqInBand"`

	// ExecutorVersion is the spec version of the app that executes the run. The run keeps its own.
	ExecutorVersion codec.Int `cbor:"executorSpecVersion"`
}

// notExtra are the metadata keys that do not become extra data: the fields of meta; the client's telemetry;
// stateUpdatedAt, a guard that has no use because event IDs contain no time (§3.10); and names in event data that only
// the server sets.
var notExtra = append(fieldsOf(reflect.TypeFor[meta]()),
	"optimizations", "rsfs", "finalSchedulingReplay", "ttfs", "stso", "stepCount", "eventCount",
	"stateUpdatedAt", "token", "isWebhook", "isSystem", "tokenRetentionUntil", "conflictingRunId",
	"force", "forceClaimedFrom", "forceClaimedBy", "forceRefusedReason",
	"input", "output", "result", "metadata", "payload",
)

// fieldsOf returns the CBOR names of the fields of a struct, except publicKey.
func fieldsOf(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("cbor"); name != publicKey {
			names = append(names, name)
		}
	}
	return names
}

// publicKey is the metadata field with the key that encrypts data for the run (§2.8).
const publicKey = "encryptionPublicKey"

// newRequest decodes a posted frame. Metadata that the server does not understand becomes extra data.
func newRequest(runID entities.RunID, frame codec.Frame, by fence) (eventlog.Request, meta, error) {
	var m meta
	var rest codec.Map
	if err := codec.Unmarshal(frame.Meta, &m); err != nil {
		return eventlog.Request{}, m, err
	}
	if err := codec.Unmarshal(frame.Meta, &rest); err != nil {
		return eventlog.Request{}, m, err
	}
	for _, key := range notExtra {
		delete(rest, key)
	}
	if m.PublicKey == "" {
		delete(rest, publicKey)
	}
	r := eventlog.Request{
		RunID: runID, Type: entities.EventType(m.EventType), CorrelationID: m.CorrelationID,
		SpecVersion: cmp.Or(int(m.SpecVersion), entities.SpecDriven), OccurredAt: given(m.OccurredAt), Data: m.data(),
	}
	if err := by.addTo(&r, m); err != nil {
		return r, m, err
	}
	if r.Type == entities.EventHookReceived {
		r.Data.Via = webhook.ViaSDK
	}
	if r.Type == entities.EventStoreSet { // only the functions that the server calls have a store
		return r, m, entities.Invalid("clients cannot write events of type %q", r.Type)
	}
	if r.Type == entities.EventAttrSet {
		if err := setWriter(rest); err != nil {
			return r, m, err
		}
	}
	if len(frame.Body) > 0 {
		r.Payload = frame.Body
	}
	if len(rest) > 0 {
		var err error
		if r.Extra, err = codec.Marshal(rest); err != nil {
			return r, m, err
		}
	}
	return r, m, nil
}

// setWriter validates the writer of an attr_set event, and sets a missing one to an outsider.
func setWriter(rest codec.Map) error {
	if rest["writer"] == nil {
		var err error
		rest["writer"], err = codec.Marshal(outsider)
		return err
	}
	if !validWriter(rest["writer"]) {
		return entities.Invalid("writer must be the workflow, or a step with stepId and attempt")
	}
	return nil
}

// validWriter reports whether the writer of an attr_set has one of the two forms that clients accept. They cannot read
// a log at all if an event in it has another form (§2.5).
func validWriter(raw codec.Raw) bool {
	var w struct {
		Type    string     `cbor:"type"`
		StepID  *string    `cbor:"stepId"`
		Attempt *codec.Int `cbor:"attempt"`
	}
	if codec.Unmarshal(raw, &w) != nil {
		return false
	}
	return w.Type == "workflow" || w.Type == "step" && w.StepID != nil && w.Attempt != nil
}

func (m meta) data() entities.EventData {
	d := entities.EventData{
		DeploymentID: m.DeploymentID, WorkflowName: m.WorkflowName, Attributes: m.Attributes, StepName: m.StepName,
		ResumeAt: given(m.ResumeAt), RetryAfter: given(m.RetryAfter),
		Token: m.HookToken, IsWebhook: m.HookIsWebhook, IsSystem: m.HookIsSystem,
		TokenRetentionUntil: given(m.HookRetentionUntil), Force: m.HookForce,
		ResumeID: m.ResumeID, ResumeDigest: m.ResumeDigest,
		ErrorCode: m.ErrorCode, Changes: attributeChanges(m.Changes), AllowReserved: m.AllowReserved,
	}
	if m.Attempt != nil {
		d.Attempt = new(int(*m.Attempt))
	}
	return d
}

// given returns a time of the metadata, or nil if the client did not send it.
func given(t codec.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.Time())
}
