// Package schema describes Go types as JSON Schema, as encoding/json encodes them.
package schema

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Schema is a JSON Schema.
type Schema map[string]any

// Of returns the schema of a type. A type that encodes itself as JSON has the schema that accepts everything.
func Of(t reflect.Type) Schema {
	b := builder{defs: Schema{}, names: map[reflect.Type]string{}}
	s := b.of(t)
	if len(b.defs) > 0 {
		s["$defs"] = b.defs
	}
	return s
}

// builder collects the schemas of named structs, which may contain themselves.
type builder struct {
	defs  Schema
	names map[reflect.Type]string
}

var (
	timeType      = reflect.TypeFor[time.Time]()
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

func (b *builder) of(t reflect.Type) Schema {
	switch {
	case t == timeType:
		return Schema{"type": "string", "format": "date-time"}
	case implements(t, jsonMarshaler):
		return Schema{}
	case implements(t, textMarshaler):
		return Schema{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.String:
		return Schema{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return Schema{"type": "number"}
	case reflect.Pointer:
		return Schema{"anyOf": []Schema{b.of(t.Elem()), {"type": "null"}}}
	case reflect.Map:
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
		properties[name] = b.of(f.Type)
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
