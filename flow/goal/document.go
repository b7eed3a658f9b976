package goal

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/flow"
)

// Document returns the flow that executes the plan, as JSON. Its input has what there is in have, and lists of values
// in haveAll.
//
// A step S is the step S of the flow. S--a is the value of the attribute a that S gives, or what S takes of it if that
// depends on more than one other step.
func (p *Plan) Document(describe string) []byte { return p.document(p.root, describe).JSON() }

// builder builds the document of a plan.
type builder struct {
	*Plan
	*flow.Node // the steps
}

func (p *Plan) document(at *flow.Node, describe string) *flow.Node {
	b := builder{p, flow.NewObject(at)}
	for _, i := range p.steps {
		b.step(i)
	}
	goals, output := b.goals(at)
	o := flow.NewObject(at).Set("flow", flow.NewText(at, p.Name))
	if describe != "" {
		o.Set("describe", flow.NewText(at, describe))
	}
	return o.Set("deployment", p.root.Get("deployment")).Set("defaults", p.root.Get("defaults")).
		Set("input", b.input(at)).Set("goals", goals).Set("steps", b.Node).Set("output", output)
}

// input returns the schema of the input.
func (b builder) input(at *flow.Node) *flow.Node {
	text := func(s string) *flow.Node { return flow.NewText(at, s) }
	schema := func(names []string, each func(*flow.Node) *flow.Node) *flow.Node {
		properties := flow.NewObject(at)
		items := make([]*flow.Node, 0, len(names))
		for _, name := range names {
			one := b.attributes[name]
			if one == nil {
				one = flow.NewObject(at)
			}
			properties.Set(name, each(one))
			items = append(items, text(name))
		}
		return flow.NewObject(at).Set("type", text("object")).Set("properties", properties).
			Set("required", flow.NewList(at, items...))
	}
	properties := flow.NewObject(at).Set("have", schema(b.Have, func(n *flow.Node) *flow.Node { return n }))
	required := []*flow.Node{text("have")}
	if len(b.HaveAll) > 0 {
		required = append(required, text("haveAll"))
		properties.Set("haveAll", schema(b.HaveAll, func(n *flow.Node) *flow.Node {
			return flow.NewObject(at).Set("type", text("array")).Set("minItems", flow.NewNumber(at, 1)).Set("items", n)
		}))
	}
	return flow.NewObject(at).Set("type", text("object")).Set("required", flow.NewList(at, required...)).
		Set("properties", properties)
}

// goals adds what is missing for the goals, and returns their steps and the output.
func (b builder) goals(at *flow.Node) (goals, output *flow.Node) {
	output = flow.NewObject(at)
	var ids []*flow.Node
	takes := b.all[b.goal()].takes
	for _, name := range b.Want {
		var id, value string
		if i, ok := b.byID[name]; ok {
			id, value = name, b.result(i)
		} else {
			k := slices.IndexFunc(takes, func(t take) bool { return t.name == name })
			v := b.take(port{b.goal(), k})
			if id, value = v.id, v.text; id == "" {
				id = goalID + "--" + name
				b.add(id, at, nil, "").Set("set", flow.NewText(at, "${"+value+"}"))
				value = stepOf(id) + ".output"
			}
		}
		ids = append(ids, flow.NewText(at, id))
		output.Set(name, flow.NewText(at, "${"+value+"}"))
	}
	return flow.NewList(at, ids...), output
}

// add adds a step that needs others, unless it is there already.
func (b builder) add(id string, at *flow.Node, needs []string, join string) *flow.Node {
	s := flow.NewObject(at)
	if b.Get(id) != nil {
		return s
	}
	if len(needs) > 0 {
		slices.Sort(needs)
		list := make([]*flow.Node, 0, len(needs))
		for _, one := range slices.Compact(needs) {
			list = append(list, flow.NewText(at, one))
		}
		s.Set("needs", flow.NewList(at, list...)).Set("join", flow.NewText(at, join))
	}
	b.Set(id, s)
	return s
}

// stepOf returns how expressions name a step.
func stepOf(id string) string { return fmt.Sprintf("steps[%q]", id) }

// result returns the expression for the result of a step: of a request, the body of the answer.
func (b builder) result(i int) string {
	s := &b.all[i]
	if s.node.Get("http") != nil && !s.isEach() {
		return stepOf(s.id) + ".output.body"
	}
	return stepOf(s.id) + ".output"
}

func (s *step) isEach() bool {
	return slices.ContainsFunc(s.takes, func(t take) bool { return t.each })
}

