package entities

import "time"

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
	// Delay is how long to wait before the first delivery. It is never delivered earlier.
	Delay time.Duration
	// Retention is how long the key is remembered, counted from the end of the delay.
	Retention time.Duration
}
