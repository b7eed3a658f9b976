package wire

import (
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
)

// runFields are the fields of a run that lists of analytics have too.
type runFields struct {
	RunID        string            `cbor:"runId"`
	Status       string            `cbor:"status"`
	DeploymentID string            `cbor:"deploymentId"`
	WorkflowName string            `cbor:"workflowName"`
	SpecVersion  codec.Int         `cbor:"specVersion"`
	Attributes   map[string]string `cbor:"attributes"`
	ErrorCode    string            `cbor:"errorCode,omitzero"`
	CreatedAt    codec.Time        `cbor:"createdAt"`
	UpdatedAt    codec.Time        `cbor:"updatedAt"`
	StartedAt    codec.Time        `cbor:"startedAt,omitzero"`
	CompletedAt  codec.Time        `cbor:"completedAt,omitzero"`
}

func newRunFields(r entities.Run) runFields {
	return runFields{
		string(r.ID), string(r.Status), r.DeploymentID, r.WorkflowName, codec.Int(r.SpecVersion), r.Attributes, r.ErrorCode,
		codec.NewTime(r.CreatedAt), codec.NewTime(r.UpdatedAt), optionalTime(r.StartedAt), optionalTime(r.CompletedAt),
	}
}

// run is the wire form of a run (§2.5). Optional fields are omitted, never null.
type run struct {
	runFields

	ExecutionContext codec.Raw   `cbor:"executionContext,omitzero"`
	PublicKey        string      `cbor:"encryptionPublicKey,omitzero"`
	Input            codec.Bytes `cbor:"input,omitzero"`
	Output           codec.Bytes `cbor:"output,omitzero"`
	Error            any         `cbor:"error,omitzero"`
}

// newRun makes the wire form of a run. Its first and last event, if not nil, complete it.
func newRun(r entities.Run, first, end *entities.Event) (run, error) {
	w := run{runFields: newRunFields(r)}
	if first != nil {
		extra, err := extraOf(*first)
		if err != nil {
			return run{}, err
		}
		w.ExecutionContext, w.Input = extra["executionContext"], first.Payload
		w.PublicKey = optional[string](extra[publicKey])
	}
	if end == nil {
		return w, nil
	}
	switch end.Type {
	case entities.EventRunCompleted:
		w.Output = end.Payload
	case entities.EventRunFailed:
		var err error
		if w.Error, err = failureOf(*end); err != nil {
			return run{}, err
		}
	default: // a cancelled run has neither output nor error
	}
	return w, nil
}

// stepFields are the fields of a step that lists of analytics have too.
type stepFields struct {
	RunID       string     `cbor:"runId"`
	StepID      string     `cbor:"stepId"`
	StepName    string     `cbor:"stepName"`
	Status      string     `cbor:"status"`
	Attempt     codec.Int  `cbor:"attempt"`
	CreatedAt   codec.Time `cbor:"createdAt"`
	UpdatedAt   codec.Time `cbor:"updatedAt"`
	StartedAt   codec.Time `cbor:"startedAt,omitzero"`
	CompletedAt codec.Time `cbor:"completedAt,omitzero"`
	RetryAfter  codec.Time `cbor:"retryAfter,omitzero"`
}

func newStepFields(s entities.Step) stepFields {
	return stepFields{
		string(s.RunID), string(s.ID), s.Name, string(s.Status), codec.Int(s.Attempt), codec.NewTime(s.CreatedAt),
		codec.NewTime(s.UpdatedAt), optionalTime(s.StartedAt), optionalTime(s.CompletedAt), optionalTime(s.RetryAfter),
	}
}

type step struct {
	stepFields

	SpecVersion codec.Int   `cbor:"specVersion"`
	Input       codec.Bytes `cbor:"input,omitzero"`
	Output      codec.Bytes `cbor:"output,omitzero"`
	Error       any         `cbor:"error,omitzero"`
}

// newStep makes the wire form of a step. The events of its creation and its result, if not nil, complete it.
func newStep(s entities.Step, created, result *entities.Event) (step, error) {
	w := step{stepFields: newStepFields(s), SpecVersion: codec.Int(s.SpecVersion)}
	if created != nil {
		w.Input = created.Payload
	}
	if result == nil {
		return w, nil
	}
	if result.Type == entities.EventStepCompleted {
		w.Output = result.Payload
		return w, nil
	}
	var err error
	w.Error, err = failureOf(*result)
	return w, err
}

