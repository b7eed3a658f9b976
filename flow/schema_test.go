package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/flow/docschema"
	"github.com/stepwell-dev/stepwell/schema"
)

var compiledSchema = sync.OnceValues(func() (*schema.Schema, error) { return schema.Compile(docschema.JSON) })

// fitsSchema checks a document by the published schema. Every valid document of this package's tests is checked.
func fitsSchema(document string) error {
	s, err := compiledSchema()
	if err != nil {
		return err
	}
	value, err := JSON([]byte(document))
	if err != nil {
		return err
	}
	return s.Check(value, func() error { return nil })
}

// TestSchemaAcceptsDocumentedFlows has all documents of the documentation, and those of other tests.
func TestSchemaAcceptsDocumentedFlows(t *testing.T) {
	t.Parallel()
	fence := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	var documents []string
	for _, pattern := range []string{"../docs/*.md", "../cmd/stepwell/testdata/flow*.yaml", "../engine/flow*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(file, ".md") {
				for _, found := range fence.FindAllStringSubmatch(string(text), -1) {
					documents = append(documents, found[1])
				}
				continue
			}
			documents = append(documents, strings.Split(string(text), "`")...) // of a test in Go, its texts
		}
	}
	checked := 0
	for _, document := range documents {
		if _, err := Parse([]byte(document)); err != nil {
			continue // it is something else, or only a part
		}
		checked++
		if err := fitsSchema(document); err != nil {
			t.Errorf("%v\nin:\n%s", err, document)
		}
	}
	if checked < 10 {
		t.Errorf("found %d documents", checked)
	}
}

// beyondSchema matches the faults of [faulty] that a schema cannot see: what expressions are, which steps there are and
// which begins before which, and what only the function contract knows.
var beyondSchema = regexp.MustCompile(`cycle |expression |there is no step|reads the step|"deployment"|not a JSON Schema|cannot have needs|` +
	`step of its own|not a hook with|cannot complete the run|condition: line 1|want a bool|not a URL|header name|must be a secret|` +
	`set by the server|no user name|GET has no body|kept for|leads to`)

// TestSchemaRefusesFaults: whatever is wrong with the structure of a document is refused by the schema, too.
func TestSchemaRefusesFaults(t *testing.T) {
	t.Parallel()
	refused := 0
	for _, test := range faulty {
		if !slices.ContainsFunc(test.want, func(want string) bool { return !beyondSchema.MatchString(want) }) {
			continue
		}
		refused++
		if err := fitsSchema(test.document); err == nil {
			t.Errorf("the schema accepts what has the faults %q:\n%s", test.want, test.document)
		}
	}
	if refused < 50 {
		t.Errorf("%d documents have faults in their structure", refused)
	}
}

// schemaNode is a part of the schema, as far as the tests read it.
type schemaNode struct {
	Properties       map[string]schemaNode
	DependentSchemas map[string]struct{ PropertyNames struct{ Enum []string } }
	Defs             map[string]schemaNode `json:"$defs"`
	OneOf, AllOf     []schemaNode
	Ref              string `json:"$ref"`
	Type             any
	Minimum, Maximum *int
}

// schemaPlace is a place in a document: a document with such an object, and the fields that the schema knows there.
type schemaPlace struct {
	document string // with %s for further fields
	fields   map[string]schemaNode
}

// schemaPlaces returns all places.
func schemaPlaces(t *testing.T) map[string]schemaPlace {
	t.Helper()
	var root schemaNode
	if err := json.Unmarshal(docschema.JSON, &root); err != nil {
		t.Fatal(err)
	}
	in := func(def, document string) schemaPlace {
		return schemaPlace{document, root.Defs[def].Properties}
	}
	step := func(text string) string { return head + "  h: {hook: {webhook: {}}}\n  a: {needs: h, " + text + "}" }
	places := map[string]schemaPlace{
		"document": {"flow: f\nsteps: {a: {set: 1}}\n%s", root.Properties},
		"defaults": {"flow: f\ndefaults: {%s}\nsteps: {a: {set: 1}}", root.Properties["defaults"].Properties},
		"retry":    in("retry", step("call: x, retry: {%s}")),
		"catch":    in("catch", step("call: x, catch: {%s}")),
		"http":     in("http", step("http: {url: 'https://example.com', %s}")),
		"header":   in("header", step("http: {url: 'https://example.com', headers: {A: {secret: x, %s}}}")),
		"wait":     in("wait", step("wait: {for: 1s, %s}")),
		"signal":   in("signal", step("signal: {name: x, %s}")),
		"hook":     in("hook", step("hook: {%s}")),
		"webhook":  in("webhook", step("hook: {webhook: {%s}}")),
		"approval": in("approval", step("approval: {title: x, %s}")),
		"emit":     in("emit", step("emit: {signal: x, %s}")),
		"respond":  in("respond", step("respond: {to: h, %s}")),
		"fail":     in("fail", step("fail: {message: x, %s}")),
		"tolerate": in("tolerate", step("map: input, do: {call: x}, tolerate: {%s}")),
		"loop":     in("loop", step("loop: {do: {call: x}, until: 'true', %s}")),
		"allow":    in("allow", step("plan: x, allow: {calls: x, %s}")),
	}
	values := map[actionKind]string{
		kindHTTP: "{url: 'https://example.com'}", kindWait: "1s", kindHook: "{}", kindRespond: "{to: h}", kindFail: "{message: x}",
		kindMap: "input, do: {call: x}", kindLoop: "{do: {call: x}, until: 'true'}", kindPlan: "x, allow: {calls: x}",
	}
	for _, def := range []string{"step", "undo"} {
		for kind, of := range root.Defs[def].DependentSchemas {
			if len(of.PropertyNames.Enum) == 0 {
				continue
			}
			value := values[actionKind(kind)]
			if value == "" {
				value = "x"
			}
			document := head + "  h: {hook: {webhook: {}}}\n  a: {" + kind + ": " + value + ", %s}"
			if def == "undo" {
				document = head + "  a: {call: x, undo: {" + kind + ": " + value + ", %s}}"
			}
			place := schemaPlace{document, map[string]schemaNode{}}
			for _, field := range of.PropertyNames.Enum {
				place.fields[field] = root.resolve(t, root.Defs[def].Properties[field])
			}
			places[def+" "+kind] = place
		}
	}
	return places
}

