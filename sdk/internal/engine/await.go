package engine

import "slices"

// Await is what a workflow waits for, besides payloads of hooks: any of the things in Any, or all of one list in All.
type Await struct {
	Any []string   `json:"any"`
	All [][]string `json:"all"`
}

// await returns what the coroutines wait for; nil if that is not known. A condition can come true only if the first
// operation changes that made it false, so it is evaluated once more to see which operations it asks for.
func (e *Engine) await() *Await {
	if len(e.idle) > 0 {
		return nil
	}
	a := &Await{Any: []string{}, All: [][]string{}}
	defer func() { e.tracked, e.evaluating = nil, nil }()
	for _, c := range e.all {
		if c.ended || c.until == nil {
			continue
		}
		e.evaluating = c
		if together, ok := e.together(c.all); ok {
			a.All = append(a.All, together)
			continue
		}
		e.tracked = func(op *Operation) {
			if ref := op.reference(); ref != "" && !op.isDone() {
				a.Any = append(a.Any, ref)
			}
		}
		c.until()
	}
	slices.Sort(a.Any)
	a.Any = slices.Compact(a.Any)
	total := len(a.Any)
	for _, all := range a.All {
		total += len(all)
	}
	if total > mostAwaited {
		return nil
	}
	return a
}

// mostAwaited is how many references the server takes.
const mostAwaited = 1000

// together returns what a coroutine waits for that needs all of several things; false if that is not several
// operations.
func (e *Engine) together(conditions []func() bool) (refs []string, ok bool) {
	for _, done := range conditions {
		var asked []*Operation
		e.tracked = func(op *Operation) { asked = append(asked, op) }
		switch {
		case done():
		case len(asked) != 1 || asked[0].reference() == "":
			return nil, false
		default:
			refs = append(refs, asked[0].reference())
		}
	}
	return refs, len(refs) > 1
}

// reference names the operation in what a workflow waits for; empty if a workflow is invoked for it anyway.
func (o *Operation) reference() string {
	switch o.Kind {
	case KindStep, KindInline, KindChild:
		return "step:" + o.ID
	case KindWait:
		return "wait:" + o.ID
	default:
		return ""
	}
}
