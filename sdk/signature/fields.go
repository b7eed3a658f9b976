package signature

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
)

// This file parses the subset of structured fields (RFC 8941) that signatures use: dictionaries whose values are inner
// lists of strings with parameters, or byte sequences. Anything else is an error.

// maxMembers limits the number of members in a dictionary.
const maxMembers = 20

var errField = errors.New("not a structured field")

// member is one entry of a dictionary.
type member struct {
	key string
	// raw is the unparsed value with its parameters.
	raw string
	// list is set for an inner list, bytes for a byte sequence.
	list   []string
	bytes  []byte
	params map[string]any // values are strings or int64s
}

// dictionary parses a header as a dictionary.
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

// find returns the member with the key, or nil.
func find(members []member, key string) *member {
	for i := range members {
		if members[i].key == key {
			return &members[i]
		}
	}
	return nil
}

// scanner consumes a field from its start.
type scanner struct{ rest string }

func (s *scanner) skip(blanks string) { s.rest = strings.TrimLeft(s.rest, blanks) }

func (s *scanner) eat(c byte) bool {
	if s.rest == "" || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// until returns the text before the next c and skips past c.
func (s *scanner) until(c byte) (string, bool) {
	before, after, ok := strings.Cut(s.rest, string(c))
	if ok {
		s.rest = after
	}
	return before, ok
}

// while returns the longest prefix of bytes from the set.
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

// innerList parses the strings of a list. Parameters on a string change its meaning and are not supported.
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

// text parses a string. Escapes are not supported, as no component name needs one.
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

// parameters parses string and integer parameters.
func (s *scanner) parameters() (map[string]any, error) {
	params := map[string]any{}
	for s.eat(';') {
		s.skip(" ")
		key := s.while(keyBytes)
		if _, duplicate := params[key]; key == "" || duplicate || !s.eat('=') {
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
