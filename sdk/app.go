package stepwell

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"
)

// App has the workflows and steps of a program, and serves them.
type App struct {
	name      string
	logger    *slog.Logger
	now       func() time.Time
	workflows map[string]Definition
	steps     map[string]Definition
	problems  []error
	serving   serving
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

// NewApp returns an app without workflows.
func NewApp(name string, options ...AppOption) *App {
	a := &App{
		name: name, logger: slog.Default(), now: time.Now,
		workflows: map[string]Definition{}, steps: map[string]Definition{}, serving: newServing(),
	}
	for _, set := range options {
		set(a)
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
		for _, p := range d.problems {
			a.problems = append(a.problems, fmt.Errorf("%s %q: %s", d.kind, d.name, p))
		}
		kind[d.name] = d
	}
}

// check returns all problems of the definitions.
func (a *App) check() error { return errors.Join(a.problems...) }

// roundTrips returns why the types of an input and output do not survive the log, if they do not.
func roundTrips[I, O any](string) (problems []string) {
	for what, t := range map[string]reflect.Type{"input": reflect.TypeFor[I](), "output": reflect.TypeFor[O]()} {
		if p := unencodable(t, map[reflect.Type]bool{}); p != "" {
			problems = append(problems, fmt.Sprintf("the %s %s cannot be kept in the log: %s", what, t, p))
		}
	}
	return problems
}

// unencodable returns which part of a type JSON cannot keep; empty if it can keep all of it.
func unencodable(t reflect.Type, seen map[reflect.Type]bool) string {
	if seen[t] || t.Implements(jsonMarshaler) || reflect.PointerTo(t).Implements(jsonMarshaler) {
		return ""
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return "it contains a " + t.Kind().String()
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return unencodable(t.Elem(), seen)
	case reflect.Struct:
		exported := 0
		for f := range t.Fields() {
			if !f.IsExported() && !f.Anonymous || f.Tag.Get("json") == "-" {
				continue
			}
			exported++
			if p := unencodable(f.Type, seen); p != "" {
				return "field " + f.Name + ": " + p
			}
		}
		if exported == 0 && t.NumField() > 0 {
			return t.String() + " has no exported field"
		}
	}
	return ""
}
