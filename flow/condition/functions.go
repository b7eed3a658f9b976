package condition

import (
	"fmt"
	"math"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
)

// extensions has the functions of cel-go's extensions with their implementations.
var extensions = newEnv(cel.NewCustomEnv, ext.Strings(), ext.Lists(), ext.Math(), cel.OptionalTypes(),
	ext.Encoders(ext.EncodersVersion(0)))

// ofLists are the functions of extensions on lists. They are declared without type parameters: if CEL does not know the
// type of the elements, it would take the type that the first use of one has for that of all.
var ofLists = []string{
	"slice", "flatten", "sort", "@sortByAssociatedKeys", "lists.range", "reverse", "distinct", "first", "last",
	"hasOnly", "hasAny", "hasAll", "hasExactly",
}

// functions declares the functions of expressions besides those of the language: cel-go's extensions, and our own.
// docs/flows.md has all of them in one table. Each is charged before it runs: see [charges].
func functions() []cel.EnvOption {
	list := cel.ListType(cel.DynType)
	options := []cel.EnvOption{
		ext.Strings(), ext.Math(), cel.OptionalTypes(cel.OptionalTypesVersion(1)),
		ext.Bindings(ext.BindingsVersion(0)), ext.Encoders(ext.EncodersVersion(0)),
		cel.Macros(slices.DeleteFunc(extensions.Macros(), func(m cel.Macro) bool { return m.Function() != "sortBy" })...),
		cel.Function("sum", cel.MemberOverload("list_sum", []*cel.Type{list}, cel.DynType)),
		cel.Function("pluck", cel.Overload("pluck_list_string", []*cel.Type{list, cel.StringType}, list)),
	}
	for _, name := range ofLists {
		for _, o := range extensions.Functions()[name].OverloadDecls() {
			args, result := untyped(o.ArgTypes()...), untyped(o.ResultType())[0]
			switch {
			case !o.IsMemberFunction():
				options = append(options, cel.Function(name, cel.Overload(o.ID(), args, result)))
			case args[0].Kind() == types.ListKind:
				options = append(options, cel.Function(name, cel.MemberOverload(o.ID(), args, result)))
			}
		}
	}
	// Whole numbers of JSON are ints, so what is for doubles is for ints as well.
	for _, t := range []*cel.Type{cel.IntType, cel.UintType} {
		for name := range roundings {
			options = append(options, cel.Function(name, cel.Overload(mixed+name+t.String(), []*cel.Type{t}, t,
				cel.UnaryBinding(func(v ref.Val) ref.Val { return v }))))
		}
		for name, is := range map[string]types.Bool{"math.isNaN": false, "math.isInf": false, "math.isFinite": true} {
			options = append(options, cel.Function(name, cel.Overload(mixed+name+t.String(), []*cel.Type{t}, cel.BoolType,
				cel.UnaryBinding(func(ref.Val) ref.Val { return is }))))
		}
	}
	return options
}

// untyped returns types with "any" in place of type parameters.
func untyped(of ...*cel.Type) []*cel.Type {
	all := make([]*cel.Type, 0, len(of))
	for _, t := range of {
		switch {
		case t.Kind() == types.TypeParamKind:
			t = cel.DynType
		case t.Kind() == types.ListKind:
			t = cel.ListType(untyped(t.Parameters()...)[0])
		case t.Kind() == types.OpaqueKind: // an optional value
			t = cel.OptionalType(untyped(t.Parameters()...)[0])
		}
		all = append(all, t)
	}
	return all
}

// library has the functions that are carried out by the extension that declares them.
var library = implementations()

func implementations() map[string]func([]ref.Val) ref.Val {
	all := map[string]func([]ref.Val) ref.Val{}
	for name, declaration := range extensions.Functions() {
		bindings, err := declaration.Bindings()
		if err != nil {
			panic(fmt.Sprintf("condition: invalid function: %v", err)) // all declarations are constants
		}
		for _, b := range bindings {
			if b.Operator != name {
				continue
			}
			all[name] = func(args []ref.Val) ref.Val {
				switch {
				case b.Function != nil:
					return b.Function(args...)
				case len(args) == 1:
					return b.Unary(args[0])
				default:
					return b.Binary(args[0], args[1])
				}
			}
		}
	}
	return all
}

// roundings are the functions that make doubles whole.
var roundings = map[string]func(float64) float64{
	"math.ceil": math.Ceil, "math.floor": math.Floor, "math.round": math.Round, "math.trunc": math.Trunc,
}

// rounded returns the result of a rounding, which is an int if it fits.
func rounded(round func(float64) float64) func([]ref.Val) ref.Val {
	return func(args []ref.Val) ref.Val {
		switch v := args[0].(type) {
		case types.Int, types.Uint:
			return v
		case types.Double:
			return whole(types.Double(round(float64(v))))
		default:
			return types.MaybeNoSuchOverloadErr(v)
		}
	}
}
