package stepwell

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"time"
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

// TestLargeResultsAreWrittenInParts has results that end together and are more than the server takes at once.
func TestLargeResultsAreWrittenInParts(t *testing.T) {
	t.Parallel()
	const n = 3
	large := strings.Repeat("x", 6<<20)
	begun := make(chan bool, n)
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		ended := make([]*Future[string], n)
		for i := range ended {
			ended[i] = DoGo(w, "step", func(context.Context) (string, error) {
				begun <- true
				for len(begun) < n {
					runtime.Gosched()
				}
				return large, nil
			})
		}
		_, err := All(w, ended...)
		return large, err
	}))
	f := newFake(t, app)
	got := f.invoke(nil)
	if f.largest > serverTakes || len(got.body) > serverTakes || got.types() != "complete" {
		t.Errorf("the largest request has %d bytes, and the answer %d: %s", f.largest, len(got.body), got.types())
	}
}

// serverTakes is how many bytes the server takes at once.
const serverTakes = 16 << 20

// TestLargeCommandsAreWrittenInParts asks at one rest for steps whose inputs are more than the server takes at once.
func TestLargeCommandsAreWrittenInParts(t *testing.T) {
	t.Parallel()
	step := DeclareStep[string, int]("step")
	app, _ := newTestApp(workflowOf(func(w *Context) (string, error) {
		for range 3 {
			step.Go(w, strings.Repeat("x", 6<<20))
		}
		if _, err := step.Run(w, strings.Repeat("x", serverTakes)); !HasCode(err, codeTooLarge) {
			t.Errorf("a step with a larger input ends with %v", err)
		}
		return "", w.Sleep(time.Hour)
	}))
	f := newFake(t, app)
	got := f.invoke(nil)
	if f.largest > serverTakes || len(got.body) > serverTakes || strings.Count(f.types(), "step_created") != 3 {
		t.Errorf("the largest request has %d bytes, and the answer %d; the log has %s", f.largest, len(got.body), f.types())
	}
}

// TestAnOutputIsTooLargeWithItsInput fails a step whose result could not be recorded.
func TestAnOutputIsTooLargeWithItsInput(t *testing.T) {
	t.Parallel()
	executed := 0
	step := DeclareStep[string, string]("step")
	app, _ := newTestApp(step.Bind(func(_ context.Context, in string) (string, error) {
		executed++
		return in, nil
	}), workflowOf(func(w *Context) (string, error) {
		if _, err := step.Run(w, strings.Repeat("x", 9<<20)); !HasCode(err, codeTooLarge) {
			t.Errorf("the step ends with %v", err)
		}
		return "", nil
	}))
	f := newFake(t, app)
	if f.invoke(nil); executed != 1 || f.largest > serverTakes {
		t.Errorf("executed %d times; the largest request has %d bytes", executed, f.largest)
	}
}
