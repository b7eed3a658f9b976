package condition

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types/ref"
	"pgregory.net/rapid"
)

// numbersOf has an expression on two numbers of JSON.
var numbersOf = Environment(cel.Variable("data", cel.DynType), cel.Variable("other", cel.DynType))

// compiledPrograms are the programs of expressions by their texts.
var compiledPrograms sync.Map

func programOf(text string) (cel.Program, error) {
	if known, ok := compiledPrograms.Load(text); ok {
		return known.(cel.Program), nil
	}
	tree, issues := numbersOf.Compile(text)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	program, err := numbersOf.Program(tree, Limits(MaxFlowCost)...)
	compiledPrograms.Store(text, program)
	return program, err
}

// evaluate returns the value of an expression on data. Other is the same again.
func evaluate(t testing.TB, text, data string) (ref.Val, error) {
	t.Helper()
	compiled, err := programOf(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	value, err := Decode([]byte(data))
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	result, _, err := compiled.Eval(map[string]any{"data": value, "other": value})
	return result, err
}

// jsonNumbers are numbers as JSON may write them.
func jsonNumbers() *rapid.Generator[string] {
	edges := []int64{0, 1, 10, 1 << 31, 1 << 52, 1 << 53, 1<<53 + 1, 1 << 62, math.MaxInt64 - 2}
	return rapid.Custom(func(t *rapid.T) string {
		sign := rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign")
		near := rapid.SampledFrom(edges).Draw(t, "edge") + rapid.Int64Range(0, 2).Draw(t, "more")
		switch rapid.IntRange(0, 7).Draw(t, "kind") {
		case 0:
			return fmt.Sprint(rapid.Int64().Draw(t, "int"))
		case 1:
			return fmt.Sprint(rapid.Uint64().Draw(t, "uint"))
		case 2:
			return sign + fmt.Sprint(near) + ".0"
		case 3:
			return sign + fmt.Sprint(near) + "e" + fmt.Sprint(rapid.IntRange(-3, 3).Draw(t, "exponent"))
		case 4:
			return sign + fmt.Sprint(near) + "." + fmt.Sprint(rapid.IntRange(0, 99).Draw(t, "decimals"))
		case 5:
			return rapid.SampledFrom([]string{"18446744073709551615", "18446744073709551616", "9223372036854775808",
				"-9223372036854775808", "-9223372036854775809", "1e30", "-1e30", "1e308", "0.1", "-0.0", "5e-324"}).Draw(t, "far")
		case 6:
			text, _ := json.Marshal(rapid.Float64().Draw(t, "double"))
			return string(text)
		default:
			return sign + fmt.Sprint(near)
		}
	})
}

// meant is the number that a text of JSON means: itself if it is whole and has up to 64 bits, and else the nearest double.
func meant(t *rapid.T, text string) (value *big.Rat, exact bool) {
	value, ok := new(big.Rat).SetString(text)
	if !ok {
		t.Fatalf("%q", text)
	}
	if fits(value) {
		return value, true
	}
	nearest, _ := value.Float64()
	if value.SetFloat64(nearest); fits(value) {
		return value, true
	}
	return value, false
}

// fits reports whether a number is whole and has up to 64 bits.
func fits(v *big.Rat) bool { return v.IsInt() && (v.Num().IsInt64() || v.Num().IsUint64()) }

// valueOf is the number that a result is.
func valueOf(t *rapid.T, v ref.Val) *big.Rat {
	switch v := v.Value().(type) {
	case int64:
		return new(big.Rat).SetInt64(v)
	case uint64:
		return new(big.Rat).SetUint64(v)
	case float64:
		if r := new(big.Rat).SetFloat64(v); r != nil {
			return r
		}
	}
	t.Fatalf("%v is no number", v)
	return nil
}

// TestNumbersCompareExactly: a comparison of two numbers of JSON says what math/big says, alone and in lists and maps.
func TestNumbersCompareExactly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		a, b := jsonNumbers().Draw(rt, "a"), jsonNumbers().Draw(rt, "b")
		x, _ := meant(rt, a)
		y, _ := meant(rt, b)
		order, data := x.Cmp(y), fmt.Sprintf(`{"a":%s,"b":%s}`, a, b)
		for text, want := range map[string]bool{
			`data.a < data.b`: order < 0, `data.a <= data.b`: order <= 0, `data.a > data.b`: order > 0,
			`data.a >= data.b`: order >= 0, `data.a == data.b`: order == 0, `data.a != data.b`: order != 0,
			`data.a in [data.b]`: order == 0, `{"x": [data.a]} == {"x": [data.b]}`: order == 0,
			`math.least(data.a, data.b) == data.a`:                order <= 0,
			`[data.a, data.b].sort() == [data.a, data.b]`:         order <= 0,
			`size([data.a, data.b].distinct()) == 1`:              order == 0,
			`[data.a].hasAny([data.b])`:                           order == 0,
			`optional.of(data.a) == optional.of(data.b)`:          order == 0,
			`double(data.a) < data.b || double(data.a) >= data.b`: true,
		} {
			if got, err := evaluate(t, text, data); err != nil || got.Value() != want {
				rt.Fatalf("%s of %s: got %v, %v; want %v", text, data, got, err, want)
			}
		}
	})
}

