package entities

import "time"

// Step is one step of a run, as the fold of its events. Its payloads are not here: the input is that of
// the event at CreatedSeq, the output or the last error that of the event at ResultSeq.
type Step struct {
	RunID  RunID
	ID     StepID
	Name   string
	Status StepStatus
	// Attempt counts the starts; 0 until the first. The limit and what follows are the client's choice.
	Attempt     int
	SpecVersion int
	// CreatedSeq is the position of step_created.
	CreatedSeq int64
	// ResultSeq is the position of the last step_completed, step_failed or step_retrying; 0 before one.
	ResultSeq int64
	CreatedAt time.Time
	UpdatedAt time.Time
	// StartedAt is the time of the first start.
	StartedAt *time.Time
	// CompletedAt is set exactly when the step is completed or failed.
	CompletedAt *time.Time
	// RetryAfter is the earliest time of the next attempt; cleared by the start.
	RetryAfter *time.Time
}
