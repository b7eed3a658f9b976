package signature

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
)

// Structured fields (RFC 8941), as far as signatures have them: dictionaries of inner lists of strings with parameters,
// and of byte sequences. What is written in any other way is refused.

// maxMembers is how many members a dictionary may have.
const maxMembers = 20

var errField = errors.New("not a structured field")

// member is one of a dictionary.
type member struct {
	key string
	// raw is its value as it was written, with its parameters.
	raw string
	// list are the strings of an inner list, bytes are those of a byte sequence.
	list   []string
	bytes  []byte
	params map[string]any // strings, and int64s
}

// dictionary reads a header that is one.
func dictionary(h http.Header, name string) ([]member, error) {
	s := scanner{rest: strings.Join(h.Values(name), ", ")}
	var members []member
	for s.skip(" \t"); s.rest != ""; {
		m, err := s.member()
		if err != nil || len(members) == maxMembers || find(members, m.key) != nil {
			return nil, errField
		}
		members = append(members, m)
		s.skip(" \t")
		if s.rest == "" {
			break
		}
		if !s.eat(',') {
			return nil, errField
		}
		if s.skip(" \t"); s.rest == "" {
			return nil, errField
		}
	}
	return members, nil
}

// find is the member with the key; nil if there is none.
func find(members []member, key string) *member {
	for i := range members {
		if members[i].key == key {
			return &members[i]
		}
	}
	return nil
}

// scanner reads a field from its beginning.
type scanner struct{ rest string }

func (s *scanner) skip(blanks string) { s.rest = strings.TrimLeft(s.rest, blanks) }

func (s *scanner) eat(c byte) bool {
	if s.rest == "" || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// until is what comes before the next c, which is passed over.
func (s *scanner) until(c byte) (string, bool) {
	before, after, ok := strings.Cut(s.rest, string(c))
	if ok {
		s.rest = after
	}
	return before, ok
}

// while is what comes before the first byte that is not one of the set.
func (s *scanner) while(set string) string {
	rest := strings.TrimLeft(s.rest, set)
	taken := s.rest[:len(s.rest)-len(rest)]
	s.rest = rest
	return taken
}

const keyBytes = "abcdefghijklmnopqrstuvwxyz0123456789_-.*"

func (s *scanner) member() (m member, err error) {
	if m.key = s.while(keyBytes); m.key == "" || !s.eat('=') {
		return m, errField
	}
	before := s.rest
	switch {
	case s.eat('('):
		m.list, err = s.innerList()
	case s.eat(':'):
		m.bytes, err = s.byteSequence()
	default:
		err = errField
	}
	if err == nil {
		m.params, err = s.parameters()
	}
	m.raw = before[:len(before)-len(s.rest)]
	return m, err
}

// innerList reads the strings of a list. Strings with parameters mean something else than they say, and are refused.
func (s *scanner) innerList() ([]string, error) {
	list := []string{}
	for {
		s.skip(" ")
		if s.eat(')') {
			return list, nil
		}
		item, err := s.text()
		if err != nil || s.rest == "" || s.rest[0] != ' ' && s.rest[0] != ')' {
			return nil, errField
		}
		list = append(list, item)
	}
}

// text reads a string. None that matters here has an escape.
func (s *scanner) text() (string, error) {
	if !s.eat('"') {
		return "", errField
	}
	text, ok := s.until('"')
	if !ok || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' || r == '\\' }) {
		return "", errField
	}
	return text, nil
}

func (s *scanner) byteSequence() ([]byte, error) {
	text, ok := s.until(':')
	if !ok {
		return nil, errField
	}
	return base64.StdEncoding.Strict().DecodeString(text)
}

// parameters reads those that are strings or integers.
func (s *scanner) parameters() (map[string]any, error) {
	params := map[string]any{}
	for s.eat(';') {
		s.skip(" ")
		key := s.while(keyBytes)
		if _, twice := params[key]; key == "" || twice || !s.eat('=') {
			return nil, errField
		}
		var err error
		if strings.HasPrefix(s.rest, `"`) {
			params[key], err = s.text()
		} else {
			params[key], err = strconv.ParseInt(s.while("-0123456789"), 10, 64)
		}
		if err != nil {
			return nil, errField
		}
	}
	return params, nil
}
