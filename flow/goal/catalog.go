// Package goal plans: of a catalog of steps that take and give attributes, it finds those that lead from what there is
// to what is wanted. docs/goals.md describes catalogs for their authors.
//
// The plan becomes a flow, which is executed as any other: its log, tests and diagrams are those of flows.
//
//	document ── Parse ──▶ Catalog ── Plan(want, have) ──▶ Plan ── Document ──▶ flow
//	            faults                fixpoint, choice, removal    one node for each step and value
//
// It is pure: the same catalog, goals and names always have the same plan.
package goal

import (
	"crypto/sha256"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/schema"
)

// The limits of catalogs.
const (
	MaxSteps      = 100
	MaxAttributes = 500
	// MaxPorts limits what a step takes, and what it gives, and MaxProviders the steps that give an attribute.
	MaxPorts     = 20
	MaxProviders = 20
	// MaxWant limits the goals of a plan.
	MaxWant = 20

	maxName  = 64
	maxCosts = 1_000_000
)

// Catalog is a compiled document: steps, by what they take and give.
type Catalog struct {
	Name        string
	Description string

	root       *flow.Node
	attributes map[string]*flow.Node // their schemas
	steps      []step
	byID       map[string]int
	// providers are the steps that give an attribute, the first choice first.
	providers map[string][]int
	digest    [sha256.Size]byte
	size      int
}

// step is a step of a catalog.
type step struct {
	id    string
	node  *flow.Node
	cost  int
	takes []take
	gives []give
	// child is the catalog that is planned again for the step, and want its goals there.
	child string
	want  []string
}

// collect says which values of an attribute a step takes, if there are several.
type collect string

const (
	collectFirst collect = "first"
	collectLast  collect = "last"
	collectSome  collect = "some"
	collectAll   collect = "all"
	collectNone  collect = "none"
)

// take is an attribute that a step takes, or a value that it always has.
type take struct {
	name                     string
	at                       *flow.Node
	collect                  collect
	optional, each, together bool
	within, match            *flow.Node
	// value is that of a constant or of what is known of the run, and the default of what is optional.
	value *flow.Node
	fixed bool // whether the value stands without an attribute
}

// isNeeded reports whether the step cannot run without a value.
func (t *take) isNeeded() bool { return !t.fixed && !t.optional && t.collect != collectNone }

// isChoice reports whether one provider is enough.
func (t *take) isChoice() bool { return t.collect == collectFirst && !t.together }

// give is an attribute that a step gives.
type give struct {
	name string
	at   *flow.Node
	from *flow.Node // an expression; nil for the field of the result
}

// actions are the fields of a step that are those of a flow's step.
var actions = []string{
	"call", "http", "flow", "set", "deployment", "retry", "timeout", "attemptTimeout", "async", "undo", "input",
}

// Parse compiles a catalog in YAML or JSON. If it has faults, the error is a [flow.Faults] with all of them.
func Parse(document []byte) (*Catalog, error) {
	root, faults := flow.ReadNodes(document)
	if root == nil {
		return nil, faults.Sorted()
	}
	r := reader{&faults, map[*flow.Node]bool{}}
	c := r.catalog(root)
	text := root.Sorted(r.objects).JSON()
	c.digest, c.size = sha256.Sum256(text), memoryPerByte*len(text)
	if len(faults) == 0 {
		c.check(&faults)
	}
	if len(faults) > 0 {
		return nil, faults.Sorted()
	}
	return c, nil
}

// memoryPerByte estimates the memory of a catalog: that of its nodes, with their paths.
const memoryPerByte = 64

// Size returns an estimate of the memory that the catalog takes, in bytes.
func (c *Catalog) Size() int { return c.size }

// Digest returns the SHA-256 of the document's values as JSON. The order of the fields of catalogs and steps, and of
// what these take and give, does not count; that of the steps does.
func (c *Catalog) Digest() []byte { return c.digest[:] }

