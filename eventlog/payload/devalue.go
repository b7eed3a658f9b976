package payload

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The numbers that stand for a value instead of pointing at one.
const (
	isUndefined = -1 - iota
	isHole
	isNaN
	isInfinity
	isNegativeInfinity
	isNegativeZero
	isSparse // begins a list that says which of its items there are
)

var constants = map[int]string{
	isUndefined: `null`, isHole: `null`, isNaN: `"NaN"`, isInfinity: `"Infinity"`, isNegativeInfinity: `"-Infinity"`,
	isNegativeZero: `-0`,
}

// shower writes what a devalue text stands for: a list of values that point at each other, the first of which is
// the whole.
type shower struct {
	values [][]byte
	out    []byte
	limit  int // of out
	// work is how many more bytes of values may be read: each is read once for every place that points at it.
	work int
	// open says of the values being written how deep they are; path is what leads to each depth.
	open map[int]int
	path []string
}

func showDevalue(data []byte, limit int) (json.RawMessage, error) {
	if len(data) > limit {
		return nil, errTooLarge
	}
	if !json.Valid(data) || !utf8.Valid(data) {
		return nil, errOpaque
	}
	t := text{data}
	if t.next() != '[' {
		return showConstant(t.value())
	}
	s := &shower{values: items(data), limit: limit, work: 8 * limit, open: map[int]int{}}
	if len(s.values) == 0 {
		return nil, errOpaque
	}
	if err := s.point(0); err != nil {
		return nil, err
	}
	return s.out, nil
}

// showConstant shows a text that is one number.
func showConstant(number []byte) (json.RawMessage, error) {
	n, err := strconv.Atoi(string(number))
	shown, ok := constants[n]
	if err != nil || !ok || n == isHole {
		return nil, errOpaque
	}
	return json.RawMessage(shown), nil
}

func (s *shower) write(text string) error {
	if len(s.out)+len(text) > s.limit {
		return errTooLarge
	}
	s.out = append(s.out, text...)
	return nil
}

// writeText writes a JSON string.
func (s *shower) writeText(text string) error {
	return s.write(string(quote(text)))
}

// quote makes a JSON string.
func quote(text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // cannot fail on a string
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// spend accounts for n bytes of work.
func (s *shower) spend(n int) error {
	if s.work -= n + 1; s.work < 0 {
		return errTooLarge
	}
	return nil
}

// index reads a number that points or is a constant.
func index(raw []byte) (int, error) {
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		return 0, errOpaque
	}
	return n, nil
}

// pointer reads a number that points at a value.
func (s *shower) pointer(raw []byte) (int, error) {
	n, err := index(raw)
	if err != nil || n < 0 || n >= len(s.values) {
		return 0, errOpaque
	}
	return n, nil
}

// ref writes what a number stands for. Inside what it is part of, it has the name.
func (s *shower) ref(raw []byte, name string) error {
	n, err := index(raw)
	if err != nil {
		return err
	}
	s.path = append(s.path, name)
	defer func() { s.path = s.path[:len(s.path)-1] }()
	return s.point(n)
}

// point writes the value at a place of the list, or a constant.
func (s *shower) point(n int) error {
	if err := s.spend(0); err != nil {
		return err
	}
	if n < 0 {
		shown, ok := constants[n]
		if !ok {
			return errOpaque
		}
		return s.write(shown)
	}
	if n >= len(s.values) {
		return errOpaque
	}
	raw := s.values[n]
	if raw[0] != '[' && raw[0] != '{' {
		return s.write(string(raw))
	}
	if depth, ok := s.open[n]; ok {
		return s.cycle(depth)
	}
	if len(s.open) == maxDepth {
		return errOpaque
	}
	if err := s.spend(len(raw)); err != nil {
		return err
	}
	s.open[n] = len(s.path)
	defer delete(s.open, n)
	if raw[0] == '{' {
		return s.object(fields(raw), "")
	}
	list := items(raw)
	if len(list) > 0 && list[0][0] == '"' {
		return s.typed(list)
	}
	return s.list(list)
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// cycle writes that a value is inside itself.
func (s *shower) cycle(depth int) error {
	where := "#"
	for _, name := range s.path[:depth] {
		where += "/" + pointerEscapes.Replace(name)
	}
	if err := s.spend(len(where)); err != nil {
		return err
	}
	if err := s.write(`{"$ref":`); err != nil {
		return err
	}
	if err := s.writeText(where); err != nil {
		return err
	}
	return s.write(`}`)
}

// object writes an object, after the fields that are given as text, which end in a comma or are none.
func (s *shower) object(all []field, given string) error {
	if err := s.write(`{` + given); err != nil {
		return err
	}
	for _, f := range all {
		if n, err := index(f.value); err != nil {
			return err
		} else if n == isUndefined {
			continue
		}
		if err := s.write(string(f.key) + `:`); err != nil {
			return err
		}
		if err := s.ref(f.value, unquote(f.key)); err != nil {
			return err
		}
		if err := s.write(`,`); err != nil {
			return err
		}
	}
	return s.end('}')
}

// end closes a list or an object whose last item has a comma behind it.
func (s *shower) end(bracket byte) error {
	if last := len(s.out) - 1; s.out[last] == ',' {
		s.out = s.out[:last]
	}
	return s.write(string(bracket))
}

func unquote(raw []byte) string {
	var text string
	_ = json.Unmarshal(raw, &text) // is valid, or no string
	return text
}

func (s *shower) list(list [][]byte) error {
	if len(list) > 0 {
		if n, err := index(list[0]); err == nil && n == isSparse {
			return s.sparse(list[1:])
		}
	}
	if err := s.write(`[`); err != nil {
		return err
	}
	for i, raw := range list {
		if err := s.ref(raw, strconv.Itoa(i)); err != nil {
			return err
		}
		if err := s.write(`,`); err != nil {
			return err
		}
	}
	return s.end(']')
}

// sparse writes a list of which is given how long it is and, by pairs, where something is in it.
func (s *shower) sparse(list [][]byte) error {
	if len(list)%2 == 0 {
		return errOpaque
	}
	length, err := index(list[0])
	if err != nil || length < 0 {
		return errOpaque
	}
	if length > s.limit {
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
	if err := s.spend(length); err != nil {
		return err
	}
	return s.list(dense)
}
