package entities

import "time"

// Wait is a sleep of a run: the fold of its events. Its row is deleted when the run ends. For runs driven by the
// client, it is a mere record: the client schedules its own wake-up.
type Wait struct {
	RunID       RunID
	ID          WaitID
	Project     Project
	Status      WaitStatus
	SpecVersion int
	// ResumeAt is the time at which the wait ends.
	ResumeAt  *time.Time
	CreatedAt time.Time
	UpdatedAt time.Time
	// CompletedAt is set if and only if the wait is completed or cancelled.
	CompletedAt *time.Time
}
