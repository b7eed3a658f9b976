package contract

import (
	"encoding/json"
	"mime"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/entities/strictjson"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// setStore writes to the run's store, once per ID.
type setStore struct {
	head

	ID     string                     `json:"id"`
	Values map[string]json.RawMessage `json:"values"`
}

func (c *setStore) requests(Planner) ([]eventlog.Request, error) {
	if len(c.Values) == 0 {
		return nil, entities.Invalid(`want {"values": {"key": value}}; null removes a key`)
	}
	values, err := kv.Encode(c.Values)
	if err != nil {
		return nil, err
	}
	return []eventlog.Request{{Type: entities.EventStoreSet, CorrelationID: c.ID, Payload: values}}, nil
}

// StepAnswerType is the content type of a step's answer that is a [StepAnswer] instead of the plain output.
const StepAnswerType = "application/vnd.stepwell.step+json"

// StepAnswer is the answer of a step that writes to the store of its run together with its result.
type StepAnswer struct {
	Output json.RawMessage
	// Store is the payload of the event that writes to the store; nil for none.
	Store []byte
}

// IsStepAnswer reports whether the header Content-Type announces a [StepAnswer].
func IsStepAnswer(header string) bool {
	kind, _, err := mime.ParseMediaType(header)
	return err == nil && kind == StepAnswerType
}

// ParseStepAnswer parses the body of an answer. It fails with [entities.ErrInvalid], and with a *[kv.LimitError] if a
// key or a value is too large.
func ParseStepAnswer(body []byte) (StepAnswer, error) {
	var b struct {
		Output json.RawMessage            `json:"output"`
		Store  map[string]json.RawMessage `json:"store"`
	}
	if err := strictjson.DecodeLenient(body, &b); err != nil {
		return StepAnswer{}, err
	}
	a := StepAnswer{Output: orNull(b.Output)}
	if len(b.Store) == 0 {
		return a, nil
	}
	var err error
	a.Store, err = kv.Encode(b.Store)
	return a, err
}