// value is a value that a step takes: an expression, and the step that has it; that is empty for what is there anyway.
type value struct {
	id, text string
	// soFar has what there is of several values before all of their providers have ended: an expression over ended, the
	// list that the expression of the same name has; empty if one value is enough, or all are needed.
	soFar, ended string
}

// step adds a step, and those for what it takes and gives.
func (b builder) step(i int) {
	s := &b.all[i]
	lets := flow.NewObject(s.node)
	var needs []string
	for k := range s.takes {
		v := b.take(port{i, k})
		if v.id != "" {
			needs = append(needs, v.id)
		}
		if s.takes[k].collect != collectNone {
			lets.Set(s.takes[k].name, b.let(&s.takes[k], v))
		}
	}
	if gate := b.gate(i); gate != "" {
		needs = append(needs, gate)
	}
	o := b.add(s.id, s.node, needs, "every")
	if len(lets.Names()) > 0 {
		o.Set("let", lets)
	}
	o.Set("describe", s.node.Get("describe")).Set("when", s.node.Get("when"))
	if s.isEach() {
		b.each(s, o, lets, i)
	} else {
		b.action(o, s, i)
	}
	for _, g := range s.gives {
		if b.isTaken(i, g.name) {
			b.give(i, g)
		}
	}
}

// let returns the template for what a step takes.
func (b builder) let(t *take, v value) *flow.Node {
	if v.text == "" {
		return t.otherwise()
	}
	return flow.NewText(t.at, "${"+v.text+"}")
}

// otherwise returns the template for what a step has if there is no value.
func (t *take) otherwise() *flow.Node {
	none := "${null}"
	if t.each {
		none = "${[]}"
	}
	return orNode(t.value, flow.NewText(t.at, none))
}

// each adds the fields of a step that is executed for each item.
func (b builder) each(s *step, o, lets *flow.Node, i int) {
	axes, inner, do := flow.NewObject(s.node), flow.NewObject(s.node), flow.NewObject(s.node)
	for k, name := range lets.Names() {
		if each := s.node.Get("takes").Get(name); each.Get("each") != nil && each.Get("each").Text() == "true" {
			axes.Set(name, flow.NewText(each, name))
			inner.Set(name, flow.NewText(each, "${item."+name+"}"))
		} else {
			inner.Set(name, lets.Items()[k])
		}
	}
	action := b.action(flow.NewObject(s.node).Set("let", inner), s, i)
	switch {
	case s.node.Get("call") != nil || s.node.Get("flow") != nil:
		do = action
	case s.node.Get("http") != nil:
		do.Set("steps", flow.NewObject(s.node).Set("request", action)).
			Set("output", flow.NewText(s.node, "${steps.request.output.body}"))
	default:
		do.Set("steps", flow.NewObject(s.node).Set("value", action)).
			Set("output", flow.NewText(s.node, "${steps.value.output}"))
	}
	o.Set("map", axes).Set("concurrency", s.node.Get("concurrency")).Set("tolerate", s.node.Get("tolerate")).Set("do", do)
}

// action sets the fields that say what a step does.
func (b builder) action(o *flow.Node, s *step, i int) *flow.Node {
	taken := flow.NewObject(s.node)
	for _, t := range s.takes {
		if t.collect != collectNone {
			taken.Set(t.name, flow.NewText(t.at, "${"+t.name+"}"))
		}
	}
	for _, name := range actions {
		switch n := s.node.Get(name); {
		case name == "flow" && s.child != "":
			o.Set("flow", flow.NewText(n, s.child))
			if deployment := b.deployments[i]; deployment != "" {
				o.Set("deployment", flow.NewText(n, deployment))
			}
			taken = flow.NewObject(n).Set("have", taken)
		case name == "http" && n != nil:
			o.Set("http", withBody(n, taken))
		case name == "input" && n == nil && (s.node.Get("call") != nil || s.node.Get("flow") != nil):
			o.Set("input", taken)
		default:
			o.Set(name, n)
		}
	}
	return o
}

// withBody returns a request that sends what the step takes, unless it says otherwise.
func withBody(n, taken *flow.Node) *flow.Node {
	method := n.Get("method")
	if !n.IsObject() || n.Get("body") != nil || !method.IsText() ||
		!slices.Contains([]string{"POST", "PUT", "PATCH"}, method.Text()) {
		return n
	}
	request := flow.NewObject(n)
	for k, name := range n.Names() {
		request.Set(name, n.Items()[k])
	}
	return request.Set("body", taken)
}

// isTaken reports whether a step or a goal has an attribute of a step.
func (b builder) isTaken(i int, name string) bool {
	for at, list := range b.sources {
		if b.all[at.step].takes[at.take].name == name && slices.Contains(list, i) {
			return true
		}
	}
	return false
}

