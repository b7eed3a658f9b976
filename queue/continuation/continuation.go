// Package continuation makes the message that has the client of a run continue it.
//
// It imports package entities.
package continuation

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/fxamacker/cbor/v2"

	"github.com/stepwell-dev/stepwell/entities"
)

// cborTransport is the first protocol version whose clients read CBOR messages (protocol §8).
const cborTransport = 3

// Of makes the message that has the client of a run continue it. It is like the client's own, without anything that is
// optional (protocol §5.2, §7).
func Of(r entities.Run) (entities.Message, error) {
	queueName := entities.WorkflowTopic + r.WorkflowName
	m := entities.Message{
		Project: r.Project, Topic: Topic(queueName), DeploymentID: r.DeploymentID, RunID: r.ID,
	}
	if r.SpecVersion < cborTransport {
		body, err := json.Marshal(map[string]any{
			"payload": map[string]any{"runId": r.ID}, "queueName": queueName, "deploymentId": r.DeploymentID,
		})
		if err != nil {
			return entities.Message{}, fmt.Errorf("encode continuation: %w", err)
		}
		m.ContentType, m.Body = "application/json", body
		return m, nil
	}
	var body cborBody
	body.Payload.RunID, body.QueueName, body.DeploymentID = r.ID, queueName, r.DeploymentID
	b, err := cbor.Marshal(body)
	if err != nil {
		return entities.Message{}, fmt.Errorf("encode continuation: %w", err)
	}
	m.ContentType, m.Body = "application/cbor", b
	return m, nil
}

var notInTopics = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// Topic is the topic of a queue name, as it stands in URLs (protocol §5.1).
func Topic(queueName string) string { return notInTopics.ReplaceAllString(queueName, "-") }

// cborBody has its fields in the order in which clients write them.
type cborBody struct {
	Payload struct {
		RunID entities.RunID `cbor:"runId"`
	} `cbor:"payload"`
	QueueName    string `cbor:"queueName"`
	DeploymentID string `cbor:"deploymentId"`
}