// resolve follows a reference to a property of a step.
func (n schemaNode) resolve(t *testing.T, of schemaNode) schemaNode {
	t.Helper()
	if field, ok := strings.CutPrefix(of.Ref, "#/$defs/step/properties/"); ok {
		return n.Defs["step"].Properties[field]
	}
	return of
}

// TestSchemaKnowsTheFieldsOfTheParser gives the parser every name that its source has, at every place: those that it
// does not refuse as unknown are the fields of the schema there.
func TestSchemaKnowsTheFieldsOfTheParser(t *testing.T) {
	t.Parallel()
	names := sourceNames(t)
	for place, of := range schemaPlaces(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			var known []string
			for _, name := range names {
				_, err := Parse(fmt.Appendf(nil, of.document, name+": 1"))
				var faults Faults
				errors.As(err, &faults)
				if !slices.ContainsFunc(faults, func(f Fault) bool {
					// A second kind is a conflict: the step has another one already.
					return f.Code == CodeUnknown && strings.Contains(f.Message, "there is no field "+strconv.Quote(name)) ||
						f.Code == CodeConflict && strings.Contains(f.Message, "this one is a")
				}) {
					known = append(known, name)
				}
			}
			if diff := cmp.Diff(slices.Sorted(maps.Keys(of.fields)), known); diff != "" {
				t.Errorf("fields (-of the schema +of the parser):\n%s", diff)
			}
		})
	}
}

// sourceNames returns all texts in the sources of this package that could be names of fields.
func sourceNames(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`^"[a-z][A-Za-z]*"$`)
	found := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && name.MatchString(text.Value) {
				found[strings.Trim(text.Value, `"`)] = true
			}
			return true
		})
	}
	return slices.Sorted(maps.Keys(found))
}

// TestSchemaHasTheBoundsOfTheParser gives numbers at both bounds, which are accepted, and beyond them.
func TestSchemaHasTheBoundsOfTheParser(t *testing.T) {
	t.Parallel()
	bounds := 0
	for place, of := range schemaPlaces(t) {
		for name, field := range of.fields {
			for _, number := range append(field.OneOf, field) {
				if number.Minimum == nil || number.Maximum == nil {
					continue
				}
				bounds++
				for value, want := range map[int]bool{
					*number.Minimum: true, *number.Maximum: true, *number.Minimum - 1: false, *number.Maximum + 1: false,
				} {
					document := fmt.Sprintf(of.document, fmt.Sprintf("%s: %d", name, value))
					_, err := Parse([]byte(document))
					if (err == nil) != want || (fitsSchema(document) == nil) != want {
						t.Errorf("%s: %s %d: the parser says %v, and the schema %v", place, name, value, err, fitsSchema(document))
					}
				}
			}
		}
	}
	if bounds < 11 {
		t.Errorf("found %d numbers with bounds", bounds)
	}
}

// TestSchemaKnowsTheBoundsOfAttempts has durations that both accept.
func TestSchemaKnowsTheBoundsOfAttempts(t *testing.T) {
	t.Parallel()
	for _, d := range []string{"1s", "1000ms", "1.5s", "0.5m", "12h", "+12h", "12h0s", "720m", "43200s", "11h59m59s", "0.13h", "1h13m", "90m"} {
		document := head + "  a: {call: x, attemptTimeout: " + d + "}"
		if _, err := Parse([]byte(document)); err != nil || fitsSchema(document) != nil {
			t.Errorf("attemptTimeout %s: the parser says %v, and the schema %v", d, err, fitsSchema(document))
		}
	}
	const document = "flow: f\ndeployment: d\ndefaults: {timeout: 1m}\nsteps:\n  a: {call: x, async: true, undo: {call: y, async: true}}"
	if _, err := Parse([]byte(document)); err != nil || fitsSchema(document) != nil {
		t.Errorf("async calls with the default timeout: %v, %v", err, fitsSchema(document))
	}
}
