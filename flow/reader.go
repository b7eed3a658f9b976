package flow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow/condition"
)

// reader reads the nodes of a document, and collects its faults.
type reader struct {
	faults *Faults
	// objects are those that were read as ours: the order of their fields means nothing.
	objects map[*node]bool
	// partial is set if a fault hides which steps need which others: what follows from that is not reported.
	partial    bool
	ids        map[string]int // of all steps
	memory     *int           // of all that is compiled, estimated
	defaults   defaults
	deployment string
	drain      bool
	// lets are the names that the step has which is being read.
	lets lets
	uses []use
	// respondsTo are the steps whose requests are answered.
	respondsTo []use
	// bodies are the readers of the bodies of steps, and body is what this one reads if it is one of them.
	bodies []*reader
	body   *bodyReader
	// outside are the reads of a body that are not of its own steps.
	outside []outsideRead
}

// defaults are what steps have unless they say otherwise.
type defaults struct {
	retry                   json.RawMessage
	timeout, attemptTimeout time.Duration
}

func (r *reader) readDefaults(n *node) (d defaults) {
	if n == nil {
		return d
	}
	o := r.object(n)
	d.retry = r.retry(o.get("retry"))
	d.timeout, d.attemptTimeout = o.duration("timeout"), o.duration("attemptTimeout")
	o.end()
	return d
}

// object reads the fields of an object, and knows which were read.
type object struct {
	r    *reader
	node *node
	read map[string]bool
}

// object begins to read an object. A value of another type is a fault, and has no fields.
func (r *reader) object(n *node) *object {
	if n.kind != kindObject {
		r.faults.add(n, CodeType, "want an object instead of %s", n.kind)
	}
	r.objects[n] = true
	return &object{r, n, map[string]bool{}}
}

// short begins to read an object, or a text that stands for one with a single field.
func (r *reader) short(n *node, field string) *object {
	if n.kind == kindText {
		n = &node{kind: kindObject, line: n.line, column: n.column, names: []string{field}, items: []*node{n}}
	}
	return r.object(n)
}

// get returns a field, or nil.
func (o *object) get(name string) *node {
	o.read[name] = true
	return o.node.get(name)
}

// end reports the fields that nobody has read.
func (o *object) end() {
	for i, name := range o.node.names {
		if !o.read[name] {
			o.r.faults.add(o.node.items[i], CodeUnknown, "there is no field %q here%s", name,
				nearest(o.r.faults, name, o.read))
		}
	}
}

// prose returns a text in which anything may stand; empty if it is missing or a fault.
func (o *object) prose(name string) string {
	n := o.get(name)
	if n == nil {
		return ""
	}
	if n.kind != kindText {
		o.r.faults.add(n, CodeType, "want a text instead of %s", n.kind)
		return ""
	}
	return n.text
}

// text returns a text that is taken as it is; empty if it is missing or a fault.
func (o *object) text(name string) string {
	text := o.prose(name)
	if text != "" && !o.r.isPlain(o.node.get(name)) {
		return ""
	}
	return text
}

