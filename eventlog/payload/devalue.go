package payload

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// The negative numbers that devalue uses for constants instead of indexes.
const (
	isUndefined = -1 - iota
	isHole
	isNaN
	isInfinity
	isNegativeInfinity
	isNegativeZero
	isSparse // starts an array with holes
)

var constants = map[int]string{
	isUndefined: `null`, isHole: `null`, isNaN: `"NaN"`, isInfinity: `"Infinity"`, isNegativeInfinity: `"-Infinity"`,
	isNegativeZero: `-0`,
}

// devalueDecoder writes the value of a devalue text as JSON. The text is a list of values that refer to each other by
// index; the first is the root.
type devalueDecoder struct {
	values [][]byte
	out    []byte
	limit  int // of out, in bytes
	// work is the remaining budget of bytes to read. A value is read once per reference, so a small text could otherwise
	// take exponential time.
	work int
	// open has the depth of each value that is being written, counted from 1, and 0 for the others; nested is how many
	// are being written. Path holds the place at each depth.
	open   []int
	nested int
	path   []place
	// lists and objects have the elements and the members of the values that are being written, the innermost last.
	lists   [][]byte
	objects []field
	// err is the first error. Nothing is written after it.
	err error
}

// devalueDecoders keeps the memory of decoders for the next payloads, of which a log has thousands.
var devalueDecoders = sync.Pool{New: func() any { return new(devalueDecoder) }}

// keptValues is of how many values the memory of a decoder is kept.
const keptValues = 1024

// newDevalueDecoder returns a decoder of a list of values.
func newDevalueDecoder(data []byte, limit int) *devalueDecoder {
	d := devalueDecoders.Get().(*devalueDecoder) //nolint:forcetypeassert // the pool has nothing else
	*d = devalueDecoder{
		limit: limit, work: 8 * limit,
		out:  make([]byte, 0, len(data)), // what is written is rarely longer than what is read
		open: d.open, path: d.path[:0], lists: appendItems(d.lists[:0], data), objects: d.objects[:0],
	}
	d.values = d.lists
	d.open = slices.Grow(d.open[:0], len(d.values))[:len(d.values)]
	clear(d.open)
	return d
}

// free gives the memory of the decoder back, apart from what it has written. It refers to the payload until others
// overwrite it, or it is collected.
func (d *devalueDecoder) free() {
	if max(cap(d.open), cap(d.path), cap(d.lists), cap(d.objects)) <= keptValues {
		d.out = nil
		devalueDecoders.Put(d)
	}
}

// place is where a value is in its parent: its key as a JSON string, or its position if there is none.
type place struct {
	key      []byte
	position int
}

func (p place) String() string {
	if p.key == nil {
		return strconv.Itoa(p.position)
	}
	return unquote(p.key)
}

// decodeDevalue also returns the work: the bytes that it read and wrote.
func decodeDevalue(data []byte, limit int) (_ json.RawMessage, work int, _ error) {
	if len(data) > limit {
		return nil, 0, errTooLarge
	}
	if !json.Valid(data) || !utf8.Valid(data) {
		return nil, len(data), errOpaque
	}
	s := scanner{data}
	if s.next() != '[' {
		value, err := decodeConstant(s.value())
		return value, len(data), err
	}
	d := newDevalueDecoder(data, limit)
	defer d.free()
	if len(d.values) == 0 {
		return nil, len(data), errOpaque
	}
	d.writeValue(0)
	work = len(data) + 8*limit - d.work + len(d.out)
	if d.err != nil {
		return nil, work, d.err
	}
	return d.out, work, nil
}

// decodeConstant decodes a text that is only the number of a constant.
func decodeConstant(number []byte) (json.RawMessage, error) {
	n, err := index(number)
	shown, ok := constants[n]
	if err != nil || !ok || n == isHole {
		return nil, errOpaque
	}
	return json.RawMessage(shown), nil
}

func (d *devalueDecoder) fail(err error) { d.err = cmp.Or(d.err, err) }

func (d *devalueDecoder) write(text string) {
	if d.fits(len(text)) {
		d.out = append(d.out, text...)
	}
}

func (d *devalueDecoder) writeBytes(text []byte) {
	if d.fits(len(text)) {
		d.out = append(d.out, text...)
	}
}

// fits reports whether n more bytes can be written.
func (d *devalueDecoder) fits(n int) bool {
	if len(d.out)+n > d.limit {
		d.fail(errTooLarge)
	}
	return d.err == nil
}

// writeText writes a JSON string.
func (d *devalueDecoder) writeText(text string) { d.write(string(quote(text))) }

