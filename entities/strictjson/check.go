package strictjson

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/stepwell-dev/stepwell/entities"
)

const (
	// MaxDepth limits the nesting of arrays and objects in the results of steps. Decoders have limits of their own, of
	// 10,000 levels or fewer, and what they decode has the result somewhere inside it.
	MaxDepth = 1000
	// maxNumber limits the length of a number in bytes, and its exponent below zero. Above zero, doubles limit it.
	maxNumber = 400
	// wrapped is how many levels more the payloads in a body may have: a command is one itself, and flows put values into
	// each other, such as the outputs of a map's items.
	wrapped = 32
)

// The codes of a [Refusal].
const (
	CodeTooDeep = "nested_too_deeply"
	CodeNumber  = "number_out_of_range"
	CodeName    = "unpaired_surrogate"
)

// Refusal is why a value is not let in. It is an [entities.ErrInvalid].
type Refusal struct{ Code, reason string }

// Error implements error: what is wrong, and its bound.
func (r *Refusal) Error() string { return r.reason }

// Is implements the matching of [errors.Is].
func (r *Refusal) Is(target error) bool { return target == entities.ErrInvalid }

// Check fails with a [Refusal] unless everything that reads a value can decode it. The value is valid JSON. All JSON
// that others send passes here before it is stored or decoded any further: some libraries need hours for a number of
// nine bytes, or do not survive it.
//
//   - It is nested at most [MaxDepth] levels.
//   - Its numbers are [InRange].
//   - Its objects have no names with half of a surrogate pair: decoders make all of these U+FFFD, so that two names
//     become one. Texts may have them, as JavaScript cuts them.
func Check(value []byte) error { return check(value, MaxDepth) }

func check(value []byte, levels int) error {
	depth := 0
	for i := 0; i < len(value); i++ {
		switch c := value[i]; c {
		case '[', '{':
			if depth++; depth > levels {
				return &Refusal{CodeTooDeep, fmt.Sprintf("it is nested deeper than %d levels", MaxDepth)}
			}
		case ']', '}':
			depth--
		case '"':
			end, lone := skipText(value, i)
			if lone && isName(value[end:]) {
				return &Refusal{CodeName, "the name " + cut(value[i:end]) + " has half of a surrogate pair"}
			}
			i = end - 1
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			end := i + len(value[i:]) - len(bytes.TrimLeft(value[i:], "+-.0123456789eE"))
			if !InRange(string(value[i:end])) {
				return &Refusal{CodeNumber, fmt.Sprintf("the number %s is out of range: a number is a double with at most "+
					"%d characters and no exponent below -%d", cut(value[i:end]), maxNumber, maxNumber)}
			}
			i = end - 1
		default:
		}
	}
	return nil
}

// skipText returns the end of the text that begins at a position, and whether it has half of a surrogate pair.
func skipText(value []byte, at int) (end int, lone bool) {
	high := false // the last character is the first half of a pair
	for i := at + 1; i < len(value); i++ {
		switch {
		case value[i] == '"':
			return i + 1, lone || high
		case value[i] != '\\':
			lone, high = lone || high, false
			continue
		}
		if i++; i+5 > len(value) || value[i] != 'u' { // what it escapes may be a quote
			lone, high = lone || high, false
			continue
		}
		code, _ := strconv.ParseUint(string(value[i+1:i+5]), 16, 16)
		isLow := 0xDC00 <= code && code < 0xE000
		lone, high = lone || high != isLow, 0xD800 <= code && code < 0xDC00
		i += 4
	}
	return len(value), lone
}

// isName reports whether a text is the name of a member, by what follows it.
func isName(rest []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte(":")) }

// cut shortens a text for a message.
func cut(text []byte) string {
	const most = 40
	if len(text) <= most {
		return string(text)
	}
	return string(bytes.ToValidUTF8(text[:most], nil)) + "…"
}

// shortNumber is a length up to which a number without an exponent is a double.
const shortNumber = 300

// InRange reports whether a JSON number is the text of a double, and so short that exact arithmetic with it is cheap.
func InRange(number string) bool {
	if len(number) > maxNumber {
		return false
	}
	for i := range len(number) {
		if number[i] == 'e' || number[i] == 'E' {
			if exponent, err := strconv.Atoi(number[i+1:]); err != nil || exponent < -maxNumber {
				return false
			}
			break
		}
		if i == len(number)-1 && len(number) <= shortNumber {
			return true
		}
	}
	value, _ := strconv.ParseFloat(number, 64)
	return !math.IsInf(value, 0)
}
