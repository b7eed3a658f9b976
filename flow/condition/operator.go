package condition

import (
	"strings"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

func contains(args []ref.Val) ref.Val {
	if list, ok := args[1].(traits.Lister); ok {
		return types.Bool(has(list, args[0]))
	}
	container, ok := args[1].(traits.Container)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[1])
	}
	return container.Contains(args[0])
}

// ordered returns the comparison of two values that is true for some of their orders.
func ordered(is func(order int) bool) func([]ref.Val) ref.Val {
	return func(args []ref.Val) ref.Val {
		if isNumber(args[0]) && isNumber(args[1]) {
			order, ordered := compareNumbers(args[0], args[1])
			return types.Bool(ordered && is(order))
		}
		comparer, ok := args[0].(traits.Comparer)
		if !ok {
			return noOverload("comparison", args)
		}
		order, ok := comparer.Compare(args[1]).(types.Int)
		if !ok {
			return noOverload("comparison", args)
		}
		return types.Bool(is(int(order)))
	}
}

// noOverload is the error of an operation on values for which there is none.
func noOverload(operation string, args []ref.Val) ref.Val {
	a, b := args[0].Type().TypeName(), args[1].Type().TypeName()
	return types.NewErr("no such overload: %s of %s and %s", operation, a, b)
}

// arithmetic returns the charge of an operator. On numbers whose types are not known at compile time, it is carried out
// by [calculate].
func arithmetic(operator string, cost func([]ref.Val) int) charge {
	return charge{
		cost: cost,
		run: func(args []ref.Val) ref.Val {
			if isNumber(args[0]) && isNumber(args[1]) {
				return calculate(operator, args[0], args[1])
			}
			return operate(operator, args)
		},
		typed: func(args []ref.Val) ref.Val {
			if isNumber(args[0]) && isNumber(args[1]) && args[0].Type() != args[1].Type() { // a part of a list, for example
				return calculate(operator, args[0], args[1])
			}
			return operate(operator, args)
		},
	}
}

// operate carries out an operator as CEL defines it for the types of the values.
func operate(operator string, args []ref.Val) ref.Val {
	var result ref.Val
	switch a := args[0]; operator {
	case operators.Add:
		result = add(args)
	case operators.Subtract:
		if v, ok := a.(traits.Subtractor); ok {
			result = v.Subtract(args[1])
		}
	case operators.Multiply:
		if v, ok := a.(traits.Multiplier); ok {
			result = v.Multiply(args[1])
		}
	case operators.Divide:
		if v, ok := a.(traits.Divider); ok {
			result = v.Divide(args[1])
		}
	default:
		if v, ok := a.(traits.Modder); ok {
			result = v.Modulo(args[1])
		}
	}
	if err, ok := result.(*types.Err); result == nil || ok && err.Error() == "no such overload" {
		return noOverload(strings.Trim(operator, "_"), args)
	}
	return result
}

func negate(args []ref.Val) ref.Val {
	if isNumber(args[0]) {
		return calculate(operators.Subtract, types.Int(0), args[0])
	}
	return negateTyped(args)
}

func negateTyped(args []ref.Val) ref.Val {
	if v, ok := args[0].(traits.Negater); ok && !types.IsBool(args[0]) {
		return v.Negate()
	}
	return types.MaybeNoSuchOverloadErr(args[0])
}

// add carries out "+". CEL would represent the sum of two lists by references to both, so that every access to a sum
// of sums takes time for each of them. Here a sum is a new list. Inside of macros, such as map, lists grow in place.
func add(args []ref.Val) ref.Val {
	first, isList := args[0].(traits.Lister)
	second, areLists := args[1].(traits.Lister)
	_, growing := args[0].(traits.MutableLister)
	if isList && areLists && !growing {
		sum := make([]ref.Val, 0, size(first)+size(second))
		for _, list := range []traits.Lister{first, second} {
			for it := list.Iterator(); it.HasNext() == types.True; {
				sum = append(sum, it.Next())
			}
		}
		return types.NewRefValList(types.DefaultTypeAdapter, sum)
	}
	adder, ok := args[0].(traits.Adder)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	return adder.Add(args[1])
}
