package entities

import "time"

// Hook is a live hook of a run: a named place where it waits for payloads from outside. The metadata is
// the payload of the event at CreatedSeq.
type Hook struct {
	RunID   RunID
	ID      HookID
	Project Project
	// Token is what outsiders resume the hook by; unique per project while the hook lives.
	Token string
	// IsWebhook says that the app's public webhook route may resume the hook.
	IsWebhook bool
	// IsSystem says that the SDK made the hook for itself.
	IsSystem    bool
	SpecVersion int
	// CreatedSeq is the position of hook_created.
	CreatedSeq int64
	CreatedAt  time.Time
	// RetainUntil is until when the token is to stay taken even if the run ends before.
	RetainUntil *time.Time
	// ExpiresAt is set when the run has ended before RetainUntil: the hook can no longer be resumed, but is
	// there, and holds its token, until then.
	ExpiresAt *time.Time
	// Signal is the name of the signals that resume the hook, and Condition a CEL expression that must be
	// true of them; empty for none.
	Signal    string
	Condition string
}

// Holds reports whether the hook still holds its token at the given time.
func (h Hook) Holds(at time.Time) bool { return h.ExpiresAt == nil || h.ExpiresAt.After(at) }
