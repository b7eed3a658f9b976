package entities

import "time"

// Hook is an active hook of a run, through which outsiders send it payloads: the fold of its events. A hook has a row
// only while it holds its token. Its metadata is the payload of the event at CreatedSeq.
type Hook struct {
	RunID   RunID
	ID      HookID
	Project Project
	// Token is the name by which outsiders resume the hook; unique in the project among hooks that hold their token.
	Token string
	// IsWebhook says that the app's public webhook route may resume the hook.
	IsWebhook bool
	// IsSystem says that the SDK created the hook for itself.
	IsSystem    bool
	SpecVersion int
	// CreatedSeq is the position of hook_created.
	CreatedSeq int64
	CreatedAt  time.Time
	// RetainUntil is the time until which the hook keeps its token even if the run ends earlier.
	RetainUntil *time.Time
	// ExpiresAt is set if the run ended before RetainUntil. The hook can no longer be resumed, but holds its token
	// until this time.
	ExpiresAt *time.Time
	// Signal is the name of the signals that resume the hook, and Condition a CEL expression that is true for those
	// that do; empty for none.
	Signal    string
	Condition string
	// ClaimedFrom is the hook from which this one has taken its token over; nil for none.
	ClaimedFrom *HookClaim
}

// HookRef names a hook of a run.
type HookRef struct {
	RunID  RunID  `json:"runId"`
	HookID HookID `json:"hookId"`
}

// HookClaim is a hook that has lost its token to the hook of another run, and what that run's client needs to wake the
// run that had it.
type HookClaim struct {
	HookRef

	WorkflowName string `json:"workflowName"`
	DeploymentID string `json:"deploymentId"`
	SpecVersion  int    `json:"runSpecVersion"`
}

// Holds reports whether the hook holds its token at the given time.
func (h Hook) Holds(at time.Time) bool { return h.ExpiresAt == nil || h.ExpiresAt.After(at) }

// WebhookSpec specifies how a hook receives webhooks.
type WebhookSpec struct {
	// Verify is the scheme by which requests must be signed (see package webhook), and Secret the name of the project's
	// secret for it. Both are empty if requests need no signature.
	Verify string `json:"verify,omitempty"`
	Secret string `json:"secret,omitempty"`
	// RespondMS is how many milliseconds a request waits for the workflow's response; 0 to respond at once.
	RespondMS int64 `json:"respondMs,omitempty"`
}
