package stepwell

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// TestTextsAreKeptOrRefused: package json would replace bytes that are no UTF-8.
func TestTextsAreKeptOrRefused(t *testing.T) {
	t.Parallel()
	type line struct{ Name string }
	type order struct {
		Lines []*line
		Notes map[string]any
		Raw   json.RawMessage
		Blob  []byte
	}
	const bad = "a\xffb"
	for name, test := range map[string]struct {
		value any
		where string
	}{
		"a text":          {bad, "string"},
		"a field":         {order{Lines: []*line{{"a"}, {bad}}}, "stepwell.order.Lines[1].Name"},
		"a value":         {&order{Notes: map[string]any{"k": []any{1, bad}}}, `.Notes["k"][1]`},
		"a key":           {map[string]int{bad: 1}, `["a\xffb"]`},
		"U+FFFD":          {"\ufffd \\ufffd", ""},
		"what is encoded": {order{Raw: json.RawMessage(`"\ufffd"`), Blob: []byte(bad)}, ""},
	} {
		data, err := encode(test.value)
		if test.where == "" && err == nil {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.where) || test.where == "" {
			t.Errorf("%s: got %s, %v; want an error that names %q", name, data, err, test.where)
		}
	}
}

// TestAnOutputThatIsNoUTF8Fails executes a step once whose output could not be kept.
func TestAnOutputThatIsNoUTF8Fails(t *testing.T) {
	t.Parallel()
	executed := 0
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		_, err := do(w, "step", func(context.Context) (string, error) {
			executed++
			return "a\xffb", nil
		})
		if !HasCode(err, codeUnencodable) {
			t.Errorf("the step ends with %v", err)
		}
		return "", nil
	}))
	f := newFake(t, app)
	if f.invoke(nil); executed != 1 || !f.has("step_failed step") {
		t.Errorf("executed %d times; the log has %s", executed, f.types())
	}
}

// TestAnOutputIsTooLargeWithItsInput fails a step whose result could not be recorded, at its first attempt.
func TestAnOutputIsTooLargeWithItsInput(t *testing.T) {
	t.Parallel()
	app, _ := newTestApp()
	s := inlineStep{exec: &execution{app: app}, input: longestOutput - 2, info: StepInfo{Attempt: 1}}
	for output, want := range map[string]bool{`""`: false, `"x"`: true} {
		r, _ := s.once(t.Context(), func(context.Context) (json.RawMessage, error) { return json.RawMessage(output), nil })
		if strings.Contains(string(r.Error), codeTooLarge) != want || (r.Output == nil) != want {
			t.Errorf("with the output %s: %s, %s", output, r.Output, r.Error)
		}
	}
}

// TestSizesOfCommands: what is not counted could be more than the server takes.
func TestSizesOfCommands(t *testing.T) {
	t.Parallel()
	data := json.RawMessage(`"xx"`)
	values := map[string]json.RawMessage{"a": data, "b": data}
	for want, command := range map[int]any{
		4:  runStep{Input: data},
		20: recordStep{Input: data, Output: data, Error: data, Store: values},
		8:  setStore{Values: values},
		0:  waitCommand{},
	} {
		if got := sizeOf(command); got != want {
			t.Errorf("%T has %d bytes, want %d", command, got, want)
		}
	}
	for _, command := range []any{startChild{Input: data}, openHook{Metadata: data}, respond{Body: data}} {
		if sizeOf(command) != len(data) {
			t.Errorf("%T has %d bytes", command, sizeOf(command))
		}
	}
}