// hook is the wire form of a hook. Owner and environment exist only in the hosted service and stay empty.
type hook struct {
	RunID       string      `cbor:"runId"`
	HookID      string      `cbor:"hookId"`
	Token       string      `cbor:"token"`
	OwnerID     string      `cbor:"ownerId"`
	ProjectID   string      `cbor:"projectId"`
	Environment string      `cbor:"environment"`
	IsWebhook   bool        `cbor:"isWebhook"`
	IsSystem    bool        `cbor:"isSystem,omitzero"`
	SpecVersion codec.Int   `cbor:"specVersion"`
	Metadata    codec.Bytes `cbor:"metadata,omitzero"`
	CreatedAt   codec.Time  `cbor:"createdAt"`
	RetainUntil codec.Time  `cbor:"tokenRetentionUntil,omitzero"`
	ClaimedFrom *hookClaim  `cbor:"claimedFrom,omitzero"`
}

// hookRef is the wire form of the name of a hook.
type hookRef struct {
	RunID  string `cbor:"runId"`
	HookID string `cbor:"hookId"`
}

func newHookRef(h entities.HookRef) hookRef { return hookRef{string(h.RunID), string(h.HookID)} }

// hookClaim is the wire form of a hook that has lost its token.
type hookClaim struct {
	hookRef

	WorkflowName string    `cbor:"workflowName"`
	DeploymentID string    `cbor:"deploymentId"`
	SpecVersion  codec.Int `cbor:"runSpecVersion"`
}

func newHookClaim(c entities.HookClaim) hookClaim {
	return hookClaim{newHookRef(c.HookRef), c.WorkflowName, c.DeploymentID, codec.Int(c.SpecVersion)}
}

// newHook makes the wire form of a hook. The event of its creation, if not nil, completes it.
func newHook(h entities.Hook, created *entities.Event) hook {
	w := hook{
		RunID: string(h.RunID), HookID: string(h.ID), Token: h.Token, ProjectID: string(h.Project),
		IsWebhook: h.IsWebhook, IsSystem: h.IsSystem, SpecVersion: codec.Int(h.SpecVersion),
		CreatedAt: codec.NewTime(h.CreatedAt), RetainUntil: optionalTime(h.RetainUntil),
	}
	if h.ClaimedFrom != nil {
		w.ClaimedFrom = new(newHookClaim(*h.ClaimedFrom))
	}
	if created != nil {
		w.Metadata = created.Payload
	}
	return w
}

type wait struct {
	WaitID      string     `cbor:"waitId"`
	RunID       string     `cbor:"runId"`
	Status      string     `cbor:"status"`
	SpecVersion codec.Int  `cbor:"specVersion"`
	ResumeAt    codec.Time `cbor:"resumeAt,omitzero"`
	CreatedAt   codec.Time `cbor:"createdAt"`
	UpdatedAt   codec.Time `cbor:"updatedAt"`
	CompletedAt codec.Time `cbor:"completedAt,omitzero"`
}

func newWait(w entities.Wait) wait {
	return wait{
		WaitID: string(w.RunID) + "-" + string(w.ID), RunID: string(w.RunID), Status: string(w.Status),
		SpecVersion: codec.Int(w.SpecVersion), ResumeAt: optionalTime(w.ResumeAt),
		CreatedAt: codec.NewTime(w.CreatedAt), UpdatedAt: codec.NewTime(w.UpdatedAt),
		CompletedAt: optionalTime(w.CompletedAt),
	}
}

// optionalTime returns the zero time, which is omitted, for nil.
func optionalTime(t *time.Time) codec.Time {
	if t == nil {
		return codec.Time{}
	}
	return codec.NewTime(*t)
}

// failure is the wire form of an error that a client of the stable line sent in the metadata (§3.6, §3.7).
type failure struct {
	Message string `cbor:"message"`
	Stack   string `cbor:"stack,omitzero"`
	Code    string `cbor:"code,omitzero"`
}

// failureOf returns the error of a failed or retrying event: its payload, or the error in its metadata.
func failureOf(e entities.Event) (any, error) {
	if len(e.Payload) > 0 {
		return codec.Bytes(e.Payload), nil
	}
	extra, err := extraOf(e)
	if err != nil {
		return nil, err
	}
	f := failure{Message: "Unknown error", Code: e.Data.ErrorCode, Stack: optional[string](extra["stack"])}
	if codec.Unmarshal(extra["error"], &f.Message) == nil {
		return f, nil
	}
	var given struct {
		Message *string `cbor:"message"`
		Stack   string  `cbor:"stack"`
	}
	if codec.Unmarshal(extra["error"], &given) == nil {
		if given.Message != nil {
			f.Message = *given.Message
		}
		if given.Stack != "" {
			f.Stack = given.Stack
		}
	}
	return f, nil
}