// reader reads the nodes of a catalog.
type reader struct {
	*flow.Faults

	// objects are those that were read as ours: the order of their fields means nothing.
	objects map[*flow.Node]bool
}

// isObject checks that a value is an object.
func (r reader) isObject(n *flow.Node) bool {
	if !n.IsObject() {
		r.Add(n, flow.CodeType, "want an object instead of %s", n.Kind())
	}
	return n.IsObject()
}

// fields checks that a value is an object with no other fields than those.
func (r reader) fields(n *flow.Node, known ...string) bool {
	if !r.isObject(n) {
		return false
	}
	r.objects[n] = true
	set := map[string]bool{}
	for _, name := range known {
		set[name] = true
	}
	for i, name := range n.Names() {
		if !set[name] {
			r.Add(n.Items()[i], flow.CodeUnknown, "there is no field %q here%s", name, flow.Nearest(name, set))
		}
	}
	return true
}

// text returns a text; empty if it is missing or a fault.
func (r reader) text(n *flow.Node) string {
	if n != nil && !n.IsText() {
		r.Add(n, flow.CodeType, "want a text instead of %s", n.Kind())
	}
	if !n.IsText() {
		return ""
	}
	return n.Text()
}

func (r reader) flag(n *flow.Node) bool {
	if n != nil && n.Kind() != "a boolean" {
		r.Add(n, flow.CodeType, "want true or false instead of %s", n.Kind())
	}
	return n != nil && n.Text() == "true"
}

// idPattern is what IDs of steps may be: two dashes join them with attributes, in the IDs of a plan.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9_]+(-[A-Za-z0-9_]+)*$`)

func (r reader) catalog(root *flow.Node) *Catalog {
	c := &Catalog{root: root, attributes: map[string]*flow.Node{}, byID: map[string]int{}, providers: map[string][]int{}}
	if !r.fields(root, "catalog", "describe", "deployment", "defaults", "attributes", "steps") {
		return c
	}
	c.Name, c.Description = r.text(root.Get("catalog")), r.text(root.Get("describe"))
	if !flow.ValidName(c.Name) {
		r.Add(orNode(root.Get("catalog"), root), flow.CodeMissing,
			`want "catalog", a name of letters, digits, - and _`)
	}
	r.schemas(c, root.Get("attributes"))
	n := root.Get("steps")
	if !n.IsObject() || len(n.Names()) == 0 || len(n.Names()) > MaxSteps {
		r.Add(orNode(n, root), flow.CodeMissing, `want "steps", an object with 1 to %d steps`, MaxSteps)
		return c
	}
	for i, id := range n.Names() {
		c.byID[id] = i
		c.steps = append(c.steps, r.step(id, n.Items()[i]))
	}
	r.provide(c)
	for i, id := range n.Names() {
		_, declared := c.attributes[id]
		if declared || len(c.providers[id]) > 0 {
			r.Add(n.Items()[i], flow.CodeConflict, "%s is an attribute already: goals name both", id)
		}
	}
	return c
}

// schemas reads the attributes.
func (r reader) schemas(c *Catalog, n *flow.Node) {
	if n == nil || !r.isObject(n) {
		return
	}
	if len(n.Names()) > MaxAttributes {
		r.Add(n, flow.CodeType, "%d attributes; the limit is %d", len(n.Names()), MaxAttributes)
	}
	for i, name := range n.Names() {
		at := n.Items()[i]
		r.attribute(name, at)
		if _, err := schema.Compile(at.JSON()); err != nil {
			r.Add(at, flow.CodeType, "it is not a JSON Schema: %v", err)
		}
		c.attributes[name] = at
	}
}

// attribute checks the name of an attribute.
func (r reader) attribute(name string, at *flow.Node) {
	if len(name) > maxName || !flow.IsName(name) {
		r.Add(at, flow.CodeType, "%q cannot be the name of an attribute: want a letter, and letters, digits and _, "+
			"up to %d, and none that expressions know already", name, maxName)
	}
}

