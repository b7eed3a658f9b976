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
	a.attributes = r.checked(o, "attributes", kindObject, u, func(fixed json.RawMessage) error {
		_, err := attributesIn(fixed)
		return err
	})
}

// checked reads a field of one kind that may have expressions; nil if it is missing. A value without expressions is
// checked at once.
func (r *reader) checked(
	o *object, name string, want kind, u usage, check func(fixed json.RawMessage) error,
) *template {
	n := o.get(name)
	if n == nil {
		return nil
	}
	if n.kind != want {
		r.faults.add(n, CodeType, "want %s instead of %s", want, n.kind)
		return nil
	}
	before := len(*r.faults)
	t := r.template(n, u)
	if t.fixed == nil || len(*r.faults) > before {
		return t
	}
	if err := check(t.fixed); err != nil {
		r.faults.add(n, CodeType, "%v", err)
	}
	return t
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
