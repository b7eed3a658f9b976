package condition

import (
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"github.com/stepwell-dev/stepwell/schema/pattern"
)

// CEL charges calls after they have run, and charges some of them one unit whatever they do. That is too late for calls
// whose work can exceed the whole limit: matches, comparisons of nested values, and "+", which builds larger values.
// They are replaced by [charged] calls. The work of all other calls is at most proportional to the size of the signal,
// so they may be charged afterwards, by [textCost].

const (
	// charsPerUnit is how many bytes of text make up one unit of cost, as in CEL's own costs.
	charsPerUnit = 10
	// zoneCost is the cost of a call with the name of a time zone: the zone is looked up in several folders each time.
	zoneCost = 1000
)

// charged is a call that is charged before it runs.
type charged struct {
	interpreter.InterpretableCall

	// cost returns the cost of the call, and run carries it out.
	cost func(args []ref.Val) int
	run  func(args []ref.Val) ref.Val
}

// Exec evaluates the call within the remaining cost.
func (c *charged) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	args := make([]ref.Val, len(c.Args()))
	for i, arg := range c.Args() {
		args[i] = arg.Exec(frame)
		if types.IsUnknownOrError(args[i]) {
			return args[i]
		}
	}
	if tracker := frame.CostTracker(); tracker != nil {
		tracker.EvalUnary(frame, c.ID(), work{}, types.Int(c.cost(args)), nil) // panics beyond the limit; CEL recovers
	}
	return c.run(args)
}

// Eval evaluates the call outside of a program.
func (c *charged) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, c.Exec)
}

// Function and OverloadID hide what is called: CEL would replace calls that it knows by others, which it does not
// charge before they run.
func (*charged) Function() string   { return work{}.Function() }
func (*charged) OverloadID() string { return work{}.OverloadID() }

// work is the name under which charged calls charge their cost: its argument.
type work struct{}

func (work) Function() string   { return "stepwell.work" }
func (work) OverloadID() string { return "stepwell.work" }

// Limits returns the options of programs that limit their cost.
func Limits(most uint64) []cel.ProgramOption {
	return []cel.ProgramOption{
		cel.CustomDecoratorV2(chargeFirst),
		cel.EvalOptions(cel.OptOptimize), // prepares constant lists at compile time
		cel.CostTracking(textCost{}),
		cel.CostTrackerOptions(cost.OverloadTracker(work{}.OverloadID(), func(args []ref.Val, _ ref.Val) *uint64 {
			units := uint64(args[0].(types.Int))
			return &units
		})),
		cel.CostLimit(most),
		cel.InterruptCheckFrequency(interruptCheck),
	}
}

// chargeFirst replaces the calls that must be charged before they run.
func chargeFirst(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	switch call.Function() {
	case operators.Equals:
		return &charged{call, comparisonCost, func(args []ref.Val) ref.Val { return types.Equal(args[0], args[1]) }}, nil
	case operators.NotEquals:
		return &charged{call, comparisonCost, func(args []ref.Val) ref.Val {
			return types.Bool(types.Equal(args[0], args[1]) != types.True)
		}}, nil
	case operators.In:
		return &charged{call, searchCost, contains}, nil
	case operators.Add:
		return &charged{call, sumCost, add}, nil
	case overloads.Matches:
		return newMatch(call)
	default:
		return i, nil
	}
}

// newMatch compiles the pattern of a call of matches, which [patterns] has checked.
func newMatch(call interpreter.InterpretableCall) (interpreter.InterpretableV2, error) {
	literal, ok := call.Args()[1].(interpreter.InterpretableConst)
	if !ok {
		return call, nil // impossible
	}
	text, _ := literal.Value().(types.String)
	compiled, err := pattern.Compile(string(text))
	if err != nil {
		return nil, err
	}
	return &charged{
		call,
		func(args []ref.Val) int { return compiled.Cost(length(args[0])) },
		func(args []ref.Val) ref.Val {
			text, ok := args[0].(types.String)
			if !ok {
				return types.MaybeNoSuchOverloadErr(args[0])
			}
			return types.Bool(compiled.MatchString(string(text)))
		},
	}, nil
}

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
	n := 1 + length(v)/charsPerUnit
	switch v := v.(type) {
	case traits.Lister:
		n += size(v)
		for it := v.Iterator(); n <= limit && it.HasNext() == types.True; {
			n += weight(it.Next(), limit-n) - 1
		}
	case traits.Mapper:
		n += size(v)
		for it := v.Iterator(); n <= limit && it.HasNext() == types.True; {
			key := it.Next()
			n += weight(key, limit-n) - 1
			if n <= limit {
				n += weight(v.Get(key), limit-n)
			}
		}
	default:
	}
	return n
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

func contains(args []ref.Val) ref.Val {
	container, ok := args[1].(traits.Container)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[1])
	}
	return container.Contains(args[0])
}

// sumCost is the cost of "+": the size of the result.
func sumCost(args []ref.Val) int {
	n := 1 + (length(args[0])+length(args[1]))/charsPerUnit
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

// textCost charges calls for the texts that they read and return, and for time zones.
type textCost struct{}

// CallCost returns the cost of a call; nil for CEL's own.
func (textCost) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	if function == overloads.Contains {
		return nil // the length of one text times that of the other
	}
	n := length(result)
	for _, arg := range args {
		n += length(arg)
	}
	units := uint64(1 + n/charsPerUnit)
	if strings.HasPrefix(function, "get") && len(args) == 2 { // getHours("Europe/Berlin") and the like
		units += zoneCost
	}
	return &units
}
