package stepwell

import (
	"cmp"
	"time"
)

// StepOption configures a step, where it is declared or where it is run.
type StepOption func(*stepOptions)

type stepOptions struct {
	id             string
	deployment     string
	timeout        time.Duration
	attemptTimeout time.Duration
	retry          retry
	first, longest time.Duration // pauses between attempts; 0: the default
	remote         bool
	durable        bool
	// undo adds a compensation of the step to the handle's saga.
	undo func(w *W, in, future any)
}

// retry is the policy of retries, as the contract describes it.
type retry struct {
	MaxAttempts int     `json:"maxAttempts,omitempty"`
	Backoff     string  `json:"backoff,omitempty"`
	Factor      float64 `json:"factor,omitempty"`
	MaxBackoff  string  `json:"maxBackoff,omitempty"`
}

// ID sets the ID of a step in its run. By default it is made from the place: the name, and the names of the enclosing
// coroutines and items.
func ID(id string) StepOption { return func(o *stepOptions) { o.id = id } }

// Attempts sets how often a step is tried; 5 by default.
func Attempts(n int) StepOption { return func(o *stepOptions) { o.retry.MaxAttempts = n } }

// Backoff sets the pause after the first failed attempt, which doubles with each further one up to the longest. By default
// they are a second and five minutes.
func Backoff(first, longest time.Duration) StepOption {
	return func(o *stepOptions) {
		o.first, o.longest = first, longest
		o.retry.Backoff, o.retry.MaxBackoff = first.String(), longest.String()
	}
}

// AttemptTimeout limits one attempt, from a second to 12 hours; 5 minutes by default.
func AttemptTimeout(d time.Duration) StepOption {
	return func(o *stepOptions) { o.attemptTimeout = d }
}

// Timeout limits the whole step, including its time in the queue and between attempts. The step then fails with
// [ErrTimeout].
func Timeout(d time.Duration) StepOption { return func(o *stepOptions) { o.timeout = d } }

// OnDeployment runs the step by another deployment than the run's.
func OnDeployment(id string) StepOption { return func(o *stepOptions) { o.deployment = id } }

// Remote makes all attempts of the step calls of its own. By default the first attempt is made where the workflow runs,
// unless there is too little time left, or an earlier call has failed, perhaps because of this step.
func Remote() StepOption { return func(o *stepOptions) { o.remote = true } }

// durable puts the result on disk before the next step begins, in batches as well.
func durable(o *stepOptions) { o.durable = true }

// The policy of retries if nothing is set, as the contract has it.
const (
	defaultAttempts = 5
	defaultFirst    = time.Second
	defaultLongest  = 5 * time.Minute
	// leastInline is how much time must be left for an inline attempt without a limit of its own.
	leastInline = time.Minute
)

func (o stepOptions) attempts() int { return max(cmp.Or(o.retry.MaxAttempts, defaultAttempts), 1) }

// inlineTime is how much time must be left for an inline attempt.
func (o stepOptions) inlineTime() time.Duration { return cmp.Or(o.attemptTimeout, leastInline) }

// pause returns the pause after a number of failed attempts.
func (o stepOptions) pause(failed int) time.Duration {
	pause, longest := cmp.Or(o.first, defaultFirst), cmp.Or(o.longest, defaultLongest)
	for range failed - 1 {
		if pause >= longest {
			break
		}
		pause *= 2
	}
	return min(pause, longest)
}

func collect(options ...[]StepOption) (o stepOptions) {
	for _, list := range options {
		for _, set := range list {
			set(&o)
		}
	}
	return o
}
