package condition

import (
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// equal reports whether two values are the same, with all their parts. It is that of CEL, but exact for numbers of two
// types.
func equal(a, b ref.Val) bool {
	switch x := a.(type) {
	case types.Int, types.Uint, types.Double:
		if isNumber(b) {
			order, ordered := compareNumbers(a, b)
			return ordered && order == 0
		}
	case traits.Lister:
		if y, ok := b.(traits.Lister); ok {
			return equalLists(x, y)
		}
	case traits.Mapper:
		if y, ok := b.(traits.Mapper); ok {
			return equalMaps(x, y)
		}
	case *types.Optional:
		if y, ok := b.(*types.Optional); ok && x.HasValue() && y.HasValue() {
			return equal(x.GetValue(), y.GetValue())
		}
	default:
	}
	return types.Equal(a, b) == types.True
}

func equalLists(a, b traits.Lister) bool {
	if size(a) != size(b) {
		return false
	}
	for i, j := a.Iterator(), b.Iterator(); i.HasNext() == types.True; {
		if !equal(i.Next(), j.Next()) {
			return false
		}
	}
	return true
}

func equalMaps(a, b traits.Mapper) bool {
	if size(a) != size(b) {
		return false
	}
	for it := a.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		value, ok := b.Find(key)
		if !ok || !equal(a.Get(key), value) {
			return false
		}
	}
	return true
}

// has reports whether a list has a value.
func has(list traits.Lister, value ref.Val) bool {
	for it := list.Iterator(); it.HasNext() == types.True; {
		if equal(it.Next(), value) {
			return true
		}
	}
	return false
}

// identity returns what equal scalars have in common, as the key of a map. Others have none.
func identity(v ref.Val) (key any, ok bool) {
	switch v := v.(type) {
	case types.String, types.Bool, types.Null:
		return v, true
	case types.Int, types.Uint, types.Double:
		return sameInt(whole(v)), true
	default:
		return nil, false
	}
}

// sameInt returns a uint as an int if it can be one.
func sameInt(v ref.Val) ref.Val {
	if u, ok := v.(types.Uint); ok {
		exact, _ := integer(bigOf(u))
		return exact
	}
	return v
}