// TestDoublesCompareExactlyWithInts, where CEL would make doubles of both.
func TestDoublesCompareExactlyWithInts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`data.a == 9007199254740992.0`: false, `data.a > 9007199254740992.0`: true, `data.a <= 9007199254740992.0`: false,
		`9007199254740992.0 in [data.a]`: false, `data.max < 9223372036854775808.0`: true, `data.max == 9223372036854775808.0`: false,
		`data.umax < 18446744073709551616.0`: true, `data.a == data.b`: false, `data.half > 2`: true, `data.half < 3`: true,
		`data.a < double("inf") && data.a > double("-inf")`: true, `data.a < double("NaN") || data.a >= double("NaN")`: false,
		`double("NaN") == data.a || data.a == double("NaN")`: false,
	} {
		got, err := evaluate(t, text, `{"a":9007199254740993,"b":9007199254740992,"max":9223372036854775807,`+
			`"umax":18446744073709551615,"half":2.5}`)
		if err != nil || got.Value() != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
}

// TestNumbersAreCalculatedExactly: what is computed with two numbers of JSON is what math/big says, rounded to the nearest
// double if it is no whole number of 64 bits; or it is an error.
func TestNumbersAreCalculatedExactly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		a, b := jsonNumbers().Draw(rt, "a"), jsonNumbers().Draw(rt, "b")
		x, isExact := meant(rt, a)
		y, areExact := meant(rt, b)
		data := fmt.Sprintf(`{"a":%s,"b":%s}`, a, b)
		for operator, compute := range map[string]func(z, x, y *big.Rat) *big.Rat{
			"+": (*big.Rat).Add, "-": (*big.Rat).Sub, "*": (*big.Rat).Mul, "/": (*big.Rat).Quo,
		} {
			got, err := evaluate(t, "data.a "+operator+" data.b", data)
			if operator == "/" && y.Sign() == 0 {
				wantError(rt, got, err, "division by zero")
				continue
			}
			want := compute(new(big.Rat), x, y)
			nearest, _ := want.Float64()
			switch {
			case err != nil && refusable(x, y, isExact, areExact, want):
				continue
			case err != nil:
				rt.Fatalf("%s %s %s: %v", a, operator, b, err)
			}
			if !fits(want) {
				want.SetFloat64(nearest)
			}
			if valueOf(rt, got).Cmp(want) != 0 {
				rt.Fatalf("%s %s %s: got %v, want %s", a, operator, b, got, want.FloatString(20))
			}
			if _, isDouble := got.Value().(float64); isDouble && fits(want) {
				rt.Fatalf("%s %s %s: got the double %v, which is whole", a, operator, b, got)
			}
		}
	})
}

