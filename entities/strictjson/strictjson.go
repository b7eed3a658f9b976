// Package strictjson decodes JSON from untrusted senders: request bodies, and the answers of functions.
//
// It is github.com/go-json-experiment/json (the future encoding/json/v2) with the options, and the error texts, of
// this server.
package strictjson

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/stepwell-dev/stepwell/entities"
)

// fieldError is an [entities.ErrInvalid] whose details name the invalid field.
type fieldError struct{ field, reason string }

func (e *fieldError) Error() string           { return e.field + ": " + e.reason }
func (e *fieldError) Is(target error) bool    { return target == entities.ErrInvalid }
func (e *fieldError) Details() map[string]any { return map[string]any{"field": e.field} }

// options decode values as encoding/json does, except that names are case-sensitive and unique, and that all of them
// must be known.
var options = json.JoinOptions(
	jsonv1.DefaultOptionsV1(),
	jsonv1.ReportErrorsWithLegacySemantics(false),
	jsontext.AllowDuplicateNames(false),
	json.MatchCaseInsensitiveNames(false),
	json.RejectUnknownMembers(true),
)

// verbatim copies the value of a [stdjson.RawMessage] without looking into it: it is a user's payload, in which
// duplicate names are the user's business. But others must be able to decode it: see [Check].
var verbatim = json.UnmarshalFromFunc(func(d *jsontext.Decoder, raw *stdjson.RawMessage) error {
	err := json.UnmarshalDecode(d, (*jsontext.Value)(raw), jsontext.AllowDuplicateNames(true))
	if err == nil {
		err = check(*raw, MaxDepth+wrapped)
	}
	return err
})

// Decode decodes one JSON value into the struct that into points to. Unlike [stdjson.Unmarshal] it rejects unknown
// fields, duplicate fields, texts with U+0000, and null or an empty string where the struct could not distinguish it
// from a missing field. A [stdjson.RawMessage] is copied verbatim. Errors match [entities.ErrInvalid] and name the
// field.
func Decode(data []byte, into any) error {
	return decode(data, into, json.JoinUnmarshalers(verbatim, rejectEmpty(data)))
}

// DecodeLenient is [Decode] that treats null and empty strings as missing fields, because many languages encode
// missing values that way.
func DecodeLenient(data []byte, into any) error {
	return decode(data, into, verbatim)
}

// decoders keeps decoders, since each makes a cache of 4 kB.
var decoders = sync.Pool{New: func() any { return &jsontext.Decoder{} }}

// nothing is what decoders that are kept read from, so that they keep nothing else in memory.
var nothing = strings.NewReader("")

func decode(data []byte, into any, hooks *json.Unmarshalers) error {
	d := decoders.Get().(*jsontext.Decoder) //nolint:forcetypeassert // of New
	d.Reset(bytes.NewBuffer(data), options)
	err := decodeBy(d, into, hooks)
	d.Reset(nothing)
	decoders.Put(d)
	return err
}

func decodeBy(d *jsontext.Decoder, into any, hooks *json.Unmarshalers) error {
	err := json.UnmarshalDecode(d, into, json.WithUnmarshalers(hooks))
	if err != nil {
		return explain(d, err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return entities.Invalid("the body is not JSON: data after the value")
	}
	return nil
}

// rejectEmpty returns a hook that rejects null, unless the target is a pointer, and empty strings in string fields of
// structs. Both would count as missing: a script with an unset variable would start a run without its key, or cancel
// the runs of all workflows.
func rejectEmpty(data []byte) *json.Unmarshalers {
	hasNUL := bytes.Contains(data, []byte(`\u0000`))
	var targets []reflect.Kind // of the containers around the value, by depth
	pointer := int64(-1)       // the offset of the last value that a pointer was allocated for
	return json.UnmarshalFromFunc(func(d *jsontext.Decoder, v any) error {
		t, at, depth := reflect.TypeOf(v).Elem(), d.InputOffset(), d.StackDepth()
		targets = append(targets[:depth], t.Kind())
		next := bytes.TrimLeft(data[at:], " \t\r\n,:")
		switch {
		case t.Kind() == reflect.Pointer:
			pointer = at
		case bytes.HasPrefix(next, []byte(`null`)) && !decodesItself(t):
			return fmt.Errorf("want %s, got null", nameOf(t))
		case bytes.HasPrefix(next, []byte(`""`)) && t.Kind() == reflect.String && pointer != at &&
			depth > 0 && targets[depth-1] == reflect.Struct:
			return errors.New("it is empty: give a value, or leave it out")
		case hasNUL && t.Kind() == reflect.String && textHasNUL(next):
			return errors.New("it has U+0000, which no text may have")
		}
		return errors.ErrUnsupported // continue with the default
	})
}

// textHasNUL reports whether JSON begins with a text that has U+0000, which the database does not store.
func textHasNUL(next []byte) bool {
	var text string
	end, _ := skipText(next, 0)
	isText := bytes.HasPrefix(next, []byte(`"`)) && stdjson.Unmarshal(next[:end], &text) == nil
	return isText && strings.ContainsRune(text, 0)
}

// decodesItself reports whether null is the type's own business.
func decodesItself(t reflect.Type) bool {
	return t == reflect.TypeFor[[]byte]() || reflect.PointerTo(t).Implements(reflect.TypeFor[stdjson.Unmarshaler]())
}

// explain translates an error of the decoder into an [entities.ErrInvalid].
func explain(d *jsontext.Decoder, err error) error {
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
		return &fieldError{path(d, syntax.JSONPointer), "duplicate field"}
	case errors.As(err, &semantic) && syntax == nil:
		return &fieldError{path(d, semantic.JSONPointer), reason(semantic)}
	default:
		return entities.Invalid("the body is not JSON: %s", strings.TrimPrefix(err.Error(), "jsontext: "))
	}
}

func reason(e *json.SemanticError) string {
	switch want, got := nameOf(e.GoType), kindNames[e.JSONKind]; {
	case errors.Is(e.Err, json.ErrUnknownName):
		return "unknown field"
	case e.JSONValue.Kind() == '0' && (e.GoType.Kind() == reflect.Int || e.GoType.Kind() == reflect.Int64):
		return fmt.Sprintf("%s is not a whole number", e.JSONValue)
	case e.Err != nil:
		return e.Err.Error()
	default:
		return fmt.Sprintf("want %s, got %s", want, got)
	}
}

// path writes the JSON pointer to a value in the decoder's current container as people do: steps[1].name.
func path(d *jsontext.Decoder, pointer jsontext.Pointer) string {
	var b strings.Builder
	depth := 0
	for token := range pointer.Tokens() {
		depth++
		// A pointer leads deeper than the decoder has read when the error is inside a value that does not fit anyway.
		if depth <= d.StackDepth() && inList(d, depth) {
			b.WriteString("[" + token + "]")
		} else {
			b.WriteString("." + token)
		}
	}
	if depth == 0 {
		return "body"
	}
	return strings.TrimPrefix(b.String(), ".")
}

func inList(d *jsontext.Decoder, depth int) bool {
	kind, _ := d.StackIndex(depth)
	return kind == '['
}

var kindNames = map[jsontext.Kind]string{
	'{': "an object", '[': "a list", '"': "a string", '0': "a number", 't': "true or false", 'f': "true or false",
	'n': "null",
}

// nameOf describes the JSON that a type is decoded from.
func nameOf(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return "a value"
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return kindNames['{']
	case reflect.Slice:
		return kindNames['[']
	case reflect.String:
		return kindNames['"']
	case reflect.Bool:
		return kindNames['t']
	default:
		return kindNames['0']
	}
}