func (r reader) step(id string, n *flow.Node) step {
	s := step{id: id, node: n, cost: 1}
	known := append([]string{"describe", "takes", "gives", "when", "cost", "concurrency", "tolerate"}, actions...)
	if len(id) > maxName || !idPattern.MatchString(id) || id == goalID || id == haveID {
		r.Add(n, flow.CodeType, "the ID %q is not 1 to %d letters, digits, _ and single dashes, or one of %s and %s",
			id, maxName, goalID, haveID)
	}
	if !r.fields(n, known...) {
		return s
	}
	if cost := n.Get("cost"); cost != nil {
		s.cost = r.cost(cost)
	}
	r.ports(&s, n)
	if !slices.ContainsFunc(s.takes, func(t take) bool { return t.each }) {
		for _, name := range []string{"concurrency", "tolerate"} {
			if field := n.Get(name); field != nil {
				r.Add(field, flow.CodeConflict, "%s is for a step that takes something with each", name)
			}
		}
	}
	r.child(&s)
	return s
}

// cost reads a cost.
func (r reader) cost(n *flow.Node) int {
	cost, err := strconv.Atoi(n.Text())
	if n.IsText() || err != nil || cost < 0 || cost > maxCosts {
		r.Add(n, flow.CodeType, "want a whole number from 0 to %d", maxCosts)
	}
	return cost
}

// ports reads what a step takes and gives.
func (r reader) ports(s *step, n *flow.Node) {
	for _, ports := range []string{"takes", "gives"} {
		o := n.Get(ports)
		if o == nil || !r.isObject(o) {
			continue
		}
		if len(o.Names()) > MaxPorts {
			r.Add(o, flow.CodeType, "%d attributes; the limit is %d", len(o.Names()), MaxPorts)
			continue
		}
		for i, name := range o.Names() {
			r.attribute(name, o.Items()[i])
			if ports == "takes" {
				s.takes = append(s.takes, r.take(name, o.Items()[i]))
			} else {
				s.gives = append(s.gives, r.give(name, o.Items()[i]))
			}
		}
	}
	for _, g := range s.gives {
		if n.Get("takes").Get(g.name) != nil {
			r.Add(g.at, flow.CodeConflict, "%s takes %s, and cannot give it too: give another attribute", s.id, g.name)
		}
	}
}

// child reads "flow: {catalog, want}".
func (r reader) child(s *step) {
	n := s.node.Get("flow")
	if !n.IsObject() || !r.fields(n, "catalog", "want") {
		return
	}
	if s.child = r.text(n.Get("catalog")); s.child == "" {
		r.Add(n, flow.CodeMissing, `want "catalog", the name of a catalog`)
	}
	for _, name := range []string{"deployment", "input"} {
		if field := s.node.Get(name); field != nil {
			r.Add(field, flow.CodeConflict,
				"a child that is planned has what the step takes, and its plan says who executes it: leave out %s", name)
		}
	}
	s.want = r.names(n.Get("want"))
	if len(s.want) == 0 {
		r.Add(n, flow.CodeMissing, `want "want", what the child is to have`)
	}
}

// names returns a list of texts; a single one counts as a list.
func (r reader) names(n *flow.Node) (list []string) {
	items := []*flow.Node{n}
	switch {
	case n == nil:
		return nil
	case n.IsList():
		items = n.Items()
	}
	for _, item := range items {
		if name := r.text(item); name != "" {
			list = append(list, name)
		}
	}
	return list
}

