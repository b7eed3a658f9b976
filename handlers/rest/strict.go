package rest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
)

// strict decodes one JSON value into what into points to, a struct. Other than [json.Unmarshal] it refuses fields
// that the struct does not have under exactly that name, fields that come twice, and null and empty texts where the
// struct cannot tell them from a missing field; and it says where in the value something is wrong. What is a [json.RawMessage] there
// is taken as it is. The data must be valid JSON.
func strict(data []byte, into any) error {
	if err := checkValue(decoder(data), reflect.TypeOf(into).Elem(), ""); err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return entities.Invalid("the body cannot be read: %v", err)
	}
	return nil
}

var (
	rawType         = reflect.TypeFor[json.RawMessage]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

func decoder(data []byte) *json.Decoder {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d
}

// checkValue reads the next value and compares it with the type it is for; path is where it is.
func checkValue(d *json.Decoder, t reflect.Type, path string) error {
	if t == rawType {
		return skip(d)
	}
	if t.Kind() == reflect.Pointer {
		return checkPointer(d, t.Elem(), path)
	}
	if reflect.PointerTo(t).Implements(unmarshalerType) {
		return checkOwn(d, t, path)
	}
	token, err := d.Token()
	if err != nil {
		return entities.Invalid("the body is not JSON: %v", err)
	}
	want, got := kindOf(t), tokenKind(token)
	if want != got {
		return badField(nameOf(path), "want %s, got %s", want, got)
	}
	switch t.Kind() {
	case reflect.Struct:
		return checkObject(d, path, func(key, at string) error { return checkField(d, t, key, at) })
	case reflect.Map:
		return checkObject(d, path, func(_, at string) error { return checkValue(d, t.Elem(), at) })
	case reflect.Slice:
		return checkList(d, t.Elem(), path)
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

// checkPointer takes null for what can be null.
func checkPointer(d *json.Decoder, t reflect.Type, path string) error {
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return entities.Invalid("the body is not JSON: %v", err)
	}
	if string(raw) == "null" {
		return nil
	}
	return checkValue(decoder(raw), t, path)
}

// checkOwn has the type itself say what is wrong.
func checkOwn(d *json.Decoder, t reflect.Type, path string) error {
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return entities.Invalid("the body is not JSON: %v", err)
	}
	if err := json.Unmarshal(raw, reflect.New(t).Interface()); err != nil {
		return badField(nameOf(path), "%v", err)
	}
	return nil
}

func skip(d *json.Decoder) error {
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return entities.Invalid("the body is not JSON: %v", err)
	}
	return nil
}

// checkField reads the value of a struct's field. An empty text is refused: it would count as a missing one, and a
// script whose variable is not set would start a run without its key, or cancel those of all workflows.
func checkField(d *json.Decoder, t reflect.Type, key, at string) error {
	field, ok := fieldType(t, key)
	if !ok {
		return badField(at, "there is no such field here")
	}
	if field.Kind() != reflect.String {
		return checkValue(d, field, at)
	}
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return entities.Invalid("the body is not JSON: %v", err)
	}
	if string(raw) == `""` {
		return badField(at, "it is empty: give a value, or leave it out")
	}
	return checkValue(decoder(raw), field, at)
}

// checkObject reads the rest of an object; check reads the value of one field.
func checkObject(d *json.Decoder, path string, check func(key, at string) error) error {
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return entities.Invalid("the body is not JSON: %v", err)
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
	_, err := d.Token()
	return err
}

// checkList reads the rest of a list.
func checkList(d *json.Decoder, t reflect.Type, path string) error {
	for i := 0; d.More(); i++ {
		if err := checkValue(d, t, path+"["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
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
