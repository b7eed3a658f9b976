package record

import (
	"fmt"
	"maps"
	"slices"
)

const (
	// sameKey is the only key of a reference to an earlier object: {"$same": "12 answer.events[3]"}.
	sameKey = "$same"
	// shortest is the minimum length of an object's JSON for a reference to replace it.
	shortest = 60
)

// glossary replaces repeated objects in a file with references to their first place. Answers contain most objects many
// times, because clients read the log again after each event.
type glossary struct {
	places  map[string]string // by their JSON
	objects map[string]any    // by their places
}

func newGlossary() *glossary {
	return &glossary{places: map[string]string{}, objects: map[string]any{}}
}

// shorten returns the value with references in place of repeated objects. It does not modify the value.
func (g *glossary) shorten(place string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		text, err := marshal(v)
		if err != nil || len(text) < shortest {
			return v
		}
		if at, shown := g.places[string(text)]; shown {
			return map[string]any{sameKey: at}
		}
		short := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) { // as in the file
			short[key] = g.shorten(place+"."+key, v[key])
		}
		g.places[string(text)] = place
		return short
	case []any:
		short := make([]any, len(v))
		for i, of := range v {
			short[i] = g.shorten(fmt.Sprintf("%s[%d]", place, i), of)
		}
		return short
	default:
		return v
	}
}

// restore replaces references with their objects.
func (g *glossary) restore(place string, v any) (any, error) {
	var err error
	switch v := v.(type) {
	case map[string]any:
		if at, ok := v[sameKey].(string); ok && len(v) == 1 {
			object, known := g.objects[at]
			if !known {
				return nil, fmt.Errorf("%s: no object at %q", place, at)
			}
			return object, nil
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if v[key], err = g.restore(place+"."+key, v[key]); err != nil {
				return nil, err
			}
		}
		g.objects[place] = v
	case []any:
		for i, of := range v {
			if v[i], err = g.restore(fmt.Sprintf("%s[%d]", place, i), of); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}
