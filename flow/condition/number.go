package condition

import (
	"cmp"
	"encoding/json"
	"math"
	"math/big"
	"strconv"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// JSON has one kind of number, CEL has three. Here a number of JSON that is whole is an int, or a uint if it is too
// large for one, however it is written; all others are the nearest doubles. What is computed with values whose types
// are not known when the expression is compiled, as those of JSON, is what it would be with one kind of number:
// [calculate]. Operations on known types, such as 7 / 2, are those of CEL.

const (
	// maxExact is the greatest number up to which doubles represent every whole number.
	maxExact = 1 << 53
	// beyondUints and beyondInts are the first numbers beyond uints and ints, as doubles.
	beyondUints = 1 << 64
	beyondInts  = 1 << 63
)

// number returns a number of JSON for CEL.
func number(n json.Number) any {
	text := n.String()
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i
	}
	if u, err := strconv.ParseUint(text, 10, 64); err == nil {
		return u
	}
	d, _ := n.Float64() // out of range becomes infinity, which compares correctly
	if d != math.Trunc(d) || math.Abs(d) > beyondUints {
		return d
	}
	if math.Abs(d) >= maxExact { // the double may be another number than the text
		if exact, ok := new(big.Rat).SetString(text); ok && exact.IsInt() {
			if v, ok := integer(exact.Num()); ok {
				return v.Value()
			}
		}
	}
	return whole(types.Double(d)).Value()
}

// integer returns a whole number of up to 64 bits.
func integer(i *big.Int) (ref.Val, bool) {
	switch {
	case i.IsInt64():
		return types.Int(i.Int64()), true
	case i.IsUint64():
		return types.Uint(i.Uint64()), true
	default:
		return nil, false
	}
}

// whole returns a double as an int or uint if it is a whole number of up to 64 bits. Other values stay.
func whole(v ref.Val) ref.Val {
	d, ok := v.(types.Double)
	f := float64(d)
	switch {
	case !ok || f != math.Trunc(f) || f < -beyondInts || f >= beyondUints:
		return v
	case f < beyondInts:
		return types.Int(f)
	default:
		return types.Uint(f)
	}
}

func isNumber(v ref.Val) bool {
	switch v.(type) {
	case types.Int, types.Uint, types.Double:
		return true
	default:
		return false
	}
}

// compareNumbers compares two numbers of any types exactly. CEL would compare an int with a double as doubles. They are
// not ordered if one of them is NaN.
func compareNumbers(a, b ref.Val) (order int, ordered bool) {
	x, isDouble := a.(types.Double)
	y, areDoubles := b.(types.Double)
	switch {
	case isDouble && math.IsNaN(float64(x)) || areDoubles && math.IsNaN(float64(y)):
		return 0, false
	case isDouble && areDoubles:
		return cmp.Compare(x, y), true
	case isDouble:
		return -compareWithDouble(b, float64(x)), true
	case areDoubles:
		return compareWithDouble(a, float64(y)), true
	default:
		return compareWhole(a, b), true
	}
}

// compareWithDouble compares an int or uint with a double: with its whole part, and then that with the double.
func compareWithDouble(i ref.Val, d float64) int {
	switch {
	case d >= beyondUints:
		return -1
	case d < -beyondInts:
		return 1
	}
	part := math.Trunc(d)
	if order := compareWhole(i, whole(types.Double(part))); order != 0 {
		return order
	}
	return cmp.Compare(part, d)
}

func compareWhole(a, b ref.Val) int {
	order, _ := a.(traits.Comparer).Compare(b).(types.Int)
	return int(order)
}

// errors of operations on numbers.
var (
	errTooLarge = types.NewErr("the result is too large for a number")
	errZero     = types.NewErr("division by zero")
	errDigits   = types.NewErr("a whole number beyond 2^53 and one that is not whole have too many digits together; " +
		"write double(…) around both for about 16 digits")
	errModulo = types.NewErr("the remainder is defined for whole numbers only")
)

// calculate carries out an operation on two numbers of any types. The result is exact if it is a whole number of up to
// 64 bits, and else the nearest double. What would be another number than that is an error.
func calculate(operator string, a, b ref.Val) ref.Val {
	a, b = whole(a), whole(b)
	switch {
	case isWhole(a) && isWhole(b):
		return calculateWhole(operator, a, b)
	case isLarge(a), isLarge(b):
		return errDigits
	default:
		return calculateDoubles(operator, toDouble(a), toDouble(b))
	}
}

