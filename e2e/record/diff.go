package record

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Diff compares two values at a path, and returns one line per difference: "body.event.eventId: got …, want …".
func Diff(path string, want, got any) (found []string) {
	switch want := want.(type) {
	case map[string]any:
		if got, ok := got.(map[string]any); ok {
			return diffMaps(path, want, got)
		}
	case []any:
		if got, ok := got.([]any); ok {
			return diffLists(path, want, got)
		}
	}
	if reflect.DeepEqual(want, got) {
		return nil
	}
	return []string{fmt.Sprintf("%s: got %s, want %s", path, brief(got), brief(want))}
}

func diffMaps(path string, want, got map[string]any) (found []string) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		at := path + "." + key
		v, ok := got[key]
		if !ok {
			found = append(found, fmt.Sprintf("%s: missing, want %s", at, brief(want[key])))
			continue
		}
		found = append(found, Diff(at, want[key], v)...)
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[key]; !ok {
			found = append(found, fmt.Sprintf("%s.%s: got %s, want no such field", path, key, brief(got[key])))
		}
	}
	return found
}

func diffLists(path string, want, got []any) (found []string) {
	for i := range min(len(want), len(got)) {
		found = append(found, Diff(fmt.Sprintf("%s[%d]", path, i), want[i], got[i])...)
	}
	if len(want) != len(got) {
		found = append(found, fmt.Sprintf("%s: got %d items, want %d", path, len(got), len(want)))
	}
	return found
}

// brief formats a value for a difference, cut to a limit.
func brief(v any) string {
	const most = 200
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%v", v)
	}
	if len(text) > most {
		return string(text[:most]) + "…"
	}
	return string(text)
}
