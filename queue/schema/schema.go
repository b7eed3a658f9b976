// Package schema checks values by JSON Schemas (2020-12): the inputs of flows, and the forms of approvals.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schema is a compiled JSON Schema.
type Schema struct{ compiled *jsonschema.Schema }

// address is that of every schema. Others cannot be loaded.
const address = "flow:schema"

// Compile compiles a schema. It loads no other one.
func Compile(text []byte) (*Schema, error) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource(address, value); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(address)
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		return nil, faultsOf(invalid.Err)
	}
	if err != nil {
		return nil, err
	}
	return &Schema{compiled}, nil
}

// Violation is one thing that does not fit.
type Violation struct {
	// Path is a JSON Pointer (RFC 6901) to the value; empty for the whole.
	Path string `json:"path"`
	// Message says what is wrong with it.
	Message string `json:"message"`
}

// Violations are all things in a value that do not fit. They are an error that matches [ErrViolations].
type Violations []Violation

// ErrViolations is what all [Violations] match.
var ErrViolations = errors.New("the value does not fit its schema")

// Is implements the matching of [errors.Is].
func (v Violations) Is(target error) bool { return target == ErrViolations }

// Details returns the violations for machines.
func (v Violations) Details() map[string]any { return map[string]any{"violations": []Violation(v)} }

// Error implements error: what is wrong, in one line.
func (v Violations) Error() string {
	texts := make([]string, len(v))
	for i, one := range v {
		texts[i] = one.Message
		if one.Path != "" {
			texts[i] = one.Path + ": " + one.Message
		}
	}
	return strings.Join(texts, "; ")
}

// maxViolations is how many violations of a value are reported.
const maxViolations = 100

// Check fails with [Violations] if a value does not fit. Nil and a nil schema stand for null and for any value.
func (s *Schema) Check(value json.RawMessage) error {
	if s == nil {
		return nil
	}
	if value == nil {
		value = json.RawMessage("null")
	}
	decoded, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return Violations{{Message: fmt.Sprintf("it is not JSON: %v", err)}}
	}
	err = s.compiled.Validate(decoded)
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		var list Violations
		list.add(invalid.BasicOutput().Errors)
		if len(list) > 0 {
			return list
		}
	}
	if err != nil {
		return Violations{{Message: err.Error()}}
	}
	return nil
}

// faultsOf returns what is wrong with a schema: the innermost errors, since those around them only say that they
// failed.
func faultsOf(err error) error {
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return err
	}
	var list Violations
	var visit func(u jsonschema.OutputUnit)
	visit = func(u jsonschema.OutputUnit) {
		for _, inner := range u.Errors {
			visit(inner)
		}
		if len(u.Errors) == 0 {
			list.add([]jsonschema.OutputUnit{u})
		}
	}
	visit(*invalid.DetailedOutput())
	return list
}

func (v *Violations) add(units []jsonschema.OutputUnit) {
	for _, u := range units {
		if u.Error != nil && len(*v) < maxViolations {
			*v = append(*v, Violation{u.InstanceLocation, u.Error.String()})
		}
		v.add(u.Errors)
	}
}