func (r reader) take(name string, n *flow.Node) take {
	t := take{name: name, at: n, collect: collectFirst}
	if !r.fields(n, "collect", "optional", "default", "within", "match", "each", "together", "const", "meta") {
		return t
	}
	if value := n.Get("const"); value != nil {
		t.value, t.fixed = value.Literal(), true
	}
	if meta := n.Get("meta"); meta != nil {
		t.value, t.fixed = flow.NewText(meta, "${"+r.text(meta)+"}"), true
	}
	if t.fixed {
		if len(n.Names()) > 1 {
			r.Add(n, flow.CodeConflict, "const and meta stand alone: %s has other fields as well", name)
		}
		return t
	}
	t.optional, t.each, t.together = r.flag(n.Get("optional")), r.flag(n.Get("each")), r.flag(n.Get("together"))
	t.within, t.match = n.Get("within"), n.Get("match")
	modes := []string{
		string(collectFirst), string(collectLast), string(collectSome), string(collectAll), string(collectNone),
	}
	if mode := n.Get("collect"); mode != nil {
		t.collect = collect(r.text(mode))
		if !slices.Contains(modes, string(t.collect)) {
			r.Add(mode, flow.CodeType, "%q is none of %s", t.collect, strings.Join(modes, ", "))
		}
	}
	if d := n.Get("default"); d != nil {
		t.value = d.Literal()
	}
	r.checkTake(&t)
	return t
}

// checkTake checks which fields go with each other.
func (r reader) checkTake(t *take) {
	n := t.at
	for _, name := range []string{"default", "within"} {
		if field := n.Get(name); field != nil && !t.optional {
			r.Add(field, flow.CodeConflict, "%s is for what is optional: add optional: true", name)
		}
	}
	if d, err := time.ParseDuration(r.text(t.within)); t.within != nil && (err != nil || d <= 0) {
		r.Add(t.within, flow.CodeType, `want a duration such as "2s"`)
	}
	if t.collect == collectNone && (t.optional || t.each) {
		r.Add(n, flow.CodeConflict, "with collect: none there is no value, so it is neither optional nor taken each")
	}
	if t.together && t.collect != collectFirst {
		r.Add(n.Get("together"), flow.CodeConflict,
			"together is for collect: first; the other modes start all providers anyway")
	}
	if t.match != nil && r.text(t.match) == "" {
		r.Add(t.match, flow.CodeMissing, "want an expression over value")
	}
}

func (r reader) give(name string, n *flow.Node) give {
	g := give{name: name, at: n}
	if r.fields(n, "from") && r.text(n.Get("from")) != "" {
		g.from = n.Get("from")
	}
	return g
}

// provide finds the providers of each attribute, and what nobody gives.
func (r reader) provide(c *Catalog) {
	for i, s := range c.steps {
		for _, g := range s.gives {
			c.providers[g.name] = append(c.providers[g.name], i)
			if len(c.providers[g.name]) == MaxProviders+1 {
				r.Add(g.at, flow.CodeType, "more than %d steps give %s", MaxProviders, g.name)
			}
		}
	}
	for name := range c.providers {
		slices.SortFunc(c.providers[name], func(a, b int) int {
			if d := c.steps[a].cost - c.steps[b].cost; d != 0 {
				return d
			}
			return strings.Compare(c.steps[a].id, c.steps[b].id)
		})
	}
	for _, s := range c.steps {
		for _, t := range s.takes {
			if _, known := c.attributes[t.name]; !known && len(c.providers[t.name]) == 0 && t.isNeeded() {
				r.Add(t.at, flow.CodeUnknown, "no step gives %s, and it is not in attributes%s", t.name,
					flow.Nearest(t.name, c.providers))
			}
		}
	}
}

// check compiles a plan of each step alone, which has all that it takes: so the faults are those of flows.
func (c *Catalog) check(faults *flow.Faults) {
	b := NewBudget()
	for i := range c.steps {
		p := c.alone(i, b)
		if b.looks < 0 {
			faults.Add(c.root.Get("steps"), flow.CodeType, "the steps offer too many ways to what they give: divide the catalog")
			return
		}
		if _, err := flow.Compile(p.document(c.steps[i].node, "")); err != nil {
			if list, ok := err.(flow.Faults); ok { //nolint:errorlint // it is not wrapped
				*faults = append(*faults, list...)
			}
		}
	}
}

func orNode(n, otherwise *flow.Node) *flow.Node {
	if n == nil {
		return otherwise
	}
	return n
}