// refusable reports whether an operation may be an error: of a whole number beyond 2^53 and one that is not whole, or with a
// result beyond 64 bits or doubles.
func refusable(x, y *big.Rat, isExact, areExact bool, result *big.Rat) bool {
	limit := new(big.Rat).SetInt64(maxExact)
	large := func(v *big.Rat, exact bool) bool { return exact && new(big.Rat).Abs(v).Cmp(limit) > 0 }
	nearest, _ := result.Float64()
	switch {
	case math.IsInf(nearest, 0), large(x, isExact) && !y.IsInt(), large(y, areExact) && !x.IsInt():
		return true
	case result.IsInt():
		return !fits(result) && (isExact && areExact || fits(new(big.Rat).SetFloat64(nearest)))
	default:
		return nearest == math.Trunc(nearest)
	}
}

func wantError(t interface{ Fatalf(string, ...any) }, got ref.Val, err error, reason string) {
	if err == nil || !strings.Contains(err.Error(), reason) {
		t.Fatalf("got %v, %v; want %q", got, err, reason)
	}
}

// TestNumbersAddUp are the numbers that people try first.
func TestNumbersAddUp(t *testing.T) {
	t.Parallel()
	const data = `{"one":1,"two":2.0,"three":3e0,"half":0.5,"price":9.99,"big":9007199254740993,"max":9223372036854775807,
		"umax":18446744073709551615,"far":1e30,"huge":1e308,"text":"7","low":-9223372036854775808,
		"rows":[{"v":1},{"v":2.5},{"v":3.0}]}`
	for text, want := range map[string]any{
		`data.one + 1`: int64(2), `data.one + 1.0`: int64(2), `data.two + 1`: int64(3), `data.three - 1u`: int64(2),
		`data.big + 1`: int64(9007199254740994), `data.big - data.one`: int64(9007199254740992),
		`data.big * 2`: int64(18014398509481986), `data.big / 2`: "too many digits", `data.big / 10`: 900719925474099.25,
		`data.max + 1`: uint64(9223372036854775808), `data.umax - data.umax`: int64(0), `-data.umax`: "too large",
		`-data.low`: uint64(9223372036854775808), `-data.half`: -0.5, `data.max * data.max`: "too large",
		`data.half + data.half`: int64(1), `data.half * 3`: 1.5, `data.price * 2 + 0.5`: 20.48,
		`data.one / 2`: 0.5, `data.three / data.one`: int64(3), `7 / 2`: int64(3), `data.one / 0`: "division by zero",
		`data.half / 0.0`: "division by zero", `data.one % 0`: "division by zero", `data.half % 2`: "whole numbers",
		`data.three % 2`: int64(1), `-7 % data.three`: int64(-1), `data.big + 0.5`: "too many digits",
		`double(data.big) + double(data.half)`: float64(9007199254740992), `data.far + 1`: 1e30, `data.huge * 10`: "too large",
		`data.text + 1`: "no such overload: + of string and int", `data.one - data.text`: "no such overload: - of int and string",
		`[data.half, 1][0] + 1`: 1.5, `data.?none.orValue(2) + data.half`: 2.5, `data.?half.orValue(2) + 1`: 1.5,
		`data.rows.map(r, r.v).sum()`: 6.5, `pluck(data.rows, "v").sum()`: 6.5, `[].sum()`: int64(0), `[data.text].sum()`: "no number",
		`math.greatest(data.one, data.half, data.three)`: int64(3), `math.greatest(pluck(data.rows, "v"))`: int64(3),
		`math.least(data.half, 1)`: 0.5, `math.round(data.two)`: int64(2), `math.round(data.price)`: int64(10),
		`math.round(data.price) % 4`: int64(2), `math.floor(2.5)`: 2.0, `math.abs(data.low + 1)`: int64(math.MaxInt64),
		`math.isNaN(data.one) || math.isInf(data.one) || !math.isFinite(data.two)`: false,
		`"abc".substring(data.two)`: "c", `lists.range(data.two).size()`: int64(2), `string(1000000.0 * data.two)`: "2000000",
		`"%.2f and %d".format([data.two, data.two])`: "2.00 and 2", `timestamp(data.one).getSeconds()`: int64(1),
	} {
		got, err := evaluate(t, text, data)
		reason, isError := want.(string)
		switch {
		case err != nil && isError && strings.Contains(err.Error(), reason):
		case err != nil || got.Value() != want:
			t.Errorf("%s: got %v, %v; want %v", text, got, err, want)
		}
	}
}

