package condition

import (
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/stepwell-dev/stepwell/schema/pattern"
)

// CEL charges calls after they have run, and charges some of them one unit whatever they do. That is too late for calls
// whose work can exceed the whole limit: matches, comparisons of nested values, and what builds larger values, such as
// "+" and join. They are replaced by [charged] calls. The work of all other calls is at most proportional to the size
// of the signal, so they may be charged afterwards, by [textCost].

const (
	// charsPerUnit is how many bytes of text make up one unit of cost, as in CEL's own costs.
	charsPerUnit = 10
	// countedPerUnit is how many bytes of text make up one unit if their characters are only counted.
	countedPerUnit = 100
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
func (*charged) Function() string { return work{}.Function() }

func (*charged) OverloadID() string { return work{}.OverloadID() }

// work is the name under which charged calls charge their cost: its argument.
type work struct{}

func (work) Function() string { return "stepwell.work" }

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

// charge is what is charged for a call before it runs, and how it is carried out.
type charge struct {
	cost func(args []ref.Val) int
	// run is nil if the extension that declares the function carries it out.
	run func(args []ref.Val) ref.Val
	// typed, if there is one, carries out calls of which all types are known at compile time.
	typed func(args []ref.Val) ref.Val
}

// charges are the calls that are charged before they run, by their functions.
var charges = map[string]charge{
	operators.Equals: {cost: comparisonCost, run: func(args []ref.Val) ref.Val {
		return types.Bool(equal(args[0], args[1]))
	}},
	operators.NotEquals: {cost: comparisonCost, run: func(args []ref.Val) ref.Val {
		return types.Bool(!equal(args[0], args[1]))
	}},
	operators.In: {cost: searchCost, run: contains},

	operators.Less:          {cost: orderCost, run: ordered(func(order int) bool { return order < 0 })},
	operators.LessEquals:    {cost: orderCost, run: ordered(func(order int) bool { return order <= 0 })},
	operators.Greater:       {cost: orderCost, run: ordered(func(order int) bool { return order > 0 })},
	operators.GreaterEquals: {cost: orderCost, run: ordered(func(order int) bool { return order >= 0 })},

	operators.Add:      arithmetic(operators.Add, sumCost),
	operators.Subtract: arithmetic(operators.Subtract, operationCost),
	operators.Multiply: arithmetic(operators.Multiply, operationCost),
	operators.Divide:   arithmetic(operators.Divide, operationCost),
	operators.Modulo:   arithmetic(operators.Modulo, operationCost),
	operators.Negate:   {cost: operationCost, run: negate, typed: negateTyped},

	"charAt": {cost: textsCost}, "substring": {cost: textsCost}, "trim": {cost: textsCost},
	"lowerAscii": {cost: textsCost}, "upperAscii": {cost: textsCost}, "strings.quote": {cost: textsCost},
	"base64.encode": {cost: textsCost}, "base64.decode": {cost: textsCost},
	"indexOf": {cost: findCost}, "lastIndexOf": {cost: findCost},
	"replace": {cost: replaceCost}, "split": {cost: splitCost}, "join": {cost: joinCost}, "format": {cost: formatCost},
	"reverse": {cost: func(args []ref.Val) int { return textsCost(args) + sizeOfList(args[0]) }},

	"lists.range": {cost: rangeCost}, "slice": {cost: sliceCost}, "flatten": {cost: flattenCost},
	"first": {cost: constant}, "last": {cost: constant},
	"sort": {cost: sortCost, run: wantLists(func(args []ref.Val) ref.Val { return sorted(args[0], args[0]) })},
	"@sortByAssociatedKeys": {
		cost: sortCost, run: wantLists(func(args []ref.Val) ref.Val { return sorted(args[0], args[1]) }),
	},
	"distinct": {cost: distinctCost, run: wantLists(distinct)},
	"sum":      {cost: totalCost, run: wantLists(sum)},
	"pluck":    {cost: listCost, run: pluck},
	"hasAny":   {cost: pairsCost, run: wantLists(hasAny)},
	"hasAll": {cost: pairsCost, run: wantLists(func(args []ref.Val) ref.Val {
		return types.Bool(hasAll(args[0], args[1]))
	})},
	"hasOnly": {cost: pairsCost, run: wantLists(func(args []ref.Val) ref.Val {
		return types.Bool(hasAll(args[1], args[0]))
	})},
	"hasExactly": {cost: pairsCost, run: wantLists(func(args []ref.Val) ref.Val {
		return types.Bool(hasAll(args[0], args[1]) && hasAll(args[1], args[0]))
	})},

	"math.@min": {cost: listCost, run: extreme(-1)}, "math.@max": {cost: listCost, run: extreme(1)},
	"math.ceil": rounding("math.ceil"), "math.floor": rounding("math.floor"),
	"math.round": rounding("math.round"), "math.trunc": rounding("math.trunc"),
}

// chargeFirst replaces the calls that must be charged before they run.
func chargeFirst(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	name := call.Function()
	if name == overloads.Matches {
		return newMatch(call)
	}
	c, ok := charges[name]
	if !ok {
		return i, nil
	}
	run := c.run
	switch overload := call.OverloadID(); {
	case run == nil:
		run = library[name]
	case c.typed != nil && overload != "" && !strings.HasPrefix(overload, mixed):
		run = c.typed
	}
	return &charged{call, c.cost, run}, nil
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

// rounding returns the charge of a function that makes doubles whole.
func rounding(name string) charge {
	return charge{cost: constant, run: rounded(roundings[name]), typed: library[name]}
}

// textCost charges calls for the texts that they read and return, and for time zones.
type textCost struct{}

// CallCost returns the cost of a call; nil for CEL's own.
func (textCost) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	switch function {
	case overloads.Contains:
		return nil // the length of one text times that of the other
	case overloads.Size:
		units := uint64(1 + length(args[0])/countedPerUnit)
		return &units
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
