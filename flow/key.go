package flow

import (
	"encoding/json"
	"fmt"

	"github.com/stepwell-dev/stepwell/entities"
)

// readKey reads "key: VALUE" of a child or a run.
func (r *reader) readKey(o *object, a *action, u usage) {
	a.key = r.checked(o, "key", kindText, u, func(fixed json.RawMessage) error {
		_, err := keyIn(fixed)
		return err
	})
}

// keyOf returns the key of the child or run that a step starts; empty for none. A value that is no text becomes its
// JSON, and null none.
func (a *action) keyOf(where *stepScope) (string, error) {
	if a.key == nil {
		return "", nil
	}
	value, err := a.key.json(where)
	if err != nil {
		return "", fmt.Errorf("key: %w", err)
	}
	return keyIn(value)
}

func keyIn(value json.RawMessage) (string, error) {
	if string(value) == "null" {
		return "", nil
	}
	key := plain(value)
	return key, entities.ValidateName("key", key)
}
