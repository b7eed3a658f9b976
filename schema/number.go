package schema

import (
	"encoding/json"
	"math/big"
	"strconv"
	"strings"

	"github.com/stepwell-dev/stepwell/entities/strictjson"
)

// outOfRange is what is wrong with a number that a check does not read. Values that came in before there was a bound
// may have them.
const outOfRange = "the number is out of range: want a double with at most 400 characters"

// number is a number in JSON. Its exact value is made when it is needed: most are compared as 64-bit integers.
type number struct {
	text  string
	small int64
	isInt bool // small is its value
	rat   *big.Rat
}

// numberOf returns a number; not ok if it is out of range, so that arithmetic with it could take hours.
func numberOf(text json.Number) (n number, ok bool) {
	n.text = string(text)
	if small, err := strconv.ParseInt(n.text, 10, 64); err == nil {
		n.small, n.isInt = small, true
		return n, true
	}
	return n, strictjson.InRange(n.text)
}

// exact returns the exact value.
func (n *number) exact() *big.Rat {
	switch {
	case n.rat != nil:
	case n.isInt:
		n.rat = new(big.Rat).SetInt64(n.small)
	default:
		n.rat, _ = new(big.Rat).SetString(n.text) // it is the text of a number in range
	}
	return n.rat
}

func (n *number) isWhole() bool { return n.isInt || n.exact().IsInt() }

// compare returns the sign of the difference.
func (n *number) compare(other *number) int {
	if n.isInt && other.isInt {
		switch {
		case n.small < other.small:
			return -1
		case n.small > other.small:
			return 1
		default:
			return 0
		}
	}
	return n.exact().Cmp(other.exact())
}

func (n *number) isMultipleOf(other *number) bool {
	if n.isInt && other.isInt {
		return n.small%other.small == 0
	}
	return new(big.Rat).Quo(n.exact(), other.exact()).IsInt()
}

// canonical returns a text that equal numbers have in common.
func (n *number) canonical() string {
	if n.isInt {
		return strconv.FormatInt(n.small, 10)
	}
	return n.exact().RatString()
}

// numberCost is the cost of exact arithmetic with a number, by its digits and those that its exponent stands for.
// Beyond the range there is no arithmetic.
func numberCost(text json.Number) int {
	_, after, _ := strings.Cut(strings.ToLower(string(text)), "e")
	exponent, _ := strconv.Atoi(after)
	return 1 + (min(len(text), maxDigits)+min(max(exponent, -exponent), maxDigits))/digitsPerUnit
}

const (
	maxDigits     = 400
	digitsPerUnit = 4
)
