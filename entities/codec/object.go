package codec

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// Object is a map that is encoded field by field, as [Marshal] would encode it, but without reflection and into memory
// that is reused. It is for answers that have thousands of similar maps. Of several fields with one key, the last one
// counts. The zero Object is empty.
type Object struct {
	buf    []byte
	fields []field
	// unordered is set unless the fields were added in the order of their keys. If so, they are encoded as they are.
	unordered bool
	err       error
}

// field is the position of an encoded field in the buffer: its key is before value.
type field struct{ start, value, end int }

// Encoded is what an Object has encoded, as a part of a value for [Marshal]. It is not validated again. A nil Encoded
// is an absent value, which needs ",omitzero".
type Encoded []byte

// MarshalCBOR copies the item.
func (e Encoded) MarshalCBOR() ([]byte, error) { return wrapRaw(e), nil }

// Reset removes all fields, and forgets the error.
func (o *Object) Reset() { *o = Object{buf: o.buf[:0], fields: o.fields[:0]} }

// Text adds a text, unless it is empty.
func (o *Object) Text(key, value string) {
	if value != "" {
		o.add(key, func(dst []byte) ([]byte, error) { return appendString(dst, value), nil })
	}
}

// Int adds an integer.
func (o *Object) Int(key string, value Int) {
	o.add(key, func(dst []byte) ([]byte, error) { return appendInt(dst, value) })
}

// Time adds a time, unless it is zero.
func (o *Object) Time(key string, value Time) {
	if !value.IsZero() {
		o.add(key, func(dst []byte) ([]byte, error) { return value.appendTo(dst), nil })
	}
}

// Bytes adds a byte string.
func (o *Object) Bytes(key string, value []byte) {
	o.add(key, func(dst []byte) ([]byte, error) {
		return append(appendHead(dst, majorBytes, uint64(len(value))), value...), nil
	})
}

// Map adds a map that an Object has encoded.
func (o *Object) Map(key string, value Encoded) {
	o.add(key, func(dst []byte) ([]byte, error) { return append(dst, value...), nil })
}

// Value adds a value of any type that [Marshal] encodes.
func (o *Object) Value(key string, value any) {
	o.add(key, func(dst []byte) ([]byte, error) {
		item, err := Marshal(value)
		return append(dst, item...), err
	})
}

// Merge adds the fields of a map that a client has sent, byte for byte as a [Raw] would be. Fields that are undefined
// are left out. Data that is not a map which clients may send is an [*Error] of AppendTo.
func (o *Object) Merge(data []byte) {
	err := members(data, func(key, value []byte) {
		if len(value) == 1 && value[0] == itemUndefined {
			return
		}
		f := field{start: len(o.buf)}
		o.buf = append(appendHead(o.buf, majorText, uint64(len(key))), key...)
		f.value = len(o.buf)
		o.buf = append(o.buf, value...)
		f.end = len(o.buf)
		o.addField(f)
	})
	if o.err == nil {
		o.err = err
	}
}

// add adds a field, whose value appendValue appends.
func (o *Object) add(key string, appendValue func(dst []byte) ([]byte, error)) {
	f := field{start: len(o.buf)}
	o.buf = appendString(o.buf, key)
	f.value = len(o.buf)
	buf, err := appendValue(o.buf)
	if err != nil {
		if o.err == nil {
			o.err = err
		}
		return
	}
	o.buf, f.end = buf, len(buf)
	o.addField(f)
}

func (o *Object) addField(f field) {
	if n := len(o.fields); n > 0 && bytes.Compare(o.key(o.fields[n-1]), o.key(f)) >= 0 {
		o.unordered = true
	}
	o.fields = append(o.fields, f)
}

// AppendTo appends the map, with its keys in the order of [Marshal]. It fails with the first error of a field.
func (o *Object) AppendTo(dst []byte) ([]byte, error) {
	if o.err != nil {
		return dst, o.err
	}
	if !o.unordered {
		return append(appendHead(dst, majorMap, uint64(len(o.fields))), o.buf...), nil
	}
	slices.SortStableFunc(o.fields, func(a, b field) int { return bytes.Compare(o.key(a), o.key(b)) })
	last := o.fields[:0] // of those with one key
	for i, f := range o.fields {
		if i+1 == len(o.fields) || !bytes.Equal(o.key(f), o.key(o.fields[i+1])) {
			last = append(last, f)
		}
	}
	o.fields = last
	dst = appendHead(dst, majorMap, uint64(len(o.fields)))
	for _, f := range o.fields {
		dst = append(dst, o.buf[f.start:f.end]...)
	}
	return dst, nil
}

func (o *Object) key(f field) []byte { return o.buf[f.start:f.value] }

// appendString is appendText for a string.
func appendString(dst []byte, text string) []byte {
	if !utf8.ValidString(text) {
		return appendText(dst, []byte(text))
	}
	return append(appendHead(dst, majorText, uint64(len(text))), text...)
}

// appendInt appends an integer, as Marshal encodes it.
func appendInt(dst []byte, value Int) ([]byte, error) {
	h := head{major: majorUint, arg: uint64(value)}
	if value < 0 {
		h = head{major: majorNegative, arg: uint64(-1 - value)}
	}
	var item [9]byte
	return appendInteger(dst, h, appendHead(item[:0], h.major, h.arg))
}
