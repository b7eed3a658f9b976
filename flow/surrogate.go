package flow

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// joinSurrogates returns a JSON document with characters in place of the pairs of escapes, such as \ud83d\ude00, that
// stand for them: YAML does not know these. Spaces after a text keep what follows it in its column.
func joinSurrogates(document []byte) []byte {
	if !surrogate.Match(document) || !json.Valid(document) {
		return document
	}
	joined, lost, inText := make([]byte, 0, len(document)), 0, false
	for len(document) > 0 {
		n := 1
		switch c := document[0]; {
		case c == '"' && inText:
			joined, lost, inText = slices.Concat(joined, document[:1], bytes.Repeat([]byte(" "), lost)), 0, false
			document = document[1:]
			continue
		case c == '"':
			inText = true
		case c == '\\':
			n = 2
		}
		if r, ok := surrogatePair(document); ok {
			joined, document = utf8.AppendRune(joined, r), document[pairLength:]
			lost += pairLength - 1
			continue
		}
		joined, document = append(joined, document[:n]...), document[n:]
	}
	return joined
}

// pairLength is that of a pair of escapes.
const pairLength = len(`\ud83d\ude00`)

// surrogate is the escape of half of a character.
var surrogate = regexp.MustCompile(`\\u[dD][89a-fA-F][0-9a-fA-F]{2}`)

// surrogatePair returns the character for which a text begins with a pair of escapes.
func surrogatePair(text []byte) (rune, bool) {
	if len(text) < pairLength || !bytes.HasPrefix(text, []byte(`\u`)) || !bytes.HasPrefix(text[6:], []byte(`\u`)) {
		return 0, false
	}
	high, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
	low, _ := strconv.ParseUint(string(text[8:12]), 16, 16)
	r := utf16.DecodeRune(rune(high), rune(low))
	return r, r != utf8.RuneError
}

// halfCharacter returns the place of the escape which the YAML parser refuses as no character.
func halfCharacter(err string, document []byte) (*node, bool) {
	at := surrogate.FindIndex(document)
	if at == nil || !strings.Contains(err, "invalid Unicode character escape code") {
		return nil, false
	}
	before := document[:at[0]]
	return &node{
		line:   1 + bytes.Count(before, []byte("\n")),
		column: 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]),
	}, true
}