// give adds the step that has the value of an attribute.
func (b builder) give(i int, g give) {
	s := &b.all[i]
	result := flow.NewText(g.at, "${"+b.result(i)+"}")
	from := flow.NewText(g.at, "${result."+g.name+"}")
	switch {
	case g.from != nil:
		from = flow.NewText(g.from, "${"+g.from.Text()+"}")
	case s.isEach():
		from = flow.NewText(g.at, fmt.Sprintf("${pluck(result, %q)}", g.name))
	}
	b.add(s.id+"--"+g.name, g.at, []string{s.id}, "every").
		Set("let", flow.NewObject(g.at).Set("result", result)).
		Set("set", from).
		Set("schema", b.attributes[g.name]).
		Set("code", flow.NewText(g.at, "missing_output"))
}

// gate adds what a spare step waits for: the ends of those before it, of which none has given anything.
func (b builder) gate(i int) string {
	if !b.spare[i] {
		return ""
	}
	id := b.all[i].id + "--start"
	var gates []string
	for _, t := range b.spareStarts(i) {
		var before []string
		for _, source := range t.after {
			before = append(before, b.valueOf(t.port, source))
		}
		gate := b.portID(t.port) + "--" + b.all[i].id + "--start"
		b.add(gate, b.all[i].node, before, "none").Set("set", flow.NewText(b.all[i].node, "${true}"))
		gates = append(gates, gate)
	}
	if len(gates) == 1 {
		return gates[0]
	}
	b.add(id, b.all[i].node, gates, "any").Set("set", flow.NewText(b.all[i].node, "${true}"))
	return id
}

// portID is the ID of the step that has what a port takes.
func (b builder) portID(at port) string {
	return b.all[at.step].id + "--" + b.all[at.step].takes[at.take].name
}

// valueOf returns the step that has the value which a provider gives a port, if it matches.
func (b builder) valueOf(at port, source int) string {
	t := &b.all[at.step].takes[at.take]
	id := b.all[source].id + "--" + t.name
	if t.match == nil {
		return id
	}
	matched := b.portID(at) + "--" + b.all[source].id
	b.add(matched, t.at, []string{id}, "every").
		Set("let", flow.NewObject(t.at).Set("value", flow.NewText(t.at, "${"+stepOf(id)+".output}"))).
		Set("when", t.match).Set("set", flow.NewText(t.at, "${value}"))
	return matched
}

// take adds the steps that have what a port takes, and returns the last one of them.
func (b builder) take(at port) value {
	t := &b.all[at.step].takes[at.take]
	if t.fixed {
		return value{}
	}
	var ids []string
	for _, source := range b.sources[at] {
		ids = append(ids, b.valueOf(at, source))
	}
	have := b.haveOf(at, len(ids) > 0)
	if have.id != "" {
		ids = append([]string{have.id}, ids...)
	}
	switch {
	case len(ids) == 0 && have.text == "":
		return value{}
	case len(ids) == 0:
		return have
	case t.collect == collectNone:
		id := b.portID(at)
		b.add(id, t.at, ids, "none").Set("set", flow.NewText(t.at, "${true}"))
		return value{id: id}
	}
	v := b.collect(at, ids, have)
	if t.optional {
		v = b.optional(at, v)
	}
	return v
}

// haveOf returns what there is of an attribute, as the port takes it. It has a step of its own if it is one of several
// sources, or has to match.
func (b builder) haveOf(at port, others bool) value {
	t := &b.all[at.step].takes[at.take]
	many, given := b.have[t.name]
	if !given {
		return value{}
	}
	v := value{text: "input.have." + t.name}
	if many {
		v.text = "input.haveAll." + t.name
	}
	if t.match != nil {
		id := b.portID(at) + "--" + haveID
		o := b.add(id, t.at, nil, "")
		if many {
			matching := v.text + ".filter(value, " + t.match.Text() + "\n)"
			o.Set("when", flow.NewText(t.at, "size("+matching+") > 0")).Set("set", flow.NewText(t.at, "${"+matching+"}"))
		} else {
			o.Set("let", flow.NewObject(t.at).Set("value", flow.NewText(t.at, "${"+v.text+"}"))).
				Set("when", t.match).Set("set", flow.NewText(t.at, "${value}"))
		}
		return value{id: id, text: stepOf(id) + ".output"}
	}
	if others {
		id := haveID + "--" + t.name
		b.add(id, t.at, nil, "").Set("set", flow.NewText(t.at, "${"+v.text+"}"))
		return value{id: id, text: stepOf(id) + ".output"}
	}
	switch {
	case many && t.collect == collectFirst:
		v.text += "[0]"
	case many && t.collect == collectLast:
		v.text += "[size(" + v.text + ") - 1]"
	case !many && (t.collect == collectSome || t.collect == collectAll):
		v.text = "[" + v.text + "]"
	}
	return v
}

