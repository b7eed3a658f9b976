// Package continuation makes the message that has the client of a run continue it.
//
// It imports package entities.
package continuation

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"

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
	var b []byte
	b = cborHead(b, cborMap, 3)
	b = cborString(b, "payload")
	b = cborHead(b, cborMap, 1)
	b = cborString(b, "runId")
	b = cborString(b, string(r.ID))
	b = cborString(b, "queueName")
	b = cborString(b, queueName)
	b = cborString(b, "deploymentId")
	b = cborString(b, r.DeploymentID)
	m.ContentType, m.Body = "application/cbor", b
	return m, nil
}

var notInTopics = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// Topic is the topic of a queue name, as it stands in URLs (protocol §5.1).
func Topic(queueName string) string { return notInTopics.ReplaceAllString(queueName, "-") }

// The two major types of CBOR that a continuation consists of.
const (
	cborText = 3 << 5
	cborMap  = 5 << 5
)

// cborHead appends the head of an item with an argument below 2^32.
func cborHead(b []byte, major byte, n int) []byte {
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n < 1<<8:
		return append(b, major|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
	}
}

func cborString(b []byte, s string) []byte { return append(cborHead(b, cborText, len(s)), s...) }
