// Package schema describes Go types as JSON Schema, as encoding/json encodes them, and finds those that it cannot keep.
package schema

import (
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Schema is a JSON Schema.
type Schema map[string]any

// Of returns the schema of a type. A type that encodes itself as JSON has the schema that accepts everything. The error
// says why values of the type are lost, if they cannot be encoded, or not decoded again.
func Of(t reflect.Type) (Schema, error) {
	b := builder{defs: Schema{}, names: map[reflect.Type]string{}, inside: map[reflect.Type]bool{}}
	s := b.of(t)
	if len(b.defs) > 0 {
		s["$defs"] = b.defs
	}
	if b.problem != "" {
		return s, errors.New(b.problem)
	}
	return s, nil
}

// builder collects the schemas of named structs, which may contain themselves.
type builder struct {
	defs    Schema
	names   map[reflect.Type]string
	inside  map[reflect.Type]bool // types around the present one, which may be slices of themselves
	problem string                // the first one
}

var (
	timeType        = reflect.TypeFor[time.Time]()
	jsonMarshaler   = reflect.TypeFor[json.Marshaler]()
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// lost notes why values are lost.
func (b *builder) lost(why string) Schema {
	if b.problem == "" {
		b.problem = why
	}
	return Schema{}
}

func (b *builder) of(t reflect.Type) Schema {
	switch {
	case t == timeType:
		return Schema{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Interface && t.NumMethod() > 0:
		return b.lost("it contains the interface " + t.String() + ", which cannot be decoded")
	case implements(t, jsonMarshaler):
		if !implements(t, jsonUnmarshaler) {
			b.lost(t.String() + " has MarshalJSON, but no UnmarshalJSON")
		}
		return Schema{}
	case implements(t, textMarshaler):
		if !implements(t, textUnmarshaler) {
			b.lost(t.String() + " has MarshalText, but no UnmarshalText")
		}
		return Schema{"type": "string"}
	case b.inside[t] && t.Kind() != reflect.Struct:
		return Schema{}
	}
	b.inside[t] = true
	defer delete(b.inside, t)
	return b.plain(t)
}

// plain returns the schema of a type that does not encode itself.
func (b *builder) plain(t reflect.Type) Schema {
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return b.lost("it contains a " + t.Kind().String())
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.String:
		return Schema{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return Schema{"type": "number"}
	case reflect.Pointer:
		return Schema{"anyOf": []Schema{b.of(t.Elem()), {"type": "null"}}}
	case reflect.Map:
		if !isKey(t.Key()) {
			b.lost("it contains a map whose keys are of type " + t.Key().String())
		}
		return Schema{"type": []string{"object", "null"}, "additionalProperties": b.of(t.Elem())}
	case reflect.Array:
		return Schema{"type": "array", "items": b.of(t.Elem())}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return Schema{"type": []string{"string", "null"}, "contentEncoding": "base64"}
		}
		return Schema{"type": []string{"array", "null"}, "items": b.of(t.Elem())}
	case reflect.Struct:
		return b.structOrRef(t)
	default:
		if t.Kind() >= reflect.Int && t.Kind() <= reflect.Uintptr {
			return Schema{"type": "integer"}
		}
		return Schema{} // an interface
	}
}

func implements(t, of reflect.Type) bool {
	return t.Implements(of) || t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(of)
}

// isKey reports whether a type can be the key of a map.
func isKey(t reflect.Type) bool {
	k := t.Kind()
	return k == reflect.String || k >= reflect.Int && k <= reflect.Uintptr ||
		t.Implements(textMarshaler) && reflect.PointerTo(t).Implements(textUnmarshaler)
}

// structOrRef returns the schema of a struct without a name, or a reference to that of one with a name.
func (b *builder) structOrRef(t reflect.Type) Schema {
	if t.Name() == "" {
		return b.object(t)
	}
	name, known := b.names[t]
	if !known {
		name = b.newName(t)
		b.names[t] = name
		b.defs[name] = Schema{} // until the next line, since the struct may contain itself
		b.defs[name] = b.object(t)
	}
	return Schema{"$ref": "#/$defs/" + name}
}

// newName returns a name that no other type has: two packages may have types of one name.
func (b *builder) newName(t reflect.Type) string {
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune("/~%#[]*,. ", r) {
			return '_'
		}
		return r
	}, t.Name())
	for b.defs[name] != nil {
		name += "_"
	}
	return name
}

func (b *builder) object(t reflect.Type) Schema {
	properties, required := Schema{}, []string{}
	b.fields(t, properties, &required)
	if len(properties) == 0 && t.NumField() > 0 {
		b.lost(t.String() + " has no exported field")
	}
	slices.Sort(required)
	return Schema{"type": "object", "properties": properties, "required": required}
}

// fields adds the fields of a struct. Those of embedded structs come first, because its own replace them.
func (b *builder) fields(t reflect.Type, properties Schema, required *[]string) {
	for f := range t.Fields() {
		if embedded, ok := promoted(f); ok {
			b.fields(embedded, properties, required)
		}
	}
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if _, ok := promoted(f); ok || tag == "-" || !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		fine := b.problem == ""
		if properties[name] = b.of(f.Type); fine && b.problem != "" {
			b.problem = "field " + f.Name + ": " + b.problem
		}
		if strings.Contains(options, "string") {
			properties[name] = Schema{"type": "string"}
		}
		if !strings.Contains(options, "omit") && !slices.Contains(*required, name) {
			*required = append(*required, name)
		}
	}
}

// promoted returns the embedded struct whose fields encoding/json promotes.
func promoted(f reflect.StructField) (reflect.Type, bool) {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return t, f.Anonymous && name == "" && t.Kind() == reflect.Struct && !implements(t, jsonMarshaler)
}
