package flow

import (
	"encoding/json"
	"fmt"

	"github.com/stepwell-dev/stepwell/entities"
)

// readKey reads "key: VALUE" of a child or a run.
func (r *reader) readKey(o *object, a *action, u usage) {
	n := o.get("key")
	if n == nil {
		return
	}
	if n.kind != kindText {
		r.faults.add(n, CodeType, "want a text instead of %s", n.kind)
		return
	}
	before := len(*r.faults)
	if a.key = r.template(n, u); a.key.fixed != nil && len(*r.faults) == before {
		if _, err := keyIn(a.key.fixed); err != nil {
			r.faults.add(n, CodeType, "%v", err)
		}
	}
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
