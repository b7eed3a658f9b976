package flow

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
)

// kinds are the fields of which a step has exactly one, in the order of the documentation.
var kinds = []actionKind{
	kindCall, kindFlow, kindHTTP, kindWait, kindSignal, kindHook, kindApproval, kindStart, kindEmit, kindRespond, kindSet,
	kindComplete, kindFail, kindMap, kindLoop, kindPlan,
}

// readStep reads one step.
func (r *reader) readStep(id string, n *node) step {
	self := r.ids[id]
	s := step{id: id, name: id, at: n, join: joinAll}
	if n.kind != kindObject {
		r.faults.add(n, CodeType, "want an object with one of %s instead of %s", kindNames(), n.kind)
		return s
	}
	o := r.object(n)
	o.prose("describe")
	s.needs = o.stepIDs("needs")
	s.join = join(o.choice("join",
		string(joinAll), string(joinAny), string(joinEvery), string(joinNone), string(joinAlways)))
	r.lets = r.readLets(o.get("let"), usage{step: self})
	defer func() { r.lets = nil }()
	s.when = o.condition("when", usage{step: self})
	s.action = r.readAction(o, usage{step: self})
	for _, c := range o.list("catch", maxCatches) {
		s.catches = append(s.catches, r.readCatch(c))
	}
	if undo := o.get("undo"); undo != nil {
		u := r.object(undo)
		a := r.readAction(u, usage{step: self, place: placeUndo})
		u.end()
		s.undo = &a
		if !a.kind.isWork() && a.kind != "" {
			r.faults.add(undo, CodeType, "only call, flow and http can undo a step")
		}
		if k := s.action.kind; !k.isWork() && k != "" {
			r.faults.add(undo, CodeConflict, "only call, flow and http can be undone, and this is a %s", k)
		}
	}
	o.end()
	return s
}

// isWork reports whether somebody else does something for a step of the kind, which may have to be undone.
func (k actionKind) isWork() bool { return k == kindCall || k == kindFlow || k == kindHTTP }

func kindNames() string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}

// readAction reads what a step does, and the settings of that.
func (r *reader) readAction(o *object, u usage) action {
	var a action
	for _, k := range kinds {
		n := o.get(string(k))
		switch {
		case n == nil:
		case a.kind != "":
			r.faults.add(n, CodeConflict, "a step is one of %s; this one is a %s already", kindNames(), a.kind)
		default:
			a.kind = k
		}
	}
	if a.kind == "" {
		r.readNoKind(o)
		return a
	}
	r.readKind(o, &a, u)
	return a
}

// kindFields are the fields that only steps of some kinds have, beside the one of the kind.
var kindFields = []string{
	"deployment", "input", "retry", "timeout", "attemptTimeout", "async", "limits", "priority", "schema", "code",
	"do", "key", "attributes", "delay", "concurrency", "tolerate", "collect", "allow", "repairs",
}

// readNoKind reports that a step does nothing, unless the name of a field is one of a kind with a mistake, which is
// reported as such. Fields that are fields of a kind are none.
func (r *reader) readNoKind(o *object) {
	known, misspelled := map[string]bool{}, false
	for _, k := range kinds {
		known[string(k)] = true
	}
	for _, name := range kindFields {
		o.get(name)
	}
	for _, name := range o.node.names {
		own := o.read[name] || name == "catch" || name == "undo"
		misspelled = misspelled || !own && len(name) <= maxName && nearestOf(name, known) != ""
	}
	if !misspelled {
		r.faults.add(o.node, CodeMissing, "want one of %s", kindNames())
	}
}

// readSet reads "set: VALUE", the schema of the value, and the code of the failure if there is none.
func (r *reader) readSet(o *object, a *action, u usage) {
	a.input = r.template(o.get(string(kindSet)), u)
	_, a.schema = r.schema(o.get("schema"))
	if a.code = o.text("code"); a.code != "" {
		o.check("code", entities.ValidateName("the code", a.code))
	}
}

// readStarted reads "flow: NAME" or "start: NAME". What undoes a step is not cancelled, and so has no grace.
func (r *reader) readStarted(o *object, a *action, u usage) {
	a.name, a.deployment, a.timeout = o.name(string(a.kind)), o.deployment(), o.duration("timeout")
	switch {
	case a.kind == kindStart:
		a.delay = o.duration("delay")
	case u.place == placeStep:
		a.grace = cmp.Or(o.duration("grace"), DefaultGrace)
	}
	r.readAttributes(o, a, u)
	r.readKey(o, a, u)
	a.input = o.template("input", u)
}

