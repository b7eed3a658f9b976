package wire

import (
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

// The rows of analytics lists (§2.7): entities without their payloads, for the dashboard. Optional fields are omitted,
// never null.

// madeBy holds the fields of every row about the code that started the run.
type madeBy struct {
	// CoreVersion is the version of the SDK; empty if unknown.
	CoreVersion string `cbor:"workflowCoreVersion,omitzero"`
	// Encrypted is whether payloads are encrypted; nil if unknown.
	Encrypted *bool `cbor:"workflowEncryptionEnabled,omitzero"`
}

type runRow struct {
	runFields
	madeBy
}

func newRunRow(o origin) runRow { return runRow{newRunFields(o.run), o.madeBy} }

type stepRow struct {
	stepFields

	ErrorCode string `cbor:"errorCode,omitzero"`
	// ComputeInstanceID identifies the machine of the latest attempt.
	ComputeInstanceID string `cbor:"computeInstanceId,omitzero"`
	madeBy
}

func newStepRow(o origin, s entities.Step, errorCode string, start entities.Event) (stepRow, error) {
	extra, err := extraOf(start)
	return stepRow{newStepFields(s), errorCode, optional[string](extra["computeInstanceId"]), o.madeBy}, err
}

type eventRow struct {
	RunID         string     `cbor:"runId"`
	EventID       string     `cbor:"eventId"`
	EventType     string     `cbor:"eventType"`
	CorrelationID string     `cbor:"correlationId,omitzero"`
	EntityID      string     `cbor:"entityId,omitzero"`
	StepName      string     `cbor:"stepName,omitzero"`
	WorkflowName  string     `cbor:"workflowName"`
	DeploymentID  string     `cbor:"deploymentId"`
	SpecVersion   codec.Int  `cbor:"specVersion"`
	RunCreatedAt  codec.Time `cbor:"runCreatedAt"`
	CreatedAt     codec.Time `cbor:"createdAt"`
	ResumeAt      codec.Time `cbor:"resumeAt,omitzero"`
	RetryAfter    codec.Time `cbor:"retryAfter,omitzero"`
	ErrorCode     string     `cbor:"errorCode,omitzero"`
	IsWebhook     *bool      `cbor:"isWebhook,omitzero"`
	IsSystem      *bool      `cbor:"isSystem,omitzero"`
	// VercelID and ComputeInstanceID identify the machine of the writer, as the writer sent them.
	VercelID          string `cbor:"vercelId,omitzero"`
	ComputeInstanceID string `cbor:"computeInstanceId,omitzero"`
	madeBy
}

func newEventRow(o origin, e entities.Event) (eventRow, error) {
	extra, err := extraOf(e)
	row := eventRow{
		RunID: string(e.RunID), EventID: string(e.ID()), EventType: string(e.Type), CorrelationID: e.CorrelationID,
		StepName: e.Data.StepName, WorkflowName: o.run.WorkflowName, DeploymentID: o.run.DeploymentID,
		SpecVersion: codec.Int(e.SpecVersion), RunCreatedAt: codec.NewTime(o.run.CreatedAt),
		CreatedAt: codec.NewTime(e.CreatedAt), ResumeAt: optionalTime(e.Data.ResumeAt),
		RetryAfter: optionalTime(e.Data.RetryAfter), ErrorCode: e.Data.ErrorCode, IsWebhook: e.Data.IsWebhook,
		IsSystem: e.Data.IsSystem, VercelID: optional[string](extra["vercelId"]),
		ComputeInstanceID: optional[string](extra["computeInstanceId"]), madeBy: o.madeBy,
	}
	if e.Type.Kind() != entities.KindRun {
		row.EntityID = e.CorrelationID
	}
	return row, err
}

func eventRows(o origin, events []entities.Event) ([]eventRow, error) {
	rows := make([]eventRow, len(events))
	for i, e := range events {
		var err error
		if rows[i], err = newEventRow(o, e); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// hookRow is the row of a hook that exists, is disposed, or was rejected because its token was taken.
type hookRow struct {
	RunID      string     `cbor:"runId"`
	HookID     string     `cbor:"hookId"`
	Status     string     `cbor:"status"`
	CreatedAt  codec.Time `cbor:"createdAt"`
	UpdatedAt  codec.Time `cbor:"updatedAt"`
	ReceivedAt codec.Time `cbor:"receivedAt,omitzero"`
	DisposedAt codec.Time `cbor:"disposedAt,omitzero"`
	IsWebhook  *bool      `cbor:"isWebhook,omitzero"`
	IsSystem   *bool      `cbor:"isSystem,omitzero"`
	madeBy
}

func newHookRow(o origin, h read.HookHistory) hookRow {
	status := "created"
	switch {
	case h.Type == entities.EventHookConflict:
		status = "conflict"
	case h.DisposedAt != nil:
		status = "disposed"
	case h.ReceivedAt != nil:
		status = "received"
	}
	return hookRow{
		RunID: string(h.RunID), HookID: string(h.ID), Status: status,
		CreatedAt: codec.NewTime(h.CreatedAt), UpdatedAt: latest(h.CreatedAt, h.ReceivedAt, h.DisposedAt),
		ReceivedAt: optionalTime(h.ReceivedAt), DisposedAt: optionalTime(h.DisposedAt),
		IsWebhook: h.Data.IsWebhook, IsSystem: h.Data.IsSystem, madeBy: o.madeBy,
	}
}

// waitRow is the row of a wait, even if the run ended before the wait was over.
type waitRow struct {
	RunID       string     `cbor:"runId"`
	WaitID      string     `cbor:"waitId"`
	Status      string     `cbor:"status"`
	ResumeAt    codec.Time `cbor:"resumeAt,omitzero"`
	CreatedAt   codec.Time `cbor:"createdAt"`
	UpdatedAt   codec.Time `cbor:"updatedAt"`
	CompletedAt codec.Time `cbor:"completedAt,omitzero"`
	madeBy
}

func newWaitRow(o origin, w read.WaitHistory) waitRow {
	return waitRow{
		RunID: string(w.RunID), WaitID: string(w.ID), Status: string(w.Status()),
		ResumeAt: optionalTime(w.Data.ResumeAt), CreatedAt: codec.NewTime(w.CreatedAt),
		UpdatedAt: latest(w.CreatedAt, w.CompletedAt), CompletedAt: optionalTime(w.CompletedAt), madeBy: o.madeBy,
	}
}

// attributeRow is the row of an attribute key.
type attributeRow struct {
	Key         string     `cbor:"key"`
	RunCount    codec.Int  `cbor:"runCount"`
	FirstSeenAt codec.Time `cbor:"firstSeenAt"`
	LastSeenAt  codec.Time `cbor:"lastSeenAt"`
}

func newAttributeRow(k store.AttributeKey) attributeRow {
	return attributeRow{
		Key: k.Key, RunCount: codec.Int(k.Runs),
		FirstSeenAt: codec.NewTime(k.FirstSeen), LastSeenAt: codec.NewTime(k.LastSeen),
	}
}

// latest returns the latest of the times. It ignores nil ones.
func latest(t time.Time, others ...*time.Time) codec.Time {
	for _, other := range others {
		if other != nil && other.After(t) {
			t = *other
		}
	}
	return codec.NewTime(t)
}
