package entities

import (
	"slices"
	"strconv"
	"time"

	"github.com/stepwell-dev/stepwell/entities/backoff"
)

// Step is a step of a run: the fold of its events. Payloads stay in the log: the input in the event at CreatedSeq, the
// output or the last error in the event at ResultSeq.
type Step struct {
	RunID  RunID
	ID     StepID
	Name   string
	Status StepStatus
	// Attempt counts the starts; 0 before the first. The client decides how many are allowed.
	Attempt     int
	SpecVersion int
	// CreatedSeq is the position of step_created.
	CreatedSeq int64
	// ResultSeq is the position of the last step_completed, step_failed or step_retrying; 0 before the first.
	ResultSeq int64
	CreatedAt time.Time
	UpdatedAt time.Time
	// StartedAt is the time of the first start.
	StartedAt *time.Time
	// CompletedAt is set if and only if the step is completed or failed.
	CompletedAt *time.Time
	// RetryAfter is the earliest time of the next attempt; cleared when that starts.
	RetryAfter *time.Time
}

// StepSpec specifies how the server executes a step. All durations are in milliseconds.
type StepSpec struct {
	// DeploymentID is the deployment whose function executes the step; empty if a child run does.
	DeploymentID string `json:"deploymentId,omitempty"`
	// ChildID is the child run whose result becomes the step's; empty if a function executes the step.
	ChildID RunID `json:"childId,omitempty"`
	// Deadline is the time at which the step fails if it has no result, whatever its status; nil for none.
	Deadline *time.Time `json:"deadline,omitempty"`
	// AttemptTimeoutMS is the timeout of one attempt.
	AttemptTimeoutMS int64 `json:"attemptTimeoutMs,omitempty"`
	// HeartbeatTimeoutMS is how long the function may send no heartbeat during an attempt; 0 if it need not send any.
	HeartbeatTimeoutMS int64 `json:"heartbeatTimeoutMs,omitempty"`
	// MaxAttempts is the number of attempts after which the step fails. Attempts that did not reach the function do not
	// count.
	MaxAttempts int `json:"maxAttempts,omitempty"`
	// BackoffMS is the pause after the first attempt. Each further pause is Factor times as long as the one before, but
	// at most MaxBackoffMS.
	BackoffMS    int64   `json:"backoffMs,omitempty"`
	Factor       float64 `json:"factor,omitempty"`
	MaxBackoffMS int64   `json:"maxBackoffMs,omitempty"`
	// HTTP is set if the step is an HTTP request that the server makes itself; nil if a function executes the step.
	HTTP *HTTPSpec `json:"http,omitempty"`
	// Async says that the function may accept the step with the status 202, and have its result sent until Deadline.
	Async bool `json:"async,omitempty"`
	// Limits are the limits of which each attempt needs a slot; nil for none. PriorityMS is by how many milliseconds the
	// step goes before those that came with it.
	Limits     []LimitUse `json:"limits,omitempty"`
	PriorityMS int64      `json:"priorityMs,omitempty"`
}

// HTTPSpec says what the status of the answer to an HTTP step means. A status is three digits, or one and "xx".
type HTTPSpec struct {
	// Success are the statuses that complete the step; empty for 2xx.
	Success []string `json:"success,omitempty"`
	// Retry are the other statuses after which the request is repeated; empty for 408, 425, 429 and 5xx.
	Retry []string `json:"retry,omitempty"`
}

// Outcome reports what a status means for the step: whether it completes, and otherwise whether to try again.
func (s HTTPSpec) Outcome(status int) (success, retry bool) {
	in := func(list, otherwise []string) bool {
		if len(list) == 0 {
			list = otherwise
		}
		text := strconv.Itoa(status)
		return slices.Contains(list, text) || slices.Contains(list, text[:1]+"xx")
	}
	return in(s.Success, []string{"2xx"}), in(s.Retry, []string{"408", "425", "429", "5xx"})
}

// Late reports whether the deadline has passed.
func (s StepSpec) Late(now time.Time) bool {
	return s.Deadline != nil && !s.Deadline.After(now)
}

// AttemptTimeout returns how long to wait for the response to an attempt.
func (s StepSpec) AttemptTimeout(now time.Time) time.Duration {
	return s.Within(time.Duration(s.AttemptTimeoutMS)*time.Millisecond, now)
}

// Within returns the duration, shortened to the time until the deadline.
func (s StepSpec) Within(d time.Duration, now time.Time) time.Duration {
	if s.Deadline == nil {
		return d
	}
	return max(0, min(d, s.Deadline.Sub(now)))
}

// Backoff returns the pause after the given number of attempts.
func (s StepSpec) Backoff(attempts int) time.Duration {
	first, longest := time.Duration(s.BackoffMS)*time.Millisecond, time.Duration(s.MaxBackoffMS)*time.Millisecond
	return backoff.Pause(first, longest, s.Factor, attempts)
}
