package codec

import (
	"bytes"
	"unicode/utf8"
)

const (
	// maxDepth limits the nesting of arrays, maps and tags in accepted CBOR.
	maxDepth = 64

	// maxItems limits the elements of an array and the pairs of a map in accepted CBOR.
	maxItems = 1 << 17
)

// scan validates that data is one CBOR item that clients may send and that every client can read back. It returns data
// itself, or a copy if a text had to be repaired.
//
// Besides malformed and oversized CBOR it rejects items on which cbor-x throws, with which one writer could make runs
// unreadable for all clients: indefinite strings, tags other than those listed (27 calls JS constructors, 29
// dereferences null), dates of 64-bit integers, unassigned simple values, and map keys that are not text.
func scan(data []byte) ([]byte, error) {
	s := scanner{data: data}
	if err := s.item(0); err != nil {
		return nil, err
	}
	return s.data, s.end()
}

// members validates a map as scan does, and calls take with each of its keys and values. Null and undefined have none.
func members(data []byte, take func(key, value []byte)) error {
	if isNil(data) {
		return nil
	}
	s := scanner{data: data}
	h, err := s.head()
	if err != nil {
		return err
	}
	if h.major != majorMap {
		return s.refuse("not a map where one is expected")
	}
	if err := s.pairs(h, 1, take); err != nil {
		return err
	}
	return s.end()
}

// scanner validates one CBOR item without allocating memory for announced sizes.
type scanner struct {
	data  []byte
	off   int
	owned bool // data is a copy that may be changed
}

// refuse returns an error with the current position.
func (s *scanner) refuse(format string, args ...any) error {
	return malformed("CBOR byte %d: "+format, append([]any{s.off}, args...)...)
}

// head reads the next head and moves past it.
func (s *scanner) head() (head, error) {
	h, err := parseHead(s.data[s.off:])
	if err != nil {
		return head{}, s.refuse("%v", err)
	}
	s.off += h.size
	if h.indefinite() && h.major != majorArray && h.major != majorMap {
		return head{}, s.refuse("indefinite length not allowed here")
	}
	return h, nil
}

// end checks that nothing follows the item.
func (s *scanner) end() error {
	if n := len(s.data) - s.off; n > 0 {
		return malformed("%d bytes after the end of the CBOR item", n)
	}
	return nil
}

// item checks the next item; depth counts the containers and tags around it.
func (s *scanner) item(depth int) error {
	h, err := s.head()
	if err != nil {
		return err
	}
	switch h.major {
	case majorUint, majorNegative:
		return nil
	case majorBytes:
		return s.skip(h)
	case majorText:
		return s.text(h)
	case majorArray:
		return s.array(h, depth+1)
	case majorMap:
		return s.object(h, depth+1)
	case majorTag:
		return s.tagged(h.arg, depth+1)
	default:
		return s.simple(h)
	}
}

// skip moves past the content of a string.
func (s *scanner) skip(h head) error {
	if left := len(s.data) - s.off; h.arg > uint64(left) {
		return s.refuse("string of %d bytes, %d left", h.arg, left)
	}
	s.off += int(h.arg)
	return nil
}

// text moves past a text and validates it. cbor-x encodes a lone surrogate in a short JS string (for example half an
// emoji) as three bytes, which are invalid UTF-8. They become U+FFFD, as cbor-x itself does in long strings.
func (s *scanner) text(h head) error {
	start := s.off
	if err := s.skip(h); err != nil {
		return err
	}
	if utf8.Valid(s.data[start:s.off]) {
		return nil
	}
	return s.repair(start, s.off)
}

// repair replaces surrogates in a text that is not UTF-8. Any other invalid byte is an error.
func (s *scanner) repair(start, end int) error {
	s.own()
	for i := start; i < end; {
		r, n := utf8.DecodeRune(s.data[i:end])
		if r == utf8.RuneError && n == 1 {
			if !isSurrogate(s.data[i:end]) {
				return s.refuse("text is not UTF-8")
			}
			n = copy(s.data[i:], string(utf8.RuneError))
		}
		i += n
	}
	return nil
}

// own copies data once, so that the caller's bytes stay unchanged.
func (s *scanner) own() {
	if !s.owned {
		s.data, s.owned = bytes.Clone(s.data), true
	}
}

// isSurrogate reports whether b starts with a surrogate in the three-byte form of UTF-8.
func isSurrogate(b []byte) bool {
	return len(b) >= 3 && b[0] == 0xed && b[1]&0xe0 == 0xa0 && b[2]&0xc0 == 0x80
}