// isWhole reports whether a number is whole: doubles beyond 64 bits are, but for infinity.
func isWhole(v ref.Val) bool {
	d, isDouble := v.(types.Double)
	f := float64(d)
	return !isDouble || f == math.Trunc(f) && !math.IsInf(f, 0)
}

// isLarge reports whether a number is an int or uint that doubles need not represent.
func isLarge(v ref.Val) bool {
	return isInteger(v) && (compareWithDouble(v, maxExact) > 0 || compareWithDouble(v, -maxExact) < 0)
}

func toDouble(v ref.Val) float64 {
	d, _ := v.ConvertToType(types.DoubleType).(types.Double)
	return float64(d)
}

// calculateDoubles carries out an operation on numbers of which at least one is not whole, as far as doubles can tell.
func calculateDoubles(operator string, a, b float64) ref.Val {
	var result float64
	switch operator {
	case operators.Add:
		result = a + b
	case operators.Subtract:
		result = a - b
	case operators.Multiply:
		result = a * b
	case operators.Divide:
		if b == 0 {
			return errZero
		}
		result = a / b
	default:
		return errModulo
	}
	switch {
	case math.IsInf(result, 0) || math.IsNaN(result):
		return errTooLarge
	case math.Abs(result) >= maxExact && math.Abs(result) <= beyondUints:
		if exact := exactly(operator, a, b); exact.IsInt() {
			if v, ok := integer(exact.Num()); ok {
				return v
			}
		}
	}
	return whole(types.Double(result))
}

// exactly returns the exact result of an operation on doubles.
func exactly(operator string, a, b float64) *big.Rat {
	x, y := new(big.Rat).SetFloat64(a), new(big.Rat).SetFloat64(b)
	switch operator {
	case operators.Add:
		return x.Add(x, y)
	case operators.Subtract:
		return x.Sub(x, y)
	case operators.Multiply:
		return x.Mul(x, y)
	default:
		return x.Quo(x, y)
	}
}

// calculateWhole carries out an operation on whole numbers.
func calculateWhole(operator string, a, b ref.Val) ref.Val {
	x, y, result := bigOf(a), bigOf(b), new(big.Int)
	if (operator == operators.Divide || operator == operators.Modulo) && y.Sign() == 0 {
		return errZero
	}
	switch operator {
	case operators.Add:
		result.Add(x, y)
	case operators.Subtract:
		result.Sub(x, y)
	case operators.Multiply:
		result.Mul(x, y)
	case operators.Modulo:
		result.Rem(x, y)
	default:
		quotient := new(big.Rat).SetFrac(x, y)
		if !quotient.IsInt() {
			return fraction(quotient)
		}
		result = quotient.Num()
	}
	if v, ok := integer(result); ok {
		return v
	}
	nearest, _ := new(big.Float).SetInt(result).Float64()
	if isInteger(a) && isInteger(b) || math.IsInf(nearest, 0) || isInteger(whole(types.Double(nearest))) {
		return errTooLarge
	}
	return types.Double(nearest)
}

// fraction returns the nearest double to a number that is not whole.
func fraction(v *big.Rat) ref.Val {
	nearest, _ := v.Float64()
	if isWhole(types.Double(nearest)) {
		return errDigits
	}
	return types.Double(nearest)
}

// isInteger reports whether a whole number is exact, and not a double beyond 64 bits.
func isInteger(v ref.Val) bool {
	_, isDouble := v.(types.Double)
	return !isDouble
}

func bigOf(v ref.Val) *big.Int {
	switch v := v.(type) {
	case types.Int:
		return big.NewInt(int64(v))
	case types.Uint:
		return new(big.Int).SetUint64(uint64(v))
	case types.Double:
		exact, _ := big.NewFloat(float64(v)).Int(nil)
		return exact
	default:
		return new(big.Int) // impossible
	}
}

// mixed is the prefix of the overloads of operators on two types of numbers.
const mixed = "mixed_"

// mixedNumbers declares the operators on numbers of two types. Without them, CEL would take input.a + 1 for an int, and
// refuse input.a * 2 + 0.5.
func mixedNumbers() []cel.EnvOption {
	var options []cel.EnvOption
	numbers := []*cel.Type{cel.IntType, cel.UintType, cel.DoubleType}
	for _, operator := range []string{
		operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo,
	} {
		for _, a := range numbers {
			for _, b := range numbers {
				if a != b {
					options = append(options, cel.Function(operator, cel.Overload(
						mixed+operator+a.String()+"_"+b.String(), []*cel.Type{a, b}, cel.DynType)))
				}
			}
		}
	}
	return options
}
