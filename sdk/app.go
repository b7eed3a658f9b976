package stepwell

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// App has the workflows and steps of a program, and serves them.
type App struct {
	name        string
	build       string // empty: that of the program
	signingKeys string
	logger      *slog.Logger
	now         func() time.Time
	workflows   map[string]Definition
	steps       map[string]Definition
	problems    []error
	calls       *calls
	serving     serving
	commands    map[string]command // of App.Main
}

// AppOption configures an app.
type AppOption func(*App)

// Logger sets the logger; [slog.Default] by default.
func Logger(l *slog.Logger) AppOption { return func(a *App) { a.logger = l } }

// Clock sets the clock that tells when inline steps ended; [time.Now] by default. It is for tests.
// Inline steps then make no pauses between attempts: the server makes them.
func Clock(now func() time.Time) AppOption {
	return func(a *App) { a.now, a.serving.pauses = now, 0 }
}

// FromEnv takes the signing keys from the environment: STEPWELL_SIGNING_KEYS has one key, or two separated by a comma.
func FromEnv() AppOption {
	return func(a *App) { a.signingKeys = os.Getenv("STEPWELL_SIGNING_KEYS") }
}

// Build sets what tells one version of the program from another, such as 3f20b23. By default it is the revision that go
// build stored in the program.
func Build(id string) AppOption { return func(a *App) { a.build = id } }

// NewApp returns an app without workflows.
func NewApp(name string, options ...AppOption) *App {
	a := &App{
		name: name, logger: slog.Default(), now: time.Now,
		workflows: map[string]Definition{}, steps: map[string]Definition{}, calls: newCalls(), serving: newServing(),
	}
	for _, set := range options {
		set(a)
	}
	if p := checkName(name); p != "" {
		a.problems = append(a.problems, fmt.Errorf("app %q: %s", name, p))
	}
	return a
}

// Register adds workflows and steps. Definitions that cannot work make [App.Handler] fail, with all problems at once.
func (a *App) Register(definitions ...Definition) {
	for _, d := range definitions {
		kind := a.steps
		if d.workflow != nil {
			kind = a.workflows
		}
		if _, twice := kind[d.name]; twice {
			a.problems = append(a.problems, fmt.Errorf("two functions are bound to %s %q", d.kind, d.name))
		}
		if p := checkName(d.name); p != "" {
			a.problems = append(a.problems, fmt.Errorf("%s %q: %s", d.kind, d.name, p))
		}
		for _, p := range d.problems {
			a.problems = append(a.problems, fmt.Errorf("%s %q: %s", d.kind, d.name, p))
		}
		kind[d.name] = d
	}
}

// Override registers definitions in place of those of the same name. It is for tests.
func (a *App) Override(definitions ...Definition) {
	for _, d := range definitions {
		delete(a.workflows, d.name)
		delete(a.steps, d.name)
	}
	a.Register(definitions...)
}

// check returns all problems of the definitions.
func (a *App) check() error { return errors.Join(a.problems...) }

// checkName returns why a name cannot be one of a workflow or step; empty if it can. Names become parts of IDs.
func checkName(name string) string {
	switch {
	case name == "" || len(name) > 256:
		return "the name must have 1 to 256 bytes"
	case name == "." || name == ".." || !utf8.ValidString(name) || strings.ContainsFunc(name, notInID):
		return "the name has characters that no ID may have: use printable ones without spaces and slashes"
	}
	return ""
}

func notInID(r rune) bool {
	return r == '/' || r == '\\' || unicode.IsSpace(r) || !unicode.IsPrint(r)
}

// roundTrips returns why the types of an input and output do not survive the log, if they do not.
func roundTrips[I, O any](string) (problems []string) {
	for _, v := range []struct {
		what string
		t    reflect.Type
	}{{"input", reflect.TypeFor[I]()}, {"output", reflect.TypeFor[O]()}} {
		if p := lossy(v.t, map[reflect.Type]bool{}); p != "" {
			problems = append(problems, fmt.Sprintf("the %s %s cannot be kept in the log: %s", v.what, v.t, p))
		}
	}
	return problems
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// lossy returns which part of a type JSON cannot keep; empty if it can keep all of it.
func lossy(t reflect.Type, seen map[reflect.Type]bool) string {
	pointer := reflect.PointerTo(t)
	switch {
	case seen[t]:
		return ""
	case t.Kind() == reflect.Interface && t.NumMethod() > 0:
		return "it contains the interface " + t.String() + ", which cannot be decoded"
	case t.Kind() == reflect.Interface:
		return ""
	case pointer.Implements(jsonMarshaler) && !pointer.Implements(jsonUnmarshaler):
		return t.String() + " has MarshalJSON, but no UnmarshalJSON"
	case pointer.Implements(jsonMarshaler):
		return ""
	case pointer.Implements(textMarshaler) && !pointer.Implements(textUnmarshaler):
		return t.String() + " has MarshalText, but no UnmarshalText"
	case pointer.Implements(textMarshaler):
		return ""
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return "it contains a " + t.Kind().String()
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return lossy(t.Elem(), seen)
	case reflect.Map:
		return cmp.Or(lossyKey(t.Key()), lossy(t.Elem(), seen))
	case reflect.Struct:
		return lossyStruct(t, seen)
	}
	return ""
}

// lossyKey returns why a type cannot be the key of a map; empty if it can.
func lossyKey(t reflect.Type) string {
	k := t.Kind()
	if k == reflect.String || k >= reflect.Int && k <= reflect.Uintptr ||
		t.Implements(textMarshaler) && reflect.PointerTo(t).Implements(textUnmarshaler) {
		return ""
	}
	return "it contains a map whose keys are of type " + t.String()
}

func lossyStruct(t reflect.Type, seen map[reflect.Type]bool) string {
	kept := 0
	for f := range t.Fields() {
		if !f.IsExported() && !f.Anonymous || f.Tag.Get("json") == "-" {
			continue
		}
		kept++
		if p := lossy(f.Type, seen); p != "" {
			return "field " + f.Name + ": " + p
		}
	}
	if kept == 0 && t.NumField() > 0 {
		return t.String() + " has no exported field"
	}
	return ""
}
