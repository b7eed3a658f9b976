package vet

import (
	"cmp"
	"go/types"
	"slices"
)

// declares are the functions of the SDK whose type arguments are kept in the log.
var declares = []string{
	"NewWorkflow", "NewStep", "NewHook", "NewSignal", "NewInbox", "NewStoreKey",
	"NewErrorKind", "Do", "DoGo", "Value",
}

// dataTypes reports types of inputs, outputs and payloads that JSON does not keep (SW011).
func (c *checker) dataTypes() {
	var findings []finding
	for id, instance := range c.TypesInfo.Instances {
		fn, ok := c.TypesInfo.Uses[id].(*types.Func)
		if !ok || fn.Pkg() == nil || fn.Pkg().Path() != sdk || !slices.Contains(declares, fn.Name()) {
			continue
		}
		for t := range instance.TypeArgs.Types() {
			if why := lost(t, map[types.Type]bool{}); why != "" {
				findings = append(findings, found(id.Pos(), "SW011", "the log does not keep all of %s: %s", t, why))
			}
		}
	}
	slices.SortFunc(findings, func(a, b finding) int { return cmp.Compare(a.pos, b.pos) })
	for _, f := range findings {
		c.report(f)
	}
}

// lost returns what JSON does not keep of a type; empty if it keeps all of it.
func lost(t types.Type, seen map[types.Type]bool) string {
	if seen[t] || marshals(t) {
		return ""
	}
	seen[t] = true
	switch u := t.Underlying().(type) {
	case *types.Chan:
		return "it has a channel"
	case *types.Signature:
		return "it has a function"
	case *types.Basic:
		if u.Info()&types.IsComplex != 0 || u.Kind() == types.UnsafePointer {
			return "it has a " + u.Name()
		}
	case *types.Interface:
		if _, generic := t.(*types.TypeParam); !generic {
			return "it has an interface, whose type is lost"
		}
	case *types.Struct:
		return lostField(u, seen)
	case interface{ Elem() types.Type }: // a pointer, slice, array or map
		return lost(u.Elem(), seen)
	}
	return ""
}

func lostField(s *types.Struct, seen map[types.Type]bool) string {
	for i := range s.NumFields() {
		f := s.Field(i)
		if !f.Exported() && !f.Embedded() {
			if f.Name() == "_" {
				continue
			}
			return "field " + f.Name() + " is not exported"
		}
		if why := lost(f.Type(), seen); why != "" {
			return "field " + f.Name() + ": " + why
		}
	}
	return ""
}

// marshals reports whether a type makes its own JSON.
func marshals(t types.Type) bool {
	for _, t := range []types.Type{t, types.NewPointer(t)} {
		methods := types.NewMethodSet(t)
		for _, name := range []string{"MarshalJSON", "MarshalText"} {
			if methods.Lookup(nil, name) != nil {
				return true
			}
		}
	}
	return false
}
