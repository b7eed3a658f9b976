package wire

import (
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
)

// run is the wire form of a run (§2.5). Optional fields are left out, never null.
type run struct {
	RunID            string            `cbor:"runId"`
	Status           string            `cbor:"status"`
	DeploymentID     string            `cbor:"deploymentId"`
	WorkflowName     string            `cbor:"workflowName"`
	SpecVersion      codec.Int         `cbor:"specVersion"`
	ExecutionContext codec.Raw         `cbor:"executionContext,omitzero"`
	Attributes       map[string]string `cbor:"attributes"`
	PublicKey        string            `cbor:"encryptionPublicKey,omitzero"`
	Input            codec.Bytes       `cbor:"input,omitzero"`
	Output           codec.Bytes       `cbor:"output,omitzero"`
	Error            any               `cbor:"error,omitzero"`
	ErrorCode        string            `cbor:"errorCode,omitzero"`
	CreatedAt        codec.Time        `cbor:"createdAt"`
	UpdatedAt        codec.Time        `cbor:"updatedAt"`
	StartedAt        codec.Time        `cbor:"startedAt,omitzero"`
	CompletedAt      codec.Time        `cbor:"completedAt,omitzero"`
}

// newRun makes the wire form from a run and what is at hand of its first and its last event.
func newRun(r entities.Run, first, end *entities.Event) (run, error) {
	w := run{
		RunID: string(r.ID), Status: string(r.Status), DeploymentID: r.DeploymentID, WorkflowName: r.WorkflowName,
		SpecVersion: codec.Int(r.SpecVersion), Attributes: r.Attributes, ErrorCode: r.ErrorCode,
		CreatedAt: codec.NewTime(r.CreatedAt), UpdatedAt: codec.NewTime(r.UpdatedAt),
		StartedAt: optionalTime(r.StartedAt), CompletedAt: optionalTime(r.CompletedAt),
	}
	if first != nil {
		extra, err := extraOf(*first)
		if err != nil {
			return run{}, err
		}
		w.ExecutionContext, w.Input = extra["executionContext"], first.Payload
		_ = codec.Unmarshal(extra[publicKey], &w.PublicKey) // there is none, or it is a text: see newRequest
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
	default: // a cancelled run has neither
	}
	return w, nil
}

// step is the wire form of a step.
type step struct {
	RunID       string      `cbor:"runId"`
	StepID      string      `cbor:"stepId"`
	StepName    string      `cbor:"stepName"`
	Status      string      `cbor:"status"`
	Attempt     codec.Int   `cbor:"attempt"`
	SpecVersion codec.Int   `cbor:"specVersion"`
	Input       codec.Bytes `cbor:"input,omitzero"`
	Output      codec.Bytes `cbor:"output,omitzero"`
	Error       any         `cbor:"error,omitzero"`
	CreatedAt   codec.Time  `cbor:"createdAt"`
	UpdatedAt   codec.Time  `cbor:"updatedAt"`
	StartedAt   codec.Time  `cbor:"startedAt,omitzero"`
	CompletedAt codec.Time  `cbor:"completedAt,omitzero"`
	RetryAfter  codec.Time  `cbor:"retryAfter,omitzero"`
}

// newStep makes the wire form from a step and what is at hand of the events that made it and its result.
func newStep(s entities.Step, created, result *entities.Event) (step, error) {
	w := step{
		RunID: string(s.RunID), StepID: string(s.ID), StepName: s.Name, Status: string(s.Status),
		Attempt: codec.Int(s.Attempt), SpecVersion: codec.Int(s.SpecVersion),
		CreatedAt: codec.NewTime(s.CreatedAt), UpdatedAt: codec.NewTime(s.UpdatedAt),
		StartedAt: optionalTime(s.StartedAt), CompletedAt: optionalTime(s.CompletedAt),
		RetryAfter: optionalTime(s.RetryAfter),
	}
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

// hook is the wire form of a hook. Its owner and environment are the hosted service's notions.
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
}

// newHook makes the wire form from a hook and what is at hand of the event that made it.
func newHook(h entities.Hook, created *entities.Event) hook {
	w := hook{
		RunID: string(h.RunID), HookID: string(h.ID), Token: h.Token, ProjectID: string(h.Project),
		IsWebhook: h.IsWebhook, IsSystem: h.IsSystem, SpecVersion: codec.Int(h.SpecVersion),
		CreatedAt: codec.NewTime(h.CreatedAt), RetainUntil: optionalTime(h.RetainUntil),
	}
	if created != nil {
		w.Metadata = created.Payload
	}
	return w
}

// wait is the wire form of a wait.
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

func optionalTime(t *time.Time) codec.Time {
	if t == nil {
		return codec.Time{}
	}
	return codec.NewTime(*t)
}

// failure is the wire form of an error that the stable line sent in the metadata (§3.6, §3.7).
type failure struct {
	Message string `cbor:"message"`
	Stack   string `cbor:"stack,omitzero"`
	Code    string `cbor:"code,omitzero"`
}

// failureOf is the error of a failed or retrying event: the bytes it came as, or else what its metadata says.
func failureOf(e entities.Event) (any, error) {
	if len(e.Payload) > 0 {
		return codec.Bytes(e.Payload), nil
	}
	extra, err := extraOf(e)
	if err != nil {
		return nil, err
	}
	f := failure{Message: "Unknown error", Code: e.Data.ErrorCode}
	// Each may be of another shape than we look for; then it says nothing.
	_ = codec.Unmarshal(extra["stack"], &f.Stack)
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
