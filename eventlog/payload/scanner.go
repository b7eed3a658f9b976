package payload

// scanner splits JSON, which must be valid, into values without decoding them.
type scanner struct {
	b []byte
}

func (s *scanner) space() {
	for len(s.b) > 0 && isSpace(s.b[0]) {
		s.b = s.b[1:]
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// next returns the first byte of the next token, or 0 at the end.
func (s *scanner) next() byte {
	s.space()
	if len(s.b) == 0 {
		return 0
	}
	return s.b[0]
}

// skip consumes the next byte if it is c.
func (s *scanner) skip(c byte) bool {
	if s.next() != c {
		return false
	}
	s.b = s.b[1:]
	return true
}

// value consumes the next value and returns its text.
func (s *scanner) value() []byte {
	n := 0
	switch s.next() {
	case '"':
		n = stringLength(s.b)
	case '[', '{':
		n = nestLength(s.b)
	default:
		for n < len(s.b) && !isSpace(s.b[n]) && s.b[n] != ',' && s.b[n] != ']' && s.b[n] != '}' {
			n++
		}
	}
	v := s.b[:n]
	s.b = s.b[n:]
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

// nestLength returns the length of the array or object at the start of b.
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

// items returns the elements of an array.
func items(list []byte) [][]byte { return appendItems(nil, list) }

// appendItems appends the elements of an array.
func appendItems(dst [][]byte, list []byte) [][]byte {
	s := scanner{list}
	if !s.skip('[') || s.skip(']') {
		return dst
	}
	for {
		dst = append(dst, s.value())
		if !s.skip(',') {
			return dst
		}
	}
}

// field is a member of an object. The key is quoted.
type field struct{ key, value []byte }

// fields returns the members of an object in their order.
func fields(object []byte) []field { return appendFields(nil, object) }

// appendFields appends the members of an object in their order.
func appendFields(dst []field, object []byte) []field {
	s := scanner{object}
	if !s.skip('{') || s.skip('}') {
		return dst
	}
	for {
		s.space()
		key := s.value()
		s.skip(':')
		dst = append(dst, field{key, s.value()})
		if !s.skip(',') {
			return dst
		}
	}
}
