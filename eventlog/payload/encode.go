package payload

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/stepwell-dev/stepwell/entities"
)

// Devalue encodes a JSON value as the Workflow SDK's clients encode the same value, so that they can read it: for
// example a payload that resumes one of their hooks. Numbers are rounded as in JavaScript. It fails with
// [entities.ErrInvalid] if the value is not JSON, is nested more than 1,000 deep, or has the key "__proto__", which
// those clients reject.
func Devalue(value json.RawMessage) ([]byte, error) {
	if !json.Valid(value) || !utf8.Valid(value) {
		return nil, entities.Invalid("the payload is not JSON")
	}
	f := flattener{scanner: scanner{value}, known: map[string]int{}}
	root, err := f.flatten(0)
	if err != nil {
		return nil, err
	}
	if root < 0 {
		return strconv.AppendInt([]byte("devl"), int64(root), 10), nil
	}
	out := append([]byte("devl["), bytes.Join(f.values, []byte(","))...)
	return append(out, ']'), nil
}

// flattener builds the list of values that refer to each other by index.
type flattener struct {
	scanner

	values [][]byte
	known  map[string]int // the index of each primitive value
}

// flatten consumes the next value and returns its index, or the negative number of a constant.
func (f *flattener) flatten(depth int) (int, error) {
	if depth > maxDepth {
		return 0, entities.Invalid("the payload is nested more than %d deep", maxDepth)
	}
	switch f.next() {
	case '[':
		return f.list(depth)
	case '{':
		return f.object(depth)
	case '"', 't', 'f', 'n':
		return f.primitive(string(f.value())), nil
	default:
		return f.number(), nil
	}
}

// place reserves an index: a value precedes the values that it refers to.
func (f *flattener) place() int {
	f.values = append(f.values, nil)
	return len(f.values) - 1
}

func (f *flattener) primitive(value string) int {
	n, ok := f.known[value]
	if !ok {
		n = f.place()
		f.values[n], f.known[value] = []byte(value), n
	}
	return n
}

func (f *flattener) number() int {
	n, _ := strconv.ParseFloat(string(f.value()), 64) // out of range becomes infinity, as in JavaScript
	switch {
	case n == 0 && math.Signbit(n):
		return isNegativeZero
	case math.IsInf(n, 1):
		return isInfinity
	case math.IsInf(n, -1):
		return isNegativeInfinity
	}
	written, _ := json.Marshal(n) // formats numbers as JavaScript does
	return f.primitive(string(written))
}

func (f *flattener) list(depth int) (int, error) {
	n, out := f.place(), []byte{'['}
	f.skip('[')
	for first := true; !f.skip(']'); first = false {
		if !first {
			f.skip(',')
			out = append(out, ',')
		}
		item, err := f.flatten(depth + 1)
		if err != nil {
			return 0, err
		}
		out = strconv.AppendInt(out, int64(item), 10)
	}
	f.values[n] = append(out, ']')
	return n, nil
}

func (f *flattener) object(depth int) (int, error) {
	n, out := f.place(), []byte{'{'}
	f.skip('{')
	for first := true; !f.skip('}'); first = false {
		if !first {
			f.skip(',')
			out = append(out, ',')
		}
		f.space()
		key := f.value()
		if unquote(key) == "__proto__" {
			return 0, entities.Invalid(`the payload has a key "__proto__", which the Workflow SDK does not read`)
		}
		f.skip(':')
		item, err := f.flatten(depth + 1)
		if err != nil {
			return 0, err
		}
		out = strconv.AppendInt(append(append(out, key...), ':'), int64(item), 10)
	}
	f.values[n] = append(out, '}')
	return n, nil
}
