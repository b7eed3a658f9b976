package flowtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow"
)

// compare returns a line for each difference.
func (e expectation) compare(o flow.Outcome) (lines []string) {
	status := string(o.Status)
	if status == "" {
		status = running
	}
	if e.Status != "" && e.Status != status {
		lines = append(lines, fmt.Sprintf("status: want %s, got %s%s", e.Status, status, because(o)))
	}
	if e.Output != nil {
		lines = append(lines, differences("output", e.Output, o.Output)...)
	}
	lines = append(lines, e.Error.compare(o)...)
	inputs := map[string]json.RawMessage{}
	for _, event := range o.Events {
		if event.Type == entities.EventStepCreated && event.Payload != nil {
			inputs[event.CorrelationID] = event.Payload
		}
	}
	for _, id := range slices.Sorted(maps.Keys(e.Inputs)) {
		if input, ok := inputs[id]; ok {
			lines = append(lines, differences("inputs."+id, e.Inputs[id], input)...)
		} else {
			lines = append(lines, fmt.Sprintf("inputs.%s: the step has not begun", id))
		}
	}
	if e.Steps != nil {
		lines = append(lines, compareSteps(e.Steps, o.Steps())...)
	}
	return lines
}

// because says why a run failed that was to do something else.
func because(o flow.Outcome) string {
	if o.Error == nil {
		return ""
	}
	return fmt.Sprintf(": %s (%s)", o.Error.Message, o.Error.Code)
}

func (f *failure) compare(o flow.Outcome) (lines []string) {
	switch {
	case f == nil:
		return nil
	case o.Error == nil:
		return []string{"error: the run has none"}
	}
	for name, pair := range map[string]struct {
		want *string
		got  string
	}{"code": {f.Code, o.Error.Code}, "message": {f.Message, o.Error.Message}} {
		if pair.want != nil && *pair.want != pair.got {
			lines = append(lines, fmt.Sprintf("error.%s: want %q, got %q", name, *pair.want, pair.got))
		}
	}
	slices.Sort(lines)
	return lines
}

// differences returns the places where two JSON values differ.
func differences(path string, want, got json.RawMessage) []string {
	return walk(path, decode(want), decode(got))
}

func decode(text json.RawMessage) (value any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return nil // there is no value
	}
	return value
}

func walk(path string, want, got any) (lines []string) {
	switch want := want.(type) {
	case map[string]any:
		if got, ok := got.(map[string]any); ok {
			names := maps.Clone(want)
			maps.Copy(names, got)
			for _, name := range slices.Sorted(maps.Keys(names)) {
				lines = append(lines, field(path+"."+name, want, got, name)...)
			}
			return lines
		}
	case []any:
		if got, ok := got.([]any); ok && len(got) == len(want) {
			for i := range want {
				lines = append(lines, walk(fmt.Sprintf("%s[%d]", path, i), want[i], got[i])...)
			}
			return lines
		}
	}
	if w, g := show(want), show(got); w != g {
		return []string{fmt.Sprintf("%s: want %s, got %s", path, w, g)}
	}
	return nil
}

func field(path string, want, got map[string]any, name string) []string {
	w, wanted := want[name]
	g, there := got[name]
	switch {
	case !there:
		return []string{fmt.Sprintf("%s: want %s, got nothing", path, show(w))}
	case !wanted:
		return []string{fmt.Sprintf("%s: want nothing, got %s", path, show(g))}
	default:
		return walk(path, w, g)
	}
}

func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	return string(text)
}

// compareSteps shows both lists as one, with - before what is missing and + before what is too much.
func compareSteps(want, got []string) []string {
	if slices.Equal(want, got) {
		return nil
	}
	// longest[i][j] is the length of the longest list that is in both want[i:] and got[j:].
	longest := make([][]int, len(want)+1)
	for i := range longest {
		longest[i] = make([]int, len(got)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			if want[i] == got[j] {
				longest[i][j] = longest[i+1][j+1] + 1
			}
		}
	}
	lines := []string{"steps:"}
	for i, j := 0, 0; i < len(want) || j < len(got); {
		switch {
		case i < len(want) && j < len(got) && want[i] == got[j]:
			lines = append(lines, "    "+want[i])
			i, j = i+1, j+1
		case j == len(got) || i < len(want) && longest[i+1][j] >= longest[i][j+1]:
			lines = append(lines, "  - "+want[i])
			i++
		default:
			lines = append(lines, "  + "+got[j])
			j++
		}
	}
	return []string{strings.Join(lines, "\n")}
}
