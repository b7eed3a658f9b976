package condition

import (
	"math"
	"math/bits"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// length returns the length of a text in bytes; 0 for other values.
func length(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	default:
		return 0
	}
}

// weight returns the cost of going through a value with all its parts. It stops beyond the limit: a value that contains
// another one several times can be larger than memory.
func weight(v ref.Val, limit int) int {
	return weigh(v, limit, func(v ref.Val) int { return 1 + length(v)/charsPerUnit })
}

// weigh returns the weight of a value, whose scalars have the weights that leaf says.
func weigh(v ref.Val, limit int, leaf func(ref.Val) int) int {
	switch v := v.(type) {
	case traits.Lister:
		n := 1 + size(v)
		for it := v.Iterator(); n <= limit && it.HasNext() == types.True; {
			n += weigh(it.Next(), limit-n, leaf) - 1
		}
		return n
	case traits.Mapper:
		n := 1 + size(v)
		for it := v.Iterator(); n <= limit && it.HasNext() == types.True; {
			key := it.Next()
			n += weigh(key, limit-n, leaf) - 1
			if n <= limit {
				n += weigh(v.Get(key), limit-n, leaf)
			}
		}
		return n
	case *types.Optional:
		if v.HasValue() {
			return 1 + weigh(v.GetValue(), limit-1, leaf)
		}
		return 1
	default:
		return leaf(v)
	}
}

func size(v traits.Sizer) int {
	n, _ := v.Size().(types.Int)
	return int(n)
}

// comparisonCost is that of the smaller value, because a comparison ends with it.
func comparisonCost(args []ref.Val) int {
	w := weight(args[0], MaxFlowCost)
	return min(w, weight(args[1], w))
}

// searchCost is the cost of "in": comparisons with all elements of a list, or a look-up in a map.
func searchCost(args []ref.Val) int {
	value := weight(args[0], MaxFlowCost)
	list, ok := args[1].(traits.Lister)
	if !ok {
		return value
	}
	n := 1 + size(list)
	for it := list.Iterator(); n <= MaxFlowCost && it.HasNext() == types.True; {
		n += min(value, weight(it.Next(), value)) - 1
	}
	return n
}

// sumCost is the cost of "+": the size of the result, or that of an operation on numbers.
func sumCost(args []ref.Val) int {
	n := operationCost(args) + (length(args[0])+length(args[1]))/charsPerUnit
	if _, growing := args[0].(traits.MutableLister); !growing {
		n += sizeOfList(args[0])
	}
	return n + sizeOfList(args[1])
}

func sizeOfList(v ref.Val) int {
	if list, ok := v.(traits.Lister); ok {
		return size(list)
	}
	return 0
}

// isFar reports whether a double is so large or small that its exact value has many digits.
func isFar(v ref.Val) bool {
	d, ok := v.(types.Double)
	size := math.Abs(float64(d))
	return ok && d != 0 && (size > 1e15 || size < 1e-15)
}

// farCost is the cost of an exact operation on a number that is far.
const farCost = 20

// numberCost is the cost of an operation on a number.
func numberCost(v ref.Val) int {
	if isFar(v) {
		return farCost
	}
	return 1
}

// operationCost is the cost of an operation on numbers.
func operationCost(args []ref.Val) int {
	return max(numberCost(args[0]), numberCost(args[len(args)-1]))
}

// totalCost is the cost of the sum of a list.
func totalCost(args []ref.Val) int { return weigh(args[0], MaxFlowCost, numberCost) }

// orderCost is the cost of the shorter text.
func orderCost(args []ref.Val) int { return 1 + min(length(args[0]), length(args[1]))/charsPerUnit }

// constant is the cost of functions of numbers.
func constant([]ref.Val) int { return 1 }

// textsCost is the cost of going through texts.
func textsCost(args []ref.Val) int {
	n := 0
	for _, arg := range args {
		n += length(arg)
	}
	return 1 + n/charsPerUnit
}

// listCost is the cost of going through a list.
func listCost(args []ref.Val) int { return 1 + sizeOfList(args[0]) }

