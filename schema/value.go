package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// typeOf returns the name of a value's type.
func typeOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case json.Number:
		return "number"
	default:
		return "string"
	}
}

// canonical returns a text that equal values have in common, and others have not. It is not ok if a number is out of
// range.
func canonical(value any) (text string, ok bool) {
	b, ok := appendCanonical(nil, value)
	return string(b), ok
}

func appendCanonical(b []byte, value any) (_ []byte, ok bool) {
	ok = true
	switch v := value.(type) {
	case nil:
		return append(b, 'n'), true
	case bool:
		return strconv.AppendBool(b, v), true
	case string:
		return strconv.AppendQuote(b, v), true
	case json.Number:
		n, ok := numberOf(v)
		if !ok {
			return b, false
		}
		return append(b, n.canonical()...), true
	case []any:
		b = append(b, '[')
		for i := 0; i < len(v) && ok; i++ {
			b, ok = appendCanonical(b, v[i])
			b = append(b, ',')
		}
		return append(b, ']'), ok
	case map[string]any:
		b = append(b, '{')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if b, ok = appendCanonical(append(strconv.AppendQuote(b, name), ':'), v[name]); !ok {
				break
			}
			b = append(b, ',')
		}
		return append(b, '}'), ok
	default:
		return b, false
	}
}

// weight returns the cost of going through a value with all its parts. It stops beyond the limit.
func weight(value any, limit int) int {
	n := 1
	switch v := value.(type) {
	case string:
		n += textCost(v)
	case json.Number:
		n += numberCost(v)
	case []any:
		for i := 0; i < len(v) && n <= limit; i++ {
			n += weight(v[i], limit-n)
		}
	case map[string]any:
		for name, item := range v {
			if n += 1 + textCost(name) + weight(item, limit-n); n > limit {
				break
			}
		}
	}
	return n
}

// charsPerUnit is how many bytes of a text make up a unit of cost.
const charsPerUnit = 10

func textCost(text string) int { return len(text) / charsPerUnit }

// longestQuote is how many bytes of a text a message has.
const longestQuote = 100

// quote returns a text for a message.
func quote(text string) string {
	if len(text) > longestQuote {
		text = strings.ToValidUTF8(text[:longestQuote], "") + "…"
	}
	quoted := strconv.Quote(text)
	return "'" + strings.ReplaceAll(strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`), `'`, `\'`) + "'"
}

// quoteAll returns names for a message.
func quoteAll(names []string) string {
	var quoted []string
	for _, name := range names[:min(len(names), mostNamed)] {
		quoted = append(quoted, quote(name))
	}
	if len(names) > mostNamed {
		quoted = append(quoted, fmt.Sprintf("and %d more", len(names)-mostNamed))
	}
	return strings.Join(quoted, ", ")
}

// display returns a value for a message.
func display(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		return quote(v)
	case []any, map[string]any:
		return "an " + typeOf(v)
	case json.Number:
		return cut(string(v))
	default:
		return fmt.Sprint(v)
	}
}

func cut(number string) string {
	if len(number) > longestQuote {
		return number[:longestQuote] + "…"
	}
	return number
}

func length(text string) int { return utf8.RuneCountInString(text) }
