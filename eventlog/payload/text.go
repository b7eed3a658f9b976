package payload

import "bytes"

// text reads valid JSON from the front, value by value, as it is written.
type text struct {
	b []byte
}

func (t *text) space() { t.b = bytes.TrimLeft(t.b, " \t\r\n") }

// next is the first byte of what follows; 0 at the end.
func (t *text) next() byte {
	t.space()
	if len(t.b) == 0 {
		return 0
	}
	return t.b[0]
}

// skip takes what follows if it is the byte.
func (t *text) skip(c byte) bool {
	if t.next() != c {
		return false
	}
	t.b = t.b[1:]
	return true
}

// value takes the next value, whatever it is.
func (t *text) value() []byte {
	n := 0
	switch t.next() {
	case '"':
		n = stringLength(t.b)
	case '[', '{':
		n = nestLength(t.b)
	default:
		if n = bytes.IndexAny(t.b, ",]} \t\r\n"); n < 0 {
			n = len(t.b)
		}
	}
	v := t.b[:n]
	t.b = t.b[n:]
	return v
}

func stringLength(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// nestLength is the length of the list or object that b begins with.
func nestLength(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i += stringLength(b[i:]) - 1
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(b)
}

// items are those of a list.
func items(list []byte) [][]byte {
	t := text{list}
	if !t.skip('[') || t.skip(']') {
		return nil
	}
	var all [][]byte
	for {
		all = append(all, t.value())
		if !t.skip(',') {
			return all
		}
	}
}

// field is one of an object, its key in quotes.
type field struct{ key, value []byte }

// fields are those of an object, in their order.
func fields(object []byte) []field {
	t := text{object}
	if !t.skip('{') || t.skip('}') {
		return nil
	}
	var all []field
	for {
		t.space()
		key := t.value()
		t.skip(':')
		all = append(all, field{key, t.value()})
		if !t.skip(',') {
			return all
		}
	}
}