// findCost is the cost of looking for a text in another one, which is compared at each place.
func findCost(args []ref.Val) int {
	return 1 + bounded(length(args[0]), 1+length(args[1]))/charsPerUnit
}

// bounded multiplies two sizes. It stops beyond the limit.
func bounded(a, b int) int {
	if high, low := bits.Mul64(uint64(max(a, 0)), uint64(max(b, 0))); high == 0 && low < MaxFlowCost*charsPerUnit {
		return int(low)
	}
	return MaxFlowCost * charsPerUnit
}

// replaceCost is the cost of the text and of the result.
func replaceCost(args []ref.Val) int {
	text, _ := args[0].(types.String)
	old, _ := args[1].(types.String)
	n := strings.Count(string(text), string(old))
	if len(args) == 4 {
		if most, _ := args[3].(types.Int); most >= 0 {
			n = min(n, int(most))
		}
	}
	return 1 + (len(text)+bounded(n, length(args[2])))/charsPerUnit
}

// splitCost is the cost of the text and of its parts.
func splitCost(args []ref.Val) int {
	text, _ := args[0].(types.String)
	separator, _ := args[1].(types.String)
	return textsCost(args) + strings.Count(string(text), string(separator))
}

// joinCost is the cost of the result.
func joinCost(args []ref.Val) int {
	n := weight(args[0], MaxFlowCost)
	if len(args) == 2 {
		n += bounded(sizeOfList(args[0]), length(args[1])) / charsPerUnit
	}
	return n
}

// longestNumber is the cost of the longest text of a number.
const longestNumber = 45

// formatCost is the cost of the longest result. Each value is in it once, texts in hexadecimal with twice their length.
func formatCost(args []ref.Val) int {
	text, _ := args[0].(types.String)
	n := textsCost(args) + longestNumber*strings.Count(string(text), "%")
	return n + 2*weigh(args[1], MaxFlowCost, func(v ref.Val) int {
		if isFar(v) {
			return longestNumber
		}
		return 2
	})
}

// rangeCost is the cost of a list of so many numbers.
func rangeCost(args []ref.Val) int {
	n, _ := args[0].(types.Int)
	return 1 + int(min(max(n, 0), MaxFlowCost))
}

// sliceCost is the cost of the elements from a place to another one.
func sliceCost(args []ref.Val) int {
	first, _ := args[1].(types.Int)
	last, _ := args[2].(types.Int)
	return 1 + int(min(max(last-first, 0), types.Int(sizeOfList(args[0]))))
}

// flattenCost is the cost of the result, and of the lists in which its elements were.
func flattenCost(args []ref.Val) int {
	depth := types.Int(1)
	if len(args) == 2 {
		depth, _ = args[1].(types.Int)
	}
	return flatSize(args[0], depth, MaxFlowCost)
}

func flatSize(v ref.Val, depth types.Int, limit int) int {
	list, ok := v.(traits.Lister)
	if !ok || depth < 0 {
		return 1
	}
	n := 1 + size(list)
	for it := list.Iterator(); depth > 0 && n <= limit && it.HasNext() == types.True; {
		n += flatSize(it.Next(), depth-1, limit-n)
	}
	return n
}

// sortCost is the cost of comparing each key with as many others as its list has digits in binary.
func sortCost(args []ref.Val) int {
	keys := args[len(args)-1]
	return bounded(weight(keys, MaxFlowCost), 1+bits.Len(uint(sizeOfList(keys))))
}

// distinctCost is the cost of looking each element up. Those that are no scalars are compared with each other.
func distinctCost(args []ref.Val) int {
	all, nested, count := weight(args[0], MaxFlowCost), 0, 0
	for _, v := range elements(args[0]) {
		if _, ok := identity(v); !ok && nested <= MaxFlowCost {
			nested, count = nested+weight(v, MaxFlowCost), count+1
		}
	}
	return all + bounded(nested, count)
}

// pairsCost is the cost of comparing each element of a list with each of another one.
func pairsCost(args []ref.Val) int {
	return 1 + bounded(weight(args[0], MaxFlowCost), sizeOfList(args[1])) +
		bounded(weight(args[1], MaxFlowCost), sizeOfList(args[0]))
}
