// Package continuation builds the message that makes a client of the Workflow SDK continue a run. The client replays
// the run's log and goes on from there.
package continuation

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/entities/message"
)

// body has the required fields of a workflow message (protocol §5.2).
type body struct {
	DeploymentID string `cbor:"deploymentId" json:"deploymentId"`
	Payload      struct {
		RunID entities.RunID `cbor:"runId" json:"runId"`
	} `cbor:"payload" json:"payload"`
	QueueName string `cbor:"queueName" json:"queueName"`
}

// Of returns the message that makes the run's client continue it. It is the message that the client itself would send,
// without the optional fields (protocol §5.2, §7).
func Of(r entities.Run) (message.Message, error) {
	queueName := entities.WorkflowTopic + r.WorkflowName
	m := message.Message{
		Project: r.Project, Topic: Topic(queueName), DeploymentID: r.DeploymentID, RunID: r.ID,
		ContentType: "application/cbor",
	}
	encode := codec.Marshal
	if r.SpecVersion < entities.SpecCBOR {
		encode, m.ContentType = json.Marshal, "application/json"
	}
	b := body{DeploymentID: r.DeploymentID, QueueName: queueName}
	b.Payload.RunID = r.ID
	var err error
	if m.Body, err = encode(b); err != nil {
		return message.Message{}, fmt.Errorf("encode continuation: %w", err)
	}
	return m, nil
}

var invalidInTopic = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// Topic returns the topic of a queue name, in the form that URLs have (protocol §5.1).
func Topic(queueName string) string { return invalidInTopic.ReplaceAllString(queueName, "-") }
