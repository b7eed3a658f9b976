// Package convert makes flows of the documents of other systems.
package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/flow"
)

// Source is a system whose documents can be converted.
type Source interface {
	// Convert returns a flow in YAML. Calls that need a deployment get the given one. What has no meaning in a flow is an
	// [Unsupported] with all of it.
	Convert(document []byte, deployment string) ([]byte, error)
}

var sources = map[string]Source{"dagnats": dagNats{}}

// Sources returns the names of the systems.
func Sources() []string { return slices.Sorted(maps.Keys(sources)) }

// Unsupported is what a document has that has no meaning in a flow: a sentence for each.
type Unsupported []string

// Error implements error.
func (u Unsupported) Error() string { return strings.Join(u, "\n") }

// From converts a document of a system, and checks the flow that comes of it, whose warnings it returns.
func From(source string, document []byte, deployment string) (text []byte, warnings flow.Faults, err error) {
	s, ok := sources[source]
	if !ok {
		return nil, nil, fmt.Errorf("%q is none of %s", source, strings.Join(Sources(), ", "))
	}
	if text, err = s.Convert(document, deployment); err != nil {
		return nil, nil, err
	}
	p, err := flow.Parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("the flow would be refused:\n%w", err)
	}
	return text, p.Warnings, nil
}