// isPlain reports whether a text has no expressions. One that has is a fault: it would be taken as it is.
func (r *reader) isPlain(n *node) bool {
	if strings.Contains(n.text, "${") {
		r.faults.add(n, CodeExpression, `"${" is no expression here, the text is taken as it is: write the value itself`)
		return false
	}
	return true
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,` + strconv.Itoa(maxName) + `}$`)

// ValidName reports whether a text can be the name of a flow, or the ID of a step.
func ValidName(s string) bool { return namePattern.MatchString(s) }

// name returns a text that is used as a name.
func (o *object) name(name string) string {
	text := o.text(name)
	if n := o.node.get(name); n != nil && n.kind == kindText && (n.text == "" || len(n.text) > maxName) {
		o.r.faults.add(n, CodeType, "want a name of 1 to %d bytes", maxName)
	} else if text != "" {
		o.check(name, entities.ValidateName(name, text))
	}
	return text
}

// check adds a fault at a field if there is an error.
func (o *object) check(name string, err error) {
	if err != nil {
		o.r.faults.add(o.node.get(name), CodeType, "%v", err)
	}
}

// deployment returns the field "deployment"; empty if it is missing.
func (o *object) deployment() string {
	id := o.name("deployment")
	if id != "" {
		o.check("deployment", entities.ValidateID("deployment", id))
	}
	return id
}

// choice returns one of several texts, by default the first.
func (o *object) choice(name string, options ...string) string {
	text := cmp.Or(o.text(name), options[0])
	if !slices.Contains(options, text) {
		o.r.faults.add(o.node.get(name), CodeType, "%q is none of %s", text, strings.Join(options, ", "))
		return options[0]
	}
	return text
}

// flag returns a boolean; false if it is missing or a fault.
func (o *object) flag(name string) bool {
	n := o.get(name)
	if n != nil && n.kind != kindBool {
		o.r.faults.add(n, CodeType, "want true or false instead of %s", n.kind)
	}
	return n != nil && n.text == "true"
}

// count returns a whole number from least to most; otherwise if it is missing or a fault.
func (o *object) count(name string, otherwise, least, most int) int {
	n := o.get(name)
	if n == nil {
		return otherwise
	}
	v, err := strconv.Atoi(n.text)
	if n.kind != kindNumber || err != nil || v < least || v > most {
		o.r.faults.add(n, CodeType, "want a whole number from %d to %d", least, most)
		return otherwise
	}
	return v
}

// maxDuration limits every duration, as the function contract does.
const maxDuration = 10 * 365 * 24 * time.Hour

// duration returns a duration such as "90s" or "48h"; 0 if it is missing or a fault.
func (o *object) duration(name string) time.Duration {
	n := o.get(name)
	if n == nil {
		return 0
	}
	d, err := time.ParseDuration(n.text)
	if n.kind != kindText || err != nil || d <= 0 || d > maxDuration {
		o.r.faults.add(n, CodeType, `want a duration such as "90s" or "48h", above 0 and at most ten years`)
		return 0
	}
	return d
}

// list returns the items of a list of at most n items; a single value counts as a list of one.
func (o *object) list(name string, most int) []*node {
	n := o.get(name)
	switch {
	case n == nil:
		return nil
	case n.kind != kindList:
		return []*node{n}
	case len(n.items) > most:
		o.r.faults.add(n, CodeType, "%d items; the limit is %d", len(n.items), most)
		return nil
	}
	return n.items
}

// stepIDs returns the positions of the steps that a list names.
func (o *object) stepIDs(name string) (ids []int) {
	for _, n := range o.list(name, MaxSteps) {
		if i, ok := o.r.stepID(n); ok && !slices.Contains(ids, i) {
			ids = append(ids, i)
		}
	}
	return ids
}

func (r *reader) stepID(n *node) (int, bool) {
	if n.kind != kindText {
		r.partial = true
		r.faults.add(n, CodeType, "want the ID of a step instead of %s", n.kind)
		return 0, false
	}
	i, ok := r.ids[n.text]
	if !ok {
		r.partial = true
		r.faults.add(n, CodeUnknown, "there is no step %q%s", n.text, nearest(r.faults, n.text, r.ids))
	}
	return i, ok
}

// expression reads a field that is an expression by nature.
func (o *object) expression(name string, u usage) *expression {
	n := o.get(name)
	switch {
	case n == nil:
		return nil
	case n.kind != kindText:
		o.r.faults.add(n, CodeType, "want an expression in CEL, as a text, instead of %s", n.kind)
		return nil
	case n.text == "":
		o.r.faults.add(n, CodeMissing, "want an expression in CEL, and this one is empty")
		return nil
	case strings.Contains(n.text, "${"):
		o.r.faults.add(n, CodeExpression, `this field is an expression: leave out "${" and "}"`)
		return nil
	}
	e, err := compile(n.text, o.r.lets)
	if err != nil {
		o.r.faults.add(n, CodeExpression, "%v", err)
		return nil
	}
	o.r.use(use{n, e, u})
	return e
}

// condition reads a field that is an expression which is true or false.
func (o *object) condition(name string, u usage) *expression {
	e := o.expression(name, u)
	if e != nil && e.isNoCondition {
		o.r.faults.add(o.node.get(name), CodeExpression, "want a condition: %s is neither true nor false", quote(e.text))
	}
	return e
}

// template reads a value that may have expressions.
func (r *reader) template(n *node, u usage) *template {
	return newTemplate(n, r.faults, r.lets, func(at *node, e *expression) { r.use(use{at, e, u}) })
}

// template reads a field that may have expressions; nil if it is missing.
func (o *object) template(name string, u usage) *template {
	n := o.get(name)
	if n == nil {
		return nil
	}
	return o.r.template(n, u)
}

// elsewhere are names that other systems have for fields of ours.
var elsewhere = map[string]string{
	"workflow": "flow", "sub_workflow": "flow", "task": "call", "function": "call", "run": "call", "sleep": "wait",
	"depends_on": "needs", "dependsOn": "needs", "after": "needs", "if": "when", "foreach": "map", "compensate": "undo",
	"on_failure": "catch", "description": "describe",
}

// nearest suggests the known name that is most like the given one, if one is. It does not search for names that are too
// long, and faults that are not reported.
func nearest[T any](faults *Faults, name string, known map[string]T) string {
	if len(name) > maxName || len(*faults) >= maxFaults {
		return ""
	}
	if best := nearestOf(name, known); best != "" {
		return fmt.Sprintf("; do you mean %q?", best)
	}
	return ""
}

// nearestOf returns the known name that is meant by another one; empty if none is like it.
func nearestOf[T any](name string, known map[string]T) string {
	if meant, ok := elsewhere[name]; ok {
		if _, ok := known[meant]; ok {
			return meant
		}
	}
	best, least := "", max(2, len(name)/3)+1
	for candidate := range known {
		d := distance(strings.ToLower(name), strings.ToLower(candidate))
		if d < least || d == least && best != "" && candidate < best {
			best, least = candidate, d
		}
	}
	return best
}

// Nearest suggests the known name that is most like the given one, as "; do you mean …?", or is empty.
func Nearest[T any](name string, known map[string]T) string { return nearest(&Faults{}, name, known) }

// distance is how many letters have to be added, removed or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost++
			}
			before, row[j+1] = row[j+1], min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func orNode(n, otherwise *node) *node {
	if n == nil {
		return otherwise
	}
	return n
}

// use notes an expression that is compiled.
func (r *reader) use(u use) {
	r.uses = append(r.uses, u)
	*r.memory += condition.ProgramMemory(u.expr.text)
}