// collect adds the step that has what a port takes of several values.
func (b builder) collect(at port, ids []string, have value) value {
	t := &b.all[at.step].takes[at.take]
	many := b.have[t.name]
	id := b.portID(at)
	if len(ids) == 1 && t.isChoice() && !many {
		return value{id: ids[0], text: stepOf(ids[0]) + ".output"}
	}
	// The values are as old as the ends of their providers, since one decision may see several. What there is, is the
	// oldest.
	ended, sources := make([]string, len(ids)), b.sources[at]
	for k, one := range ids {
		order := "0"
		if source := k - (len(ids) - len(sources)); source >= 0 {
			order = stepOf(b.all[sources[source]].id) + ".order"
		}
		ended[k] = fmt.Sprintf(`{"step": %s, "order": %s}`, stepOf(one), order)
	}
	if many { // the list that there is comes first, and counts as its values
		ended = ended[1:]
	}
	end := func(relation string) string {
		return fmt.Sprintf("ended.filter(v, ended.all(w, v.order %s w.order))[0].step.output", relation)
	}
	join, text := "all", "ended.map(v, v.step.output)"
	switch t.collect {
	case collectFirst:
		join, text = "any", end("<=")
	case collectAll:
		join = "every"
	case collectLast:
		text = end(">=")
	default: // some, and none: all that there is
	}
	if many {
		text = ofMany(t.collect, stepOf(have.id), text)
	}
	list := "[" + strings.Join(ended, ", ") + `].filter(v, v.step.status == "completed")`
	b.add(id+"--all", t.at, ids, join).
		Set("let", flow.NewObject(t.at).Set("ended", flow.NewText(t.at, "${"+list+"}"))).
		Set("set", flow.NewText(t.at, "${"+text+"}"))
	v := value{id: id + "--all", text: stepOf(id+"--all") + ".output"}
	if t.collect == collectSome || t.collect == collectLast {
		v.soFar, v.ended = text, list
	}
	return v
}

// ofMany returns the expression for what is collected of a list that there is, and of what the expression otherwise
// collects from providers.
func ofMany(mode collect, have, otherwise string) string {
	given := have + `.status == "completed"`
	switch mode {
	case collectFirst:
		return fmt.Sprintf("%s ? %s.output[0] : %s", given, have, otherwise)
	case collectLast:
		return fmt.Sprintf("size(ended) > 0 ? %s : %s.output[size(%[2]s.output) - 1]", otherwise, have)
	default:
		return fmt.Sprintf("(%s ? %s.output : []) + %s", given, have, otherwise)
	}
}

// optional adds the steps with which a port has its default if there is no value, or none in time.
func (b builder) optional(at port, given value) value {
	t := &b.all[at.step].takes[at.take]
	id := b.portID(at)
	needs := []string{given.id, id + "--default"}
	b.add(id+"--default", t.at, []string{given.id}, "none").Set("set", flow.NewText(t.at, "${true}"))
	if t.within != nil {
		needs = append(needs, id+"--within")
		b.add(id+"--within", t.at, b.required(at.step), "every").Set("wait", t.within)
	}
	lets := flow.NewObject(t.at).Set("otherwise", t.otherwise())
	otherwise := "otherwise"
	if t.within != nil && given.soFar != "" { // what is there when the time is over counts
		lets.Set("ended", flow.NewText(t.at, "${"+given.ended+"}"))
		there := "size(ended) > 0"
		if have := b.haveOf(at, true); have.id != "" && b.have[t.name] {
			there += " || " + stepOf(have.id) + `.status == "completed"`
		}
		otherwise = fmt.Sprintf("(%s ? %s : otherwise)", there, given.soFar)
	}
	text := fmt.Sprintf(`${%s.status == "completed" ? %s : %s}`, stepOf(given.id), given.text, otherwise)
	b.add(id, t.at, needs, "any").Set("let", lets).Set("set", flow.NewText(t.at, text))
	return value{id: id, text: stepOf(id) + ".output"}
}

// required returns the steps that have what a step needs in any case.
func (b builder) required(i int) (ids []string) {
	for k := range b.all[i].takes {
		if t := &b.all[i].takes[k]; t.optional || t.fixed {
			continue
		}
		if v := b.take(port{i, k}); v.id != "" {
			ids = append(ids, v.id)
		}
	}
	return ids
}
