package payload

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
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
	// open maps the indexes of the values being written to their depth; path holds the key at each depth.
	open map[int]int
	path []string
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
	d := &devalueDecoder{values: items(data), limit: limit, work: 8 * limit, open: map[int]int{}}
	if len(d.values) == 0 {
		return nil, len(data), errOpaque
	}
	err := d.writeValue(0)
	work = len(data) + 8*limit - d.work + len(d.out)
	if err != nil {
		return nil, work, err
	}
	return d.out, work, nil
}

// decodeConstant decodes a text that is only the number of a constant.
func decodeConstant(number []byte) (json.RawMessage, error) {
	n, err := strconv.Atoi(string(number))
	shown, ok := constants[n]
	if err != nil || !ok || n == isHole {
		return nil, errOpaque
	}
	return json.RawMessage(shown), nil
}

func (d *devalueDecoder) write(text string) error {
	if len(d.out)+len(text) > d.limit {
		return errTooLarge
	}
	d.out = append(d.out, text...)
	return nil
}

// writeText writes a JSON string.
func (d *devalueDecoder) writeText(text string) error {
	return d.write(string(quote(text)))
}

// quote encodes a JSON string without escaping HTML.
func quote(text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // cannot fail on a string
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// spend takes n bytes from the work budget.
func (d *devalueDecoder) spend(n int) error {
	if d.work -= n + 1; d.work < 0 {
		return errTooLarge
	}
	return nil
}

// index parses an index or the number of a constant.
func index(raw []byte) (int, error) {
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		return 0, errOpaque
	}
	return n, nil
}

// pointer parses an index, which must be valid.
func (d *devalueDecoder) pointer(raw []byte) (int, error) {
	n, err := index(raw)
	if err != nil || n < 0 || n >= len(d.values) {
		return 0, errOpaque
	}
	return n, nil
}

// writeRef writes the value with the index or constant in raw; name is its key in the parent.
func (d *devalueDecoder) writeRef(raw []byte, name string) error {
	n, err := index(raw)
	if err != nil {
		return err
	}
	d.path = append(d.path, name)
	defer func() { d.path = d.path[:len(d.path)-1] }()
	return d.writeValue(n)
}

// writeValue writes the value at an index, or a constant.
func (d *devalueDecoder) writeValue(n int) error {
	if err := d.spend(0); err != nil {
		return err
	}
	if n < 0 {
		shown, ok := constants[n]
		if !ok {
			return errOpaque
		}
		return d.write(shown)
	}
	if n >= len(d.values) {
		return errOpaque
	}
	raw := d.values[n]
	if raw[0] != '[' && raw[0] != '{' {
		return d.write(string(raw))
	}
	if depth, ok := d.open[n]; ok {
		return d.writeCycle(depth)
	}
	if len(d.open) == maxDepth {
		return errOpaque
	}
	if err := d.spend(len(raw)); err != nil {
		return err
	}
	d.open[n] = len(d.path)
	defer delete(d.open, n)
	if raw[0] == '{' {
		return d.writeObject(fields(raw), "")
	}
	list := items(raw)
	if len(list) > 0 && list[0][0] == '"' {
		return d.writeTyped(list)
	}
	return d.writeList(list)
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// writeCycle writes a JSON pointer to an enclosing value at the given depth.
func (d *devalueDecoder) writeCycle(depth int) error {
	where := "#"
	for _, name := range d.path[:depth] {
		where += "/" + pointerEscapes.Replace(name)
	}
	if err := d.spend(len(where)); err != nil {
		return err
	}
	if err := d.write(`{"$ref":`); err != nil {
		return err
	}
	if err := d.writeText(where); err != nil {
		return err
	}
	return d.write(`}`)
}

// writeObject writes an object that starts with the given fields, which are empty or end in a comma.
func (d *devalueDecoder) writeObject(all []field, given string) error {
	if err := d.write(`{` + given); err != nil {
		return err
	}
	for _, f := range all {
		if n, err := index(f.value); err != nil {
			return err
		} else if n == isUndefined {
			continue
		}
		if err := d.write(string(f.key) + `:`); err != nil {
			return err
		}
		if err := d.writeRef(f.value, unquote(f.key)); err != nil {
			return err
		}
		if err := d.write(`,`); err != nil {
			return err
		}
	}
	return d.end('}')
}

// end replaces a trailing comma by the closing bracket.
func (d *devalueDecoder) end(bracket byte) error {
	if last := len(d.out) - 1; d.out[last] == ',' {
		d.out = d.out[:last]
	}
	return d.write(string(bracket))
}

func unquote(raw []byte) string {
	var text string
	_ = json.Unmarshal(raw, &text) // raw is valid JSON; if it is no string, the text stays empty
	return text
}

func (d *devalueDecoder) writeList(list [][]byte) error {
	if len(list) > 0 {
		if n, err := index(list[0]); err == nil && n == isSparse {
			return d.writeSparse(list[1:])
		}
	}
	if err := d.write(`[`); err != nil {
		return err
	}
	for i, raw := range list {
		if err := d.writeRef(raw, strconv.Itoa(i)); err != nil {
			return err
		}
		if err := d.write(`,`); err != nil {
			return err
		}
	}
	return d.end(']')
}

// writeSparse writes an array with holes, which is encoded as its length and pairs of position and value.
func (d *devalueDecoder) writeSparse(list [][]byte) error {
	if len(list)%2 == 0 {
		return errOpaque
	}
	length, err := index(list[0])
	if err != nil || length < 0 {
		return errOpaque
	}
	if length > d.limit {
		return errTooLarge
	}
	dense := slices.Repeat([][]byte{[]byte("-2")}, length)
	for i := 1; i < len(list); i += 2 {
		at, err := index(list[i])
		if err != nil || at < 0 || at >= length {
			return errOpaque
		}
		dense[at] = list[i+1]
	}
	if err := d.spend(length); err != nil {
		return err
	}
	return d.writeList(dense)
}
