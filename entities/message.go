package entities

import "time"

// Work is something the server itself has to do about a run. It is kept in the queue, as messages are.
type Work string

// The kinds of work.
const (
	// WorkNone is that of messages for functions that know what they mean.
	WorkNone Work = ""
	// WorkRun is to invoke the function of a run, because the run can move. It is there whenever that is so,
	// or will be at a certain time.
	WorkRun Work = "run"
	// WorkStep is to have the step that is the subject executed.
	WorkStep Work = "step"
	// WorkDeadline is to fail the run if it has not ended.
	WorkDeadline Work = "deadline"
	// WorkReport is to tell the run how the child ended that its step, the subject, waits for.
	WorkReport Work = "report"
	// WorkEnd is what the end of a run leaves to do: whatever other work there is about it is off, and its
	// children end with it.
	WorkEnd Work = "end"
	// WorkSignal is to hand a signal, the subject, to the hooks that wait for it.
	WorkSignal Work = "signal"
	// WorkLookBack is to hand a hook, the subject, the signals that came before it.
	WorkLookBack Work = "lookback"
)

// Message is something to be delivered to a function of a deployment, at least once.
type Message struct {
	Project Project
	// Topic is the queue name as it stands in URLs.
	Topic string
	// DeploymentID says whose functions get it.
	DeploymentID string
	// RunID is the run the message is about, when the sender says; the server reads nothing into it.
	RunID RunID
	// ContentType and Body come back as they were sent (I10).
	ContentType string
	Body        []byte
	// Key makes the message one: a second one with the same project, deployment, topic and key is the
	// first again, until Retention is over. Empty for messages that are never duplicates.
	Key string
	// Work says that it is no message for a function, but something for the server itself to do about the run,
	// and Subject what of the run it is about. There is never more than one of the same run, work and subject.
	Work    Work
	Subject string
	// Delay is how long to wait before the first delivery. It is never delivered earlier.
	Delay time.Duration
	// Lasts is how long doing the work may take, where that is known; 0 where it is not.
	Lasts time.Duration
	// Retention is how long the key is remembered, counted from the end of the delay.
	Retention time.Duration
}