// enter checks depth and announced size of a container whose members take at least width bytes each.
func (s *scanner) enter(h head, depth, width int) error {
	switch left := len(s.data) - s.off; {
	case depth > maxDepth:
		return s.refuse("nested deeper than %d", maxDepth)
	case h.arg > maxItems:
		return s.refuse("more than %d items in one container", maxItems)
	case int(h.arg)*width > left:
		return s.refuse("container of %d items, %d bytes left", h.arg, left)
	}
	return nil
}

// more reports whether a container has more than i members. It moves past the break at its end.
func (s *scanner) more(h head, i int) (bool, error) {
	if !h.indefinite() {
		return i < int(h.arg), nil
	}
	if s.off < len(s.data) && s.data[s.off] == itemBreak {
		s.off++
		return false, nil
	}
	if i >= maxItems {
		return false, s.refuse("more than %d items in one container", maxItems)
	}
	return true, nil
}

// members calls check for each member of a container.
func (s *scanner) members(h head, check func() error) error {
	for i := 0; ; i++ {
		if more, err := s.more(h, i); err != nil || !more {
			return err
		}
		if err := check(); err != nil {
			return err
		}
	}
}

// array checks the elements of an array.
func (s *scanner) array(h head, depth int) error {
	if err := s.enter(h, depth, 1); err != nil {
		return err
	}
	return s.members(h, func() error { return s.item(depth) })
}

// object checks the pairs of a map that represents a JS object: the keys are unique texts.
func (s *scanner) object(h head, depth int) error {
	return s.pairs(h, depth, func(_, _ []byte) {})
}

// pairs is object, and calls take with each key and value.
func (s *scanner) pairs(h head, depth int, take func(key, value []byte)) error {
	if err := s.enter(h, depth, 2); err != nil {
		return err
	}
	var seen keySet
	return s.members(h, func() error {
		key, err := s.key()
		if err != nil {
			return err
		}
		if !seen.add(key) {
			return s.refuse("key %q twice in one map", key)
		}
		start := s.off
		if err := s.item(depth); err != nil {
			return err
		}
		take(key, s.data[start:s.off])
		return nil
	})
}

// key moves past a text key and returns it.
func (s *scanner) key() ([]byte, error) {
	h, err := s.head()
	if err != nil {
		return nil, err
	}
	if h.major != majorText {
		return nil, s.refuse("map key is not text")
	}
	start := s.off
	if err := s.text(h); err != nil {
		return nil, err
	}
	return s.data[start:s.off], nil
}

// entries checks the pairs of a JS Map. Its keys may have any type and need not be unique.
func (s *scanner) entries(h head, depth int) error {
	if err := s.enter(h, depth, 2); err != nil {
		return err
	}
	return s.members(h, func() error {
		if err := s.item(depth); err != nil {
			return err
		}
		return s.item(depth)
	})
}

// tagged checks the content of a tag. It accepts only combinations that clients write.
func (s *scanner) tagged(tag uint64, depth int) error {
	h, err := s.head()
	if err != nil {
		return err
	}
	switch {
	case tag == tagDateText && h.major == majorText:
		return s.text(h)
	case tag == tagDate && isDate(h):
		return nil
	case tag == tagBytes && h.major == majorBytes:
		return s.skip(h)
	case tag == tagSet && h.major == majorArray:
		return s.array(h, depth+1)
	case tag == tagMap && h.major == majorMap:
		return s.entries(h, depth+1)
	}
	return s.refuse("tag %d on this content not allowed", tag)
}

// isDate reports whether h is a number that cbor-x accepts in a date: a float, or an integer other than a BigInt.
func isDate(h head) bool {
	if h.major == majorSimple {
		return h.info >= infoTwoBytes && h.info <= infoEightBytes
	}
	return h.major <= majorNegative && h.info < infoEightBytes
}

// simple checks a simple value: false, true, null, undefined or a float.
func (s *scanner) simple(h head) error {
	if h.info < infoFalse || h.info == infoOneByte {
		return s.refuse("simple value %d not allowed", h.arg)
	}
	return nil
}

// keySet holds the keys of one map. Most maps are small, so it starts as an array, which needs no allocation.
type keySet struct {
	few  [fewKeys][]byte
	n    int // of few
	many map[string]struct{}
}

// fewKeys is the size at which a keySet starts to use a hash set.
const fewKeys = 16

// add adds key and reports whether it is new.
func (k *keySet) add(key []byte) bool {
	for _, old := range k.few[:k.n] {
		if bytes.Equal(old, key) {
			return false
		}
	}
	if k.n < fewKeys {
		k.few[k.n] = key
		k.n++
		return true
	}
	if _, ok := k.many[string(key)]; ok {
		return false
	}
	if k.many == nil {
		k.many = map[string]struct{}{}
	}
	k.many[string(key)] = struct{}{}
	return true
}
