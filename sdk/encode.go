package stepwell

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"unicode/utf8"
)

// longestOutput is how long the output of a step may be, in bytes, with its input and what it writes to the store. The
// server takes 16 MiB with all that comes with it.
const longestOutput = 15 << 20

// checkSize returns the permanent error of something that is too large for the server.
func checkSize(c Codec, what string, size int) error {
	if size = grown(c, size); size <= longestOutput {
		return nil
	}
	return Fail(codeTooLarge, fmt.Sprintf("%s has %d bytes, more than %d: store it elsewhere, and pass where",
		what, size, longestOutput))
}

// sizeOf returns how many bytes the payloads of a command have.
func sizeOf(command any) int {
	switch c := command.(type) {
	case runStep:
		return len(c.Input)
	case recordStep:
		return len(c.Input) + len(c.Output) + len(c.Error) + sizeOfValues(c.Store)
	case startChild:
		return len(c.Input)
	case setStore:
		return sizeOfValues(c.Values)
	case openHook:
		return len(c.Metadata)
	case respond:
		return len(c.Body)
	case replyTo:
		return len(c.Output) + len(c.Error)
	default:
		return 0
	}
}

func sizeOfValues(values map[string]json.RawMessage) (size int) {
	for _, v := range values {
		size += len(v)
	}
	return size
}

// encode encodes a value as JSON. A text that is no UTF-8 is an error: package json would change it silently.
func encode(v any) (json.RawMessage, error) {
	data, err := json.Marshal(v)
	if err != nil || !bytes.Contains(data, []byte(`\ufffd`)) { // how it writes bytes that are no UTF-8
		return data, err
	}
	if where, ok := notUTF8(reflect.ValueOf(v)); ok {
		return nil, fmt.Errorf("a text is no UTF-8: %T%s: keep it as []byte", v, where)
	}
	return data, nil
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// notUTF8 returns where in a value a text is no UTF-8. Types that encode themselves are responsible for their texts.
func notUTF8(v reflect.Value) (where string, found bool) {
	if !v.IsValid() || v.Type().Implements(jsonMarshaler) || v.Type().Implements(textMarshaler) {
		return "", false
	}
	switch v.Kind() {
	case reflect.String:
		return "", !utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return notUTF8(v.Elem())
	default:
	}
	for name, part := range parts(v) {
		if where, found = notUTF8(part); found {
			return name + where, true
		}
	}
	return "", false
}

// parts yields the parts of a value that package json encodes.
func parts(v reflect.Value) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		switch v.Kind() {
		case reflect.Slice, reflect.Array:
			if v.Type().Elem().Kind() == reflect.Uint8 { // numbers, or base64
				return
			}
			for i := range v.Len() {
				if !yield(fmt.Sprintf("[%d]", i), v.Index(i)) {
					return
				}
			}
		case reflect.Map:
			for key, value := range v.Seq2() {
				name := fmt.Sprintf("[%q]", fmt.Sprint(key))
				if !yield(name, key) || !yield(name, value) {
					return
				}
			}
		case reflect.Struct:
			for f, value := range v.Fields() {
				isPart := (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-"
				if isPart && !yield("."+f.Name, value) {
					return
				}
			}
		default: // it has none
		}
	}
}