// quote encodes a JSON string without escaping HTML.
func quote(text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // cannot fail on a string
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// spend takes n bytes from the work budget.
func (d *devalueDecoder) spend(n int) {
	if d.work -= n + 1; d.work < 0 {
		d.fail(errTooLarge)
	}
}

// index parses an index or the number of a constant.
func index(raw []byte) (int, error) { return strconv.Atoi(string(raw)) }

// referred returns the value with the index in raw; nil if raw is not a valid index.
func (d *devalueDecoder) referred(raw []byte) []byte {
	if n, err := index(raw); err == nil && n >= 0 && n < len(d.values) {
		return d.values[n]
	}
	return nil
}

// writeRef writes the value with the index or constant in raw.
func (d *devalueDecoder) writeRef(raw []byte, at place) {
	n, err := index(raw)
	if err != nil {
		d.fail(errOpaque)
		return
	}
	d.path = append(d.path, at)
	d.writeValue(n)
	d.path = d.path[:len(d.path)-1]
}

// writeValue writes the value at an index, or a constant.
func (d *devalueDecoder) writeValue(n int) {
	d.spend(0)
	switch constant, isConstant := constants[min(n, 0)]; {
	case d.err != nil:
	case isConstant:
		d.write(constant)
	case n < 0 || n >= len(d.values):
		d.fail(errOpaque)
	case d.values[n][0] != '[' && d.values[n][0] != '{':
		d.writeBytes(d.values[n])
	case d.open[n] > 0:
		d.writeCycle(d.open[n] - 1)
	case d.nested == maxDepth:
		d.fail(errOpaque)
	default:
		d.spend(len(d.values[n]))
		d.enter(n)
		d.writeNested(d.values[n])
		d.leave(n)
	}
}

// enter notes that the value at an index is being written, until leave.
func (d *devalueDecoder) enter(n int) {
	d.open[n] = len(d.path) + 1
	d.nested++
}

func (d *devalueDecoder) leave(n int) {
	d.open[n] = 0
	d.nested--
}

// writeNested writes an object or a list.
func (d *devalueDecoder) writeNested(raw []byte) {
	if raw[0] == '{' {
		first := len(d.objects)
		d.objects = appendFields(d.objects, raw)
		d.writeObject(d.objects[first:], "")
		d.objects = d.objects[:first]
		return
	}
	first := len(d.lists)
	d.lists = appendItems(d.lists, raw)
	if list := d.lists[first:]; len(list) > 0 && list[0][0] == '"' {
		d.writeTyped(list)
	} else {
		d.writeList(list)
	}
	d.lists = d.lists[:first]
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// writeCycle writes a JSON pointer to an enclosing value at the given depth.
func (d *devalueDecoder) writeCycle(depth int) {
	var where strings.Builder
	where.WriteByte('#')
	for _, at := range d.path[:depth] {
		where.WriteString("/" + pointerEscapes.Replace(at.String()))
	}
	d.spend(where.Len())
	d.write(`{"$ref":`)
	d.writeText(where.String())
	d.write(`}`)
}

// writeObject writes an object that starts with the given fields, which are empty or end in a comma.
func (d *devalueDecoder) writeObject(all []field, given string) {
	d.write(`{` + given)
	for _, f := range all {
		n, err := index(f.value)
		if err != nil {
			d.fail(errOpaque)
		}
		if d.err != nil {
			return
		}
		if n == isUndefined {
			continue
		}
		d.writeBytes(f.key)
		d.write(`:`)
		d.writeRef(f.value, place{key: f.key})
		d.write(`,`)
	}
	d.end('}')
}

// end replaces a trailing comma by the closing bracket.
func (d *devalueDecoder) end(bracket byte) {
	if n := len(d.out) - 1; n >= 0 && d.out[n] == ',' {
		d.out = d.out[:n]
	}
	if d.fits(1) {
		d.out = append(d.out, bracket)
	}
}

func unquote(raw []byte) string {
	var text string
	_ = json.Unmarshal(raw, &text) // raw is valid JSON; if it is no string, the text stays empty
	return text
}

func (d *devalueDecoder) writeList(list [][]byte) {
	if len(list) > 0 {
		if n, err := index(list[0]); err == nil && n == isSparse {
			d.writeSparse(list[1:])
			return
		}
	}
	d.write(`[`)
	for i, raw := range list {
		if d.writeRef(raw, place{position: i}); d.err != nil {
			return
		}
		d.write(`,`)
	}
	d.end(']')
}

// writeSparse writes an array with holes, which is encoded as its length and pairs of position and value.
func (d *devalueDecoder) writeSparse(list [][]byte) {
	if len(list)%2 == 0 {
		d.fail(errOpaque)
		return
	}
	length, err := index(list[0])
	if err != nil || length < 0 {
		d.fail(errOpaque)
		return
	}
	given := map[int][]byte{}
	for pair := range slices.Chunk(list[1:], 2) {
		at, err := index(pair[0])
		if err != nil || at < 0 || at >= length {
			d.fail(errOpaque)
			return
		}
		given[at] = pair[1]
	}
	d.write(`[`)
	for i := 0; i < length && d.err == nil; i++ {
		if raw, ok := given[i]; ok {
			d.writeRef(raw, place{position: i})
		} else {
			d.writeValue(isHole)
		}
		d.write(`,`)
	}
	d.end(']')
}
