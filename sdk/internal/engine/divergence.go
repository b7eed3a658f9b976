package engine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Divergence says that the code of a workflow does not fit the log of the run: the code has changed since the log was
// written. Nothing that the code asked for afterwards was written or begun.
type Divergence struct {
	// Run and Deployment name the run and what executes it; empty if they are not known.
	Run, Deployment string
	// Agreed is the last event in the log that the code asked for; nil if there is none.
	Agreed *Event
	// Log is what the log has and the code did not ask for, or asked for differently.
	Log *Event
	// Code is what the code asks for; nil if it asks for nothing more. Then Last is what it asked for last, if anything.
	Code, Last *Operation
	// Returned is set if the workflow's function has returned.
	Returned bool
	// Registered reports whether the program still has a step or workflow with the name; nil if that is not known.
	Registered func(name string) bool
}

// Error returns a text that names both lines of code, and says what to do.
func (d *Divergence) Error() string {
	var b strings.Builder
	run := strings.TrimSpace("run " + d.Run)
	fmt.Fprintf(&b, "%s no longer fits its log (blocked; nothing was written)\n\n", run)
	event := func(what string, e *Event) {
		line := fmt.Sprintf("  %-13s %5s  %-16s %-20s %s", what, fmt.Sprintf("#%d", e.Seq), e.Type, e.ID, e.Data.Place)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if d.Agreed != nil {
		event("agreed up to", d.Agreed)
	}
	event("the log has", d.Log)
	code := func(what string, op *Operation) {
		fmt.Fprintf(&b, "  %-13s %5s  %-16s %-20s %s\n", what, "", op.Kind, op.ID, op.Place)
	}
	switch {
	case d.Code != nil:
		code("the code asks", d.Code)
	case d.Last != nil:
		does := map[bool]string{true: "returns", false: "only waits"}[d.Returned]
		fmt.Fprintf(&b, "  %-13s %5s  %s\n", "the code", "", does)
		code("it asked last", d.Last)
	default:
		fmt.Fprintf(&b, "  %-13s %5s  %s\n", "the code asks", "", "for nothing")
	}
	b.WriteString("\n" + d.advice())
	if d.Deployment != "" {
		b.WriteString("\n  Or let the build execute the run that began it. Now it is " + d.Deployment + ".")
	}
	return b.String()
}

func (d *Divergence) advice() string {
	logged, code := d.Log, d.Code
	_, isCreation := creates[logged.Type]
	switch {
	case code == nil && isCreation:
		return fmt.Sprintf("  %q was removed. Keep it for runs like this one:\n"+
			"      if !w.Patched(\"without %s\") { … }", logged.ID, logged.ID)
	case code == nil:
		return fmt.Sprintf("  The code has not asked for %q here: it was removed, or moved behind something else.\n"+
			"  Put it back where it was for runs like this one:  if !w.Patched(\"new order\") { … }", logged.ID)
	case code.ID == logged.ID && (creates[logged.Type] != code.Kind.space() || !fits(code, logged)):
		return fmt.Sprintf("  In the log %q is the ID of %s. Give what is new another name or ID.", code.ID, describe(logged))
	case code.ID == logged.ID:
		return fmt.Sprintf("  The input of %q was another one:\n%s"+
			"  Make it from the workflow's input and results only: no clock, no random numbers, no map order.",
			code.ID, differences(logged.Payload, code.Input))
	case code.Name != "" && code.Name == logged.Data.StepName && code.Place == logged.Data.Place:
		return fmt.Sprintf("  %q and %q come from the same line, in another order. Make it from the workflow's input and\n"+
			"  results only: no map order, no clock, no random numbers.", logged.ID, code.ID)
	default:
		return fmt.Sprintf("  Something was inserted before %q. Guard it:\n"+
			"      if w.Patched(%q) { … }", logged.ID, code.ID) + d.renamed()
	}
}

// renamed returns the advice for what was perhaps renamed: it stands on the same line as before, as what is inserted
// often does, and the program has nothing with the old name.
func (d *Divergence) renamed() string {
	name := d.Log.Data.StepName
	if d.Code.Place != d.Log.Data.Place || d.Registered != nil && d.Registered(name) {
		return ""
	}
	return fmt.Sprintf("\n  If %q was renamed instead, keep its old ID:  stepwell.ID(%q)", d.Log.ID, d.Log.ID)
}

// describe says what an event has created.
func describe(e *Event) string {
	if e.Data.StepName != "" {
		return fmt.Sprintf("step %q", e.Data.StepName)
	}
	return "a " + creates[e.Type]
}

// differences lists the fields of two JSON texts that differ.
func differences(before, now json.RawMessage) string {
	a, errA := decodeExactly(before)
	b, errB := decodeExactly(now)
	if errA != nil || errB != nil {
		return fmt.Sprintf("      was %s\n      is  %s\n", shown(before), shown(now))
	}
	var out strings.Builder
	compareFields(&out, "", a, b)
	return out.String()
}

func compareFields(out *strings.Builder, path string, a, b any) {
	x, isObject := a.(map[string]any)
	y, too := b.(map[string]any)
	if !isObject || !too {
		if !reflect.DeepEqual(a, b) {
			was, _ := json.Marshal(a) // both come from JSON
			is, _ := json.Marshal(b)
			name := cmp.Or(strings.TrimPrefix(path, "."), "it")
			fmt.Fprintf(out, "      %s was %s, is %s\n", name, shown(was), shown(is))
		}
		return
	}
	both := maps.Clone(x)
	maps.Copy(both, y)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		compareFields(out, path+"."+name, x[name], y[name])
	}
}

// longestShown limits how much of a value a text shows, in bytes.
const longestShown = 80

func shown(text []byte) string {
	if len(text) > longestShown {
		return string(bytes.ToValidUTF8(text[:longestShown], nil)) + "…"
	}
	return string(text)
}

// EqualJSON reports whether two JSON texts mean the same. Numbers are not rounded, and nothing at all means null.
func EqualJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, errX := decodeExactly(a)
	y, errY := decodeExactly(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// decodeExactly decodes JSON without rounding numbers.
func decodeExactly(text json.RawMessage) (v any, err error) {
	if len(text) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}