// TestListsOfMixedNumbersAreSorted, and equal keys stay in their order.
func TestListsOfMixedNumbersAreSorted(t *testing.T) {
	t.Parallel()
	const data = `{"l":[3,2.5,-1,9007199254740993,9007199254740992,2.5],"rows":[{"k":2.0,"n":"b"},{"k":1.5,"n":"a"},{"k":2,"n":"c"}]}`
	for text, want := range map[string]string{
		`data.l.sort()`: "-1,2.5,2.5,3,9007199254740992,9007199254740993", `data.l.distinct()`: "3,2.5,-1,9007199254740993,9007199254740992",
		`pluck(data.rows.sortBy(r, r.k), "n")`: "a,b,c", `["b", "a"].sort()`: "a,b", `[[1], [1.0], [2]].distinct().flatten()`: "1,2",
		`[true, false].sort()`: "false,true",
	} {
		got, err := evaluate(t, `(`+text+`).map(x, string(x)).join(",")`, data)
		if err != nil || got.Value() != want {
			t.Errorf("%s: got %v, %v; want %s", text, got, err, want)
		}
	}
	for text, reason := range map[string]string{
		`dyn([1, "a"]).sort()`: "have no order", `dyn([null]).sort()`: "have no order", `dyn("text").sort()`: "no list",
		`dyn(5).distinct()`: "no list", `dyn([1]).hasAny(dyn(1))`: "no list", `dyn(5).sum()`: "no list",
	} {
		got, err := evaluate(t, text, `{}`)
		wantError(t, got, err, reason)
	}
}

// TestFunctionsAreCharged: all functions besides those of CEL itself are charged before they run, but for those whose work
// does not depend on their arguments.
func TestFunctionsAreCharged(t *testing.T) {
	t.Parallel()
	standard, err := cel.NewEnv()
	if err != nil {
		t.Fatal(err)
	}
	scalar := []string{
		"math.abs", "math.sign", "math.sqrt", "math.isNaN", "math.isInf", "math.isFinite", "math.bitAnd", "math.bitOr",
		"math.bitXor", "math.bitNot", "math.bitShiftLeft", "math.bitShiftRight", "first", "last", "or", "orValue", "value",
		"hasValue", "optional.of", "optional.none", "optional.ofNonZeroValue", "optional.unwrap", "unwrapOpt", "_?._", "_[?_]",
	}
	for name := range Environment().Functions() {
		if _, ok := standard.Functions()[name]; ok || slices.Contains(scalar, name) {
			continue
		}
		if _, ok := charges[name]; !ok {
			t.Errorf("%s is not charged before it runs", name)
		}
	}
}

// TestFunctionsAreDocumented in the table of docs/flows.md, whose examples compile.
func TestFunctionsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/flows.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| function | is |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var variables []cel.EnvOption
	for _, name := range []string{"a", "b", "k", "l", "n", "s", "input"} {
		variables = append(variables, cel.Variable(name, cel.DynType))
	}
	env, examples := Environment(variables...), 0
	for row := range strings.Lines(table) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		for i, example := range strings.Split(cell, "`") {
			if i%2 == 0 || !strings.ContainsAny(example, ".?") {
				continue
			}
			if _, issues := env.Compile(example); issues.Err() != nil {
				t.Errorf("%s: %v", example, issues.Err())
			}
			examples++
		}
	}
	if examples < 40 {
		t.Errorf("found %d examples", examples)
	}
	standard, err := cel.NewEnv()
	if err != nil {
		t.Fatal(err)
	}
	for name := range env.Functions() {
		_, isStandard := standard.Functions()[name]
		if isStandard || strings.Contains(name, "@") || strings.HasPrefix(name, "_") {
			continue
		}
		if short := name[strings.LastIndex(name, ".")+1:]; !strings.Contains(table, short) {
			t.Errorf("%s is not documented", name)
		}
	}
}
