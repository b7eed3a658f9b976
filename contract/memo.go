package contract

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// memo keeps the output of a step for equal steps.
type memo struct {
	// Key says, with what is executed, which steps are equal; nil for the input.
	Key json.RawMessage `json:"key"`
	// For is how long the output is kept.
	For *duration `json:"for"`
	// Share lets the step wait as long as an equal one is under way.
	Share bool `json:"share"`
}

// maxSorted limits the keys whose fields are sorted, in bytes. Longer ones are equal if their bytes are.
const maxSorted = 1 << 20

// memo returns for which other steps the output is kept; nil for none. The rest of the specification is complete.
func (c *runStep) memo(spec entities.StepSpec) (*entities.MemoSpec, error) {
	m := c.Memo
	switch {
	case m == nil:
		return nil, nil
	case m.For == nil || time.Duration(*m.For) < time.Millisecond:
		return nil, entities.Invalid(`memo: want {"for": "24h"}: for how long the output is kept`)
	case c.FirstAttempt != nil:
		return nil, entities.Invalid("a step with memo has no firstAttempt: its output may be known without an attempt")
	}
	key := c.Input
	if len(m.Key) > 0 && string(m.Key) != "null" {
		key = m.Key
	}
	executed := []any{"call", spec.DeploymentID, cmp.Or(c.Name, c.ID)}
	if c.HTTP != nil { // with another list of successes, the same answer may be a failure
		executed = []any{"http", c.HTTP.Method, c.HTTP.URL, c.HTTP.Success}
	}
	hash := sha256.New()
	if err := json.NewEncoder(hash).Encode(executed); err != nil {
		return nil, err
	}
	_, _ = hash.Write(sorted(orNull(key))) // a hash never fails
	return &entities.MemoSpec{
		Hash: hex.EncodeToString(hash.Sum(nil)), ForMS: time.Duration(*m.For).Milliseconds(), Share: m.Share,
	}, nil
}

// sorted returns a JSON value without spaces and with its fields in one order.
func sorted(text []byte) []byte {
	if len(text) > maxSorted {
		return text
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return text
	}
	ordered, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return ordered
}
