// Package flowtest runs the tests of flows: files that give the results of steps and say what becomes of the run. It
// needs no server and no database, and skips time.
package flowtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/flow"
)

// File is a file with tests.
type File struct {
	// Flow is the path of the document, from the folder of the file.
	Flow  string `json:"flow"`
	Tests []Test `json:"tests"`
}

// Test is one run: what is given, and what is expected of it.
type Test struct {
	Name       string            `json:"name"`
	Input      json.RawMessage   `json:"input"`
	Key        string            `json:"key"`
	Attributes map[string]string `json:"attributes"`
	// Results are those of calls and children by the ID of the step. Others complete with null.
	Results map[string]result `json:"results"`
	// Signals are the signals that come, by name. Others do not come.
	Signals map[string]signal `json:"signals"`
	// Payloads are what hooks receive, and the votes of approvals, by the ID of the step, in their order.
	Payloads map[string][]json.RawMessage `json:"payloads"`
	Expect   expectation                  `json:"expect"`
}

type result struct {
	Output json.RawMessage   `json:"output"`
	Error  *contract.Failure `json:"error"`
	After  duration          `json:"after"`
}

type signal struct {
	Data  json.RawMessage `json:"data"`
	After duration        `json:"after"`
}

// expectation is what is checked; what is missing is not.
type expectation struct {
	Status string          `json:"status"` // completed, failed, cancelled or running
	Output json.RawMessage `json:"output"`
	Error  *failure        `json:"error"`
	// Steps are all ends of steps in their order, such as "charge failed".
	Steps []string `json:"steps"`
	// Inputs are those of steps by ID.
	Inputs map[string]json.RawMessage `json:"inputs"`
}

type failure struct {
	Code    *string `json:"code"`
	Message *string `json:"message"`
}

// duration is a duration such as "2h".
type duration time.Duration

// UnmarshalJSON implements [json.Unmarshaler].
func (d *duration) UnmarshalJSON(text []byte) error {
	parsed, err := time.ParseDuration(strings.Trim(string(text), `"`))
	if err == nil && parsed < 0 {
		err = errors.New("it is below 0")
	}
	if err != nil {
		return fmt.Errorf(`%s is not a duration such as "90s" or "2h": %w`, text, err)
	}
	*d = duration(parsed)
	return nil
}

// statuses are what a test may expect of a run.
var statuses = map[string]bool{"": true, "completed": true, "failed": true, "cancelled": true, running: true}

// running is the status of a run that waits for a signal which does not come.
const running = "running"

// Read reads a file with tests, in YAML or JSON. Unknown fields are errors.
func Read(text []byte) (f File, err error) {
	document, err := flow.JSON(text)
	if err != nil {
		return f, err
	}
	d := json.NewDecoder(bytes.NewReader(document))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return f, err
	}
	if f.Flow == "" || len(f.Tests) == 0 {
		return f, errors.New(`want "flow", the path of the document, and "tests", a list with at least one`)
	}
	for i, test := range f.Tests {
		if test.Name == "" {
			return f, fmt.Errorf(`tests[%d]: want a "name"`, i)
		}
		if !statuses[test.Expect.Status] {
			return f, fmt.Errorf("%s: the status %q is none of completed, failed, cancelled, running",
				test.Name, test.Expect.Status)
		}
	}
	return f, nil
}

// Run runs a test, and returns how the run differs from what is expected: a line for each difference, none if it is as
// expected.
func (test Test) Run(p *flow.Program) (differences []string, err error) {
	known := knownIDs(p)
	for id := range test.Results {
		if !known(id) {
			return nil, fmt.Errorf("results: there is no step %q", id)
		}
	}
	for id := range test.Payloads {
		if !known(id) {
			return nil, fmt.Errorf("payloads: there is no step %q", id)
		}
	}
	outcome, err := test.trial().Run(p)
	if err != nil && !errors.Is(err, flow.ErrStuck) {
		return nil, err
	}
	return test.Expect.compare(outcome), nil
}

// bodies are the kinds of steps that have a body.
var bodies = map[string]bool{"map": true, "loop": true, "plan": true}

// knownIDs returns whether an ID can be one of a step. The instances of a body are not known before the run: of its
// IDs, only the first part is checked.
func knownIDs(p *flow.Program) func(id string) bool {
	kinds := map[string]string{}
	for _, s := range p.Graph().Steps {
		kinds[s.ID] = s.Kind
	}
	return func(id string) bool {
		_, known := kinds[strings.TrimSuffix(id, "~undo")]
		at := strings.IndexAny(id, "[#.")
		return known || at > 0 && bodies[kinds[id[:at]]]
	}
}

func (test Test) trial() flow.Trial {
	t := flow.Trial{
		Input: test.Input, Attributes: test.Attributes, Key: test.Key, Results: map[string]flow.Result{},
		Signals: map[string]json.RawMessage{}, SignalAfter: map[string]time.Duration{}, Payloads: test.Payloads,
	}
	for id, r := range test.Results {
		t.Results[id] = flow.Result{Output: r.Output, Error: r.Error, After: time.Duration(r.After)}
	}
	for name, s := range test.Signals {
		t.Signals[name], t.SignalAfter[name] = s.Data, time.Duration(s.After)
	}
	return t
}
