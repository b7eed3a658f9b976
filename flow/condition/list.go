package condition

import (
	"slices"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// extreme returns the least number, with the order -1, or the greatest, with 1: of one list, or of the arguments.
func extreme(order int) func([]ref.Val) ref.Val {
	return func(args []ref.Val) ref.Val {
		if list, ok := args[0].(traits.Lister); ok {
			args = elements(list)
		}
		if len(args) == 0 {
			return types.NewErr("an empty list has no least and no greatest number")
		}
		found := args[0]
		for _, v := range args {
			if !isNumber(v) {
				return types.NewErr("a %s is no number", v.Type().TypeName())
			}
			if is, _ := compareNumbers(v, found); is == order {
				found = v
			}
		}
		return found
	}
}

// sum returns the sum of the numbers in a list.
func sum(args []ref.Val) ref.Val {
	total := ref.Val(types.Int(0))
	for _, v := range elements(args[0]) {
		if !isNumber(v) {
			return types.NewErr("sum: a %s is no number", v.Type().TypeName())
		}
		if total = calculate(operators.Add, total, v); types.IsError(total) {
			return total
		}
	}
	return total
}

// pluck returns the values of a field of all objects in a list, and null for what is null.
func pluck(args []ref.Val) ref.Val {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	values := make([]ref.Val, 0, size(list))
	for it := list.Iterator(); it.HasNext() == types.True; {
		item := it.Next()
		object, isObject := item.(traits.Mapper)
		value, found := ref.Val(types.NullValue), item == types.NullValue
		if isObject {
			value, found = object.Find(args[1])
		}
		if !found {
			return types.NewErr("item %d of the list has no %q", len(values), args[1].Value())
		}
		values = append(values, value)
	}
	return listOf(values)
}

// sorted returns the elements of a list in the order of other values, its keys: numbers of any types, or values of one
// type. Elements with equal keys stay in their order.
func sorted(list, keys ref.Val) ref.Val {
	items, by := elements(list), elements(keys)
	places := make([]int, len(items))
	for i, key := range by {
		places[i] = i
		_, isComparer := key.(traits.Comparer)
		if !isComparer || !isNumber(key) && key.Type() != by[0].Type() || isNumber(key) != isNumber(by[0]) {
			return types.NewErr("a %s and a %s have no order", by[0].Type().TypeName(), key.Type().TypeName())
		}
	}
	slices.SortStableFunc(places, func(i, j int) int {
		if isNumber(by[i]) {
			order, _ := compareNumbers(by[i], by[j])
			return order
		}
		return compareWhole(by[i], by[j])
	})
	ordered := make([]ref.Val, len(items))
	for i, place := range places {
		ordered[i] = items[place]
	}
	return listOf(ordered)
}

// distinct returns the elements of a list without those that equal an earlier one.
func distinct(args []ref.Val) ref.Val {
	known := map[any]bool{}
	var unique, nested []ref.Val
	for _, v := range elements(args[0]) {
		key, ok := identity(v)
		switch {
		case ok && known[key]:
			continue
		case ok:
			known[key] = true
		case slices.ContainsFunc(nested, func(other ref.Val) bool { return equal(v, other) }):
			continue
		default:
			nested = append(nested, v)
		}
		unique = append(unique, v)
	}
	return listOf(unique)
}

// wantLists guards a function whose arguments are lists.
func wantLists(run func([]ref.Val) ref.Val) func([]ref.Val) ref.Val {
	return func(args []ref.Val) ref.Val {
		for _, arg := range args {
			if _, ok := arg.(traits.Lister); !ok {
				return types.NewErr("no such overload: a %s is no list", arg.Type().TypeName())
			}
		}
		return run(args)
	}
}

// hasAny reports whether a list has an element of another one.
func hasAny(args []ref.Val) ref.Val {
	list, _ := args[0].(traits.Lister)
	return types.Bool(slices.ContainsFunc(elements(args[1]), func(v ref.Val) bool { return has(list, v) }))
}

// hasAll reports whether a list has all elements of another one.
func hasAll(list, others ref.Val) bool {
	in, _ := list.(traits.Lister)
	return !slices.ContainsFunc(elements(others), func(v ref.Val) bool { return !has(in, v) })
}

// elements returns the elements of a list; none of other values.
func elements(v ref.Val) []ref.Val {
	list, ok := v.(traits.Lister)
	if !ok {
		return nil
	}
	all := make([]ref.Val, 0, size(list))
	for it := list.Iterator(); it.HasNext() == types.True; {
		all = append(all, it.Next())
	}
	return all
}

func listOf(values []ref.Val) ref.Val { return types.NewRefValList(types.DefaultTypeAdapter, values) }