func (r *reader) readKind(o *object, a *action, u usage) {
	n := o.get(string(a.kind))
	switch a.kind {
	case kindCall:
		r.readCall(o, kindCall, a, u)
		r.readLimits(o, a, u)
	case kindHTTP:
		r.readAttempts(o, a)
		r.readLimits(o, a, u)
		r.readHTTP(n, a, u)
	case kindHook:
		r.readHook(n, a, u)
	case kindApproval:
		r.readApproval(n, a, u)
	case kindFlow, kindStart:
		r.readStarted(o, a, u)
	case kindEmit:
		r.readEmit(n, a, u)
	case kindRespond:
		r.readRespond(n, a, u)
	case kindWait:
		r.readWait(n, a, u)
	case kindSignal:
		r.readSignal(n, a, u)
	case kindMap, kindLoop, kindPlan:
		a.many = r.readMany(o, a.kind, u)
	case kindSet:
		r.readSet(o, a, u)
	case kindComplete:
		a.input = r.template(n, u)
	case kindFail:
		r.readFail(n, a, u)
	}
}

// readFail reads "fail: {code, message}".
func (r *reader) readFail(n *node, a *action, u usage) {
	f := r.object(n)
	if a.code = f.text("code"); a.code != "" {
		f.check("code", entities.ValidateName("the code", a.code))
	}
	if a.message = f.template("message", u); a.message == nil {
		r.faults.add(n, CodeMissing, `want a "message"`)
	}
	f.end()
}

// readCall reads a call; its name is in the field of the kind.
func (r *reader) readCall(o *object, kind actionKind, a *action, u usage) {
	a.name = o.name(string(kind))
	if a.deployment = o.deployment(); a.deployment == "" {
		a.deployment = r.deployment
	}
	if a.deployment == "" && o.node.get("deployment") == nil {
		r.faults.add(o.node, CodeMissing,
			`want a "deployment", which has the function: here, or once for the flow`)
	}
	r.readAttempts(o, a)
	if a.async = o.flag("async"); a.async && a.timeout == 0 {
		r.faults.add(o.node.get("async"), CodeMissing, `an async call needs a "timeout": until when its result may be sent`)
	}
	a.input = o.template("input", u)
}

// readAttempts reads the settings of the attempts of a step.
func (r *reader) readAttempts(o *object, a *action) {
	a.retry = r.defaults.retry
	if n := o.get("retry"); n != nil {
		a.retry = r.retry(n)
	}
	a.timeout = cmp.Or(o.duration("timeout"), r.defaults.timeout)
	a.attemptTimeout = cmp.Or(o.duration("attemptTimeout"), r.defaults.attemptTimeout)
	if a.attemptTimeout != 0 && (a.attemptTimeout < time.Second || a.attemptTimeout > contract.MaxAttemptTimeout) {
		r.faults.add(orNode(o.node.get("attemptTimeout"), o.node), CodeType,
			"attemptTimeout is not between 1s and %s", contract.MaxAttemptTimeout)
	}
}

// readWait reads "wait: 1h" or "wait: {until: …}".
func (r *reader) readWait(n *node, a *action, u usage) {
	o := r.short(n, "for")
	a.pause = o.duration("for")
	a.until = o.template("until", u)
	if (o.node.get("for") == nil) == (a.until == nil) {
		r.faults.add(n, CodeMissing, `want a duration, or "until" with a time`)
	}
	o.end()
}

// maxAttempts limits the attempts that a document may ask for.
const maxAttempts = 1000

// retry reads the settings of attempts, and returns them as the contract has them.
func (r *reader) retry(n *node) json.RawMessage {
	if n == nil {
		return nil
	}
	o := r.object(n)
	policy := map[string]any{}
	if attempts := o.count("maxAttempts", 0, 1, maxAttempts); attempts > 0 {
		policy["maxAttempts"] = attempts
	}
	if f := o.get("factor"); f != nil {
		factor, err := strconv.ParseFloat(f.text, 64)
		if f.kind != kindNumber || err != nil || factor < 1 || factor > 100 {
			r.faults.add(f, CodeType, "want a number from 1 to 100")
		}
		policy["factor"] = factor
	}
	for _, name := range []string{"backoff", "maxBackoff"} {
		if d := o.duration(name); d > 0 {
			policy[name] = d.String()
		}
	}
	o.end()
	return mustJSON(policy)
}

func (r *reader) readCatch(n *node) (c catch) {
	o := r.object(n)
	for _, code := range o.list("codes", maxCatches) {
		if code.kind != kindText {
			r.faults.add(code, CodeType, "want the code of a failure instead of %s", code.kind)
			continue
		}
		if r.isPlain(code) {
			c.codes = append(c.codes, code.text)
		}
	}
	if to := o.get("to"); to != nil {
		if i, ok := r.stepID(to); ok {
			c.to = i + 1
		}
	}
	c.then = outcome(o.choice("then", string(thenContinue), string(thenComplete), string(thenFail)))
	if c.to == 0 && c.then == thenFail && o.node.get("to") == nil {
		r.faults.add(n, CodeConflict, "a catch without a step that fails the run does what happens without it: leave it out")
	}
	o.end()
	return c
}

// fits reports whether the catch is for failures with the code.
func (c catch) fits(code string) bool { return len(c.codes) == 0 || slices.Contains(c.codes, code) }

func mustJSON(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // only values that have a JSON form are given
	}
	return text
}
