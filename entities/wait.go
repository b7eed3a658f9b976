package entities

import "time"

// Wait is a sleep of a run. The client schedules its own wake-up, so the server only keeps the record;
// it is deleted with the end of the run.
type Wait struct {
	RunID       RunID
	ID          WaitID
	Status      WaitStatus
	SpecVersion int
	// ResumeAt is when the wait is over, as the client said.
	ResumeAt  *time.Time
	CreatedAt time.Time
	UpdatedAt time.Time
	// CompletedAt is set exactly when the wait is completed.
	CompletedAt *time.Time
}
