package stepwell

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"strconv"
	"strings"
	"testing"
)

// condition returns the condition that Where makes, or what it panics with.
func condition(format string, args ...any) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint("panic: ", p)
		}
	}()
	s := &signalSpec{}
	Where(format, args...)(s)
	return s.Condition
}

func TestWhereQuotes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		format string
		args   []any
		want   string
	}{
		{"data.order == %s", []any{"7"}, `data.order == "7"`},
		{"data.n > %d && data.x < %f", []any{7, 1.5}, `data.n > (7) && data.x < (1.5)`},
		{"data.n > %d", []any{int64(math.MinInt64)}, `data.n > (-9223372036854775808)`},
		{"data.x == %f || data.ok == %t", []any{2.0, true}, `data.x == (2.0) || data.ok == (true)`},
		{"int(data.n) %% 2 == 0", nil, `int(data.n) % 2 == 0`},
		{`data.x == "100%" && data.order == %s`, []any{"a"}, `data.x == "100%" && data.order == "a"`},
		{`data.x == '"' && data.order == %s`, []any{"a"}, `data.x == '"' && data.order == "a"`},
		{`data.x.matches(r"\") && data.order == %s`, []any{"a"}, `data.x.matches(r"\") && data.order == "a"`},
		{`data.x == """a "b" c""" && data.order == %s`, []any{"a"}, `data.x == """a "b" c""" && data.order == "a"`},
		{"data.a == %s // it's so\n", []any{"a"}, "data.a == \"a\" // it's so\n"},
		{"f(%s,%s)", []any{"a\"\\\n", "ä€😀\xff"}, `f("a\"\\\n","\u00e4\u20ac\U0001f600\ufffd")`},
	} {
		if got := condition(c.format, c.args...); got != c.want {
			t.Errorf("%q: got %s, want %s", c.format, got, c.want)
		}
	}
	for format, args := range map[string][]any{
		`data.order == "%s"`:  {"7"},
		`data.order == '%s'`:  {"7"},
		`data.order == r"%s"`: {"7"},
		"data.n == %d":        {"7"},
		"data.s == %s":        {7},
		"data.x == %f":        {math.NaN()},
		"data.y == %f":        {math.Inf(1)},
		"data.s == %s ":       {},
		"data.s == 1":         {1},
		"data.s == %v":        {1},
		"data.s == %":         nil,
		"data.s%s":            {"7"},
		"data.%s":             {"7"},
		`data.s == r%s`:       {"7"},
		`data.s == ""%s`:      {"7"},
		"data.n == %d.5":      {7},
		"data.n == %d%d":      {7, 7},
	} {
		if got := condition(format, args...); !strings.HasPrefix(got, "panic: ") {
			t.Errorf("%q was accepted, as %q", format, got)
		}
	}
}

// FuzzWhere checks that no argument changes the shape of a condition. The literals that Where makes mean the same in
// Go, so Go's parser can judge.
func FuzzWhere(f *testing.F) {
	for _, text := range []string{"", `"`, `\`, `\"`, "\n", `" || true || "`, "\x00", "\xff", "ä", "😀", "%s", "'", "//", `\u0022`} {
		f.Add(text, int64(-1), -0.5, true)
	}
	f.Fuzz(func(t *testing.T, text string, n int64, x float64, b bool) {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return
		}
		got := condition("data.s == %s && data.n > %d && data.x < %f && f(%t, %s)", text, n, x, b, text)
		expr, err := parser.ParseExpr(got)
		if err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		var shape []string
		ast.Inspect(expr, func(node ast.Node) bool {
			switch node := node.(type) {
			case nil:
			case *ast.UnaryExpr: // the sign of a number
			case *ast.BasicLit:
				shape = append(shape, node.Kind.String())
				if v, err := strconv.Unquote(node.Value); node.Kind == token.STRING &&
					(err != nil || v != strings.ToValidUTF8(text, "\ufffd") && v != string([]rune(text))) {
					t.Errorf("%q came out as %s", text, node.Value)
				}
			default:
				shape = append(shape, fmt.Sprintf("%T", node)[5:])
			}
			return true
		})
		const want = "BinaryExpr BinaryExpr BinaryExpr BinaryExpr SelectorExpr Ident Ident STRING " +
			"BinaryExpr SelectorExpr Ident Ident ParenExpr INT BinaryExpr SelectorExpr Ident Ident ParenExpr FLOAT " +
			"CallExpr Ident ParenExpr Ident STRING"
		if s := strings.Join(shape, " "); s != want {
			t.Errorf("%s has the shape\n%s, want\n%s", got, s, want)
		}
	})
}
