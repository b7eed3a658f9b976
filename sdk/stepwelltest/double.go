package stepwelltest

import (
	"context"
	"encoding/json"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// Stub gives a step a function, in place of the one that it may have.
func Stub[I, O any](e *Env, step *stepwell.Step[I, O], fn func(context.Context, I) (O, error)) {
	e.tb.Helper()
	e.app.Override(step.Bind(fn))
	e.serve()
}

// Calls has the calls of a step.
type Calls[I any] struct {
	e    *Env
	name string
}

// Spy keeps the calls of a step, which goes on as before. A step without a function returns the zero value.
func Spy[I, O any](e *Env, step *stepwell.Step[I, O]) *Calls[I] {
	e.caller.spied[step.Name()] = true
	return &Calls[I]{e, step.Name()}
}

// Calls returns the inputs of all calls until now, one for each attempt, in their order.
func (c *Calls[I]) Calls() (inputs []I) {
	c.e.tb.Helper()
	for _, call := range c.e.caller.calls {
		if call.name != c.name {
			continue
		}
		var in I
		if err := json.Unmarshal(call.input, &in); err != nil {
			c.e.tb.Fatalf("decode the input of step %s: %v", c.name, err)
		}
		inputs = append(inputs, in)
	}
	return inputs
}
