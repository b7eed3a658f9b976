// Package strictjson reads JSON that others write: bodies of requests, and what functions answer.
//
// It imports package entities.
package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
)

// fieldError is an [entities.ErrInvalid] that says, for programs to read, which field is wrong.
type fieldError struct{ field, reason string }

func (e *fieldError) Error() string           { return e.field + ": " + e.reason }
func (e *fieldError) Is(target error) bool    { return target == entities.ErrInvalid }
func (e *fieldError) Details() map[string]any { return map[string]any{"field": e.field} }

func badField(field, format string, args ...any) error {
	return &fieldError{field, fmt.Sprintf(format, args...)}
}

// Decode decodes one JSON value into what into points to, a struct. Other than [json.Unmarshal] it refuses fields
// that the struct does not have under exactly that name, fields that come twice, and null and empty texts where the
// struct cannot tell them from a missing field; and it says where in the value something is wrong. What is a
// [json.RawMessage] there is taken as it is. It fails with [entities.ErrInvalid].
func Decode(data []byte, into any) error {
	return decode(newChecker(data), into)
}

// DecodeLenient is [Decode] where null and empty texts stand for missing fields: many languages write them so.
func DecodeLenient(data []byte, into any) error {
	c := newChecker(data)
	c.lenient = true
	return decode(c, into)
}

func decode(c *checker, into any) error {
	if err := c.value(reflect.TypeOf(into).Elem(), ""); err != nil {
		return err
	}
	if err := json.Unmarshal(c.data, into); err != nil {
		return notJSON(err)
	}
	return nil
}

func notJSON(err error) error { return entities.Invalid("the body is not JSON: %v", err) }

var (
	rawType         = reflect.TypeFor[json.RawMessage]()
	bytesType       = reflect.TypeFor[[]byte]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

// checker compares JSON with the type it is for.
type checker struct {
	*json.Decoder

	data    []byte
	lenient bool // null and empty texts stand for missing fields
}

func newChecker(data []byte) *checker {
	c := &checker{Decoder: json.NewDecoder(bytes.NewReader(data)), data: data}
	c.UseNumber()
	return c
}

// value reads the next value, which is for the type; path is where it is.
func (c *checker) value(t reflect.Type, path string) error {
	switch {
	case t == rawType, c.ahead(`null`) && (c.lenient || t.Kind() == reflect.Pointer):
		_, err := c.raw()
		return err
	case t.Kind() == reflect.Pointer:
		return c.value(t.Elem(), path)
	case t == bytesType, reflect.PointerTo(t).Implements(unmarshalerType):
		return c.own(t, path)
	default:
		return c.plain(t, path)
	}
}

// ahead reports whether the next value begins so.
func (c *checker) ahead(text string) bool {
	rest := bytes.TrimLeft(c.data[c.InputOffset():], " \t\r\n,:")
	return bytes.HasPrefix(rest, []byte(text))
}

// raw reads the next value, whatever it is.
func (c *checker) raw() (json.RawMessage, error) {
	var raw json.RawMessage
	if err := c.Decode(&raw); err != nil {
		return nil, notJSON(err)
	}
	return raw, nil
}

// own has the type itself say what is wrong.
func (c *checker) own(t reflect.Type, path string) error {
	raw, err := c.raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, reflect.New(t).Interface()); err != nil {
		return badField(nameOf(path), "%v", err)
	}
	return nil
}

func (c *checker) plain(t reflect.Type, path string) error {
	token, err := c.Token()
	if err != nil {
		return notJSON(err)
	}
	want, got := kindOf(t), tokenKind(token)
	if want != got {
		return badField(nameOf(path), "want %s, got %s", want, got)
	}
	switch t.Kind() {
	case reflect.Struct:
		return c.object(path, func(key, at string) error { return c.field(t, key, at) })
	case reflect.Map:
		return c.object(path, func(_, at string) error { return c.value(t.Elem(), at) })
	case reflect.Slice:
		return c.list(t.Elem(), path)
	case reflect.Int, reflect.Int64:
		if n, _ := token.(json.Number); !whole(n) {
			return badField(nameOf(path), "%s is not a whole number", n)
		}
	default: // there is nothing in it
	}
	return nil
}

func whole(n json.Number) bool {
	_, err := n.Int64()
	return err == nil
}

// field reads the value of a struct's field. An empty text is refused: it would count as a missing one, and a script
// whose variable is not set would start a run without its key, or cancel those of all workflows.
func (c *checker) field(t reflect.Type, key, at string) error {
	field, ok := fieldType(t, key)
	if !ok {
		return badField(at, "there is no such field here")
	}
	if field.Kind() == reflect.String && !c.lenient && c.ahead(`""`) {
		return badField(at, "it is empty: give a value, or leave it out")
	}
	return c.value(field, at)
}

// object reads the rest of an object; check reads the value of one field.
func (c *checker) object(path string, check func(key, at string) error) error {
	seen := map[string]bool{}
	for c.More() {
		token, err := c.Token()
		if err != nil {
			return notJSON(err)
		}
		key, _ := token.(string)
		at := strings.TrimPrefix(path+"."+key, ".")
		if seen[key] {
			return badField(at, "it is given twice")
		}
		seen[key] = true
		if err := check(key, at); err != nil {
			return err
		}
	}
	return c.end()
}

// list reads the rest of a list.
func (c *checker) list(t reflect.Type, path string) error {
	for i := 0; c.More(); i++ {
		if err := c.value(t, path+"["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
	return c.end()
}

// end reads the end of an object or a list.
func (c *checker) end() error {
	if _, err := c.Token(); err != nil {
		return notJSON(err)
	}
	return nil
}

// fieldType is the type of the struct's field that has the name in JSON.
func fieldType(t reflect.Type, key string) (reflect.Type, bool) {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == key && name != "" {
			return f.Type, true
		}
	}
	return nil, false
}

func nameOf(path string) string {
	if path == "" {
		return "body"
	}
	return path
}

// kindOf is how errors call what JSON has for a type.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "a list"
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	default:
		return "a number"
	}
}

func tokenKind(token json.Token) string {
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return "an object"
		}
		return "a list"
	case string:
		return "a text"
	case bool:
		return "true or false"
	case nil:
		return "null"
	default:
		return "a number"
	}
}
