package flow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/stepwell-dev/stepwell/entities"
)

// readAttributes reads "attributes: {NAME: VALUE}" of a child or a run.
func (r *reader) readAttributes(o *object, a *action, u usage) {
	n := o.get("attributes")
	if n == nil {
		return
	}
	if n.kind != kindObject {
		r.faults.add(n, CodeType, "want an object with the values of attributes instead of %s", n.kind)
		return
	}
	a.attributes = r.template(n, u)
	if a.attributes.fixed != nil {
		if _, err := attributesIn(a.attributes.fixed); err != nil {
			r.faults.add(n, CodeType, "%v", err)
		}
	}
}

// attributesOf returns the attributes of the child or run that a step starts; nil for none. Values that are no texts
// become their JSON, and null none.
func (a *action) attributesOf(where *stepScope) (map[string]string, error) {
	if a.attributes == nil {
		return nil, nil
	}
	value, err := a.attributes.json(where)
	if err != nil {
		return nil, fmt.Errorf("attributes: %w", err)
	}
	return attributesIn(value)
}

func attributesIn(value json.RawMessage) (map[string]string, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(value, &values); err != nil {
		return nil, fmt.Errorf("attributes: %w", err)
	}
	var changes []entities.AttributeChange
	for _, name := range slices.Sorted(maps.Keys(values)) { // the first one that is refused is recorded
		if v := values[name]; string(v) != "null" {
			changes = append(changes, entities.AttributeChange{Key: name, Value: new(plain(v))})
		}
	}
	return entities.MergeAttributes(nil, changes, false)
}
