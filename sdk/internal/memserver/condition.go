package memserver

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
)

// evaluateFor evaluates the condition of a hook of the run for a signal's data. It knows the part of CEL that Go has
// too: fields of data, literals, comparisons, &&, || and !. For the rest it returns an error. What cannot be evaluated,
// such as a field that is missing, is false.
func evaluateFor(r *Run, condition string, data any) (bool, error) {
	if condition == "" {
		return true, nil
	}
	attributes := map[string]any{}
	for key, value := range r.attributes {
		attributes[key] = value
	}
	var v any
	expr, err := parser.ParseExpr(condition)
	if err == nil {
		v, err = evaluate(expr, map[string]any{
			"data": data, "run": map[string]any{"id": r.ID, "attributes": attributes}, "true": true, "false": false,
		})
	}
	if err != nil {
		return false, fmt.Errorf("the test server cannot evaluate the condition %q: %w", condition, err)
	}
	return v == true, nil
}

// evaluate returns the value of an expression; nil if it has none.
func evaluate(expr ast.Expr, names map[string]any) (any, error) {
	switch x := expr.(type) {
	case *ast.ParenExpr:
		return evaluate(x.X, names)
	case *ast.BasicLit:
		if x.Kind == token.STRING {
			return strconv.Unquote(x.Value)
		}
		return strconv.ParseFloat(x.Value, 64)
	case *ast.Ident:
		v, ok := names[x.Name]
		if !ok {
			return nil, fmt.Errorf("%s is not known", x.Name)
		}
		return v, nil
	case *ast.SelectorExpr:
		of, err := evaluate(x.X, names)
		fields, _ := of.(map[string]any)
		return fields[x.Sel.Name], err
	case *ast.UnaryExpr:
		v, err := evaluate(x.X, names)
		return negate(x.Op, v), err
	case *ast.BinaryExpr:
		a, err := evaluate(x.X, names)
		if err != nil {
			return nil, err
		}
		b, err := evaluate(x.Y, names)
		if err != nil {
			return nil, err
		}
		return compare(x.Op, a, b)
	default:
		return nil, fmt.Errorf("it has a %T", expr)
	}
}

func negate(op token.Token, v any) any {
	switch v := v.(type) {
	case bool:
		if op == token.NOT {
			return !v
		}
	case float64:
		if op == token.SUB {
			return -v
		}
	}
	return nil
}

// compare returns the value of a comparison; nil if the values cannot be compared.
func compare(op token.Token, a, b any) (any, error) {
	switch op {
	case token.LAND:
		return a == true && b == true, nil
	case token.LOR:
		return a == true || b == true, nil
	case token.EQL:
		return a != nil && reflect.DeepEqual(a, b), nil
	case token.NEQ:
		return a != nil && b != nil && !reflect.DeepEqual(a, b), nil
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		x, isNumber := a.(float64)
		y, too := b.(float64)
		return isNumber && too && constant.Compare(constant.MakeFloat64(x), op, constant.MakeFloat64(y)), nil
	default:
		return nil, fmt.Errorf("it has the operator %s", op)
	}
}
