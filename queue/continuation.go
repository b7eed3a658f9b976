package queue

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
)

// cborTransport is the first protocol version whose clients read CBOR messages (protocol §8).
const cborTransport = 3

// Continuation is the message that makes the client of a run continue it.
func Continuation(r entities.Run) (entities.Message, error) {
	return continuation(stranded{
		ID: r.ID, Project: r.Project, DeploymentID: r.DeploymentID, WorkflowName: r.WorkflowName, SpecVersion: r.SpecVersion,
	})
}

// continuation is the message that makes the client of a run continue it: as its own, without anything
// that is optional (protocol §5.2, §7).
func continuation(s stranded) (entities.Message, error) {
	queueName := entities.WorkflowTopic + s.WorkflowName
	m := entities.Message{
		Project: s.Project, Topic: topicOf(queueName), DeploymentID: s.DeploymentID, RunID: s.ID,
	}
	encode := codec.Marshal
	m.ContentType = "application/cbor"
	if s.SpecVersion < cborTransport {
		encode, m.ContentType = json.Marshal, "application/json"
	}
	var body continuationBody
	body.Payload.RunID, body.QueueName, body.DeploymentID = s.ID, queueName, s.DeploymentID
	var err error
	if m.Body, err = encode(body); err != nil {
		return entities.Message{}, fmt.Errorf("encode continuation: %w", err)
	}
	return m, nil
}

// continuationBody holds the required fields of a workflow message (protocol §5.2).
type continuationBody struct {
	DeploymentID string `cbor:"deploymentId" json:"deploymentId"`
	Payload      struct {
		RunID entities.RunID `cbor:"runId" json:"runId"`
	} `cbor:"payload" json:"payload"`
	QueueName string `cbor:"queueName" json:"queueName"`
}

var notInTopics = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// topicOf is the topic of a queue name, as it stands in URLs (protocol §5.1).
func topicOf(queueName string) string { return notInTopics.ReplaceAllString(queueName, "-") }
